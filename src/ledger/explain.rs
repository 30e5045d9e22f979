//! Why a score moved and the diff did not: for one fixture, each run in order, and what changed between one and the next.
//!
//! A **run** is what a person who started an evaluation would call one: the calls for the fixture within one run of leafgate, under the same policy, with the same card values, host,
//! leaf, verdict and reason, without a pause longer than [`PAUSE`], and, for a release, until the same bytes are sent again (that is a replay).
//!
//! Promises: it is derived from the records alone. Answers are compared only where the same bytes left (`plan_sha256`), all of them, and an answer came back whole; never for a
//! split, whose remote answer is not the fixture's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::error::LedgerError;
use super::look::{Record, each_raw};
use super::query::{Filter, Sieve, duration};
use super::story::say;

/// A longer pause between two calls ends a run.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// Pairs of differing answers that are listed one by one.
const MOST_PAIRS: usize = 50;

/// What all calls of a run have in common, in the order in which it is compared.
const FACETS: [&str; 13] = [
    "leaf",
    "verdict",
    "reason",
    "host",
    "pin",
    "policy",
    "fixture id",
    "fixture hash",
    "class",
    "replay window",
    "bind",
    "leafgate version",
    "run of leafgate",
];
const LEAF: usize = 0;
const VERDICT: usize = 1;
const REASON: usize = 2;
const PIN: usize = 4;
const CLASS: usize = 8;
const WINDOW: usize = 9;

type Facets = [Option<String>; FACETS.len()];

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    facets: Facets,
    /// `seq` of the first and the last decision.
    pub seqs: (u64, u64),
    /// Their times.
    pub times: (String, String),
    /// How many calls.
    pub calls: u64,
    /// How many of them have an outcome that says the plan was sent whole.
    pub sent: u64,
    /// Addresses dialled.
    pub peers: BTreeSet<String>,
    /// Models that the host named.
    pub models: BTreeSet<String>,
    /// How calls ended that did not end well.
    pub errors: BTreeSet<String>,
    /// What was sent, and what came back whole.
    answers: BTreeMap<String, Option<Answer>>,
    last: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    digest: String,
    status: Option<u64>,
    /// `seq` of the decision.
    seq: u64,
}

/// What changed between a run and the next.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Name, before, after.
    pub changed: Vec<(&'static str, String, String)>,
    /// Names of what did not change.
    pub same: Vec<&'static str>,
    /// Bodies that left in both runs, in the first alone, in the second alone.
    pub bytes: (u64, u64, u64),
    /// Of those that left in both: the same answer digest, another one, not both answered whole.
    pub answers: (u64, u64, u64),
}

/// Answers to the same bytes from the same pin.
#[derive(Debug, Clone, Default)]
struct Replay {
    same: u64,
    different: u64,
    beyond: u64,
    unknown: u64,
    pairs: Vec<Value>,
}

/// What the ledger says of a fixture.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The id or hash that was asked for.
    pub fixture: String,
    /// In order.
    pub runs: Vec<Run>,
    replay: BTreeMap<(String, String), Replay>,
    /// Decisions whose card could not be read: whose fixture they were about, nobody can tell.
    pub cardless: u64,
}

/// Reads the whole ledger for one fixture; `span` bounds the decisions by time.
///
/// # Errors
/// Where the ledger cannot be read.
pub fn explain(dir: &Path, fixture: &str, span: &Filter) -> Result<Explained, LedgerError> {
    let filter = Filter {
        fixture: Some(fixture.to_owned()),
        kind: Some("decision".to_owned()),
        ..span.clone()
    };
    let sieves = [
        filter.sieve(),
        Sieve::of(["open"].into_iter()),
        Sieve::of(["config"].into_iter()),
        Sieve::of(["card_missing"].into_iter()),
        Sieve::of(["card_ambiguous"].into_iter()),
        Sieve::of(["card_malformed"].into_iter()),
    ];
    let outcome = Sieve::of(["outcome"].into_iter());
    let mut reader = Reader::new(fixture);
    each_raw(dir, |line, path| {
        let wanted = sieves.iter().any(|sieve| sieve.lets(line))
            || (!reader.open.is_empty() && outcome.lets(line));
        if wanted {
            reader.take(&Record::read(line, path)?, &filter);
        }
        Ok(())
    })?;
    let mut explained = reader.explained;
    explained.replay = replays(&explained.runs);
    Ok(explained)
}

/// Goes through the records once.
struct Reader {
    explained: Explained,
    /// The policy and the version in force.
    policy: Option<String>,
    version: Option<String>,
    /// The run that still takes calls with these facets.
    going: BTreeMap<Facets, usize>,
    /// Decisions without an outcome yet: their run and what they sent.
    open: BTreeMap<u64, (usize, Option<String>)>,
}

