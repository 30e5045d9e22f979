//! `oracle`: runs the cases that specify the tree.

use std::path::PathBuf;

use serde_json::json;

use super::out::{Done, Failure, Out, Tone, safe};
use crate::oracle::Oracle;

/// Run the oracle: the cases that specify the tree.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate oracle
  leafgate oracle my-cases.json

Exits 1 where a case differs. Without a file the built-in policies/oracle.json is run.")]
pub(super) struct Args {
    /// An oracle file instead of the built-in one
    #[arg(value_name = "F")]
    file: Option<PathBuf>,
    /// One JSON object on a line for each case
    #[arg(long)]
    json: bool,
}

/// The oracle of a file, or the built-in one.
pub(super) fn open(file: Option<&PathBuf>) -> Result<Oracle, Failure> {
    file.map_or_else(Oracle::embedded, |file| Oracle::load(file))
        .map_err(|fault| Failure::of(&fault))
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let oracle = open(args.file.as_ref())?;
    let mut failed = 0;
    for outcome in oracle.run() {
        failed += usize::from(!outcome.passed());
        if args.json {
            out.json(&json!({
                "id": outcome.id, "ok": outcome.passed(), "got": outcome.got, "expected": outcome.expected,
            }))?;
            continue;
        }
        let id = safe(&outcome.id);
        let line = if outcome.passed() {
            format!("{} {id}: {}", out.paint(Tone::Good, "OK", 0), outcome.leaf)
        } else {
            let (got, expected) = (outcome.got, safe(&outcome.expected).into_owned());
            format!(
                "{} {id}: got {got}, expected {expected}",
                out.paint(Tone::Bad, "FAIL", 0)
            )
        };
        out.line(line)?;
    }
    if !args.json {
        let count = oracle.count();
        let hash = oracle.hash();
        let tail = if failed == 0 {
            format!("{count} cases, none differs · oracle sha256:{hash}")
        } else {
            // The word FAIL stands in front of cases alone.
            format!("{count} cases, {failed} differ · oracle sha256:{hash}")
        };
        out.line(out.paint(Tone::Dim, &tail, 0))?;
    }
    Ok(Done::when(failed == 0))
}
