//! `ledger explain`: why a score moved, for one fixture.

use std::path::PathBuf;

use jiff::Timestamp;

use super::ledger::there;
use super::out::{Done, Failure, Out, Tone, count, safe};
use crate::ledger::{Changes, Explained, Filter, Run, explain};
use crate::terms::{FixtureHash, FixtureId, Leaf};

/// Say for one fixture what each run was and what changed between them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger explain seed-04
  leafgate ledger explain sha256:9f2c… other/ledger --since 7d

A run is the calls for the fixture in one run of leafgate, under one policy, with the same card values, host
and leaf, without a pause of more than ten minutes, and, for a release, until the same bytes are sent again.
Exits 1 where nothing is recorded for the fixture.")]
pub(super) struct Args {
    /// The fixture's id, or its hash as the card has it
    #[arg(value_name = "FIXTURE")]
    fixture: String,
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// Not before this: a time, a date, or how long ago (2h, 30m, 7d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// At most so many runs, the newest
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// All of it, as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    if FixtureHash::parse(&args.fixture).is_none() && FixtureId::parse(&args.fixture).is_none() {
        return Err(Failure::new(
            "FIXTURE: an id (letters, digits, dot, underscore, hyphen) or a hash (sha256: or hmac-sha256: and 64 lower-case hex digits)",
        ));
    }
    let mut span = Filter::default();
    for (key, value) in [("since", &args.since), ("until", &args.until)] {
        if let Some(value) = value {
            span.add(key, value, Timestamp::now())
                .map_err(|why| Failure::new(format!("--{key}: {why}")))?;
        }
    }
    let mut found =
        explain(&args.dir, &args.fixture, &span).map_err(|fault| Failure::of(&fault))?;
    if found.runs.is_empty() {
        out.flush()?;
        eprintln!(
            "leafgate: nothing is recorded for the fixture {}{}{}",
            args.fixture,
            cardless(found.cardless),
            pruned(found.gone)
        );
        return Ok(Done::No);
    }
    let left_out = found.runs.len().saturating_sub(args.last as usize);
    found.runs.drain(..left_out);
    if args.json {
        out.json(&found.to_json())?;
        return Ok(Done::Yes);
    }
    tell(&found, left_out, out)?;
    Ok(Done::Yes)
}

fn cardless(count: u64) -> String {
    if count == 0 {
        return String::new();
    }
    format!(
        "; {} had no card that could be read: about which fixture, nobody can tell",
        self::count(count, "decision")
    )
}

/// What is not here any more.
fn pruned(gone: u64) -> String {
    match gone {
        0 => String::new(),
        1 => {
            "; the first record was pruned: if it was about the fixture, it is not told".to_owned()
        }
        _ => format!(
            "; the first {gone} records were pruned: what they said of the fixture is not told"
        ),
    }
}

fn tell(found: &Explained, left_out: usize, out: &mut Out) -> Result<(), Failure> {
    let title = out.paint(Tone::Strong, &format!("Fixture {}", found.fixture), 0);
    let all = found.runs.len() + left_out;
    out.line(format!("{title}: {}", count(all as u64, "run")))?;
    if left_out > 0 {
        out.line(format!(
            "  not shown: the first {}; --last {all} shows all",
            count(left_out as u64, "run")
        ))?;
    }
    for (place, run) in found.runs.iter().enumerate() {
        out.line("")?;
        if let Some(before) = place.checked_sub(1).map(|at| &found.runs[at]) {
            changes(&before.to(run), before, run, out)?;
            out.line("")?;
        }
        one(run, left_out + place + 1, left_out + 1, out)?;
    }
    out.line("")?;
    let title = out.paint(Tone::Strong, "Replay", 0);
    out.line(title)?;
    for words in found.replay_words() {
        out.line(format!("  {}", safe(&words)))?;
    }
    for words in [cardless(found.cardless), pruned(found.gone)] {
        if !words.is_empty() {
            out.line(format!("  {}", words.trim_start_matches("; ")))?;
        }
    }
    Ok(())
}

