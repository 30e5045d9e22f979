//! Short strings that stand alone in a body (stop words), and the commands that make them a second file of the fixture.
//!
//! Promises: the commands can be pasted into a POSIX shell as they are; every string in them is quoted, and they hold printable ASCII alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Subject;
use super::tell::many;
use crate::cli::out::{Failure, Out, Tone, safe};
use crate::files::shell_word;
use crate::fixture::{Alone, Format};

/// Strings shown, at most; the commands hold them all.
const SHOWN: usize = 12;

/// Which strings, where, and what to do.
pub(super) fn tell(subject: &Subject, alone: &[Alone], out: &mut Out) -> Result<(), Failure> {
    if alone.is_empty() {
        return Ok(());
    }
    let label = out.paint(Tone::Strong, "alone", 0);
    out.line(format!(
        "{label}  too short to count as glue where nothing stands beside them; where they are public, make them a second file of the fixture:"
    ))?;
    for one in alone.iter().take(SHOWN) {
        let text = out.paint(Tone::Mark, &safe(&one.text), 0);
        let texts = many(one.bodies, "text", "different texts");
        out.line(format!("  {}  |{text}|  in {texts}", safe(&one.pointer)))?;
    }
    if alone.len() > SHOWN {
        out.line(format!("  … and {} more", alone.len() - SHOWN))?;
    }
    let strings: Vec<&str> = alone.iter().map(|one| &*one.text).collect();
    let place = Place::of(subject);
    for line in place.commands(&strings, |file| file.exists()) {
        out.line(format!("  {line}"))?;
    }
    out.line("  the fixture has another hash then: make its card anew, and learn once more")
}

/// Facts without text.
pub(super) fn facts(alone: &[Alone]) -> Vec<Value> {
    let fact = |one: &Alone| {
        serde_json::json!({
            "pointer": one.pointer, "bodies": one.bodies, "characters": one.text.chars().count(),
        })
    };
    alone.iter().map(fact).collect()
}

/// Where the fixture is registered.
pub(super) struct Place<'a> {
    id: &'a str,
    lock: &'a Path,
    files: &'a [PathBuf],
    format: Format,
    keyed: bool,
}

impl<'a> Place<'a> {
    pub(super) fn of(subject: &'a Subject) -> Place<'a> {
        let entry = &subject.entry;
        Place {
            id: entry.id.as_str(),
            lock: &subject.policy.fixtures.lock,
            files: &entry.paths,
            format: entry.format,
            keyed: entry.hash.as_str().starts_with("hmac-"),
        }
    }

    fn folder(&self) -> &Path {
        self.lock.parent().unwrap_or(Path::new(""))
    }

    /// The registered files, as they are found from here.
    fn registered(&self) -> Vec<PathBuf> {
        let folder = self.folder();
        self.files.iter().map(|file| folder.join(file)).collect()
    }

    /// A glue file beside the first file, and the command that registers it with the files as they are.
    pub(super) fn with_glue(&self) -> (String, String) {
        let glue = self.beside(self.folder(), &format!("{}.glue.json", self.id));
        let add = self.add(&self.registered(), Some(&glue));
        (shell_word(&glue), add)
    }

    fn add(&self, files: &[PathBuf], glue: Option<&Path>) -> String {
        let mut add = "leafgate fixture add".to_owned();
        for file in files {
            let _ = write!(add, " {}", shell_word(file));
        }
        let _ = write!(add, " --id {} --format {}", self.id, self.format.name());
        if let Some(glue) = glue {
            let _ = write!(add, " --glue {}", shell_word(glue));
        }
        if self.lock != Path::new("fixtures.lock") {
            let _ = write!(add, " --lock {}", shell_word(self.lock));
        }
        if self.keyed {
            add.push_str(" --key-env VARIABLE");
        }
        add
    }

    /// The commands: what writes the strings to files that are not there yet, and what registers them behind those that are registered.
    fn commands(&self, strings: &[&str], there: impl Fn(&Path) -> bool) -> Vec<String> {
        let folder = self.folder();
        let mut files = self.registered();
        let mut lines = Vec::new();
        let parts: Vec<String> = match self.format {
            // A text file is one string.
            Format::Text => strings.iter().map(|string| printed(string)).collect(),
            Format::Json | Format::Jsonl => vec![listed(strings)],
        };
        let own = match self.format {
            Format::Text => "txt",
            Format::Json => "json",
            Format::Jsonl => "jsonl",
        };
        for part in parts {
            let mut name = String::new();
            for number in 1.. {
                name = match number {
                    1 => format!("{}.stop.{own}", self.id),
                    more => format!("{}.stop-{more}.{own}", self.id),
                };
                let file = self.beside(folder, &name);
                if !files.contains(&file) && !there(&file) {
                    break;
                }
            }
            let file = self.beside(folder, &name);
            lines.push(format!("{part} > {}", shell_word(&file)));
            files.push(file);
        }
        lines.push(self.add(&files, None));
        lines
    }

    /// Beside the fixture's first file, where that is in the lock file's folder.
    fn beside(&self, folder: &Path, name: &str) -> PathBuf {
        match self.files.first() {
            Some(first) if first.is_relative() => folder.join(first.with_file_name(name)),
            Some(_) | None => folder.join(name),
        }
    }
}

/// `printf` of one string, byte for byte.
fn printed(string: &str) -> String {
    let mut text = String::new();
    for byte in string.bytes() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            b'%' => text.push_str("%%"),
            b'\'' => text.push_str("\\047"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                let _ = write!(text, "\\{other:03o}");
            }
        }
    }
    // What begins with a hyphen would be taken for an option.
    let end = if text.starts_with('-') { "-- " } else { "" };
    format!("printf {end}'{text}'")
}

