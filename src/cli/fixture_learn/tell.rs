//! What `fixture learn` says: the calls, each proposal with its text and count, and how many bodies would be bound.

use std::collections::BTreeMap;
use std::io::Write as _;

use serde_json::{Value, json};

use super::capture::Captured;
use super::{Args, Outcome, Subject, alone, lacking};
use crate::cli::out::{Failure, Out, Tone, safe};
use crate::fixture::{Fixture, Proposal, Sample};
use crate::vocabulary::Vocabularies;

/// Glue shorter than this counts only next to fixture text (contract, section 8).
const SHORT: usize = 12;
/// A proposal of this many characters stands on one line, its line breaks written as `\n`.
const LINE: usize = 90;
/// Places named, at most.
const PLACES: usize = 12;

/// How bodies come out: which are bound, and where the others are not.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bodies: usize,
    bound: usize,
    /// By pointer and reason: bodies, and characters that are not covered.
    places: BTreeMap<(String, String), (usize, u64)>,
}

impl Tally {
    pub(super) fn of(
        fixture: &Fixture,
        models: &[String],
        vocabularies: &[Vocabularies],
        samples: &[Sample],
    ) -> Tally {
        let mut tally = Tally {
            bodies: samples.len(),
            ..Tally::default()
        };
        for sample in samples {
            let mut own: BTreeMap<(String, String), u64> = BTreeMap::new();
            match fixture.explain(models, vocabularies, &sample.route, &sample.body) {
                Ok(findings) => {
                    for finding in findings {
                        let mut clause = finding.fault.clause().to_owned();
                        if let Some(advice) = finding.advice() {
                            clause = format!("{clause} ({advice})");
                        }
                        *own.entry((finding.pointer, clause)).or_default() += finding.uncovered;
                    }
                }
                Err(unbound) => {
                    own.insert((String::new(), unbound.hint), 0);
                }
            }
            tally.bound += usize::from(own.is_empty());
            for (place, uncovered) in own {
                let sum = tally.places.entry(place).or_default();
                *sum = (sum.0 + 1, sum.1 + uncovered);
            }
        }
        tally
    }

    pub(super) fn all(&self) -> bool {
        self.bound == self.bodies
    }

    pub(super) fn none(&self) -> bool {
        self.bound == 0
    }

    fn facts(&self) -> Value {
        let places: Vec<Value> = self
            .places
            .iter()
            .map(|((pointer, reason), (bodies, uncovered))| {
                json!({"pointer": pointer, "reason": reason, "bodies": bodies, "uncovered": uncovered})
            })
            .collect();
        json!({"bodies": self.bodies, "bound": self.bound, "places": places})
    }
}

/// `1 body`, `2 bodies`.
pub(super) fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// A remark on standard error.
pub(in crate::cli) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "leafgate: {}", safe(line));
}

pub(super) fn captured(args: &Args, capture: &Captured, out: &mut Out) -> Result<(), Failure> {
    for (path, count) in &capture.unknown {
        note(&format!(
            "{} to {path}: the capture has no answer for this path",
            many(*count, "call", "calls")
        ));
    }
    if capture.beyond > 0 {
        note(&format!(
            "{} not kept: too long or too many",
            many(capture.beyond, "call", "calls")
        ));
    }
    if args.json {
        return Ok(());
    }
    let (calls, bodies) = (capture.calls, capture.samples.len());
    let label = out.paint(Tone::Strong, "captured", 0);
    let calls = many(calls, "call", "calls");
    let bodies = many(bodies, "different body", "different bodies");
    out.line(format!("{label}  {calls}, {bodies}"))
}

pub(super) fn outcome(
    args: &Args,
    subject: &Subject,
    outcome: &Outcome,
    out: &mut Out,
) -> Result<(), Failure> {
    if args.json {
        return out.json(&facts(subject, outcome));
    }
    if args.exact {
        exact(subject, outcome, out)?;
    } else {
        proposals(subject, outcome, out)?;
        alone::tell(subject, &outcome.learned.alone, out)?;
        bound(outcome, out)?;
    }
    if !outcome.models.is_empty() {
        let names = outcome.models.join(", ");
        let label = out.paint(Tone::Half, "models", 0);
        out.line(format!(
            "{label}  no host in the policy has these in its models; calls that name them are refused: {}",
            safe(&names)
        ))?;
    }
    Ok(())
}

fn facts(subject: &Subject, outcome: &Outcome) -> Value {
    let proposals: Vec<Value> = outcome
        .offered
        .iter()
        .map(|(number, proposal)| {
            let characters = proposal.text.chars().count();
            json!({
                "number": number, "bodies": proposal.bodies, "characters": characters, "short": characters < SHORT,
            })
        })
        .collect();
    let written = outcome.written.as_ref().map(|written| {
        json!({
            "glue": written.glue.as_ref().map(|file| file.display().to_string()), "bodies": written.bodies,
        })
    });
    json!({
        "id": subject.entry.id.as_str(), "proposals": proposals, "alone": alone::facts(&outcome.learned.alone),
        "lacking": lacking::facts(&outcome.learned.lacking), "single": outcome.learned.single, "left": outcome.learned.left,
        "now": outcome.now.facts(), "then": outcome.then.facts(), "models": outcome.models, "written": written,
    })
}

