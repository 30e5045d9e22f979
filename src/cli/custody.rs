//! Who else can read the secrets that a policy names, or write what decides over a call: by the modes of the files, and of the folders on the way to them.
//!
//! Promises: it looks at modes, and into certificate files for a key that does not belong there; it opens no secret and shows nothing of a file.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::doctor::Finding;
use super::rooms;
use crate::files;
use crate::policy::{Origin, Policy};

/// A certificate file is looked through for a key as far as this.
const PEM_MOST: u64 = 8 << 20;

/// What others can read, or swap, of the secrets and of the Unix socket: what `serve` and `policy check` warn of.
pub(super) fn of_secrets(policy: &Policy) -> Vec<Finding> {
    Look::of(policy).found
}

/// Folders in which others could put something else in place of this file.
pub(super) fn on_the_way(path: &Path) -> Vec<Finding> {
    let mut look = Look::default();
    look.way(path);
    look.found
}

/// What [`of_secrets`] finds, and all else that leafgate goes by and others can write.
pub(super) fn of_everything(policy: &Policy, file: Option<&Path>) -> Vec<Finding> {
    let mut look = Look::of(policy);
    let lock = policy.fixtures.lock.as_path();
    let own = [file, Some(lock)];
    for path in own.into_iter().flatten().chain(certificates(policy)) {
        look.written("", std::iter::once(path.to_owned()));
    }
    look.written("cards: ", cards(&policy.cards_dir).into_iter());
    look.way(&policy.cards_dir.join("NAME.json"));
    let folder = lock.parent().unwrap_or(Path::new(""));
    let (mut fixtures, mut glue) = (Vec::new(), Vec::new());
    for entry in rooms::entries(lock) {
        fixtures.extend(entry.paths.iter().map(|path| folder.join(path)));
        glue.extend(entry.glue.iter().map(|path| folder.join(path)));
    }
    look.written("fixtures: ", fixtures.into_iter());
    look.written("glue: ", glue.into_iter());
    look.way(&policy.ledger.dir);
    look.found
}

/// Files of certificates, which are no secrets.
fn certificates(policy: &Policy) -> Vec<&Path> {
    let mut all: Vec<&Path> = Vec::new();
    if let Some(tls) = &policy.listen.tls {
        all.push(&tls.cert);
        all.extend(tls.client_ca.as_deref());
    }
    all.extend(policy.intercept.as_ref().map(|own| own.ca.as_path()));
    all.extend(policy.hosts.values().filter_map(|host| host.ca.as_deref()));
    all
}

fn cards(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut cards: Vec<PathBuf> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    cards.sort();
    cards
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|facts| facts.uid())
}

fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|facts| facts.mode() & 0o7777)
}

#[derive(Default)]
struct Look {
    found: Vec<Finding>,
    /// Each is told of once.
    folders: BTreeSet<PathBuf>,
    readable: BTreeSet<PathBuf>,
    writable: BTreeSet<PathBuf>,
    owned: BTreeSet<PathBuf>,
    /// Users that may have a secret.
    known: Vec<u32>,
}

impl Look {
    fn of(policy: &Policy) -> Look {
        let theirs = [policy.file.as_deref(), Some(policy.ledger.dir.as_path())];
        let theirs = theirs.into_iter().flatten().filter_map(owner);
        let me = rustix::process::geteuid().as_raw();
        let mut look = Look {
            known: theirs.chain([me]).collect(),
            ..Look::default()
        };
        look.socket(policy);
        look.secrets(policy);
        look
    }

    /// Folders on the way to the Unix socket.
    fn socket(&mut self, policy: &Policy) {
        let Some(path) = policy.listen.proxy.unix() else {
            return;
        };
        for open in files::open_folders(path) {
            let folder = open.path.display();
            self.found.push(Finding::new(
                format!("others than its owner can write to {folder}, on the way to the socket of listen.proxy"),
                "whoever makes a socket of that name there, before leafgate or in place of its own, gets what clients send",
                format!("a folder of its own for the socket, mode 0700, or chmod go-w {folder}"),
            ));
            self.folders.insert(open.path);
        }
    }

    /// Files with a secret in them.
    fn secrets(&mut self, policy: &Policy) {
        let named = policy
            .secrets
            .values()
            .filter_map(|source| match &source.origin {
                Origin::File(path) => Some(path.as_path()),
                Origin::Env(_) => None,
            });
        let keys = policy.listen.tls.iter().map(|tls| tls.key.as_path());
        let own = policy.intercept.iter().map(|own| own.key.as_path());
        let with_key = certificates(policy).into_iter().filter(|path| {
            let text = files::read(path, PEM_MOST).unwrap_or_default();
            memchr::memmem::find(&text, b"PRIVATE KEY-----").is_some()
        });
        for path in named.chain(keys).chain(own).chain(with_key) {
            self.secret(path);
        }
    }

