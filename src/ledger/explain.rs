//! Why a score moved and the diff did not: for one fixture, each run in order, and what changed between one and the next.
//!
//! A **run** is what a person who started an evaluation would call one: the calls for the fixture within one run of leafgate, under the same policy, with the same card values, host,
//! leaf, verdict and reason, without a pause longer than [`PAUSE`], and, for a release, until the same bytes are sent again (that is a replay).
//!
//! Promises: it is derived from the records alone. Answers are compared only where the same bytes left (`plan_sha256`), all of them, and an answer came back whole with a status of 2xx;
//! never for a split, whose remote answer is not the fixture's. What no record says is unknown, never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::error::LedgerError;
use super::explain_replay::{self, Replays};
use super::look::{Record, each_raw, gone};
use super::query::{Filter, Sieve};
use super::story::say;

/// A longer pause between two calls ends a run.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_mins(10);

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
const POLICY: usize = 5;
const CLASS: usize = 8;
const WINDOW: usize = 9;
const VERSION: usize = 11;

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
    /// Statuses that the host answered with.
    pub statuses: BTreeSet<u64>,
    /// How calls ended that did not end well.
    pub errors: BTreeSet<String>,
    /// How many of the calls sent anything, or may have.
    left: u64,
    /// Of a release: each body that was decided on, by its `plan_sha256`.
    bodies: BTreeMap<String, Body>,
    last: Option<Timestamp>,
}

/// A body that was decided on.
#[derive(Debug, Clone)]
struct Body {
    left: Left,
    /// What came back whole.
    answer: Option<Answer>,
    /// The decision's time.
    time: Option<Timestamp>,
}

/// Whether a body left, as its outcome says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    No,
    Part,
    Whole,
    /// No outcome, or one that does not know.
    May,
}

impl Left {
    fn of(sent: Option<&str>) -> Left {
        match sent {
            Some("all") => Left::Whole,
            Some("partial") => Left::Part,
            Some("none") => Left::No,
            Some(_) | None => Left::May,
        }
    }