/// `printf` of a JSON array, in ASCII.
fn listed(strings: &[&str]) -> String {
    let mut text = String::new();
    for c in serde_json::json!(strings).to_string().chars() {
        match c {
            '\'' => text.push_str("\\u0027"),
            ' '..='~' => text.push(c),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    format!("printf '%s\\n' '{text}'")
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "a test that runs the commands in a shell"
    )]

    use super::*;

    const STOPS: [&str; 5] = ["\ndef", "it's %s \\n", "-- é\u{1b}[0m", "\"q\"", "`$x`"];

    fn place<'a>(lock: &'a Path, files: &'a [PathBuf], format: Format) -> Place<'a> {
        Place {
            id: "code",
            lock,
            files,
            format,
            keyed: false,
        }
    }

    fn shell(dir: &Path, line: &str) {
        assert!(line.chars().all(|c| (' '..='~').contains(&c)), "{line}");
        let mut shell = std::process::Command::new("sh");
        let status = shell.args(["-c", line]).current_dir(dir).status();
        assert!(status.unwrap().success(), "{line}");
    }

    #[test]
    fn what_the_shell_writes_is_what_stood_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = [PathBuf::from("code.jsonl")];
        let list = place(Path::new("fixtures.lock"), &files, Format::Jsonl);
        let lines = list.commands(&STOPS, |_| false);
        assert_eq!(
            lines.last().unwrap(),
            "leafgate fixture add code.jsonl code.stop.jsonl --id code --format jsonl"
        );
        shell(dir.path(), &lines[0]);
        let read = std::fs::read(dir.path().join("code.stop.jsonl")).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<String>>(&read).unwrap(), STOPS);

        let text = place(Path::new("fixtures.lock"), &files, Format::Text);
        let lines = text.commands(&STOPS, |_| false);
        assert_eq!(lines.len(), STOPS.len() + 1);
        for (number, (line, stop)) in lines.iter().zip(STOPS).enumerate() {
            shell(dir.path(), line);
            let name = match number {
                0 => "code.stop.txt".to_owned(),
                more => format!("code.stop-{}.txt", more + 1),
            };
            let read = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!(read, stop, "{line}");
        }
    }

    #[test]
    fn the_new_file_stands_beside_the_first_and_is_not_there_yet() {
        let files = ["f/my set.jsonl", "f/code.stop.jsonl"].map(PathBuf::from);
        let mut place = place(Path::new("/etc/lg/fixtures.lock"), &files, Format::Jsonl);
        place.keyed = true;
        let taken = Path::new("/etc/lg/f/code.stop-2.jsonl");
        assert_eq!(
            place.commands(&["\n#"], |file| file == taken),
            [
                r#"printf '%s\n' '["\n#"]' > /etc/lg/f/code.stop-3.jsonl"#,
                "leafgate fixture add '/etc/lg/f/my set.jsonl' /etc/lg/f/code.stop.jsonl /etc/lg/f/code.stop-3.jsonl --id code --format jsonl --lock /etc/lg/fixtures.lock --key-env VARIABLE",
            ]
        );
    }
}
