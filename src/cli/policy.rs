//! `policy check`, and how every command loads a policy.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::custody;
use super::out::{Done, Failure, Out, Tone, safe};
use crate::files;
use crate::policy::{Fault, POLICY_BYTES, Policy};
use crate::terms::is_plain_word;

/// Check a policy file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate policy check policy.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(Check),
}

/// Show every fault of a policy, or the effective policy.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate policy check policy.toml
  leafgate policy check --json policy.toml | jq .hosts

Every fault is one line on standard error, with its place in the file below it, and the exit status is 2. What stands
in quotes is not shown: it may be a secret. Without a file the built-in policy is shown.")]
struct Check {
    /// The policy file; without one, the built-in policy
    #[arg(value_name = "F")]
    file: Option<PathBuf>,
    /// The effective policy as one JSON object
    #[arg(long)]
    json: bool,
}

/// Loads a policy file, or the built-in policy.
pub(super) fn load(file: Option<&PathBuf>) -> Result<Policy, Failure> {
    match file {
        None => Ok(Policy::embedded()),
        Some(file) => Policy::load(file)
            .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect())),
    }
}

/// The same for commands that look at cards and bodies and send nothing: a host's credential that is not set here is no fault to them; the fixtures' key is.
pub(super) fn load_to_look(file: Option<&PathBuf>) -> Result<Policy, Failure> {
    let Some(path) = file else {
        return Ok(Policy::embedded());
    };
    match Policy::load(path) {
        Err(faults)
            if faults
                .iter()
                .all(|fault| fault.key.ends_with(".credential.env")) =>
        {
            load_without_secrets(file)
        }
        Err(faults) => Err(Failure::Lines(
            faults.iter().map(ToString::to_string).collect(),
        )),
        Ok(policy) => Ok(policy),
    }
}

/// The same for commands that send nothing: a secret that is not set here, as in the shell of a client, is no fault to them.
pub(super) fn load_without_secrets(file: Option<&PathBuf>) -> Result<Policy, Failure> {
    let Some(file) = file else {
        return Ok(Policy::embedded());
    };
    let environment = |name: &str| {
        let set = std::env::var_os(name).filter(|value| !value.is_empty());
        // As long as a token must be.
        set.or_else(|| Some("unset-in-this-shell".into()))
    };
    Policy::load_with(file, &environment)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    let Command::Check(check) = args.command;
    let policy = match &check.file {
        None => Policy::embedded(),
        Some(file) => match Policy::load(file) {
            Ok(policy) => policy,
            Err(faults) => {
                point(file, &faults);
                return Err(Failure::Lines(Vec::new()));
            }
        },
    };
    for finding in custody::of_secrets(&policy) {
        super::complain(&[format!("warning: {}", finding.line())]);
    }
    let effective = policy.effective();
    if check.json {
        out.json(&effective)?;
        return Ok(Done::Yes);
    }
    let mut rows = Vec::new();
    flatten("", &effective, &mut rows);
    let width = rows.iter().map(|(key, _)| key.chars().count()).max();
    for (key, value) in &rows {
        let key = out.paint(Tone::Strong, key, width.unwrap_or(0));
        out.line(format!("{key}  {value}"))?;
    }
    let tail = format!("no fault · policy sha256:{}", policy.hash);
    out.line(out.paint(Tone::Good, &tail, 0))?;
    Ok(Done::Yes)
}

/// Each fault, and below it its line with a caret under the key.
fn point(file: &Path, faults: &[Fault]) {
    // Where it cannot be read again, the faults say enough.
    let text = files::read(file, POLICY_BYTES)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    // A line may be the inside of a string there.
    let long_strings = text.contains("\"\"\"") || text.contains("'''");
    for fault in faults {
        super::complain(&[fault.to_string()]);
        let line = fault.line.checked_sub(1).and_then(|n| text.lines().nth(n));
        let toml = fault.key != "toml";
        let line = line.filter(|_| !long_strings);
        let Some((line, column)) = line.and_then(|line| excerpt(line, fault.column, toml)) else {
            continue;
        };
        let number = fault.line;
        let blank = " ".repeat(number.to_string().len());
        let caret = " ".repeat(column);
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "  {number} | {}\n  {blank} | {caret}^", safe(&line));
    }
}

/// The line without what may be a secret in the wrong place, and how many characters of that stand before the column (1-based, in bytes).
///
/// Of a line of TOML its signs, plain words and small numbers are shown; of a line that is none (`toml` is false) nothing behind the first `=`, and no word at all
/// where it neither has one nor begins a table.
fn excerpt(line: &str, column: usize, toml: bool) -> Option<(String, usize)> {
    let at = column.checked_sub(1)?;
    let keeps_words = toml || line.contains('=') || line.trim_start().starts_with('[');
    let (mut shown, mut caret, mut rest) = (String::new(), None, line);
    while line.is_char_boundary(at) && !rest.is_empty() && !rest.starts_with('#') {
        let start = line.len() - rest.len();
        let hidden = !toml && shown.ends_with('=');
        if hidden {
            shown.push(' ');
        }
        let here = shown.chars().count();
        let (piece, text) = if hidden {
            (rest, "…".to_owned())
        } else {
            let piece = &rest[..piece_len(rest)];
            (piece, mask(piece, keeps_words))
        };
        rest = &rest[piece.len()..];
        if caret.is_none() && at < start + piece.len() {
            let inside = if text == piece {
                line[start..at].chars().count()
            } else {
                0
            };
            caret = Some(here + inside);
        }
        shown.push_str(&text);
    }
    let caret = caret.unwrap_or_else(|| shown.chars().count());
    let shown = shown.trim_end();
    (!shown.trim().is_empty()).then(|| (shown.to_owned(), caret))
}

