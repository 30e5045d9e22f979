//! leafgate's own files that the command's user could change or read: what tells leafgate what may leave, and its secrets.
//!
//! The command runs as the user who started `run`, who is often the user of `serve`. Whoever writes the policy, a card, the lock file or a glue file decides
//! what may leave. A fixture's own text is not among them: the lock file has its hash, and leafgate holds what no longer matches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::super::out::{Failure, count};
use super::mounts::{self, Mount};
use super::shield::{How, Shield};
use super::sockets;
use crate::fixture::Registry;
use crate::policy::{Origin, Policy};

/// Links followed in one path, as the kernel has it.
const LINKS: usize = 40;

/// Where a command's files for a while are.
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];

const ANOTHER: &str =
    "has another name (a hard link), which the command could use; copy it, and name the copy";

/// What is laid, and what of it cannot be kept from the command.
#[derive(Debug, Default)]
pub(super) struct Rules {
    laid: BTreeSet<Shield>,
    /// One line for each.
    pub(super) open: Vec<String>,
    mounts: Vec<Mount>,
    /// Device and inode of each file, how it is kept, and its name.
    kept: BTreeMap<(u64, u64), (How, String)>,
}

/// What the policy names, the policy itself, and this program.
pub(super) fn of(policy: &Policy) -> Result<Rules, Failure> {
    let mut rules = Rules {
        mounts: mounts::all().map_err(|error| Failure::of(&error))?,
        ..Rules::default()
    };
    if let Some(file) = &policy.file {
        rules.add("the policy", file, How::Read);
        if let Some(folder) = own_folder(file) {
            rules.lay(folder, How::Read);
        }
    }
    rules.cards(&policy.cards_dir);
    rules.fixtures(policy)?;
    rules.ledger(&policy.ledger.dir);
    if let Some(copy) = &policy.ledger.checkpoint_copy {
        rules.copy(copy);
    }
    if let Some(tls) = &policy.listen.tls {
        rules.add("listen.tls.cert", &tls.cert, How::Read);
        rules.add("listen.tls.key", &tls.key, How::Hide);
        if let Some(roots) = &tls.client_ca {
            rules.add("listen.tls.client_ca", roots, How::Read);
        }
    }
    if let Some(intercept) = &policy.intercept {
        rules.add("intercept.ca", &intercept.ca, How::Read);
        rules.add("intercept.key", &intercept.key, How::Hide);
    }
    for (pin, host) in &policy.hosts {
        if let Some(roots) = &host.ca {
            rules.add(&format!("hosts.{}.ca", pin.as_str()), roots, How::Read);
        }
    }
    for (key, secret) in &policy.secrets {
        if let Origin::File(file) = &secret.origin {
            // The token is the client's own as well.
            let how = if key == "listen.token" {
                How::Read
            } else {
                How::Hide
            };
            rules.add(key, file, how);
        }
    }
    rules.program();
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    rules.given("standard input", stdin.as_fd());
    rules.given("standard output", stdout.as_fd());
    rules.given("standard error", stderr.as_fd());
    Ok(rules)
}

impl Rules {
    /// In the order in which they are laid.
    pub(super) fn shields(self) -> Vec<Shield> {
        self.laid.into_iter().collect()
    }

    fn add(&mut self, what: &str, path: &Path, how: How) {
        let place = |why: &str| format!("{what} ({}) {why}", path.display());
        match self.walk(path) {
            Err(why) => self.open.push(place(&why)),
            Ok(None) => {}
            Ok(Some(at)) if self.other_name(&at, how) => self.open.push(place(ANOTHER)),
            Ok(Some(at)) => {
                self.know(what, &at, how);
                self.lay(at, how);
            }
        }
    }

    fn know(&mut self, what: &str, file: &Path, how: How) {
        if let Ok(facts) = std::fs::metadata(file)
            && facts.is_file()
        {
            let name = format!("{what} ({})", file.display());
            self.kept
                .entry((facts.dev(), facts.ino()))
                .or_insert((how, name));
        }
    }

    /// A descriptor that the command gets as it is: by `/proc/self/fd` the file behind it can be opened anew, past every mount.
    fn given(&mut self, name: &str, given: BorrowedFd<'_>) {
        let Ok(facts) = rustix::fs::fstat(given) else {
            return;
        };
        let Some((how, what)) = self.kept.get(&(facts.st_dev, facts.st_ino)) else {
            return;
        };
        let opened = rustix::fs::fcntl_getfl(given).unwrap_or(OFlags::RDWR);
        let writes = opened.intersects(OFlags::WRONLY | OFlags::RDWR);
        let own = facts.st_uid == rustix::process::geteuid().as_raw();
        // By the descriptor, since the name may be in a folder that is closed to this user.
        let door = format!("/proc/self/fd/{}", given.as_raw_fd());
        if *how == How::Hide || writes || own || self.can_change(Path::new(&door)) {
            self.open.push(format!(
                "{name} is {what}, which the command could open anew by it; give it a copy or a pipe (`cat FILE |`)"
            ));
        }
    }

