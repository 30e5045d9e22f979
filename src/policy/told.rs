//! How a refusal's commands name the policy's own files.
//!
//! Promises: what is told is one word of a shell that works from any folder of the machine, or a placeholder; where clients come from other machines, no path of this one.

use std::path::{Path, PathBuf};

use super::Policy;
use crate::files::shell_word;
use crate::terms::reads_as_refusal;

/// Bytes of a path that a message may carry.
const MOST: usize = 512;
/// Files of a fixture that a message names; of more it names none, for some of them would make another fixture.
const MOST_FILES: usize = 8;

impl Policy {
    /// ` --policy PATH` for a command that looks at this policy; nothing for the built-in one, which such a command takes without the flag.
    pub fn flag(&self) -> String {
        let file = self.file.as_deref();
        file.map_or_else(String::new, |_| format!(" --policy {}", self.told_file()))
    }

    /// The policy file, for a command that takes it as an argument.
    pub fn told_file(&self) -> String {
        let told = self.file.as_deref().and_then(|file| self.told(file));
        told.unwrap_or_else(|| "FILE".to_owned())
    }

    /// `leafgate fixture add FILE --id ID --lock PATH`, the lock file that of this policy.
    pub fn fixture_add(&self, id: &str) -> String {
        self.add("FILE", id)
    }

    /// The same for a fixture that is registered: with its files, format and glue, so that the command drops none of them. `paths` and `glue` are as the lock file has them.
    pub fn fixture_add_again(
        &self,
        id: &str,
        paths: &[PathBuf],
        format: &str,
        glue: Option<&Path>,
    ) -> String {
        let folder = self.fixtures.lock.parent().unwrap_or(Path::new(""));
        let told = |path: &Path| self.told(&folder.join(path));
        let all =
            (paths.len() <= MOST_FILES).then(|| paths.iter().map(|path| told(path)).collect());
        let files = match all.flatten().map(|all: Vec<String>| all.join(" ")) {
            Some(files) => files,
            None if paths.len() == 1 => "FILE".to_owned(),
            None => "FILES".to_owned(),
        };
        let glue = glue.map_or_else(String::new, |glue| {
            format!(
                " --glue {}",
                told(glue).unwrap_or_else(|| "GLUE".to_owned())
            )
        });
        self.add(&format!("{files} --format {format}{glue}"), id)
    }

    fn add(&self, what: &str, id: &str) -> String {
        let lock = self.told(&self.fixtures.lock);
        let lock = lock.unwrap_or_else(|| "LOCK".to_owned());
        format!("leafgate fixture add {what} --id {id} --lock {lock}")
    }

    /// The whole path as one word, where an answer may hold it: clients are on this machine, it is ASCII, and no client takes it for a model's own refusal.
    fn told(&self, path: &Path) -> Option<String> {
        let near = self
            .listen
            .proxy
            .tcp()
            .is_none_or(|address| address.ip().is_loopback());
        let whole = near.then(|| std::path::absolute(path).ok()).flatten()?;
        let text = whole.to_str()?;
        let fits = text.len() <= MOST
            && text.bytes().all(|b| (b' '..=b'~').contains(&b))
            && !text.contains("; ")
            && !reads_as_refusal(text);
        fits.then(|| shell_word(&whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: &str, listen: &str) -> Policy {
        let mut policy = Policy::embedded();
        policy.file = Some(file.into());
        policy.fixtures.lock = Path::new(file).with_file_name("fixtures.lock");
        policy.listen.proxy = listen.parse::<std::net::SocketAddr>().unwrap().into();
        policy
    }

    #[test]
    fn a_file_is_told_whole_as_one_word() {
        let here = std::env::current_dir().unwrap();
        let near = "127.0.0.1:8484";
        let policy = named("my.toml", near);
        let whole = here.join("my.toml");
        assert_eq!(policy.flag(), format!(" --policy {}", whole.display()));
        assert_eq!(
            named("/etc/l g/it's.toml", near).flag(),
            " --policy '/etc/l g/it'\\''s.toml'"
        );
        assert_eq!(
            named("/etc/lg/my.toml", near).fixture_add("x"),
            "leafgate fixture add FILE --id x --lock /etc/lg/fixtures.lock"
        );
        assert_eq!(Policy::embedded().flag(), "");
    }

    #[test]
    fn a_fixture_is_added_again_with_all_that_its_entry_has() {
        let policy = named("/etc/lg/my.toml", "127.0.0.1:8484");
        let paths: Vec<PathBuf> = ["b.jsonl", "in/a one.jsonl"].map(PathBuf::from).into();
        let add = |policy: &Policy, paths: &[PathBuf], glue| {
            policy.fixture_add_again("x", paths, "jsonl", glue)
        };
        assert_eq!(
            add(&policy, &paths, Some(Path::new("g.json"))),
            "leafgate fixture add /etc/lg/b.jsonl '/etc/lg/in/a one.jsonl' --format jsonl --glue /etc/lg/g.json --id x --lock /etc/lg/fixtures.lock"
        );
        assert_eq!(
            add(&policy, &paths[..1], None),
            "leafgate fixture add /etc/lg/b.jsonl --format jsonl --id x --lock /etc/lg/fixtures.lock"
        );
        // All of the files or none.
        let one_odd = [paths[0].clone(), "p\u{e9}".into()];
        let many = vec![paths[0].clone(); MOST_FILES + 1];
        for paths in [&one_odd[..], &many] {
            let told = add(&policy, paths, None);
            assert!(
                told.starts_with("leafgate fixture add FILES --format"),
                "{told}"
            );
        }
        let far = named("/etc/lg/my.toml", "192.0.2.1:8484");
        assert_eq!(
            add(&far, &paths[..1], Some(Path::new("g"))),
            "leafgate fixture add FILE --format jsonl --glue GLUE --id x --lock LOCK"
        );
    }

    #[test]
    fn what_an_answer_may_not_hold_is_a_placeholder() {
        let near = "[::1]:8484";
        let long = format!("/{}.toml", "x".repeat(600));
        for odd in [
            "/p\u{e9}.toml",
            "/a\n.toml",
            "/flagged/p.toml",
            "/a; b",
            &long,
        ] {
            assert_eq!(named(odd, near).flag(), " --policy FILE", "{odd}");
        }
        let far = named("/etc/lg/my.toml", "192.0.2.1:8484");
        assert_eq!(far.flag(), " --policy FILE");
        assert!(far.fixture_add("x").ends_with("--lock LOCK"));
    }
}