/// Bytes of the string, the word or the sign that the text begins with. A string that does not end on its line has the rest of it.
fn piece_len(text: &str) -> usize {
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else {
        return 0;
    };
    let is_word = |c: char| !c.is_whitespace() && !"=,.{}[]\"'#".contains(c);
    if is_word(first) {
        return text.find(|c| !is_word(c)).unwrap_or(text.len());
    }
    if !matches!(first, '"' | '\'') {
        return first.len_utf8();
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' && first == '"' {
            chars.next();
        } else if c == first {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// A piece of a line as it may be shown.
fn mask(piece: &str, keeps_words: bool) -> String {
    let small = piece.len() <= 4 && piece.bytes().all(|b| b.is_ascii_digit());
    match piece.chars().next() {
        Some(quote @ ('"' | '\'')) => format!("{quote}…{quote}"),
        Some(sign @ ('=' | ',' | '.' | '{' | '}' | '[' | ']')) => sign.to_string(),
        // A tab would move the caret.
        Some(blank) if blank.is_whitespace() => " ".to_owned(),
        _ if keeps_words && (small || is_plain_word(piece)) => piece.to_owned(),
        _ => "…".to_owned(),
    }
}

/// Dotted keys with their values, in order.
fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    if let Value::Object(members) = value
        && !members.is_empty()
    {
        for (key, value) in members {
            // A key with a dot is quoted, as in the file.
            let key = if key.contains('.') {
                format!("\"{key}\"")
            } else {
                key.clone()
            };
            let dot = if prefix.is_empty() { "" } else { "." };
            flatten(&format!("{prefix}{dot}{key}"), value, rows);
        }
        return;
    }
    rows.push((
        safe(prefix).into_owned(),
        safe(&value.to_string()).into_owned(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_under_the_key_and_no_string_is_shown() {
        for (line, key, shown) in [
            ("bnd = \"cover\"  # sk-1", "bnd", "bnd = \"…\""),
            (
                "  x = { credential = \"sk-\\\"é1\", bnd = 7 }",
                "bnd",
                "  x = { credential = \"…\", bnd = 7 }",
            ),
            ("models = ['a', '']", "''", "models = ['…', '…']"),
            ("\tbnd=1", "bnd", " bnd=1"),
            (
                "a = { env = sk-K1-k }, bnd = 1",
                "bnd",
                "a = { env = … }, bnd = 1",
            ),
        ] {
            let (text, at) = excerpt(line, line.find(key).unwrap() + 1, true).unwrap();
            assert_eq!(text, shown);
            let here: String = text.chars().skip(at).collect();
            assert!(here.starts_with(&key[..1]), "{here}");
        }
        assert_eq!(excerpt("# sk-1", 1, true), None);
        assert_eq!(excerpt("é", 2, true), None);
        assert_eq!(excerpt("a", 9, true), None);
        // A string that does not end on its line hides the rest.
        assert_eq!(excerpt("k = \"sk-1", 1, true).unwrap().0, "k = \"…\"");
    }

    #[test]
    fn what_may_be_a_secret_in_the_wrong_place_is_not_shown() {
        for (line, toml, column, shown, caret) in [
            (
                "credential = { env = sk-Key1 }",
                false,
                22,
                "credential = …",
                13,
            ),
            (
                "credential = { env = plainkey }",
                false,
                22,
                "credential = …",
                13,
            ),
            ("api_key = \"sk-Key1", false, 19, "api_key = …", 11),
            ("x = Key1\\", false, 9, "x = …", 4),
            // The twin: what is TOML shows its plain words, so that the fault can be found.
            (
                "limits = { idle = true, port = 8484 }",
                true,
                12,
                "limits = { idle = true, port = 8484 }",
                11,
            ),
            ("\"sk-Key1\" = 1", true, 1, "\"…\" = 1", 0),
            ("sk-Key1 = 1", true, 1, "… = 1", 0),
            ("a.sk-Key1.b = 1", true, 1, "a.….b = 1", 0),
            ("pin = 123456", true, 1, "pin = …", 0),
            // A caret inside a word that is not shown, and inside one that is.
            ("x = sk-Key1", true, 8, "x = …", 4),
            ("abcd = 1", true, 3, "abcd = 1", 2),
            // A line without a key: the words of one that begins a table, of another none.
            ("[hosts.local", false, 13, "[hosts.local", 12),
            ("correct horse", false, 1, "… …", 0),
        ] {
            let found = excerpt(line, column, toml);
            assert_eq!(found, Some((shown.to_owned(), caret)), "{line}");
        }
    }

    #[test]
    fn keys_are_dotted_and_quoted_as_in_the_file() {
        let value =
            serde_json::json!({"hosts": {"a.b": {"bind": "cover"}}, "models": ["x"], "none": {}});
        let mut rows = Vec::new();
        flatten("", &value, &mut rows);
        let rows: Vec<_> = rows.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("hosts.\"a.b\".bind", "\"cover\""),
                ("models", "[\"x\"]"),
                ("none", "{}")
            ]
        );
    }
}
