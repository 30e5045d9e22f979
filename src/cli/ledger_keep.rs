//! `ledger rotate-key`, `seal` and `prune`: what is done to a ledger while no leafgate runs on it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ledger::there;
use super::out::{Done, Failure, Out, Tone, count, safe};
use crate::ledger::{self, Filter, LedgerError, Pruning};

/// The ledger that a command works on.
#[derive(Debug, clap::Args)]
struct On {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// What was done, as one JSON object
    #[arg(long)]
    json: bool,
}

/// Give the ledger a new signing key, recorded under the old one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger rotate-key ledger

leafgate must be stopped. Exits 1 where the ledger is not whole.")]
pub(super) struct RotateKey {
    #[command(flatten)]
    on: On,
}

/// Close the open segment and write the checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger seal ledger

leafgate must be stopped. Exits 1 where the ledger is not whole.")]
pub(super) struct Seal {
    #[command(flatten)]
    on: On,
}

/// Take away sealed segments whose records are all older than a time.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger prune ledger --before 2026-06-01         shows what would go
  leafgate ledger prune ledger --before 2026-06-01 --yes   takes it away
  leafgate ledger prune ledger --before 30d                what is older than thirty days

leafgate must be stopped. The open segment always stays; leafgate ledger seal closes it. Exits 1 where
the ledger is not whole.")]
pub(super) struct Prune {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// Only segments that have no record from this time on: RFC 3339, a date (its first moment, UTC), or how long ago (30d, 12h)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Timestamp,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// What goes, as one JSON object
    #[arg(long)]
    json: bool,
}

fn moment(text: &str) -> Result<Timestamp, &'static str> {
    let mut filter = Filter::default();
    let read = filter.add("since", text, Timestamp::now());
    read.ok().and(filter.since).ok_or(
        "is neither a date (2026-06-01), nor an RFC 3339 time (2026-06-01T00:00:00Z), nor how long ago (30d, 12h)",
    )
}

pub(super) fn rotate_key(args: &RotateKey, out: &mut Out) -> Result<Done, Failure> {
    there(&args.on.dir)?;
    let rotated = match ledger::rotate_key(&args.on.dir) {
        Ok(rotated) => rotated,
        Err(error) => return failed(&args.on.dir, "rotate-key", error, out),
    };
    if args.on.json {
        out.json(&serde_json::json!({
            "old": rotated.old, "key": rotated.key, "seq": rotated.seq,
        }))?;
        return Ok(Done::Yes);
    }
    out.line(format!(
        "{} record {} puts a new key in place of {}; leafgate.pub now holds",
        out.paint(Tone::Good, "ROTATED", 0),
        rotated.seq,
        rotated.old
    ))?;
    out.line(&rotated.key)?;
    Ok(Done::Yes)
}

pub(super) fn seal(args: &Seal, out: &mut Out) -> Result<Done, Failure> {
    there(&args.on.dir)?;
    let sealed = match ledger::seal(&args.on.dir) {
        Ok(sealed) => sealed,
        Err(error) => return failed(&args.on.dir, "seal", error, out),
    };
    if args.on.json {
        out.json(&serde_json::json!({ "sealed": sealed.is_some(), "next": sealed }))?;
        return Ok(Done::Yes);
    }
    match sealed {
        Some(seq) => out.line(format!(
            "{} the next segment begins with record {seq}",
            out.paint(Tone::Good, "SEALED", 0)
        ))?,
        None => out.line("nothing to seal: the open segment holds no record")?,
    }
    Ok(Done::Yes)
}

pub(super) fn prune(args: &Prune, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    // What goes is shown before it goes.
    let mut shown = Ok(());
    let mut show_it = |look: &Pruning, out: &mut Out| {
        if !args.json {
            shown = show(look, out).and_then(|()| out.flush());
        }
        args.yes && shown.is_ok()
    };
    let pruned = match ledger::prune(&args.dir, args.before, &mut |look| show_it(look, out)) {
        Ok(pruned) => pruned,
        Err(error) => return failed(&args.dir, "prune", error, out),
    };
    shown?;
    if args.json {
        out.json(&json(&pruned))?;
        return Ok(Done::Yes);
    }
    let (segments, records, bytes) = sums(&pruned);
    let what = format!(
        "{}, {}, {}",
        count(segments, "segment"),
        count(records, "record"),
        count(bytes, "byte")
    );
    if pruned.segments.is_empty() {
        show(&pruned, out)?;
        out.line("nothing to prune: no sealed segment is that old")?;
    } else if pruned.done {
        out.line(format!("{} {what}", out.paint(Tone::Good, "PRUNED", 0)))?;
    } else {
        out.line(format!(
            "{what} would go; copy them first if they must be kept, then run it again with --yes"
        ))?;
    }
    Ok(Done::Yes)
}

fn show(pruning: &Pruning, out: &mut Out) -> Result<(), Failure> {
    for old in &pruning.segments {
        let decisions = old.counts.get("decision").copied().unwrap_or_default();
        let forwarded = old.counts.get("forwarded").copied().unwrap_or_default();
        out.line(format!(
            "{}  records {} to {}  {}, {forwarded} forwarded  {}  newest {}",
            safe(&old.file.display().to_string()),
            old.first,
            old.first + old.records - 1,
            count(decisions, "decision"),
            count(old.bytes, "byte"),
            old.newest
        ))?;
    }
    if pruning.carried > 0 {
        out.line(format!(
            "in these: {}, written again",
            count(pruning.carried, "older prune record")
        ))?;
    }
    if let Some((file, open)) = &pruning.stopped {
        out.line(format!(
            "{} stays: {} without an outcome at its end, more than its record can name",
            safe(&file.display().to_string()),
            count(*open, "forwarded decision")
        ))?;
    }
    Ok(())
}

fn sums(pruning: &Pruning) -> (u64, u64, u64) {
    let records = pruning.segments.iter().map(|old| old.records).sum();
    let bytes = pruning.segments.iter().map(|old| old.bytes).sum();
    (pruning.segments.len() as u64, records, bytes)
}

fn json(pruning: &Pruning) -> serde_json::Value {
    let segments: Vec<_> = pruning
        .segments
        .iter()
        .map(|old| {
            serde_json::json!({
                "file": old.file, "segment": old.first, "count": old.records, "bytes": old.bytes,
                "counts": old.counts, "newest": old.newest,
            })
        })
        .collect();
    serde_json::json!({
        "done": pruning.done, "segments": segments, "carried": pruning.carried,
        "stopped": pruning.stopped.as_ref().map(|(file, _)| file),
    })
}

/// A ledger that is not whole is an answer; everything else is a failure.
fn failed(dir: &Path, command: &str, error: LedgerError, out: &mut Out) -> Result<Done, Failure> {
    match error {
        LedgerError::Problem(problem) => {
            out.line(format!(
                "{} {}",
                out.paint(Tone::Bad, "WRONG", 0),
                safe(&problem.to_string())
            ))?;
            Ok(Done::No)
        }
        LedgerError::Locked { .. } => Err(Failure::new(format!(
            "{}: a leafgate is running on this ledger; stop it, then run leafgate ledger {command} again",
            dir.display()
        ))),
        error @ (LedgerError::Io { .. } | LedgerError::Key { .. } | LedgerError::Unfit { .. }) => {
            Err(Failure::of(&error))
        }
    }
}
