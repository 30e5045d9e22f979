//! Which fields stand on which record: exactly the table of contract, section 9.
//!
//! Promises: nothing private is in a [`Draft`]: a value of the card stands in clear only where it fits its grammar, and the body only as its length
//! and an HMAC of its hash. Takes: what the rooms before the ledger know of a call. Runs in the call's own task, never in the writer.

use ring::hmac;

use super::RunFacts;
use super::cleared::{Outcome, Sent};
use super::hex::push_hex;
use super::record::{Draft, Fields, push_int, push_string};
use crate::admit::{BindFacts, CallFacts, Dropped, Plan, Refusal};
use crate::card::Card;
use crate::policy::Sync;
use crate::terms::{
    FailureLabel, Field, FixtureId, Reason, Verdict, fits_byte_class, fits_class, fits_hash,
    fits_pin, fits_window, is_blank,
};

/// A model name longer than this is sealed, also where it is on the host's list: it would crowd the record.
const LONGEST_MODEL: usize = 1024;
/// An error text longer than this is cut.
const LONGEST_ERROR: usize = 4096;
/// A residue whose items would take more than this is sealed as a whole, so that the record keeps its limit.
const LONGEST_RESIDUE: usize = 48 * 1024;
/// What one sealed item takes at most: `{"len":8192,"mac":"…64…"},`.
const SEALED_BYTES: usize = 90;

/// What every record of a run says, and the key its HMACs are made with.
#[derive(Debug)]
pub(super) struct Stamp {
    /// The name of the verifier key.
    pub(super) log: String,
    /// New at each start.
    pub(super) run: String,
    /// `mac.key`
    pub(super) mac: hmac::Key,
}

/// What a crash left behind, for `open.recovered`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    /// Bytes of a torn last line that were cut off.
    pub(super) cut: u64,
    /// Forwarded decisions that had no outcome.
    pub(super) closed: u64,
    /// Records after the checkpoint: until now nobody signed them.
    pub(super) unsigned: u64,
}

impl Recovered {
    /// The field, where there is something to say.
    pub(super) fn write(self, f: &mut Fields) {
        if self != Recovered::default() {
            let out = f.key("recovered");
            out.extend_from_slice(b"{\"closed\":");
            push_int(out, self.closed);
            out.extend_from_slice(b",\"cut\":");
            push_int(out, self.cut);
            if self.unsigned > 0 {
                out.extend_from_slice(b",\"unsigned\":");
                push_int(out, self.unsigned);
            }
            out.push(b'}');
        }
    }
}

/// What stands on a forwarding decision alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaves<'a> {
    pub(super) bind: Option<&'a BindFacts>,
    pub(super) dropped: &'a Dropped,
    pub(super) len: u64,
    pub(super) sha256: [u8; 32],
    pub(super) clear_text: bool,
}

impl Stamp {
    /// A forwarding decision.
    pub(super) fn forward(&self, plan: &Plan) -> Draft {
        let leaves = Leaves {
            bind: plan.bind(),
            dropped: plan.dropped(),
            len: plan.len(),
            sha256: plan.sha256(),
            clear_text: plan.clear_text(),
        };
        self.forward_of(plan.facts(), leaves)
    }

    /// A forwarding decision, from its parts.
    pub(super) fn forward_of(&self, facts: &CallFacts, leaves: Leaves<'_>) -> Draft {
        let ruling = facts.ruling;
        self.decision(
            facts,
            Verdict::Forward,
            ruling.reason,
            ruling.field,
            Some(leaves),
        )
    }

    /// A decision that forwards nothing.
    pub(super) fn refusal(&self, refusal: &Refusal) -> Draft {
        let Refusal {
            facts,
            verdict,
            reason,
            field,
            hint: _,
        } = refusal;
        self.decision(facts, *verdict, *reason, *field, None)
    }

