//! `ledger list`, and the filters that `list` and `export` share.

use std::path::PathBuf;

use jiff::Timestamp;

use super::ledger::{shown, there};
use super::out::{Done, Failure, Out, Tone};
use crate::ledger::{self, Filter, Record};
use crate::terms::Leaf;

/// Which records.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Which {
    /// Not before this: a time (2026-11-30T08:00:00Z), a date, or how long ago (2h, 30m, 7d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this: a time, a date (its first instant, UTC), or how long ago
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only decisions with this leaf: hold, split, release; an eligible call can be refused, and --verdict forward are those that were sent
    #[arg(long)]
    leaf: Option<String>,
    /// Only decisions with this verdict: forward, refuse, local
    #[arg(long)]
    verdict: Option<String>,
    /// Only this reason code
    #[arg(long)]
    reason: Option<String>,
    /// Only decisions about this fixture
    #[arg(long, value_name = "ID|HASH")]
    fixture: Option<String>,
    /// Only decisions for this host or pin
    #[arg(long)]
    host: Option<String>,
    /// Only this call: its decision and its outcome
    #[arg(long)]
    call: Option<String>,
    /// Only this run of leafgate
    #[arg(long)]
    run: Option<String>,
    /// Only this type of record: open, stop, config, key, prune, decision, outcome, refused
    #[arg(long = "type", alias = "kind", value_name = "T")]
    kind: Option<String>,
    /// Only records before this seq
    #[arg(long, value_name = "SEQ")]
    before: Option<String>,
}

impl Which {
    /// The filter that the flags say.
    pub(super) fn filter(&self) -> Result<Filter, Failure> {
        let now = Timestamp::now();
        let mut filter = Filter::default();
        let mut faults = Vec::new();
        for (key, value) in [
            ("since", &self.since),
            ("until", &self.until),
            ("leaf", &self.leaf),
            ("verdict", &self.verdict),
            ("reason", &self.reason),
            ("fixture", &self.fixture),
            ("host", &self.host),
            ("call", &self.call),
            ("run", &self.run),
            ("type", &self.kind),
            ("before", &self.before),
        ] {
            if let Some(value) = value
                && let Err(why) = filter.add(key, value, now)
            {
                faults.push(format!("--{key}: {why}"));
            }
        }
        if faults.is_empty() {
            Ok(filter)
        } else {
            Err(Failure::Lines(faults))
        }
    }
}

/// Show the last records that fit, oldest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger list ledger
  leafgate ledger list ledger --since 2h --verdict refuse --last 200
  leafgate ledger list ledger --fixture seed-04 --json | jq .reason

Exits 1 where no record fits.")]
pub(super) struct Args {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    #[command(flatten)]
    which: Which,
    /// At most so many, the newest
    #[arg(long, alias = "limit", value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// The records as they stand, one on a line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let filter = args.which.filter()?;
    let page = ledger::page(&args.dir, &filter, args.last as usize, usize::MAX)
        .map_err(|fault| Failure::of(&fault))?;
    if page.records.is_empty() {
        none_fits(&filter, out)?;
        return Ok(Done::No);
    }
    // What reads a pipe wants records alone.
    if !args.json && out.on_terminal() {
        let heads = format!(
            "{:>8}  {:<20} {:<8} {:<7} {:<7} {:<4} {:<18} {:<16} {:<20} {}",
            "SEQ", "TIME", "TYPE", "VERDICT", "LEAF", "STEP", "REASON", "FIXTURE", "HOST", "CALL"
        );
        let heads = out.paint(Tone::Dim, &heads, 0);
        out.line(heads)?;
    }
    for record in page.records.iter().rev() {
        let line = if args.json {
            record.json()
        } else {
            row(record, out)
        };
        out.line(line)?;
    }
    Ok(Done::Yes)
}

/// Says on standard error that nothing fits; what is printed stays empty.
pub(super) fn none_fits(filter: &Filter, out: &mut Out) -> Result<(), Failure> {
    out.flush()?;
    let said: Vec<String> = filter
        .parts()
        .iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    if said.is_empty() {
        eprintln!("leafgate: the ledger holds no record");
    } else {
        eprintln!("leafgate: no record fits {}", said.join(", "));
    }
    Ok(())
}

/// One line for a record: the columns of a decision; for others what matters of them stands in their place.
fn row(record: &Record, out: &Out) -> String {
    let get = |key: &str| shown(&record.value[key]);
    let leaf = [Leaf::Hold, Leaf::Split, Leaf::Release]
        .into_iter()
        .find(|leaf| record.text("leaf") == Some(leaf.name()))
        .map_or(Tone::Plain, Tone::of);
    // What was refused never has the colour of what was sent.
    let tone = match record.text("verdict") {
        Some("refuse") => Tone::Bad,
        Some(_) | None => leaf,
    };
    // Seconds are enough here; `show` has them all.
    let time: String = get("time").chars().take(19).collect();
    let kind = get("t");
    let tail = match kind.as_str() {
        "decision" => {
            let host = record
                .text("host")
                .map_or_else(|| get("host_pin"), |_| get("host"));
            format!(
                "{} {} {:<4} {:<18} {:<16} {host:<20} {}",
                out.paint(tone, &get("verdict"), 7),
                out.paint(tone, &get("leaf"), 7),
                get("step"),
                get("reason"),
                get("fixture_id"),
                get("call")
            )
        }
        "outcome" => format!(
            "of {} sent {} {} status {} {} {:<20} {}",
            get("of"),
            get("sent"),
            get("sent_len"),
            get("status"),
            get("error"),
            get("peer"),
            get("call")
        ),
        "refused" => format!(
            "{} bytes {} count {}",
            get("reason"),
            get("bytes"),
            get("count")
        ),
        _ => others(record),
    };
    let line = format!("{:>8}  {time}Z {kind:<8} {tail}", record.seq);
    line.trim_end().to_owned()
}

/// Every field that only this type of record has: a type that this leafgate does not know is shown all the same.
fn others(record: &Record) -> String {
    let usual = ["v", "t", "log", "run", "seq", "prev", "time"];
    let members = record.value.as_object().into_iter().flatten();
    let parts: Vec<String> = members
        .filter(|(key, _)| !usual.contains(&key.as_str()))
        .map(|(key, value)| format!("{} {}", super::out::safe(key), shown(value)))
        .collect();
    parts.join(", ")
}
