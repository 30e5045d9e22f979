//! One call as a story: when, the card, each step of the tree, each check of admission, what left and what shows it, the answer.
//!
//! Promises: it is derived from the records alone, never from a policy or a card of today; where the records cannot tell, it says so; where they contradict each other, it
//! says that. It gives sentences, not colours: the command paints them and makes them safe for a terminal.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::LedgerError;
use super::export::Note;
use super::hex::hex;
use super::look::{Record, one};
use super::{story_checks, story_tree};

/// How a sentence is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A fact, neither good nor bad.
    Plain,
    /// Yes, passed.
    Yes,
    /// No, failed, stopped here.
    No,
    /// The question was not asked of this call.
    Skipped,
    /// The records cannot tell, or they contradict each other.
    Doubt,
}

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How it is meant.
    pub mark: Mark,
    /// The sentence. It may hold any text of a record.
    pub text: String,
}

/// A part of the story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its title.
    pub title: &'static str,
    /// Its sentences.
    pub lines: Vec<Line>,
}

/// What shows that a record stands where it says.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The SHA-256 of its line.
    own: String,
    /// Whether the next record names that hash; `None` where there is no next one.
    next: Option<bool>,
    note: Option<Note>,
}

impl Proof {
    /// Reads the next record and the checkpoint.
    ///
    /// # Errors
    /// Where the ledger cannot be read.
    pub fn of(dir: &Path, record: &Record) -> Result<Proof, LedgerError> {
        let own = hex(&Sha256::digest(&record.line));
        let next = one(dir, record.seq + 1)?;
        Ok(Proof {
            next: next.map(|next| next.text("prev") == Some(own.as_str())),
            own,
            note: Note::read(dir)?,
        })
    }

    fn lines(&self, what: &str, record: &Record) -> Vec<Line> {
        let seq = record.seq;
        let mut lines = vec![
            plain(format!(
                "The {what} is record {seq}. It follows the record with the hash {}.",
                say(&record.value["prev"])
            )),
            plain(format!("Its own hash is {}.", self.own)),
            match self.next {
                Some(true) => line(
                    Mark::Yes,
                    format!("Record {} names that hash as the one before it.", seq + 1),
                ),
                Some(false) => line(
                    Mark::No,
                    format!(
                        "Record {} names another hash: one of the two was changed.",
                        seq + 1
                    ),
                ),
                None => line(Mark::Doubt, "No record follows it yet.".to_owned()),
            },
        ];
        lines.push(match &self.note {
            None => line(
                Mark::Doubt,
                "There is no checkpoint in the folder.".to_owned(),
            ),
            Some(note) if !note.signed => line(
                Mark::No,
                "The checkpoint in the folder is not signed by the key of leafgate.pub.".to_owned(),
            ),
            Some(note) if note.covers(seq) => line(
                Mark::Yes,
                format!(
                    "The checkpoint, which is signed, is over {} records, this one among them; `ledger verify` holds it against them.",
                    note.size.unwrap_or(0)
                ),
            ),
            Some(note) => line(
                Mark::Doubt,
                format!(
                    "The checkpoint covers the first {} records, not this one yet.",
                    note.size.unwrap_or(0)
                ),
            ),
        });
        lines
    }
}

/// The story of a call: its decision, where it is here, and its outcome, where there is one. Each record comes with its [`Proof`].
pub fn of_call(
    decision: Option<(&Record, &Proof)>,
    outcome: Option<(&Record, &Proof)>,
) -> Vec<Part> {
    let record = decision.map(|(record, _)| record);
    let after = outcome.map(|(record, _)| record);
    let mut parts = Vec::new();
    if let Some(record) = record {
        parts.push(when(record));
        parts.push(card(record));
        parts.push(story_tree::part(record));
        parts.push(story_checks::part(record));
    } else if let Some(outcome) = after {
        let of = outcome.int("of").unwrap_or(0);
        let text = format!(
            "The decision of this call, record {of}, is not in these segments (it may have been pruned): card, tree and admission cannot be told."
        );
        parts.push(Part {
            title: "When",
            lines: vec![plain(begun(outcome)), line(Mark::Doubt, text)],
        });
    }
    parts.push(left(record, after));
    parts.push(answer(record, after));
    let mut proof = Vec::new();
    for (what, found) in [("decision", decision), ("outcome", outcome)] {
        if let Some((record, shown)) = found {
            proof.extend(shown.lines(what, record));
        }
    }
    proof.push(plain(
        "This story checked these hashes only. leafgate ledger verify checks the whole chain."
            .to_owned(),
    ));
    parts.push(Part {
        title: "Proof",
        lines: proof,
    });
    parts
}

