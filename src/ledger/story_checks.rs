//! The checks of admission (contract, section 3), as a decision's record lets them be told again.

use super::look::Record;
use super::story::{Line, Mark, Part, line, say};
use crate::terms::Reason;

/// Which calls a check is asked of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Every eligible call.
    Always,
    /// The age of a pin: not on loopback, unless the host sets `max_age`.
    Age,
    /// The fixture's checks: not on loopback, unless `bind` is written as `cover` or `exact`.
    Fixture,
    /// A split.
    Split,
    /// A release with a body.
    Post,
    /// A release with a body, as `bind` says.
    Bind,
}

struct Check {
    question: &'static str,
    reasons: &'static [Reason],
    asked: Asked,
    /// `GET /models` is answered before it.
    after_models: bool,
}

const fn check(
    question: &'static str,
    reasons: &'static [Reason],
    asked: Asked,
    after_models: bool,
) -> Check {
    Check {
        question,
        reasons,
        asked,
        after_models,
    }
}

/// In the order of the contract.
const CHECKS: [Check; 10] = [
    check(
        "Method and path are on the host's routes",
        &[Reason::RouteNotAllowed],
        Asked::Always,
        false,
    ),
    check(
        "fixture_hash and fixture_id fit their grammars",
        &[Reason::HashMalformed, Reason::IdMalformed],
        Asked::Always,
        false,
    ),
    check(
        "The pin is no placeholder",
        &[Reason::PinPlaceholder],
        Asked::Always,
        false,
    ),
    check(
        "The pin is the name of a host in the policy",
        &[Reason::PinUnknown],
        Asked::Always,
        false,
    ),
    check(
        "The pin was confirmed lately enough",
        &[Reason::PinStale],
        Asked::Age,
        false,
    ),
    check(
        "The fixture is registered under the card's hash",
        &[Reason::FixtureUnknown, Reason::FixtureMismatch],
        Asked::Fixture,
        true,
    ),
    check(
        "The fixture's files still have that hash",
        &[Reason::FixtureChanged],
        Asked::Fixture,
        true,
    ),
    check(
        "A failure label is there, on the list, and the payload does not contradict the card",
        &[
            Reason::LabelMissing,
            Reason::LabelUnknown,
            Reason::PayloadContradicts,
        ],
        Asked::Split,
        true,
    ),
    check(
        "The body is plain application/json",
        &[Reason::MediaNotAllowed],
        Asked::Post,
        true,
    ),
    check(
        "The body is bound to the fixture",
        &[Reason::BodyUnbound],
        Asked::Bind,
        true,
    ),
];

/// Each check: passed, failed, not reached, or not asked of such a call.
pub(super) fn part(record: &Record) -> Part {
    let title = "Admission";
    let one = |mark, text: String| Part {
        title,
        lines: vec![line(mark, text)],
    };
    let reason = record.text("reason").unwrap_or_default();
    let verdict = record.text("verdict").unwrap_or_default();
    if record.text("leaf") == Some("hold") {
        return one(
            Mark::Skipped,
            "Not reached: the tree held the call.".to_owned(),
        );
    }
    let passed = match verdict {
        "forward" => CHECKS.len(),
        "local" => CHECKS.iter().filter(|check| !check.after_models).count(),
        _ => {
            let failed = CHECKS
                .iter()
                .position(|check| check.reasons.iter().any(|own| own.code() == reason));
            match failed {
                Some(failed) => failed,
                None => {
                    return one(
                        Mark::Doubt,
                        format!(
                            "The call was refused with {reason}, which no check of admission gives: how far admission got, the record cannot tell."
                        ),
                    );
                }
            }
        }
    };
    let mut lines: Vec<Line> = CHECKS
        .iter()
        .enumerate()
        .map(|(at, check)| {
            let (mark, answer) = match at.cmp(&passed) {
                std::cmp::Ordering::Less => asked(check, record),
                std::cmp::Ordering::Equal if verdict == "refuse" => {
                    (Mark::No, format!("FAILED ({reason})"))
                }
                std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => {
                    (Mark::Skipped, "not reached".to_owned())
                }
            };
            line(mark, format!("{}  {}: {answer}.", at + 1, check.question))
        })
        .collect();
    if verdict == "local" {
        lines.push(line(
            Mark::Plain,
            "A list of models is answered from the policy once the pin's checks pass.".to_owned(),
        ));
    }
    Part { title, lines }
}

/// A check that did not fail: whether it was asked of this call at all.
fn asked(check: &Check, record: &Record) -> (Mark, String) {
    let passed = || (Mark::Yes, "passed".to_owned());
    let skipped = |why: &str| (Mark::Skipped, format!("not asked ({why})"));
    let split = record.text("leaf") == Some("split");
    let post = record
        .text("route")
        .is_some_and(|route| route.starts_with("POST "));
    let mode = record.value["bind"]["mode"].as_str();
    match check.asked {
        Asked::Always => passed(),
        Asked::Age => (
            Mark::Yes,
            "passed, or not asked: on loopback a pin ages only where the host sets max_age, and the record does not say where the host is".to_owned(),
        ),
        // Only where bind is cover or exact can a body be unbound.
        Asked::Fixture
            if matches!(mode, Some("cover" | "exact"))
                || record.text("reason") == Some(Reason::BodyUnbound.code()) =>
        {
            passed()
        }
        Asked::Fixture => (
            Mark::Yes,
            "passed, or not asked: on loopback a fixture is checked only where bind is cover or exact, and the record does not say where the host is".to_owned(),
        ),
        Asked::Split if split => passed(),
        Asked::Split => skipped("not a split"),
        Asked::Post | Asked::Bind if split => skipped("not a release"),
        Asked::Post if post => passed(),
        Asked::Bind if mode == Some("none") => skipped("bind is none: the body is bound to nothing"),
        Asked::Bind if mode.is_some() => (Mark::Yes, format!("passed, by {}", say(&record.value["bind"]["mode"]))),
        Asked::Post => skipped("no POST"),
        Asked::Bind => (Mark::Doubt, "the record cannot tell: it names no bind".to_owned()),
    }
}
