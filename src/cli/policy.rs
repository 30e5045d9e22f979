//! `policy check`, and how every command loads a policy.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::Value;

use super::out::{Done, Failure, Out, Tone, safe};
use crate::policy::Policy;

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

Every fault is one line on standard error, and the exit status is 2. Without a file the built-in policy is shown.")]
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

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    let Command::Check(check) = args.command;
    let policy = load(check.file.as_ref())?;
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
