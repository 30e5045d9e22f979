//! What recurs and does not suffice, what stands in one text only, and what a person can do about both.
//!
//! Promises: text of one body is shown on a terminal alone, for it may be private; elsewhere its count is said.

use serde_json::{Value, json};

use super::alone::Place;
use super::tell::{many, one, quote};
use super::{Outcome, Subject};
use crate::cli::out::{Failure, Out, Tone};
use crate::fixture::Proposal;

/// Characters shown of a string of one text, at most.
const CLIP: usize = 300;

pub(super) fn tell(subject: &Subject, outcome: &Outcome, out: &mut Out) -> Result<(), Failure> {
    let terminal = out.on_terminal();
    let learned = &outcome.learned;
    if !learned.lacking.is_empty() {
        let label = out.paint(Tone::Half, "would not suffice:", 0);
        out.line(format!(
            "{label} these recur, and no body more would be bound with them; --accept does not write them"
        ))?;
        for proposal in &learned.lacking {
            one(None, proposal, learned.bodies, out)?;
        }
    }
    if learned.single > 0 {
        let strings = many(learned.single, "uncovered string", "uncovered strings");
        let shown = if terminal {
            ""
        } else {
            " (a terminal shows them)"
        };
        out.line(format!(
            "in one text only, perhaps private, never proposed: {strings}{shown}"
        ))?;
    }
    if terminal {
        for text in &learned.singles {
            let mut clipped: String = text.chars().take(CLIP).collect();
            if clipped.len() < text.len() {
                clipped.push('…');
            }
            quote(&clipped, out)?;
        }
        if learned.single > learned.singles.len() {
            let more = learned.single - learned.singles.len();
            out.line(format!("     … and {more} more"))?;
        }
    }
    let open = learned.single > 0 || !learned.lacking.is_empty();
    if open && learned.bodies > 1 && outcome.then.none() {
        by_hand(subject, outcome, out)?;
    }
    Ok(())
}

/// No look at bodies finds more: the person knows which part is data.
fn by_hand(subject: &Subject, outcome: &Outcome, out: &mut Out) -> Result<(), Failure> {
    let lock = &subject.policy.fixtures.lock;
    let beside = |glue| lock.parent().unwrap_or(lock).join(glue);
    let written = outcome
        .written
        .as_ref()
        .and_then(|written| written.glue.clone());
    if let Some(file) = written.or_else(|| subject.entry.glue.as_ref().map(beside)) {
        return out.line(format!(
            "  write the parts around your data in {} by hand, a JSON array of strings, and run learn again",
            crate::cli::out::safe(&file.display().to_string())
        ));
    }
    let (file, add) = Place::of(subject).with_glue();
    out.line(format!(
        "  write the parts around your data in {file} by hand, a JSON array of strings; then register it, and run learn again:"
    ))?;
    out.line(format!("  {add}"))
}

/// Facts without text.
pub(super) fn facts(lacking: &[Proposal]) -> Vec<Value> {
    let fact = |proposal: &Proposal| json!({"bodies": proposal.bodies, "characters": proposal.text.chars().count()});
    lacking.iter().map(fact).collect()
}
