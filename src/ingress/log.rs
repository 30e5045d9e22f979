//! The one line of the log for each call, with constant field names. Only values that fit their grammar.

use std::time::Instant;

use crate::admit::CallFacts;
use crate::terms::{Field, FixtureId, Reason, Verdict};

pub(super) fn call(facts: &CallFacts, verdict: Verdict, reason: Reason, began: Instant) {
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
        verdict = verdict.name(),
        reason = reason.code(),
        fixture_id = fixture.as_ref().map_or("-", FixtureId::as_str),
        host = facts.host.as_ref().map_or("-", |host| host.pin.as_str()),
        decided_us = began.elapsed().as_micros() as u64,
    );
}