    fn decision(
        &self,
        facts: &CallFacts,
        verdict: Verdict,
        reason: Reason,
        field: Option<Field>,
        leaves: Option<Leaves<'_>>,
    ) -> Draft {
        let card = facts.card.as_deref();
        let shown = |field| card.and_then(|card| card.text(field));
        let mut f = Fields::new();
        f.text_opt("attach", facts.attach.map(|place| place.name()));
        if let Some(bind) = leaves.and_then(|leaves| leaves.bind) {
            let out = f.key("bind");
            out.push(b'{');
            push_member(out, "glue_sha256", bind.glue_sha256.as_deref());
            push_member(out, "mode", Some(bind.mode));
            push_member(out, "vocabulary_sha256", bind.vocabulary_sha256.as_deref());
            out.push(b'}');
        }
        if let Some(body) = facts.body {
            f.int("body_len", body.len);
            self.mac(f.key("body_mac"), &body.sha256);
        }
        f.text("call", facts.call.as_str());
        if leaves.is_some_and(|leaves| leaves.clear_text) {
            f.flag("clear_text", true);
        }
        if let Some(leaves) = leaves {
            push_dropped(f.key("dropped"), leaves.dropped);
        }
        self.card_text(
            &mut f,
            "egress_class",
            shown(Field::EgressClass),
            fits_class,
        );
        match &facts.failure_label {
            Some(label) => {
                f.text("failure_label", label.as_str());
            }
            None => self.card_text(
                &mut f,
                "failure_label",
                shown(Field::FailureLabel),
                |text| FailureLabel::parse(text).is_some(),
            ),
        }
        f.text_opt("field", field.map(Field::name));
        self.card_text(&mut f, "fixture_hash", shown(Field::FixtureHash), fits_hash);
        self.card_text(&mut f, "fixture_id", shown(Field::FixtureId), |text| {
            FixtureId::parse(text).is_some()
        });
        f.text_opt("host", facts.host.as_deref().map(|host| host.pin.as_str()));
        self.card_text(&mut f, "host_pin", shown(Field::HostPin), fits_pin);
        f.text("leaf", facts.ruling.leaf.name())
            .text("log", &self.log);
        f.int_opt("peer_uid", facts.peer_uid.map(u64::from));
        if let Some(leaves) = leaves {
            f.int("plan_len", leaves.len)
                .digest("plan_sha256", &leaves.sha256);
        }
        f.prev().text("reason", reason.code());
        self.card_text(
            &mut f,
            "replay_window",
            shown(Field::ReplayWindow),
            fits_window,
        );
        if let Some(residue) = card.and_then(Card::residue) {
            self.residue(f.key("residue"), residue);
        }
        f.text_opt("route", facts.route.as_deref())
            .text("run", &self.run)
            .seq()
            .int("step", u64::from(facts.ruling.step.number()));
        if card.is_some() {
            let surface = shown(Field::WritableSurface);
            f.flag("surface_named", surface.is_some_and(|text| !is_blank(text)));
        }
        f.text("t", "decision")
            .time()
            .int("v", 1)
            .text("verdict", verdict.name());
        f.end()
    }

