//! `ledger show`: a call as a story, or one record.

use std::path::{Path, PathBuf};

use super::ledger::there;
use super::out::{Done, Failure, Out, Tone, count, safe};
use crate::files::shell_word;
use crate::ledger::{
    self, LedgerError, Mark, Part, Record, StoryLine, StoryProof, story_of_call, story_of_record,
};
use crate::terms::FixtureId;

/// Tell the story of one call, or of one record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger show 01K…              a call, as in the answer's leafgate-call header
  leafgate ledger show 42 other/ledger   the call that record 42 belongs to, of another folder
  leafgate ledger show 42 --json         record 42 as it stands

Exits 1 where there is none.")]
pub(super) struct Args {
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

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let read = |fault: LedgerError| Failure::of(&fault);
    let by_seq = ledger::seq(&args.which);
    let records = match by_seq {
        Some(seq) => ledger::one(&args.dir, seq)
            .map_err(read)?
            .into_iter()
            .collect(),
        None => of_call(&args.dir, &args.which)?,
    };
    if records.is_empty() {
        out.flush()?;
        let gone = ledger::gone(&args.dir).map_err(read)?;
        eprintln!("leafgate: {}", missing(by_seq, gone));
        return Ok(Done::No);
    }
    if args.json {
        for record in &records {
            out.line(record.json())?;
        }
        return Ok(Done::Yes);
    }
    let first = records.first();
    let call = by_seq.and_then(|_| first?.text("call"));
    let records = match call {
        Some(call) => of_call(&args.dir, call)?,
        None => records,
    };
    let parts = match records.first() {
        Some(record) if record.text("call").is_none() => {
            let proof = StoryProof::of(&args.dir, record).map_err(read)?;
            story_of_record(record, &proof)
        }
        _ => story(&args.dir, &records).map_err(read)?,
    };
    for part in &parts {
        tell(part, out)?;
    }
    if let Some(next) = what_next(&records, &args.dir) {
        out.line(next)?;
    }
    Ok(Done::Yes)
}

/// Where to read on about a call or message that was refused, or that ended with an error.
fn what_next(records: &[Record], dir: &Path) -> Option<String> {
    let error = records.iter().find_map(|record| match record.text("t") {
        Some("outcome") => record.text("error"),
        _ => None,
    });
    let refused = records.iter().find_map(|record| {
        let refused =
            record.text("t") == Some("refused") || record.text("verdict") == Some("refuse");
        refused.then(|| record.text("reason")).flatten()
    });
    let code = error.or(refused)?;
    let mut line = format!("What to do: docs/reasons.md, {}", safe(code));
    let fixture = records.iter().find_map(|record| record.text("fixture_id"));
    if let Some(id) = fixture.and_then(FixtureId::parse) {
        line.push_str(&format!(
            "; the fixture's other runs: leafgate ledger explain {id}"
        ));
        if dir != Path::new("ledger") {
            line.push_str(&format!(" {}", safe(&shell_word(dir))));
        }
    }
    Some(line)
}

/// Why there is nothing to show; `gone` records were pruned.
pub(super) fn missing(seq: Option<u64>, gone: u64) -> String {
    let again = "put the archived segments beside a copy of the ledger, take `pruned` away there, and ask again";
    match seq {
        Some(seq) if seq < gone => {
            format!(
                "record {seq} was pruned, with the first {}: {again}",
                count(gone, "record")
            )
        }
        Some(seq) => format!("there is no record {seq}"),
        None if gone > 0 => format!(
            "there is no such call; the first {} may have held it and were pruned: {again}",
            count(gone, "record")
        ),
        None => "there is no such call".to_owned(),
    }
}

/// The records of a call, oldest first.
fn of_call(dir: &Path, call: &str) -> Result<Vec<Record>, Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if call.is_empty() || !call.bytes().all(plain) {
        return Err(Failure::new(
            "CALL|SEQ: a call's id is letters and digits, a seq is digits alone",
        ));
    }
    ledger::of_call(dir, call).map_err(|fault| Failure::of(&fault))
}

fn story(dir: &Path, records: &[Record]) -> Result<Vec<Part>, LedgerError> {
    let find = |kind: &str| records.iter().find(|record| record.is(kind));
    let proved =
        |record: Option<&Record>| record.map(|record| StoryProof::of(dir, record)).transpose();
    let (decision, outcome) = (find("decision"), find("outcome"));
    let (shown, after) = (proved(decision)?, proved(outcome)?);
    Ok(story_of_call(
        decision.zip(shown.as_ref()),
        outcome.zip(after.as_ref()),
    ))
}

fn tell(part: &Part, out: &mut Out) -> Result<(), Failure> {
    let title = out.paint(Tone::Strong, part.title, 0);
    out.line(title)?;
    for StoryLine { mark, text } in &part.lines {
        let (sign, tone) = match mark {
            Mark::Plain => ("  ", Tone::Plain),
            Mark::Yes => ("+ ", Tone::Good),
            Mark::No => ("x ", Tone::Bad),
            Mark::Skipped => ("- ", Tone::Dim),
            Mark::Doubt => ("? ", Tone::Half),
        };
        let text = safe(text);
        let line = if *mark == Mark::Skipped {
            out.paint(tone, &format!("{sign}{text}"), 0)
        } else {
            format!("{}{text}", out.paint(tone, sign, 0))
        };
        out.line(format!("  {line}"))?;
    }
    out.line("")
}
