//! `ledger verify`, and the way to the other `ledger` commands, a file for each.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::out::{Done, Failure, Out, Tone, count, safe};
use super::progress::Progress;
use super::{
    ledger_explain, ledger_export, ledger_keep, ledger_list, ledger_prove, ledger_show, rooms,
};
use crate::files::shell_word;

/// Verify the record, or look into it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger verify ledger
  leafgate ledger list ledger --leaf hold
  leafgate ledger show 42
  leafgate ledger explain seed-04
  leafgate ledger export ledger --format html --out run.html
  leafgate ledger prove 42 --record 42.json > 42.tlog-proof")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Verify(Verify),
    List(ledger_list::Args),
    Show(ledger_show::Args),
    Explain(ledger_explain::Args),
    Export(ledger_export::Args),
    Prove(ledger_prove::Prove),
    CheckProof(ledger_prove::CheckProof),
    RotateKey(ledger_keep::RotateKey),
    Seal(ledger_keep::Seal),
    Prune(ledger_keep::Prune),
}

/// Verify the whole chain and its checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger verify ledger
  leafgate ledger verify ledger --checkpoint kept/2026-11-30

Exits 1 where anything was changed, dropped, swapped or cut, and names the line.")]
struct Verify {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// Also against this checkpoint, kept elsewhere; may be given more than once
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// How far it is on standard error, also where that is no terminal
    #[arg(long)]
    progress: bool,
    /// What was found, as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    match args.command {
        Command::Verify(args) => verify(&args, out),
        Command::List(args) => ledger_list::run(&args, out),
        Command::Show(args) => ledger_show::run(&args, out),
        Command::Explain(args) => ledger_explain::run(&args, out),
        Command::Export(args) => ledger_export::run(&args, out),
        Command::Prove(args) => ledger_prove::prove(&args, out),
        Command::CheckProof(args) => ledger_prove::check(&args, out),
        Command::RotateKey(args) => ledger_keep::rotate_key(&args, out),
        Command::Seal(args) => ledger_keep::seal(&args, out),
        Command::Prune(args) => ledger_keep::prune(&args, out),
    }
}

fn verify(args: &Verify, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let mut shown = Progress::new(args.progress);
    let found = rooms::verify(&args.dir, &args.checkpoint, &mut |read, all| {
        shown.at(read, all);
    });
    shown.end();
    let found = found?;
    let whole = found.problem.is_none();
    if args.json {
        out.json(&serde_json::json!({
            "ok": whole, "records": found.records, "problem": found.problem, "facts": found.facts,
        }))?;
        return Ok(Done::when(whole));
    }
    if let Some(problem) = &found.problem {
        out.line(format!(
            "{} {}",
            out.paint(Tone::Bad, "WRONG", 0),
            safe(problem)
        ))?;
    }
    if whole {
        let records = count(found.records, "record");
        out.line(format!(
            "{} {records}, chain and checkpoint hold{}",
            out.paint(Tone::Good, "WHOLE", 0),
            match args.checkpoint.len() {
                0 => "",
                1 => ", the one kept elsewhere too",
                _ => ", those kept elsewhere too",
            }
        ))?;
        for note in &found.notes {
            out.line(note)?;
        }
    }
    if let Some(unknown) = found.facts["unknown"].as_u64().filter(|count| *count > 0) {
        out.line(format!(
            "{unknown} may have left: their outcome says sent unknown; see them with `leafgate ledger list {} --type outcome --json | grep unknown`",
            safe(&shell_word(&args.dir))
        ))?;
    }
    Ok(Done::when(whole))
}

/// A mistyped folder is no empty ledger.
pub(super) fn there(dir: &Path) -> Result<(), Failure> {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => not_beside(dir),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(format!(
            "{}: no such folder; name that of the policy's ledger.dir (without that key: ledger, beside the policy file)",
            dir.display()
        ))),
        Ok(_) => Err(Failure::new(format!("{}: not a folder", dir.display()))),
        Err(error) => Err(Failure::file(dir, &error)),
    }
}

/// The folder of the policy is named in the place of the ledger's more often than any other.
fn not_beside(dir: &Path) -> Result<(), Failure> {
    let below = dir.join("ledger");
    let own = below.join("leafgate.pub");
    if dir.join("leafgate.pub").exists() || !own.exists() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: no ledger is here; it is in {}",
        dir.display(),
        safe(&shell_word(&below))
    )))
}

/// A value of a record, on one line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => safe(text).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            safe(&value.to_string()).into_owned()
        }
    }
}