/// The story of a record that is no part of a call.
pub fn of_record(record: &Record, proof: &Proof) -> Vec<Part> {
    let usual = ["v", "t", "log", "run", "seq", "prev", "time"];
    let title = match record.text("t") {
        Some("open") => "leafgate was started",
        Some("stop") => "leafgate was stopped",
        Some("config") if record.text("error").is_some() => {
            "A new policy was refused; the old one went on"
        }
        Some("config") => "A new policy took over",
        Some("refused") => "A message was refused before it became a call; nothing left",
        Some("key") => "The ledger's key was changed",
        Some("prune") => "Old segments were taken away",
        _ => "A record of a type that this leafgate does not know",
    };
    let mut lines = vec![
        plain(begun(record)),
        plain(format!("Its type is {}.", say(&record.value["t"]))),
    ];
    let members = record.value.as_object().into_iter().flatten();
    lines.extend(
        members
            .filter(|(key, _)| !usual.contains(&key.as_str()))
            .map(|(key, value)| plain(format!("{key}: {}", say(value)))),
    );
    let mut proofs = proof.lines("record", record);
    proofs.push(plain(
        "leafgate ledger verify checks the whole chain.".to_owned(),
    ));
    vec![
        Part { title, lines },
        Part {
            title: "Proof",
            lines: proofs,
        },
    ]
}

/// `At TIME, as record N of run R`.
fn begun(record: &Record) -> String {
    format!(
        "At {} by the machine's clock, record {} of the ledger {}, in the run {}.",
        say(&record.value["time"]),
        record.seq,
        say(&record.value["log"]),
        say(&record.value["run"])
    )
}

/// Who was at the other end of the Unix socket, where a message came by one.
fn came_by(record: &Record) -> Option<String> {
    let uid = record.value["peer_uid"].as_u64()?;
    Some(format!(
        "It came by the Unix socket, from the user with the uid {uid}."
    ))
}

fn when(record: &Record) -> Part {
    let call = format!("Call {}.", say(&record.value["call"]));
    let attached = match record.text("attach") {
        Some(place) => format!("The card was attached by {place}."),
        None => "No place is recorded where a card was attached.".to_owned(),
    };
    Part {
        title: "When",
        lines: [call, begun(record), attached]
            .into_iter()
            .chain(came_by(record))
            .map(plain)
            .collect(),
    }
}

/// The card as the record has it.
fn card(record: &Record) -> Part {
    const FIELDS: [&str; 7] = [
        "fixture_id",
        "fixture_hash",
        "egress_class",
        "residue",
        "host_pin",
        "replay_window",
        "failure_label",
    ];
    let mut lines: Vec<Line> = FIELDS
        .iter()
        .filter(|key| !record.value[**key].is_null())
        .map(|key| plain(format!("{key}: {}", say(&record.value[*key]))))
        .collect();
    match record.value["surface_named"].as_bool() {
        Some(true) => lines.push(plain(
            "writable_surface: named; the name itself is never recorded".to_owned(),
        )),
        Some(false) => lines.push(plain("writable_surface: absent or blank".to_owned())),
        None => {}
    }
    if lines.is_empty() {
        lines.push(plain(
            "No field of a card is recorded: none was there, or none that could be read."
                .to_owned(),
        ));
    }
    Part {
        title: "The card",
        lines,
    }
}

/// What left, as decision and outcome say.
fn left(decision: Option<&Record>, outcome: Option<&Record>) -> Part {
    let mut lines = Vec::new();
    let forwards = decision.is_none_or(Record::forwards);
    if let Some(decision) = decision {
        if forwards {
            lines.extend(cleared(decision));
        } else {
            let local = decision.text("verdict") == Some("local");
            let text = if local {
                "Nothing. leafgate answered from its policy and asked no host."
            } else {
                "Nothing. No name was looked up and no connection opened for this call."
            };
            lines.push(line(Mark::Yes, text.to_owned()));
        }
    }
    match outcome {
        Some(_) if !forwards => lines.push(line(Mark::Doubt, "An outcome is recorded all the same: the records contradict each other.".to_owned())),
        Some(outcome) => lines.extend(sent(decision, outcome)),
        None if forwards => lines.push(line(
            Mark::Doubt,
            "No outcome is recorded: the call is on its way, or leafgate ended before it could say. It may have left.".to_owned(),
        )),
        None => {}
    }
    Part {
        title: "What left",
        lines,
    }
}

