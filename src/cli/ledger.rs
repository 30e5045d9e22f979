//! `ledger verify`, `list` and `show`; `prove` and `check-proof` stand in `ledger_prove`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::out::{Done, Failure, Out, Tone, safe};
use super::progress::Progress;
use super::rooms;
use super::{ledger_keep, ledger_prove};
use crate::admin::{Filter, Record, last, one};
use crate::terms::Leaf;

/// Verify the record, or look into it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger verify ledger
  leafgate ledger list ledger --leaf hold
  leafgate ledger show 42
  leafgate ledger prove 42 --record 42.json > 42.tlog-proof")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Verify(Verify),
    List(List),
    Show(Show),
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

/// Show the last records, oldest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger list ledger
  leafgate ledger list ledger --leaf hold --limit 200
  leafgate ledger list ledger --json | jq .reason")]
struct List {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// Only this leaf
    #[arg(long)]
    leaf: Option<String>,
    /// Only this reason code
    #[arg(long)]
    reason: Option<String>,
    /// Only this verdict
    #[arg(long)]
    verdict: Option<String>,
    /// Only this fixture
    #[arg(long, value_name = "ID")]
    fixture: Option<String>,
    /// Only this kind of record: open, stop, config, decision, outcome, refused
    #[arg(long, value_name = "T")]
    kind: Option<String>,
    /// At most so many, 1 to 500
    #[arg(long, default_value_t = 50)]
    limit: u16,
    /// Only records before this seq
    #[arg(long, value_name = "SEQ")]
    before: Option<u64>,
    /// The records as they stand, one on a line
    #[arg(long)]
    json: bool,
}

/// Show the records of one call, or one record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger show 01K…              a call, as in the answer's leafgate-call header
  leafgate ledger show 42 other/ledger   one record, of another folder

Exits 1 where there is none.")]
struct Show {
    /// A call's id or a record's seq
    #[arg(value_name = "CALL|SEQ")]
    which: String,
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// The records as they stand, one on a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    match args.command {
        Command::Verify(args) => verify(&args, out),
        Command::List(args) => list(&args, out),
        Command::Show(args) => show(&args, out),
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
        let records = found.records;
        out.line(format!(
            "{} {records} records, chain and checkpoint hold{}",
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
            "{unknown} may have left: their outcome says sent unknown; see them with `leafgate ledger list DIR --kind outcome --json | grep unknown`"
        ))?;
    }
    Ok(Done::when(whole))
}

/// A mistyped folder is no empty ledger.
pub(super) fn there(dir: &Path) -> Result<(), Failure> {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::new(format!("{}: not a folder", dir.display()))),
        Err(error) => Err(Failure::file(dir, &error)),
    }
}

fn list(args: &List, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let mut filter = Filter::default();
    let limit = Some(args.limit.to_string());
    let before = args.before.map(|seq| seq.to_string());
    for (flag, key, value) in [
        ("--leaf", "leaf", &args.leaf),
        ("--reason", "reason", &args.reason),
        ("--verdict", "verdict", &args.verdict),
        ("--fixture", "fixture_id", &args.fixture),
        ("--kind", "t", &args.kind),
        ("--limit", "limit", &limit),
        ("--before", "before", &before),
    ] {
        if let Some(value) = value {
            filter
                .add(key, value)
                .map_err(|why| Failure::new(format!("{flag}: {why}")))?;
        }
    }
    // A long ledger is read a page at a time until enough records fit.
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = last(&args.dir, &filter).map_err(|fault| Failure::of(&fault))?;
        filter.limit -= page.records.len();
        filter.before = page.next;
        records.extend(page.records);
        if page.next.is_none() || filter.limit == 0 {
            break;
        }
    }
    for record in records.iter().rev() {
        if args.json {
            out.json(&record.value)?;
        } else {
            let line = row(record, out);
            out.line(line)?;
        }
    }
    Ok(Done::Yes)
}

/// `seq time t leaf step reason …`, aligned.
fn row(record: &Record, out: &Out) -> String {
    let get = |key: &str| shown(&record.value[key]);
    let tone = [Leaf::Hold, Leaf::Split, Leaf::Release]
        .into_iter()
        .find(|leaf| leaf.name() == get("leaf"))
        .map_or(Tone::Plain, Tone::of);
    // Seconds are enough here; `show` has them all.
    let time: String = get("time").chars().take(19).collect();
    let kind = get("t");
    let tail = match kind.as_str() {
        "decision" => format!(
            "{} {} {:<18} {:<8} {}",
            out.paint(tone, &get("leaf"), 7),
            get("step"),
            get("reason"),
            get("verdict"),
            get("fixture_id")
        ),
        "outcome" => format!(
            "of {} sent {} {} status {} {}",
            get("of"),
            get("sent"),
            get("sent_len"),
            get("status"),
            get("error")
        ),
        "refused" => format!(
            "{} bytes {} count {}",
            get("reason"),
            get("bytes"),
            get("count")
        ),
        _ => get("error"),
    };
    let line = format!("{:>6} {time}Z {kind:<8} {tail}", record.seq);
    line.trim_end().to_owned()
}

fn show(args: &Show, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let records = match args.which.parse::<u64>() {
        Ok(seq) => one(&args.dir, seq)
            .map_err(|fault| Failure::of(&fault))?
            .into_iter()
            .collect(),
        Err(_) => of_call(&args.dir, &args.which)?,
    };
    for record in &records {
        if args.json {
            out.json(&record.value)?;
            continue;
        }
        let Some(members) = record.value.as_object() else {
            continue;
        };
        let width = members.keys().map(|key| key.chars().count()).max();
        for (key, value) in members {
            let key = out.paint(Tone::Strong, &safe(key), width.unwrap_or(0));
            out.line(format!("{key}  {}", shown(value)))?;
        }
        out.line("")?;
    }
    Ok(Done::when(!records.is_empty()))
}

/// The records of a call, oldest first.
fn of_call(dir: &Path, call: &str) -> Result<Vec<Record>, Failure> {
    let mut filter = Filter::default();
    filter
        .add("call", call)
        .map_err(|why| Failure::new(format!("CALL: {why}")))?;
    let mut records = Vec::new();
    loop {
        let page = last(dir, &filter).map_err(|fault| Failure::of(&fault))?;
        records.extend(page.records);
        // A decision stands before its outcome: there is nothing older.
        let begun = records
            .iter()
            .any(|record: &Record| record.value["t"] == "decision");
        if begun || page.next.is_none() {
            records.reverse();
            return Ok(records);
        }
        filter.before = page.next;
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => safe(text).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            safe(&value.to_string()).into_owned()
        }
    }
}