impl Reader {
    fn new(fixture: &str) -> Reader {
        let explained = Explained {
            fixture: fixture.to_owned(),
            runs: Vec::new(),
            replay: BTreeMap::new(),
            cardless: 0,
        };
        Reader {
            explained,
            policy: None,
            version: None,
            going: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    fn take(&mut self, record: &Record, filter: &Filter) {
        let text = |key: &str| record.text(key).map(str::to_owned);
        match record.text("t") {
            Some("open") => {
                (self.policy, self.version) = (text("policy"), text("version"));
                self.going.clear();
            }
            Some("config") => self.policy = text("policy"),
            Some("outcome") => self.outcome(record),
            Some("decision") if filter.takes(&record.value) => self.decision(record),
            Some("decision") => {
                let cardless = ["card_missing", "card_ambiguous", "card_malformed"];
                let reason = record.text("reason");
                if cardless.iter().any(|own| reason == Some(own)) {
                    self.explained.cardless += 1;
                }
            }
            _ => {}
        }
    }

    fn decision(&mut self, record: &Record) {
        let facets = self.facets(record);
        let time = record
            .text("time")
            .and_then(|time| time.parse::<Timestamp>().ok());
        let release = record.text("leaf") == Some("release");
        let plan = record
            .text("plan_sha256")
            .filter(|_| release)
            .map(str::to_owned);
        let going = self.going.get(&facets).copied().filter(|at| {
            let run = &self.explained.runs[*at];
            let pause = run
                .last
                .zip(time)
                .is_some_and(|(last, time)| time.duration_since(last) > PAUSE);
            let again = plan
                .as_ref()
                .is_some_and(|plan| run.answers.contains_key(plan));
            !pause && !again
        });
        let at = going.unwrap_or_else(|| {
            self.explained.runs.push(Run::new(facets.clone(), record));
            self.going.insert(facets, self.explained.runs.len() - 1);
            self.explained.runs.len() - 1
        });
        let run = &mut self.explained.runs[at];
        run.calls += 1;
        run.seqs.1 = record.seq;
        run.times.1 = record.text("time").unwrap_or_default().to_owned();
        run.last = time.or(run.last);
        if let Some(plan) = &plan {
            run.answers.insert(plan.clone(), None);
        }
        if record.forwards() {
            self.open.insert(record.seq, (at, plan));
        }
    }

    fn facets(&self, record: &Record) -> Facets {
        let said = |key: &str| {
            let value = &record.value[key];
            (!value.is_null()).then(|| compared(value))
        };
        [
            said("leaf"),
            said("verdict"),
            said("reason"),
            said("host"),
            said("host_pin"),
            self.policy.clone(),
            said("fixture_id"),
            said("fixture_hash"),
            said("egress_class"),
            said("replay_window"),
            said("bind"),
            self.version.clone(),
            said("run"),
        ]
    }

    fn outcome(&mut self, record: &Record) {
        let Some(of) = record.int("of") else { return };
        let Some((at, plan)) = self.open.remove(&of) else {
            return;
        };
        let run = &mut self.explained.runs[at];
        let whole = record.text("sent") == Some("all");
        run.sent += u64::from(whole);
        run.peers.extend(record.text("peer").map(str::to_owned));
        if !record.value["model"].is_null() {
            run.models.insert(compared(&record.value["model"]));
        }
        run.errors.extend(record.text("error").map(str::to_owned));
        let digest = record
            .text("received_sha256")
            .filter(|_| whole && record.text("error").is_none());
        if let (Some(plan), Some(digest)) = (plan, digest) {
            let answer = Answer {
                digest: digest.to_owned(),
                status: record.int("status"),
                seq: of,
            };
            run.answers.insert(plan, Some(answer));
        }
    }
}

/// A value so that equal texts mean equal values: a seal keeps its HMAC.
fn compared(value: &Value) -> String {
    match (value, value["mac"].as_str()) {
        (Value::Object(members), Some(mac)) if members.len() == 2 => {
            format!("sealed, {} bytes, HMAC {mac}", say(&value["len"]))
        }
        (Value::Object(members), _) => {
            let parts: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{key} {}", say(value)))
                .collect();
            parts.join(", ")
        }
        _ => say(value),
    }
}

impl Run {
    fn new(facets: Facets, record: &Record) -> Run {
        let time = record.text("time").unwrap_or_default().to_owned();
        Run {
            facets,
            seqs: (record.seq, record.seq),
            times: (time.clone(), time),
            calls: 0,
            sent: 0,
            peers: BTreeSet::new(),
            models: BTreeSet::new(),
            errors: BTreeSet::new(),
            answers: BTreeMap::new(),
            last: None,
        }
    }

    /// What its calls have in common: name and value.
    pub fn facets(&self) -> impl Iterator<Item = (&'static str, &str)> {
        FACETS
            .iter()
            .zip(&self.facets)
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
    }

    /// The leaf, where the record has one.
    pub fn leaf(&self) -> Option<&str> {
        self.facets[LEAF].as_deref()
    }

    /// `hold, refuse, machine_local`
    pub fn ruling(&self) -> String {
        let parts = [LEAF, VERDICT, REASON]
            .map(|at| self.facets[at].as_deref().unwrap_or("(not recorded)"));
        parts.join(", ")
    }

    /// The pin, or the host.
    pub fn pin(&self) -> Option<&str> {
        self.facets[PIN].as_deref()
    }

    /// Digests of answers that came back whole, each once; empty for a split, whose answers are not the fixture's.
    pub fn digests(&self) -> BTreeSet<&str> {
        self.answers
            .values()
            .flatten()
            .map(|answer| answer.digest.as_str())
            .collect()
    }

    /// What to say where no class stands in the card.
    pub fn classless(&self) -> Option<&'static str> {
        if self.facets[CLASS].is_none() {
            Some(
                "The card never named a class: there is no leaf to attach a score to. leafgate held the call, and nothing left.",
            )
        } else if self.facets[REASON].as_deref() == Some("class_unknown") {
            Some(
                "The card named none of the three classes: leafgate held the call, and nothing left.",
            )
        } else {
            None
        }
    }

    /// What changed from this run to `next`.
    pub fn to(&self, next: &Run) -> Changes {
        let mut changes = Changes {
            changed: Vec::new(),
            same: Vec::new(),
            bytes: (0, 0, 0),
            answers: (0, 0, 0),
        };
        let mut compare = |name, before: &str, after: &str| {
            if before == after {
                changes.same.push(name);
            } else {
                changes
                    .changed
                    .push((name, before.to_owned(), after.to_owned()));
            }
        };
        for (at, name) in FACETS.iter().enumerate() {
            match (self.facets[at].as_deref(), next.facets[at].as_deref()) {
                (None, None) => {}
                (before, after) => {
                    compare(*name, before.unwrap_or("(none)"), after.unwrap_or("(none)"))
                }
            }
        }
        for (name, before, after) in [
            ("peer", &self.peers, &next.peers),
            ("model", &self.models, &next.models),
        ] {
            if !before.is_empty() || !after.is_empty() {
                compare(name, &list(before), &list(after));
            }
        }
        for (plan, before) in &self.answers {
            let Some(after) = next.answers.get(plan) else {
                changes.bytes.1 += 1;
                continue;
            };
            changes.bytes.0 += 1;
            match (before, after) {
                (Some(before), Some(after)) if before.digest == after.digest => {
                    changes.answers.0 += 1
                }
                (Some(_), Some(_)) => changes.answers.1 += 1,
                _ => changes.answers.2 += 1,
            }
        }
        changes.bytes.2 = next.answers.len() as u64 - changes.bytes.0;
        changes
    }

    fn to_json(&self) -> Value {
        let mut members: Map<String, Value> = FACETS
            .iter()
            .zip(&self.facets)
            .filter_map(|(name, value)| Some((name.replace(' ', "_"), json!(value.as_deref()?))))
            .collect();
        members.insert("first_seq".to_owned(), json!(self.seqs.0));
        members.insert("last_seq".to_owned(), json!(self.seqs.1));
        members.insert("since".to_owned(), json!(self.times.0));
        members.insert("until".to_owned(), json!(self.times.1));
        members.insert("calls".to_owned(), json!(self.calls));
        members.insert("sent_whole".to_owned(), json!(self.sent));
        members.insert("peers".to_owned(), json!(self.peers));
        members.insert("models".to_owned(), json!(self.models));
        members.insert("errors".to_owned(), json!(self.errors));
        members.insert(
            "class_named".to_owned(),
            json!(self.facets[CLASS].is_some()),
        );
        let answers: Vec<Value> = self
            .answers
            .iter()
            .map(|(plan, answer)| {
                let answer = answer.as_ref();
                json!({
                    "plan_sha256": plan, "received_sha256": answer.map(|answer| &answer.digest),
                    "status": answer.and_then(|answer| answer.status), "decision": answer.map(|answer| answer.seq),
                })
            })
            .collect();
        members.insert("answers".to_owned(), json!(answers));
        Value::Object(members)
    }
}

fn list(set: &BTreeSet<String>) -> String {
    if set.is_empty() {
        return "(none)".to_owned();
    }
    set.iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Each answer against the one before it that the same pin gave to the same bytes.
fn replays(runs: &[Run]) -> BTreeMap<(String, String), Replay> {
    let mut found: BTreeMap<(String, String), Replay> = BTreeMap::new();
    let mut before: BTreeMap<(&str, &str), (&Answer, Option<Timestamp>)> = BTreeMap::new();
    for run in runs {
        let (Some(pin), Some(window)) = (run.pin(), run.facets[WINDOW].as_deref()) else {
            continue;
        };
        let length = duration(window);
        for (plan, answer) in &run.answers {
            let Some(answer) = answer else { continue };
            let earlier = before.insert((pin, plan), (answer, run.last));
            let Some((earlier, time)) = earlier else {
                continue;
            };
            let replay = found
                .entry((pin.to_owned(), window.to_owned()))
                .or_default();
            let apart = time
                .zip(run.last)
                .map(|(before, now)| now.duration_since(before));
            match length.zip(apart) {
                None => replay.unknown += 1,
                Some((length, apart)) if apart.abs() > length => {
                    replay.beyond += 1;
                    continue;
                }
                Some(_) => {}
            }
            if earlier.digest == answer.digest {
                replay.same += 1;
            } else {
                replay.different += 1;
                if replay.pairs.len() < MOST_PAIRS {
                    replay.pairs.push(json!({
                        "plan_sha256": plan,
                        "earlier": { "decision": earlier.seq, "received_sha256": earlier.digest },
                        "later": { "decision": answer.seq, "received_sha256": answer.digest },
                    }));
                }
            }
        }
    }
    found
}

impl Explained {
    /// Whether two runs within the replay window gave the same answer digest from the same pin, in sentences.
    pub fn replay_words(&self) -> Vec<String> {
        if self.replay.is_empty() {
            return vec![
                "No pin answered the same bytes twice: nothing can be said about replay."
                    .to_owned(),
            ];
        }
        let mut words = Vec::new();
        for ((pin, window), replay) in &self.replay {
            let Replay {
                same,
                different,
                beyond,
                unknown,
                pairs,
            } = replay;
            if *unknown > 0 {
                words.push(format!("The replay window {window} of the pin {pin} names no length of time, so nobody can tell which of {unknown} replays lie within it; all are compared."));
            }
            words.push(match (same, different) {
                (0, 0) => format!("Pin {pin}, replay window {window}: no replay lies within the window."),
                (_, 0) => format!("Pin {pin}, replay window {window}: each of {same} replays gave the same answer digest as the call before it."),
                _ => format!("Pin {pin}, replay window {window}: {different} of {} replays gave ANOTHER answer digest to the same bytes.", same + different),
            });
            for pair in pairs.iter().take(5) {
                words.push(format!(
                    "  decision {} was answered {}, decision {} was answered {}",
                    pair["earlier"]["decision"],
                    say(&pair["earlier"]["received_sha256"]),
                    pair["later"]["decision"],
                    say(&pair["later"]["received_sha256"])
                ));
            }
            if *beyond > 0 {
                words.push(format!("  {beyond} more replays lie further apart than the window and are not compared."));
            }
        }
        words.push("A digest is over the answer's bytes: a host that writes an id or a time into each answer never gives the same one twice.".to_owned());
        words
    }

    /// Everything, as one JSON object.
    pub fn to_json(&self) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(Run::to_json).collect();
        let changes: Vec<Value> = self
            .runs
            .windows(2)
            .map(|pair| changes_json(&pair[0].to(&pair[1])))
            .collect();
        let replay: Vec<Value> = self
            .replay
            .iter()
            .map(|((pin, window), replay)| {
                json!({
                    "pin": pin, "replay_window": window, "same": replay.same, "different": replay.different,
                    "beyond_window": replay.beyond, "window_without_length": replay.unknown, "pairs": replay.pairs,
                })
            })
            .collect();
        json!({
            "fixture": self.fixture, "runs": runs, "changes": changes, "replay": replay, "decisions_without_a_card": self.cardless,
        })
    }
}

fn changes_json(changes: &Changes) -> Value {
    let changed: Map<String, Value> = changes
        .changed
        .iter()
        .map(|(name, before, after)| {
            (
                name.replace(' ', "_"),
                json!({ "before": before, "after": after }),
            )
        })
        .collect();
    let same: Vec<String> = changes
        .same
        .iter()
        .map(|name| name.replace(' ', "_"))
        .collect();
    json!({
        "changed": changed, "same": same,
        "bytes": { "both": changes.bytes.0, "before_only": changes.bytes.1, "after_only": changes.bytes.2 },
        "answers": { "same": changes.answers.0, "different": changes.answers.1, "not_both_whole": changes.answers.2 },
    })
}