    /// The outcome of the decision with this `seq`.
    pub(super) fn outcome(&self, call: &str, of: u64, outcome: &Outcome) -> Draft {
        let mut f = Fields::new();
        f.text("call", call)
            .text_opt("error", outcome.error)
            .text("log", &self.log);
        if let Some((model, listed)) = &outcome.model {
            if *listed && model.len() <= LONGEST_MODEL {
                f.text("model", model);
            } else {
                self.sealed(f.key("model"), model.as_bytes());
            }
        }
        let answered = outcome.status.is_some() || outcome.received_sha256.is_some();
        let known = outcome.sent != Sent::Unknown;
        let millis = u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX);
        f.int("ms", millis.min((1 << 53) - 1)).int("of", of);
        f.text_opt("peer", outcome.peer.map(|peer| peer.to_string()).as_deref())
            .prev()
            .int_opt("received_len", answered.then_some(outcome.received_len))
            .digest_opt("received_sha256", outcome.received_sha256.as_ref())
            .text("run", &self.run)
            .text_opt("score", outcome.split.then_some("local"))
            .text("sent", outcome.sent.name())
            .int_opt("sent_len", known.then_some(outcome.sent_len))
            .digest_opt(
                "sent_sha256",
                outcome.sent_sha256.as_ref().filter(|_| known),
            )
            .seq()
            .int_opt("status", outcome.status.map(u64::from))
            .text("t", "outcome")
            .time()
            .int("v", 1);
        f.end()
    }

    /// An outcome nobody reported: the process, or the part of it that held the call, ended first.
    pub(super) fn unreported(&self, call: &str, of: u64, sent: Sent, error: &'static str) -> Draft {
        let mut f = Fields::new();
        f.text("call", call)
            .text("error", error)
            .text("log", &self.log)
            .int("of", of)
            .prev()
            .text("run", &self.run)
            .text("sent", sent.name())
            .int_opt("sent_len", (sent == Sent::None).then_some(0))
            .seq()
            .text("t", "outcome")
            .time()
            .int("v", 1);
        f.end()
    }

    /// A message that never became a call, or how many calls left no decision.
    pub(super) fn refused(
        &self,
        reason: Reason,
        bytes: Option<u64>,
        count: Option<u64>,
        peer_uid: Option<u32>,
    ) -> Draft {
        let mut f = Fields::new();
        f.int_opt("bytes", bytes)
            .int_opt("count", count)
            .text("log", &self.log)
            .int_opt("peer_uid", peer_uid.map(u64::from))
            .prev()
            .text("reason", reason.code())
            .text("run", &self.run)
            .seq()
            .text("t", "refused")
            .time()
            .int("v", 1);
        f.end()
    }

    /// A reload, or one that was refused.
    pub(super) fn config(&self, policy: &str, error: Option<&str>) -> Draft {
        let error = error.map(|text| {
            let mut end = text.len().min(LONGEST_ERROR);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            &text[..end]
        });
        let mut f = Fields::new();
        f.text_opt("error", error)
            .text("log", &self.log)
            .text("policy", policy)
            .prev()
            .text("run", &self.run)
            .seq()
            .text("t", "config")
            .time()
            .int("v", 1);
        f.end()
    }

    /// The start of a run.
    pub(super) fn open(
        &self,
        run: &RunFacts,
        sync: Sync,
        key: &str,
        recovered: Recovered,
    ) -> Draft {
        let mut f = Fields::new();
        f.text("key", key)
            .text("log", &self.log)
            .text("oracle", &run.oracle)
            .text("policy", &run.policy)
            .prev();
        recovered.write(&mut f);
        f.text("run", &self.run)
            .seq()
            .text("sync", sync.name())
            .text("t", "open")
            .time()
            .int("v", 1)
            .text("version", run.version);
        f.end()
    }

    /// The end of a run.
    pub(super) fn stop(&self, policy: &str) -> Draft {
        let mut f = Fields::new();
        f.text("log", &self.log)
            .text("policy", policy)
            .prev()
            .text("run", &self.run)
            .seq()
            .text("t", "stop")
            .time()
            .int("v", 1);
        f.end()
    }

    fn card_text(
        &self,
        f: &mut Fields,
        key: &'static str,
        value: Option<&str>,
        fits: fn(&str) -> bool,
    ) {
        match value {
            Some(text) if fits(text) => {
                f.text(key, text);
            }
            Some(text) => self.sealed(f.key(key), text.as_bytes()),
            None => {}
        }
    }

    /// `{"len":N,"mac":"hex"}`: stands in the place of a value that may not be shown.
    fn sealed(&self, out: &mut Vec<u8>, value: &[u8]) {
        out.extend_from_slice(b"{\"len\":");
        push_int(out, value.len() as u64);
        out.extend_from_slice(b",\"mac\":");
        self.mac(out, value);
        out.push(b'}');
    }

    fn mac(&self, out: &mut Vec<u8>, value: &[u8]) {
        out.push(b'"');
        push_hex(out, hmac::sign(&self.mac, value).as_ref());
        out.push(b'"');
    }

    /// Each byte class, shown or sealed; where that would crowd the record, one sealed item for them all, over their JSON array.
    fn residue(&self, out: &mut Vec<u8>, residue: &[Box<str>]) {
        let takes: usize = residue
            .iter()
            .map(|item| {
                if fits_byte_class(item) {
                    item.len() + 3
                } else {
                    SEALED_BYTES
                }
            })
            .sum();
        out.push(b'[');
        if takes > LONGEST_RESIDUE {
            let mut all = vec![b'['];
            for item in residue {
                if all.len() > 1 {
                    all.push(b',');
                }
                push_string(&mut all, item);
            }
            all.push(b']');
            self.sealed(out, &all);
        } else {
            for (place, item) in residue.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                if fits_byte_class(item) {
                    push_string(out, item);
                } else {
                    self.sealed(out, item.as_bytes());
                }
            }
        }
        out.push(b']');
    }
}

fn push_member(out: &mut Vec<u8>, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        push_string(out, key);
        out.push(b':');
        push_string(out, value);
    }
}

fn push_dropped(out: &mut Vec<u8>, dropped: &Dropped) {
    out.extend_from_slice(b"{\"names\":[");
    for (place, name) in dropped.names.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        push_string(out, name);
    }
    out.extend_from_slice(b"],\"other\":");
    push_int(out, dropped.other);
    out.push(b'}');
}