    fn secret(&mut self, path: &Path) {
        if let Some(mode) = mode(path)
            && mode & 0o044 != 0
            && self.readable.insert(path.to_owned())
        {
            let file = path.display();
            self.found.push(Finding::new(
                format!("{file} holds a secret and has mode {mode:04o}: others than its owner can read it"),
                "whoever reads it can make calls, or be taken for leafgate, without it",
                format!("chmod 0600 {file}, and change the secret where others may have read it"),
            ));
        }
        if let Some(owner) = owner(path)
            && owner != 0
            && !self.known.contains(&owner)
            && self.owned.insert(path.to_owned())
        {
            let file = path.display();
            self.found.push(Finding::new(
                format!("{file} holds a secret and belongs to user {owner}, who is neither root nor you nor the owner of policy or ledger"),
                "that user can read it, and put another in its place",
                format!("give {file} to the user that runs leafgate (chown), and change the secret"),
            ));
        }
        self.written("", std::iter::once(path.to_owned()));
    }

    /// Files that others can write: one finding, whatever their number.
    fn written(&mut self, kind: &str, paths: impl Iterator<Item = PathBuf>) {
        let mut open = Vec::new();
        for path in paths {
            self.way(&path);
            let others = mode(&path).is_some_and(|mode| mode & 0o022 != 0);
            if others && self.writable.insert(path.clone()) {
                open.push(path);
            }
        }
        let Some(first) = open.first() else { return };
        let first = first.display();
        let more = match open.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        self.found.push(Finding::new(
            format!("{kind}{first}{more} can be written by others than the owner"),
            "whoever writes there decides what may leave",
            match open.len() {
                1 => format!("chmod go-w {first}"),
                _ => format!("chmod go-w {first} and the others like it"),
            },
        ));
    }