    /// leafgate writes another file and renames it, again and again: only the folder can be kept.
    fn copy(&mut self, file: &Path) {
        if let Some(folder) = own_folder(file) {
            self.add("ledger.checkpoint_copy", file, How::Read);
            self.lay(folder, How::Read);
        } else if std::path::absolute(file)
            .is_ok_and(|whole| whole.parent().is_some_and(|at| self.can_change(at)))
        {
            self.open.push(format!(
                "ledger.checkpoint_copy ({}) is replaced while leafgate runs, where the command works; give it a folder of its own",
                file.display()
            ));
        }
    }

    /// The folder; and what its links lead to, since leafgate follows them.
    fn cards(&mut self, dir: &Path) {
        self.add("cards.dir", dir, How::Read);
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(facts) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            // The link itself stands in a folder that is read-only by then.
            match std::fs::read_link(&path) {
                Ok(target) => self.add("a card", &dir.join(target), How::Read),
                Err(_) if facts.is_file() && facts.nlink() > 1 => {
                    self.add("a card", &path, How::Read);
                }
                Err(_) => self.know("a card", &path, How::Read),
            }
        }
    }

    /// The folder is covered; a second name of a file in it (a backup by `cp -al` makes one for each) is not.
    fn ledger(&mut self, dir: &Path) {
        self.add("ledger.dir", dir, How::Hide);
        let mut twice = Vec::new();
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            self.know("a file of the ledger", &path, How::Hide);
            if self.other_name(&path, How::Hide) {
                twice.push(path);
            }
        }
        if let Some(first) = twice.iter().min() {
            self.open.push(format!(
                "ledger.dir has {} with another name (a hard link), which the command could use, such as {}; take the other names away, and make backups by `cp -a`",
                count(u64::try_from(twice.len()).unwrap_or(u64::MAX), "file"),
                first.display()
            ));
        }
    }

    /// The lock file, and the glue that it names.
    fn fixtures(&mut self, policy: &Policy) -> Result<(), Failure> {
        let lock = &policy.fixtures.lock;
        self.add("fixtures.lock", lock, How::Read);
        let registry = Registry::load(&policy.fixtures)
            .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))?;
        let folder = lock.parent().unwrap_or(Path::new(""));
        let glue: BTreeSet<&PathBuf> = registry
            .entries()
            .filter_map(|entry| entry.glue.as_ref())
            .collect();
        for file in glue {
            self.add("glue", &folder.join(file), How::Read);
        }
        Ok(())
    }

    /// This program: `serve` is started from the same file most often. Its other names are left: while it runs nobody can open it for writing (Linux 6.11 and the
    /// first of 6.12 excepted), and what `cargo build` makes has two.
    fn program(&mut self) {
        if let Ok(own) = std::env::current_exe()
            && let Ok(Some(at)) = self.walk(&own)
        {
            self.know("this program", &at, How::Read);
            self.lay(at, How::Read);
        }
    }

    fn lay(&mut self, at: PathBuf, how: How) {
        // What the command's user can neither write to nor replace is as it must be.
        let fixed =
            !self.can_change(&at) && !at.parent().is_some_and(|folder| self.can_change(folder));
        if how == How::Read && at.is_file() && fixed {
            return;
        }
        let views = sockets::views(&at, &self.mounts);
        let others = views.into_iter().filter(|view| same(view, &at));
        for at in others.collect::<Vec<_>>().into_iter().chain([at]) {
            self.laid.insert(Shield { how, at });
        }
    }

    /// Where the path leads, without links; `None` where neither this user nor the command can go there. Each folder on the way that the command could rename
    /// is kept. The error is a clause.
    fn walk(&mut self, path: &Path) -> Result<Option<PathBuf>, String> {
        let whole =
            std::path::absolute(path).map_err(|error| format!("cannot be found: {error}"))?;
        let mut left: VecDeque<OsString> = parts(&whole);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = left.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let facts = match std::fs::symlink_metadata(&next) {
                Ok(facts) => facts,
                Err(error) => return self.unseen(&at, &next, &error),
            };
            if facts.is_symlink() {
                if self.can_change(&at) {
                    return Err(format!(
                        "leads over the link {}, which the command could change; name the path behind it",
                        next.display()
                    ));
                }
                links += 1;
                let target = std::fs::read_link(&next).map_err(|error| error.to_string())?;
                if links > LINKS {
                    return Err("has too many links in it".to_owned());
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    left.push_front(part);
                }
                continue;
            }
            if facts.is_dir() && !left.is_empty() && self.can_change(&at) {
                self.keep(&next);
            }
            at = next;
        }
        Ok(Some(at))
    }

    fn keep(&mut self, folder: &Path) {
        // One that is a mount point is kept already.
        if mounts::top(&self.mounts, folder).is_none() {
            self.laid.insert(Shield {
                how: How::Keep,
                at: folder.to_owned(),
            });
        }
    }

    /// What is not there must not come to be; where nothing can be seen, nothing can be done.
    fn unseen(
        &self,
        folder: &Path,
        path: &Path,
        error: &io::Error,
    ) -> Result<Option<PathBuf>, String> {
        if !self.can_change(folder) {
            return Ok(None);
        }
        Err(if error.kind() == ErrorKind::NotFound {
            format!(
                "is not there, and the command could make it ({}); make it first, or name the policy that serve has",
                path.display()
            )
        } else {
            format!("cannot be looked at: {error}")
        })
    }

    /// Whether the command could rename, replace or make what is in the folder, or write to the file: it may write there, or it is its user's own and may be made
    /// so; where the mount is read-only, by another mount of the same.
    fn can_change(&self, at: &Path) -> bool {
        writable(at).unwrap_or_else(|| {
            sockets::views(at, &self.mounts)
                .iter()
                .any(|view| same(view, at) && writable(view) == Some(true))
        })
    }

    /// Whether a file has another name, under which this user could write to it; or, where it shall not be seen, read it.
    fn other_name(&self, file: &Path, how: How) -> bool {
        let open = || {
            let read = || rustix::fs::accessat(CWD, file, Access::READ_OK, AtFlags::EACCESS);
            self.can_change(file) || (how == How::Hide && read().is_ok())
        };
        std::fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.nlink() > 1 && open())
    }
}