fn one(run: &Run, number: usize, first: usize, out: &mut Out) -> Result<(), Failure> {
    let tone = [Leaf::Hold, Leaf::Split, Leaf::Release]
        .into_iter()
        .find(|leaf| run.leaf() == Some(leaf.name()))
        .map_or(Tone::Plain, Tone::of);
    let title = out.paint(Tone::Strong, &format!("Run {number}"), 0);
    let ruling = out.paint(tone, &safe(&run.ruling()), 0);
    out.line(format!("{title}: {ruling}"))?;
    let (from, until) = (safe(&run.times.0), safe(&run.times.1));
    let calls = count(run.calls, "call");
    out.line(if run.seqs.0 == run.seqs.1 {
        format!("  {calls}, record {}, {from}", run.seqs.0)
    } else {
        let (first, last) = run.seqs;
        format!("  {calls}, records {first} to {last}, {from} to {until}")
    })?;
    // What changed since the run before was said; what did not stands there.
    let whole = number == first;
    for (name, value) in run.facets().skip(3) {
        if !whole && !["host", "pin", "policy"].contains(&name) {
            continue;
        }
        out.line(format!("  {name:<16} {}", safe(value)))?;
    }
    for (name, set) in [
        ("peer", &run.peers),
        ("model", &run.models),
        ("ended with", &run.errors),
    ] {
        for value in set {
            out.line(format!("  {name:<16} {}", safe(value)))?;
        }
    }
    for status in &run.statuses {
        out.line(format!("  {:<16} {status}", "status"))?;
    }
    let digests = run.digests();
    for digest in digests.iter().take(8) {
        out.line(format!("  answer digest    {}", safe(digest)))?;
    }
    if digests.len() > 8 {
        out.line(format!(
            "  and {} (--json has them all)",
            count(digests.len() as u64 - 8, "more answer digest")
        ))?;
    }
    if run.leaf() == Some("split") {
        out.line("  The answers to a split do not replace the local score and are not compared.")?;
    }
    if let Some(words) = run.classless() {
        let words = out.paint(Tone::Half, words, 0);
        out.line(format!("  {words}"))?;
    }
    Ok(())
}

fn bodies(count: u64) -> String {
    match count {
        1 => "1 body".to_owned(),
        _ => format!("{count} bodies"),
    }
}

fn changes(changes: &Changes, before: &Run, after: &Run, out: &mut Out) -> Result<(), Failure> {
    if changes.changed.is_empty() {
        out.line("  Between the two: nothing that is recorded changed but the time.")?;
    }
    for (name, old, new) in &changes.changed {
        let line = format!("  changed: {name} was {old}, is {new}");
        let line = out.paint(Tone::Half, &safe(&line), 0);
        out.line(line)?;
    }
    if !changes.same.is_empty() && !changes.changed.is_empty() {
        out.line(format!("  not changed: {}", changes.same.join(", ")))?;
    }
    if !changes.unknown.is_empty() {
        out.line(format!(
            "  unknown: {}: the record that says it of one of the two is not here (it may have been pruned)",
            changes.unknown.join(", ")
        ))?;
    }
    let nothing = match changes.nothing_sent {
        (true, true) => Some("either run"),
        (true, false) => Some("the first of the two"),
        (false, true) => Some("the second of the two"),
        (false, false) => None,
    };
    if let Some(which) = nothing {
        return out.line(format!(
            "  nothing was sent in {which}, so there is no peer, model or answer to compare"
        ));
    }
    let ((both, old, new), (same, different, partial)) = (changes.bytes, changes.answers);
    if before.leaf() != Some("release") || after.leaf() != Some("release") {
        return out.line("  answers are not compared: not both runs released bytes to a host");
    }
    out.line(format!(
        "  bytes sent: {} left in both runs, {old} only in the first, {new} only in the second{}",
        bodies(both),
        match changes.may {
            0 => String::new(),
            may => format!("; of {may} more it is unknown, or they left in part"),
        }
    ))?;
    if both == 0 {
        return out.line("  answers cannot be compared: no body is known to have left in both");
    }
    let line = format!(
        "  answers to the same bytes: {same} the same, {different} different, {partial} not answered whole and with a status of 2xx in both"
    );
    let tone = match (same, different) {
        (_, 1..) => Tone::Bad,
        (1.., 0) => Tone::Good,
        (0, 0) => Tone::Half,
    };
    let line = out.paint(tone, &line, 0);
    out.line(line)
}