    /// The outcome's word.
    fn name(self) -> &'static str {
        match self {
            Left::No => "none",
            Left::Part => "partial",
            Left::Whole => "all",
            Left::May => "unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) digest: String,
    pub(super) status: Option<u64>,
    /// `seq` of the decision.
    pub(super) seq: u64,
    /// The decision's time.
    pub(super) time: Option<Timestamp>,
}

impl Answer {
    /// Whether it is one that a score could rest on: a refusal by the host is compared with nothing.
    pub(super) fn good(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// What changed between a run and the next.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Name, before, after.
    pub changed: Vec<(&'static str, String, String)>,
    /// Names of what did not change.
    pub same: Vec<&'static str>,
    /// Names of what no record here says of one of the two.
    pub unknown: Vec<&'static str>,
    /// Where nothing was sent in the first, in the second: then there is no peer, model or answer to compare.
    pub nothing_sent: (bool, bool),
    /// Bodies that left whole in both runs, in the first alone, in the second alone.
    pub bytes: (u64, u64, u64),
    /// Bodies of which it is not known, in one of the two, whether they left, or which left in part.
    pub may: u64,
    /// Of those that left in both: the same answer digest, another one, not answered whole and with 2xx in both.
    pub answers: (u64, u64, u64),
}

/// What the ledger says of a fixture.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The id or hash that was asked for.
    pub fixture: String,
    /// In order.
    pub runs: Vec<Run>,
    replay: Replays,
    /// Decisions within the span whose card could not be read: whose fixture they were about, nobody can tell.
    pub cardless: u64,
    /// How many records were pruned.
    pub gone: u64,
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
    explained.gone = gone(dir)?;
    explained.replay = explain_replay::replays(&explained.runs);
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
            replay: Replays::new(),
            cardless: 0,
            gone: 0,
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
            Some("decision") if filter.within(record.text("time")) => {
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
                .is_some_and(|plan| run.bodies.contains_key(plan));
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
        run.left += u64::from(record.forwards());
        if let Some(plan) = &plan {
            let body = Body {
                left: if record.forwards() {
                    Left::May
                } else {
                    Left::No
                },
                answer: None,
                time,
            };
            run.bodies.insert(plan.clone(), body);
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
        let left = Left::of(record.text("sent"));
        run.sent += u64::from(left == Left::Whole);
        run.left -= u64::from(left == Left::No);
        run.peers.extend(record.text("peer").map(str::to_owned));
        if !record.value["model"].is_null() {
            run.models.insert(compared(&record.value["model"]));
        }
        run.statuses.extend(record.int("status"));
        run.errors.extend(record.text("error").map(str::to_owned));
        let Some(body) = plan.and_then(|plan| run.bodies.get_mut(&plan)) else {
            return;
        };
        body.left = left;
        let digest = record
            .text("received_sha256")
            .filter(|_| left == Left::Whole && record.text("error").is_none());
        body.answer = digest.map(|digest| Answer {
            digest: digest.to_owned(),
            status: record.int("status"),
            seq: of,
            time: body.time,
        });
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
            statuses: BTreeSet::new(),
            errors: BTreeSet::new(),
            left: 0,
            bodies: BTreeMap::new(),
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
        let answers = self.bodies.values().flat_map(|body| &body.answer);
        answers.map(|answer| answer.digest.as_str()).collect()
    }

    /// The replay window as the card has it.
    pub(super) fn window(&self) -> Option<&str> {
        self.facets[WINDOW].as_deref()
    }

    /// What came back whole, each with the `plan_sha256` of what was sent.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.bodies
            .iter()
            .filter_map(|(plan, body)| Some((plan.as_str(), body.answer.as_ref()?)))
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
            unknown: Vec::new(),
            nothing_sent: (self.left == 0, next.left == 0),
            bytes: (0, 0, 0),
            may: 0,
            answers: (0, 0, 0),
        };
        for (at, name) in FACETS.iter().enumerate() {
            match (self.facets[at].as_deref(), next.facets[at].as_deref()) {
                // Every run has these two; what says them may have been pruned.
                (None, _) | (_, None) if at == POLICY || at == VERSION => {
                    changes.unknown.push(name);
                }
                (None, None) => {}
                (before, after) => {
                    changes.compare(name, before.unwrap_or("(none)"), after.unwrap_or("(none)"))
                }
            }
        }
        if changes.nothing_sent == (false, false) {
            let statuses = |run: &Run| run.statuses.iter().map(u64::to_string).collect();
            for (name, before, after, none) in [
                ("peer", &self.peers, &next.peers, "(not recorded)"),
                ("model", &self.models, &next.models, "(none named)"),
                ("status", &statuses(self), &statuses(next), "(none)"),
            ] {
                if !before.is_empty() || !after.is_empty() {
                    changes.compare(name, &list(before, none), &list(after, none));
                }
            }
        }
        changes.bodies(&self.bodies, &next.bodies);
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
        members.insert("statuses".to_owned(), json!(self.statuses));
        members.insert("errors".to_owned(), json!(self.errors));
        members.insert(
            "class_named".to_owned(),
            json!(self.facets[CLASS].is_some()),
        );
        let answers: Vec<Value> = self
            .bodies
            .iter()
            .map(|(plan, body)| {
                let answer = body.answer.as_ref();
                json!({
                    "plan_sha256": plan, "sent": body.left.name(), "received_sha256": answer.map(|answer| &answer.digest),
                    "status": answer.and_then(|answer| answer.status), "decision": answer.map(|answer| answer.seq),
                })
            })
            .collect();
        members.insert("answers".to_owned(), json!(answers));
        Value::Object(members)
    }
}

fn list(set: &BTreeSet<String>, none: &str) -> String {
    if set.is_empty() {
        return none.to_owned();
    }
    set.iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

impl Changes {
    fn compare(&mut self, name: &'static str, before: &str, after: &str) {
        if before == after {
            self.same.push(name);
        } else {
            self.changed
                .push((name, before.to_owned(), after.to_owned()));
        }
    }

    /// Which bodies left, and what came back.
    fn bodies(&mut self, before: &BTreeMap<String, Body>, after: &BTreeMap<String, Body>) {
        let plans: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for plan in plans {
            let (old, new) = (before.get(plan), after.get(plan));
            let left = |body: Option<&Body>| body.map_or(Left::No, |body| body.left);
            match (left(old), left(new)) {
                (Left::No, Left::No) => {}
                (Left::Whole, Left::No) => self.bytes.1 += 1,
                (Left::No, Left::Whole) => self.bytes.2 += 1,
                (Left::Whole, Left::Whole) => {
                    self.bytes.0 += 1;
                    let good = |body: Option<&'_ Body>| body?.answer.clone().filter(Answer::good);
                    match (good(old), good(new)) {
                        (Some(old), Some(new)) if old.digest == new.digest => self.answers.0 += 1,
                        (Some(_), Some(_)) => self.answers.1 += 1,
                        _ => self.answers.2 += 1,
                    }
                }
                (Left::May | Left::Part, _) | (_, Left::May | Left::Part) => self.may += 1,
            }
        }
    }
}

impl Explained {
    /// Whether two answers within the replay window have the same digest, in sentences.
    pub fn replay_words(&self) -> Vec<String> {
        explain_replay::words(&self.replay)
    }

    /// Everything, as one JSON object.
    pub fn to_json(&self) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(Run::to_json).collect();
        let changes: Vec<Value> = self
            .runs
            .windows(2)
            .map(|pair| changes_json(&pair[0].to(&pair[1])))
            .collect();
        let replay = explain_replay::to_json(&self.replay);
        json!({
            "fixture": self.fixture, "runs": runs, "changes": changes, "replay": replay, "decisions_without_a_card": self.cardless,
            "pruned_records": self.gone,
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
    let keys = |names: &[&str]| -> Vec<String> {
        let keys = names.iter().map(|name| name.replace(' ', "_"));
        keys.collect()
    };
    let (same, unknown) = (keys(&changes.same), keys(&changes.unknown));
    json!({
        "changed": changed, "same": same, "unknown": unknown,
        "nothing_sent": { "before": changes.nothing_sent.0, "after": changes.nothing_sent.1 },
        "bytes": { "both": changes.bytes.0, "before_only": changes.bytes.1, "after_only": changes.bytes.2, "may_have_left": changes.may },
        "answers": { "same": changes.answers.0, "different": changes.answers.1, "not_compared": changes.answers.2 },
    })
}
