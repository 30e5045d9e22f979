//! The one line of the log for each call, with constant field names. Only values that fit their grammar.
//!
//! Promises: verdict and reason are those of the call's decision in the ledger, and `error` is that of its outcome, where it ended before an answer of the host came: a call
//! that was forwarded and failed on its way reads `verdict="forward" … error="connect_failed"`. A call that has no decision (`overloaded`, `ledger_unavailable`) says so as
//! its reason. What ends an answer that had begun stands in the outcome alone.

use std::time::Instant;

use crate::admit::CallFacts;
use crate::terms::{Field, FixtureId, Reason, Verdict};

/// How a call ended, in the words of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) verdict: Verdict,
    pub(super) reason: Reason,
    /// The outcome's `error`.
    pub(super) error: Option<&'static str>,
}

impl End {
    /// Without an outcome, or with one that names no error.
    pub(super) fn of(verdict: Verdict, reason: Reason) -> End {
        End {
            verdict,
            reason,
            error: None,
        }
    }

    /// Forwarded, as the tree said, and then ended by this.
    pub(super) fn failed(facts: &CallFacts, error: &'static str) -> End {
        End {
            error: Some(error),
            ..End::of(Verdict::Forward, facts.ruling.reason)
        }
    }
}

pub(super) fn call(facts: &CallFacts, end: End, began: Instant) {
    let fixture = facts
        .card
        .as_ref()
        .and_then(|card| card.text(Field::FixtureId))
        .and_then(FixtureId::parse);
    tracing::info!(
        target: "leafgate::call",
        call = facts.call.as_str(),
        leaf = facts.ruling.leaf.name(),
        step = facts.ruling.step.number(),
        verdict = end.verdict.name(),
        reason = end.reason.code(),
        error = end.error.unwrap_or("-"),
        fixture_id = fixture.as_ref().map_or("-", FixtureId::as_str),
        host = facts.host.as_ref().map_or("-", |host| host.pin.as_str()),
        decided_us = began.elapsed().as_micros() as u64,
    );
}