    /// Folders on the way to a file.
    fn way(&mut self, path: &Path) {
        for open in files::open_folders(path) {
            let folder = open.path.display();
            let finding = if open.sticky {
                Finding::new(
                    format!("others than its owner can make files in {folder}"),
                    "a card, a fixture, a key or a socket that is not there yet can be somebody else's",
                    "keep what leafgate reads in a folder that its owner alone can write",
                )
            } else {
                Finding::new(
                    format!("{folder} can be written by others than its owner"),
                    "whoever writes there can put other files in place of those that leafgate goes by",
                    format!("chmod go-w {folder}"),
                )
            };
            if self.folders.insert(open.path) {
                self.found.push(finding);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const POLICY: &str = "version = 1\n[fixtures]\nhmac_key = { file = \"secrets/hmac\" }\n[hosts.local]\nbase_url = \"https://127.0.0.1:9/v1\"\nmodels = [\"m\"]\nca = \"ca.pem\"\ncredential = { file = \"secrets/key\", header = \"authorization\" }\n";
    const TLS: &str = "[listen]\ntls = { cert = \"gate.pem\", key = \"secrets/gate.key\" }\ntoken_file = \"secrets/token\"\n";
    const UNIX: &str = "[listen]\nproxy = \"unix:run/gate.sock\"\n";

    /// Everything that a policy names, each file its owner's alone to write.
    fn lay_out(dir: &Path) {
        let made = rcgen::generate_simple_self_signed(vec!["gate.internal".to_owned()]).unwrap();
        let lock = format!(
            "version = 1\n[[fixture]]\nid = \"a\"\nhash = \"sha256:{}\"\nformat = \"text\"\npath = \"data/a.txt\"\nglue = \"glue.txt\"\n",
            "0".repeat(64)
        );
        for folder in ["cards", "data", "run", "secrets"] {
            fs::create_dir(dir.join(folder)).unwrap();
            chmod(&dir.join(folder), 0o755);
        }
        for (name, text, mode) in [
            ("gate.pem", made.cert.pem().as_str(), 0o644),
            ("ca.pem", &made.cert.pem(), 0o644),
            ("secrets/gate.key", &made.signing_key.serialize_pem(), 0o600),
            ("secrets/hmac", "0123456789abcdef0123456789abcdef", 0o600),
            ("secrets/key", "sk-hush", 0o600),
            ("secrets/token", "hush-0123456789a", 0o400),
            ("cards/one.json", "{}", 0o644),
            ("cards/two.json", "{}", 0o644),
            ("fixtures.lock", &lock, 0o644),
            ("data/a.txt", "a", 0o644),
            ("glue.txt", "g", 0o644),
        ] {
            fs::write(dir.join(name), text).unwrap();
            chmod(&dir.join(name), mode);
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(dir: &Path, listen: &str) -> Policy {
        let file = dir.join("policy.toml");
        fs::write(&file, format!("{POLICY}{listen}")).unwrap();
        chmod(&file, 0o644);
        Policy::load(&file).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    #[test]
    fn each_file_and_folder_that_others_can_read_or_write_is_found_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path());
        let tls = load(dir.path(), TLS);
        let unix = load(dir.path(), UNIX);
        let file = dir.path().join("policy.toml");
        let everything = |policy: &Policy| of_everything(policy, Some(&file));
        assert_eq!([everything(&tls), everything(&unix)], [vec![], vec![]]);
        // What, its mode, who finds it (1: doctor alone, 2: serve and policy check too), the policy, and a word of the finding.
        for (name, mode, who, policy, word) in [
            ("policy.toml", 0o666, 1, &tls, "can be written by others"),
            ("cards/one.json", 0o646, 1, &tls, "cards: "),
            ("fixtures.lock", 0o664, 1, &tls, "can be written by others"),
            ("data/a.txt", 0o666, 1, &tls, "fixtures: "),
            ("glue.txt", 0o666, 1, &tls, "glue: "),
            ("ca.pem", 0o666, 1, &tls, "can be written by others"),
            ("gate.pem", 0o666, 1, &tls, "can be written by others"),
            ("cards", 0o777, 1, &tls, "can be written by others"),
            ("cards", 0o1777, 1, &tls, "make files in"),
            ("data", 0o777, 1, &tls, "can be written by others"),
            ("", 0o777, 2, &tls, "can be written by others"),
            ("", 0o1777, 1, &tls, "make files in"),
            ("secrets", 0o770, 2, &tls, "can be written by others"),
            ("secrets/gate.key", 0o640, 2, &tls, "holds a secret"),
            ("secrets/token", 0o444, 2, &tls, "holds a secret"),
            ("secrets/key", 0o604, 2, &tls, "holds a secret"),
            ("secrets/hmac", 0o644, 2, &unix, "holds a secret"),
            ("secrets/key", 0o622, 2, &tls, "can be written by others"),
            ("run", 0o770, 2, &unix, "the socket of listen.proxy"),
            ("run", 0o1777, 2, &unix, "the socket of listen.proxy"),
        ] {
            let path = dir.path().join(name);
            let before = fs::metadata(&path).unwrap().permissions().mode();
            chmod(&path, mode);
            let found = everything(policy);
            let warned = of_secrets(policy);
            chmod(&path, before & 0o7777);
            assert_eq!(found.len(), 1, "{name} {mode:o}: {found:?}");
            let text = found[0].line();
            let shown = path.display().to_string();
            let shown = shown.trim_end_matches('/');
            assert!(
                text.contains(word) && text.contains(shown),
                "{name}: {text}"
            );
            assert!(!text.contains("hush"), "{text}");
            assert_eq!(
                warned.len(),
                usize::from(who == 2),
                "{name} {mode:o}: {warned:?}"
            );
        }
        assert_eq!(everything(&tls), vec![]);
        let run = dir.path().join("run");
        assert_eq!(on_the_way(&run.join("ca-key.pem")), vec![]);
        chmod(&run, 0o777);
        assert_eq!(on_the_way(&run.join("ca-key.pem")).len(), 1);
    }

    #[test]
    fn a_secret_of_another_user_is_found_unless_the_policy_or_the_ledger_is_theirs() {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path());
        let mut look = Look::of(&load(dir.path(), TLS));
        let key = dir.path().join("secrets/key");
        let own = owner(&key).unwrap();
        assert!(look.known.contains(&own) && look.found.is_empty());
        look.known.clear();
        look.secret(&key);
        // Root's own are nobody else's.
        assert_eq!(look.found.len(), usize::from(own != 0), "{:?}", look.found);
        if own == 0 {
            std::os::unix::fs::chown(&key, Some(7), None).unwrap();
            let policy = load(dir.path(), TLS);
            let found = of_secrets(&policy);
            assert!(
                found.len() == 1 && found[0].what.contains("belongs to user 7"),
                "{found:?}"
            );
            std::os::unix::fs::chown(dir.path().join("policy.toml"), Some(7), None).unwrap();
            assert_eq!(of_secrets(&policy), vec![]);
        }
    }

    #[test]
    fn many_cards_are_one_finding_and_a_key_among_certificates_is_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path());
        let policy = load(dir.path(), TLS);
        for card in ["cards/one.json", "cards/two.json"] {
            chmod(&dir.path().join(card), 0o666);
        }
        let found = of_everything(&policy, None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("one.json and 1 more"), "{found:?}");
        let key = fs::read(dir.path().join("secrets/gate.key")).unwrap();
        let both = [fs::read(dir.path().join("gate.pem")).unwrap(), key].concat();
        fs::write(dir.path().join("gate.pem"), both).unwrap();
        let found = of_secrets(&policy);
        assert!(
            found.len() == 1 && found[0].what.contains("gate.pem holds a secret"),
            "{found:?}"
        );
        chmod(&dir.path().join("gate.pem"), 0o600);
        assert_eq!(of_secrets(&policy), vec![]);
    }
}
