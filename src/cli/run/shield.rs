//! leafgate's own files, inside: what tells it what may leave is read-only there, what is secret is covered.
//!
//! A mount point can be neither renamed, removed nor replaced from the namespace in which it is one, by whatever mount its folder is reached. So the folders
//! above such a file are made mount points as well, where this user could rename them: else another tree could be put in their place, which leafgate, in another
//! namespace, would read. `rules` says which files and folders these are.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::MountFlags;

use super::mounts::{self, List, Mount};
use super::stage::{self, Fault, Step as _};

/// What is laid where; in this order, so that none covers what another one needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// A folder that keeps its name.
    Keep,
    /// A file or folder that is read-only.
    Read,
    /// A file or folder that is not seen.
    Hide,
}

/// One path, without links. By kind, then from the root down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shield {
    pub(super) how: How,
    pub(super) at: PathBuf,
}

const WORDS: [(How, &[u8]); 3] = [
    (How::Keep, b"keep:"),
    (How::Read, b"read:"),
    (How::Hide, b"hide:"),
];

impl Shield {
    /// As an argument of the inner process.
    pub(super) fn word(&self) -> OsString {
        let (_, name) = WORDS[self.how as usize];
        OsString::from_vec([name, self.at.as_os_str().as_bytes()].concat())
    }

    pub(super) fn read(word: &OsStr) -> Option<Shield> {
        WORDS.iter().find_map(|&(how, name)| {
            let at = word.as_bytes().strip_prefix(name)?;
            at.starts_with(b"/").then(|| Shield {
                how,
                at: OsStr::from_bytes(at).into(),
            })
        })
    }
}

/// They come sorted.
pub(super) fn lay(shields: &[Shield]) -> Result<(), Fault> {
    let of = |wanted: How| shields.iter().filter(move |shield| shield.how == wanted);
    for Shield { at, .. } in of(How::Keep).chain(of(How::Read)) {
        let step = || format!("keeping {} as it is", at.display());
        rustix::mount::mount_bind_recursive(at, at).step(step())?;
    }
    let read: BTreeSet<&Path> = of(How::Read).map(|shield| shield.at.as_path()).collect();
    mounts::read_only(|mount| mount.at.ancestors().any(|above| read.contains(above)))
        .step("making leafgate's own files read-only")?;
    for Shield { at, .. } in of(How::Hide) {
        mounts::cover(at).step(format!("covering {}", at.display()))?;
    }
    mounts::all()
        .and_then(|mounts| all_there(shields, &mounts))
        .step("looking whether leafgate's own files are as they must be in there")
}

/// A filter of somebody else's may answer a mount with success and do nothing.
fn all_there(shields: &[Shield], mounts: &[Mount]) -> io::Result<()> {
    missing(shields, mounts).map_or(Ok(()), |shield| {
        let what = format!("{} is not mounted", shield.at.display());
        Err(io::Error::other(what))
    })
}

/// The first that does not stand.
fn missing<'a>(shields: &'a [Shield], mounts: &[Mount]) -> Option<&'a Shield> {
    shields.iter().find(|Shield { how, at }| match how {
        How::Keep | How::Hide => mounts::top(mounts, at).is_none(),
        // A file that was replaced is as well off in a folder that is read-only itself.
        How::Read => !mounts::showing(mounts, at)
            .is_some_and(|mount| mount.flags.contains(MountFlags::RDONLY)),
    })
}

/// Waits for the end of the first process; ends it, with all that runs in there, where a shield has gone. A file that is replaced from outside (by an editor
/// that saves to another file and renames it) takes its mount point with it, and the new one would be open to the command.
pub(super) fn watch(
    shields: &[Shield],
    mut list: List,
    first: &mut Child,
) -> io::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(first);
    // Where the kernel or a filter has none, the end is looked for now and then.
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
    let now_and_then = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    loop {
        if let Some(ended) = first.try_wait()? {
            return Ok(ended);
        }
        if let Some(shield) = missing(shields, &list.read()?) {
            let _ = first.kill();
            stage::say(&format!(
                "run: {} was replaced from outside, and the new one would be open to the command: it was ended",
                shield.at.display()
            ));
            return first.wait();
        }
        let mut ready = vec![list.changed()];
        ready.extend(
            handle
                .as_ref()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        let most = handle.is_none().then_some(&now_and_then);
        match rustix::event::poll(&mut ready, most) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_shield_is_read_as_it_was_written_and_nothing_else_is() {
        for how in [How::Keep, How::Read, How::Hide] {
            let at = OsStr::from_bytes(b"/a b\xff/c:d").into();
            let shield = Shield { how, at };
            assert_eq!(Shield::read(&shield.word()), Some(shield));
        }
        for word in ["", "/x", "keep:", "keep:x", "wipe:/x"] {
            assert_eq!(Shield::read(word.as_ref()), None, "{word}");
        }
    }

    #[test]
    fn what_is_hidden_is_laid_last_and_what_is_above_first() {
        let shield = |how, at: &str| Shield { how, at: at.into() };
        let mut all = [
            shield(How::Hide, "/a"),
            shield(How::Read, "/a/b"),
            shield(How::Keep, "/a/b"),
            shield(How::Keep, "/a"),
        ];
        all.sort();
        let order = [
            (How::Keep, "/a"),
            (How::Keep, "/a/b"),
            (How::Read, "/a/b"),
            (How::Hide, "/a"),
        ];
        assert_eq!(all.to_vec(), order.map(|(how, at)| shield(how, at)));
    }

    #[test]
    fn what_is_not_mounted_is_seen() {
        let root = Shield {
            how: How::Keep,
            at: "/".into(),
        };
        let mounts = mounts::all().unwrap();
        assert!(all_there(&[root], &mounts).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        assert!(all_there(&[Shield { how: How::Keep, at }], &mounts).is_err());
    }
}
