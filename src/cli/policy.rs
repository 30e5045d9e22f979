//! `policy check`, and how every command loads a policy.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::custody;
use super::out::{Done, Failure, Out, Tone, safe};
use crate::files;
use crate::policy::{Fault, POLICY_BYTES, Policy};

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
    for fault in faults {
        super::complain(&[fault.to_string()]);
        let line = fault.line.checked_sub(1).and_then(|n| text.lines().nth(n));
        let Some((line, column)) = line.and_then(|line| excerpt(line, fault.column)) else {
            continue;
        };
        let number = fault.line;
        let blank = " ".repeat(number.to_string().len());
        let caret = " ".repeat(column);
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "  {number} | {}\n  {blank} | {caret}^", safe(&line));
    }
}

/// The line without what stands in quotes or in a comment, and how many characters of it stand before the column (1-based, in bytes).
fn excerpt(line: &str, column: usize) -> Option<(String, usize)> {
    let (before, after) = line.split_at_checked(column.checked_sub(1)?)?;
    let before = unquoted(before);
    let shown = format!("{before}{}", unquoted(after));
    let shown = shown.trim_end();
    (!shown.trim().is_empty()).then(|| (shown.to_owned(), before.chars().count()))
}

/// A piece of a line of TOML in which each string is `"…"`, up to a comment.
fn unquoted(text: &str) -> String {
    let mut shown = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '#' => break,
            '"' | '\'' => {
                while let Some(inside) = chars.next() {
                    if inside == '\\' && c == '"' {
                        chars.next();
                    } else if inside == c {
                        break;
                    }
                }
                shown.extend([c, '…', c]);
            }
            // A tab would move the caret.
            '\t' => shown.push(' '),
            _ => shown.push(c),
        }
    }
    shown
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
        let column = |line: &str, key: &str| line.find(key).unwrap() + 1;
        for (line, key, shown) in [
            ("bnd = \"cover\"  # sk-1", "bnd", "bnd = \"…\""),
            (
                "  x = { credential = \"sk-\\\"é1\", bnd = 7 }",
                "bnd",
                "  x = { credential = \"…\", bnd = 7 }",
            ),
            ("models = ['a', '']", "''", "models = ['…', '…']"),
            ("\tbnd=1", "bnd", " bnd=1"),
        ] {
            let (text, at) = excerpt(line, column(line, key)).unwrap();
            assert_eq!(text, shown);
            let here: String = text.chars().skip(at).collect();
            assert!(here.starts_with(&key[..1]), "{here}");
        }
        assert_eq!(excerpt("# sk-1", 1), None);
        assert_eq!(excerpt("é", 2), None);
        assert_eq!(excerpt("a", 9), None);
        // A string that does not end on its line hides the rest.
        assert_eq!(excerpt("k = \"sk-1", 1).unwrap().0, "k = \"…\"");
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