/// The folder of a file, where the command does not work in it: then a file in it may be replaced from outside, and the new one is read-only as well.
fn own_folder(file: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(file).ok()?;
    let folder = std::fs::canonicalize(folder.parent()?).ok()?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let works = home
        .into_iter()
        .chain(std::env::current_dir())
        .chain(SCRATCH.map(PathBuf::from));
    let shared = works
        .filter_map(|place| std::fs::canonicalize(place).ok())
        .any(|place| place.starts_with(&folder));
    (!shared).then_some(folder)
}

/// Without the root, and without what stays in place.
fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

/// Whether this user may write there, or may make it so; `None` where the mount is read-only.
fn writable(at: &Path) -> Option<bool> {
    match rustix::fs::accessat(CWD, at, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => Some(true),
        Err(Errno::ROFS) => None,
        Err(_) => Some(
            std::fs::metadata(at)
                .is_ok_and(|facts| facts.uid() == rustix::process::geteuid().as_raw()),
        ),
    }
}

fn same(view: &Path, own: &Path) -> bool {
    let place = |path: &Path| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    matches!((place(view), place(own)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn laid(rules: &Rules, base: &Path) -> Vec<(How, String)> {
        let within = rules.laid.iter().filter_map(|shield| {
            let path = shield.at.strip_prefix(base).ok()?;
            Some((shield.how, path.display().to_string()))
        });
        within.collect()
    }

    #[test]
    fn folders_that_could_be_renamed_are_kept_and_the_file_is_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::write(base.join("a/b/f"), "").unwrap();
        let mut rules = Rules::default();
        rules.add("it", &base.join("a/../a/./b/f"), How::Read);
        assert_eq!(rules.open, Vec::<String>::new());
        let wanted = [
            (How::Keep, ""),
            (How::Keep, "a"),
            (How::Keep, "a/b"),
            (How::Read, "a/b/f"),
        ];
        assert_eq!(
            laid(&rules, &base),
            wanted.map(|(how, at)| (how, at.to_owned()))
        );
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("link")).unwrap();
        for name in ["real/f", "twice"] {
            std::fs::write(base.join(name), "").unwrap();
        }
        std::fs::hard_link(base.join("twice"), base.join("again")).unwrap();
        for (name, why) in [
            ("link/f", "leads over the link"),
            ("real/none", "is not there"),
            ("none/none", "is not there"),
            ("twice", "has another name"),
            ("real/f/x", "cannot be looked at"),
        ] {
            let mut rules = Rules::default();
            rules.add("it", &base.join(name), How::Read);
            let [line] = &rules.open[..] else {
                panic!("{name}: {:?}", rules.open);
            };
            assert!(line.starts_with("it (/") && line.contains(why), "{line}");
            assert!(rules.laid.iter().all(|shield| shield.how == How::Keep));
        }
        let mut rules = Rules::default();
        rules.add("it", &base.join("real/f"), How::Read);
        assert!(rules.open.is_empty());
    }

    #[test]
    fn a_card_that_is_a_link_is_kept_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("cards")).unwrap();
        std::fs::write(base.join("far.json"), "").unwrap();
        symlink("../far.json", base.join("cards/near.json")).unwrap();
        let mut rules = Rules::default();
        rules.cards(&base.join("cards"));
        let far = (How::Read, "far.json".to_owned());
        assert!(laid(&rules, &base).contains(&far), "{rules:?}");
        assert!(rules.open.is_empty());
        symlink("nowhere", base.join("cards/lost.json")).unwrap();
        let mut rules = Rules::default();
        rules.cards(&base.join("cards"));
        assert!(rules.open[0].contains("is not there"), "{rules:?}");
    }
}
