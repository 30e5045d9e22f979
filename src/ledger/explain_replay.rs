//! Replays: answers to the same bytes from the same pin, each against the one before it.
//!
//! Promises: how far apart two calls lie is told by the calls' own times, not by their runs'; only whole answers with a status of 2xx are compared, and what was not compared
//! is counted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::explain::{Answer, Run};
use super::query::duration;
use super::story::say;

/// Pairs of differing answers that are listed one by one.
const MOST_PAIRS: usize = 50;

/// By pin and replay window.
pub(super) type Replays = BTreeMap<(String, String), Replay>;

/// Answers to the same bytes from the same pin.
#[derive(Debug, Clone, Default)]
pub(super) struct Replay {
    same: u64,
    different: u64,
    /// Further apart than the window.
    beyond: u64,
    /// The window names no length of time.
    unknown: u64,
    /// Answered with a status outside 2xx, and which.
    refused: u64,
    statuses: BTreeSet<u64>,
    pairs: Vec<Value>,
}

/// Each answer against the one before it that the same pin gave to the same bytes.
pub(super) fn replays(runs: &[Run]) -> Replays {
    let mut calls: Vec<(&str, &str, &str, &Answer)> = Vec::new();
    for run in runs {
        if let (Some(pin), Some(window)) = (run.pin(), run.window()) {
            calls.extend(
                run.answers()
                    .map(|(plan, answer)| (pin, window, plan, answer)),
            );
        }
    }
    // Runs may lie side by side.
    calls.sort_by_key(|(.., answer)| answer.seq);
    let mut found = Replays::new();
    let mut before: BTreeMap<(&str, &str), &Answer> = BTreeMap::new();
    for (pin, window, plan, answer) in calls {
        let earlier = before.get(&(pin, plan)).copied();
        if answer.good() {
            before.insert((pin, plan), answer);
        }
        if let Some(earlier) = earlier {
            found
                .entry((pin.to_owned(), window.to_owned()))
                .or_default()
                .note(window, plan, earlier, answer);
        }
    }
    found
}

impl Replay {
    fn note(&mut self, window: &str, plan: &str, earlier: &Answer, answer: &Answer) {
        if !answer.good() {
            self.refused += 1;
            self.statuses.extend(answer.status);
            return;
        }
        let apart = earlier
            .time
            .zip(answer.time)
            .map(|(before, now)| now.duration_since(before).abs());
        match duration(window).zip(apart) {
            None => self.unknown += 1,
            Some((length, apart)) if apart > length => {
                self.beyond += 1;
                return;
            }
            Some(_) => {}
        }
        if earlier.digest == answer.digest {
            self.same += 1;
            return;
        }
        self.different += 1;
        if self.pairs.len() < MOST_PAIRS {
            let told = |answer: &Answer| json!({ "decision": answer.seq, "status": answer.status, "received_sha256": answer.digest });
            self.pairs.push(
                json!({ "plan_sha256": plan, "earlier": told(earlier), "later": told(answer) }),
            );
        }
    }

    fn words(&self, pin: &str, window: &str, words: &mut Vec<String>) {
        let begin = format!("Pin {pin}, replay window {window}:");
        let (all, unknown) = (self.same + self.different, self.unknown);
        if unknown > 0 {
            words.push(format!("The replay window {window} of the pin {pin} names no length of time, so nobody can tell which of its replays ({unknown}) lie within it; all are compared."));
        }
        words.push(match (self.same, self.different) {
            (0, 0) if self.beyond == 0 => format!("{begin} no replay was answered with a status of 2xx."),
            (0, 0) => format!("{begin} no replay lies within the window."),
            (1, 0) => format!("{begin} the one replay gave the same answer digest as the answer before it."),
            (same, 0) => format!("{begin} each of {same} replays gave the same answer digest as the answer before it."),
            (_, different) => format!("{begin} {different} of {all} replays gave ANOTHER answer digest to the same bytes."),
        });
        for pair in self.pairs.iter().take(5) {
            let told = |which: &str| {
                let told = &pair[which];
                format!(
                    "decision {} was answered {} with {}",
                    told["decision"],
                    told["status"],
                    say(&told["received_sha256"])
                )
            };
            words.push(format!("  {}, {}", told("earlier"), told("later")));
        }
        let more = |count: u64| {
            let more = if all > 0 { " more" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            format!("{count}{more} replay{plural}")
        };
        if self.beyond > 0 {
            words.push(format!(
                "  {}, further apart than the window: not compared.",
                more(self.beyond)
            ));
        }
        if self.refused > 0 {
            let statuses: Vec<String> = self.statuses.iter().map(u64::to_string).collect();
            words.push(format!(
                "  {}, answered with a status outside 2xx ({}): not compared.",
                more(self.refused),
                statuses.join(", ")
            ));
        }
    }
}

/// Whether two answers within the replay window have the same digest, in sentences.
pub(super) fn words(replays: &Replays) -> Vec<String> {
    if replays.is_empty() {
        return vec![
            "No pin answered the same bytes twice, the first time with a status of 2xx: nothing can be said about replay."
                .to_owned(),
        ];
    }
    let mut words = Vec::new();
    for ((pin, window), replay) in replays {
        replay.words(pin, window, &mut words);
    }
    words.push("A digest is over the answer's bytes: a host that writes an id or a time into each answer never gives the same one twice.".to_owned());
    words
}

pub(super) fn to_json(replays: &Replays) -> Vec<Value> {
    let replays = replays.iter().map(|((pin, window), replay)| {
        json!({
            "pin": pin, "replay_window": window, "same": replay.same, "different": replay.different, "beyond_window": replay.beyond,
            "window_without_length": replay.unknown, "outside_2xx": replay.refused, "pairs": replay.pairs,
        })
    });
    replays.collect()
}