/// What the decision let go.
fn cleared(decision: &Record) -> Vec<Line> {
    let get = |key: &str| say(&decision.value[key]);
    let mut lines = vec![plain(format!(
        "The decision cleared {} bytes of body with the SHA-256 {}, called by {}, for the host {}.",
        get("plan_len"),
        get("plan_sha256"),
        get("route"),
        get("host")
    ))];
    if decision.text("leaf") == Some("split") {
        lines.push(plain("A split: the body that left is made of fixture_id, fixture_hash, egress_class and failure_label, and of the policy. What the client sent stayed here.".to_owned()));
    }
    if decision.value["clear_text"] == true {
        lines.push(line(
            Mark::Doubt,
            "The policy let it leave in clear text, without TLS.".to_owned(),
        ));
    }
    let dropped = &decision.value["dropped"];
    if !dropped.is_null() {
        let names = dropped["names"].as_array().map_or(0, Vec::len);
        lines.push(plain(format!(
            "Client headers that were dropped: {} known by name ({}), {} others.",
            names,
            say(&dropped["names"]),
            dropped["other"].as_u64().unwrap_or(0)
        )));
    }
    lines
}

/// What the outcome says was sent.
fn sent(decision: Option<&Record>, outcome: &Record) -> Vec<Line> {
    let get = |key: &str| say(&outcome.value[key]);
    let peer = outcome.text("peer").map_or_else(
        || "no address is recorded as dialled".to_owned(),
        |peer| format!("the address dialled was {peer}"),
    );
    let mut lines = vec![match outcome.text("sent") {
        Some("all") => plain(format!(
            "All of it was taken by the connection: {} bytes; {peer}.",
            get("sent_len")
        )),
        Some("partial") => plain(format!(
            "A part was taken by the connection: {} bytes; {peer}.",
            get("sent_len")
        )),
        Some("none") => line(
            Mark::Yes,
            format!("Not one byte of it was taken by a connection; {peer}."),
        ),
        _ => line(
            Mark::Doubt,
            format!("How much was sent is unknown: it may have left; {peer}."),
        ),
    }];
    let plan = decision.and_then(|decision| decision.text("plan_sha256"));
    match (plan, outcome.text("sent_sha256"), outcome.text("sent")) {
        (Some(plan), Some(sent), Some("all")) if plan == sent => {
            lines.push(line(
                Mark::Yes,
                "The SHA-256 of what was sent is the one that the decision cleared.".to_owned(),
            ));
        }
        (Some(_), Some(sent), Some("all")) => lines.push(line(
            Mark::No,
            format!("The SHA-256 of what was sent is {sent}, another than the decision cleared."),
        )),
        (_, Some(sent), _) => lines.push(plain(format!("The SHA-256 of what was sent is {sent}."))),
        (_, None, _) => {}
    }
    lines
}

fn answer(decision: Option<&Record>, outcome: Option<&Record>) -> Part {
    let title = "The answer";
    let Some(outcome) = outcome else {
        let local = decision.is_some_and(|decision| decision.text("verdict") == Some("local"));
        let text = match decision {
            Some(_) if local => "leafgate's own, from the policy's models.".to_owned(),
            Some(decision) if !decision.forwards() => format!(
                "leafgate's own refusal, with the reason {}; no host answered.",
                say(&decision.value["reason"])
            ),
            _ => "None is recorded.".to_owned(),
        };
        return Part {
            title,
            lines: vec![plain(text)],
        };
    };
    let get = |key: &str| say(&outcome.value[key]);
    let mut lines = Vec::new();
    if outcome.int("status").is_some() {
        lines.push(plain(format!(
            "The host answered with status {} after {} ms in all.",
            get("status"),
            get("ms")
        )));
    } else {
        lines.push(plain("No status of a host is recorded.".to_owned()));
    }
    if let Some(len) = outcome.value["model"]["len"].as_u64() {
        lines.push(plain(format!(
            "The host named a model that its models in the policy do not list: the record has its length ({len} bytes) and an HMAC alone."
        )));
    } else if !outcome.value["model"].is_null() {
        lines.push(plain(format!(
            "The model that the host named: {}. Whether it is that model, no record can tell.",
            get("model")
        )));
    }
    if outcome.text("received_sha256").is_some() {
        lines.push(plain(format!(
            "{} bytes of body came back, SHA-256 {}.",
            get("received_len"),
            get("received_sha256")
        )));
    }
    if outcome.text("score") == Some("local") {
        lines.push(plain(
            "The answer to a split does not replace the local score.".to_owned(),
        ));
    }
    if let Some(error) = outcome.text("error") {
        lines.push(line(Mark::No, format!("It ended with {error}.")));
    }
    Part { title, lines }
}

/// A sentence that is a fact.
pub(super) fn plain(text: String) -> Line {
    line(Mark::Plain, text)
}

pub(super) fn line(mark: Mark, text: String) -> Line {
    Line { mark, text }
}

/// A value in words.
pub(super) fn say(value: &Value) -> String {
    match value {
        Value::Null => "(not recorded)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(say).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => match (members.get("len"), members.get("mac"), members.len()) {
            (Some(len), Some(_), 2) => format!(
                "(sealed: {len} bytes outside the grammar, recorded as length and HMAC only)"
            ),
            _ => value.to_string(),
        },
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