fn proposals(subject: &Subject, outcome: &Outcome, out: &mut Out) -> Result<(), Failure> {
    let id = &subject.entry.id;
    if outcome.offered.is_empty() {
        out.line(if outcome.now.all() {
            format!("{id}: every body is covered; no glue is missing")
        } else if outcome.learned.proposals.is_empty() {
            format!("{id}: no glue is proposed: with none that recurs would a body more be covered")
        } else {
            format!("{id}: every proposal is left out")
        })?;
    } else {
        let label = out.paint(Tone::Strong, "glue", 0);
        out.line(match &outcome.written {
            Some(written) => {
                let file = written.glue.as_ref().map(|file| file.display().to_string());
                format!("{label}  written to {}", safe(&file.unwrap_or_default()))
            }
            None => format!(
                "{label}  proposed for {id}; read each one: what is accepted may leave in any body"
            ),
        })?;
    }
    for (number, proposal) in &outcome.offered {
        one(Some(*number), proposal, outcome.learned.bodies, out)?;
    }
    if outcome.learned.bodies < 2 {
        out.line("one text tells nothing of a template: run at least two different items")?;
    }
    if outcome.learned.left > 0 {
        out.line(format!(
            "in few texts, or of no use as glue, not proposed: {}; public text of another file belongs under the same id",
            many(
                outcome.learned.left,
                "uncovered string",
                "uncovered strings"
            )
        ))?;
    }
    lacking::tell(subject, outcome, out)
}

/// One string that recurs: its number where it is proposed, its count and its text.
pub(super) fn one(
    number: Option<usize>,
    proposal: &Proposal,
    bodies: usize,
    out: &mut Out,
) -> Result<(), Failure> {
    let characters = proposal.text.chars().count();
    let short = if characters < SHORT {
        let text =
            format!("  short: under {SHORT} characters, it counts only next to fixture text");
        out.paint(Tone::Half, &text, 0)
    } else {
        String::new()
    };
    let count = proposal.bodies;
    let number = number
        .map(|number| format!("{number}  "))
        .unwrap_or_default();
    out.line(format!(
        "  {number}in {count} of {bodies} different texts, {characters} characters{short}"
    ))?;
    quote(&proposal.text, out)
}

/// A string between bars: on one line where it is short, else broken where it is.
pub(super) fn quote(string: &str, out: &mut Out) -> Result<(), Failure> {
    let lines: Vec<&str> = if safe(string).chars().count() <= LINE {
        vec![string]
    } else {
        string.split_inclusive('\n').collect()
    };
    for line in lines {
        let text = out.paint(Tone::Mark, &safe(line), 0);
        out.line(format!("     |{text}|"))?;
    }
    Ok(())
}

fn bound(outcome: &Outcome, out: &mut Out) -> Result<(), Failure> {
    let tally = &outcome.then;
    let (now, then, bodies) = (outcome.now.bound, tally.bound, tally.bodies);
    let label = out.paint(
        if tally.all() { Tone::Good } else { Tone::Half },
        "bound",
        0,
    );
    if outcome.written.is_some() || outcome.offered.is_empty() {
        out.line(format!("{label}  {then} of {bodies} bodies are bound now"))?;
    } else {
        out.line(format!(
            "{label}  {now} of {bodies} bodies now, {then} with this glue; --accept={} writes exactly this",
            outcome.digest
        ))?;
    }
    places(tally, out)
}

fn places(tally: &Tally, out: &mut Out) -> Result<(), Failure> {
    for ((pointer, reason), (bodies, uncovered)) in tally.places.iter().take(PLACES) {
        let pointer = if pointer.is_empty() {
            "(the body)"
        } else {
            pointer
        };
        out.line(format!(
            "  not bound: {}  {}: {}, {uncovered} characters",
            safe(pointer),
            safe(reason),
            many(*bodies, "body", "bodies")
        ))?;
    }
    if tally.places.len() > PLACES {
        out.line(format!(
            "  … and {} more places",
            tally.places.len() - PLACES
        ))?;
    }
    if !tally.all() {
        out.line("  leafgate fixture check shows their text (learn --record BODIES.jsonl keeps the bodies)")?;
    }
    Ok(())
}

fn exact(subject: &Subject, outcome: &Outcome, out: &mut Out) -> Result<(), Failure> {
    let label = out.paint(Tone::Strong, "exact", 0);
    let (id, bodies) = (&subject.entry.id, outcome.now.bodies);
    match &outcome.written {
        Some(written) => {
            let new = written.bodies;
            out.line(format!(
                "{label}  {new} new hashes recorded for {id} ({bodies} bodies)"
            ))?;
        }
        None => out.line(format!(
            "{label}  {bodies} bodies would be recorded for {id}; --accept={} writes exactly their hashes",
            outcome.digest
        ))?,
    }
    if !outcome.now.all() {
        let label = out.paint(Tone::Half, "weak:", 0);
        out.line(format!(
            "{label} {} of them hold text that the fixture does not cover; exact lets them leave whatever they hold",
            bodies - outcome.now.bound
        ))?;
        places(&outcome.now, out)?;
    }
    Ok(())
}
