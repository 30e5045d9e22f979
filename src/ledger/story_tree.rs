//! The tree's steps (contract, section 2), as a decision's record lets them be told again.

use super::look::Record;
use super::story::{Line, Mark, Part, line, say};
use crate::terms::Reason;

/// A step: its number, its question, the leaf it gives, the reasons it decides with.
struct Step {
    number: u64,
    question: &'static str,
    leaf: &'static str,
    reasons: &'static [Reason],
}

/// In the order in which they are walked.
const STEPS: [Step; 8] = [
    Step {
        number: 0,
        question: "Is the card missing, there twice, or malformed?",
        leaf: "hold",
        reasons: &[
            Reason::CardMissing,
            Reason::CardAmbiguous,
            Reason::CardMalformed,
        ],
    },
    Step {
        number: 0,
        question: "Is a required field absent?",
        leaf: "hold",
        reasons: &[Reason::FieldMissing],
    },
    Step {
        number: 1,
        question: "Is egress_class machine-local?",
        leaf: "hold",
        reasons: &[Reason::MachineLocal],
    },
    Step {
        number: 2,
        question: "Is residue not empty?",
        leaf: "hold",
        reasons: &[Reason::ResiduePresent],
    },
    Step {
        number: 3,
        question: "Is host_pin, fixture_hash, replay_window, fixture_id or writable_surface blank?",
        leaf: "hold",
        reasons: &[Reason::FieldBlank],
    },
    Step {
        number: 4,
        question: "Is egress_class redacted-metadata?",
        leaf: "split",
        reasons: &[Reason::RedactedMetadata],
    },
    Step {
        number: 5,
        question: "Is egress_class public-fixture?",
        leaf: "release",
        reasons: &[Reason::PublicFixture],
    },
    Step {
        number: 6,
        question: "Anything else, a typo included?",
        leaf: "hold",
        reasons: &[Reason::ClassUnknown],
    },
];

/// Each step with yes, no, or not reached.
pub(super) fn part(record: &Record) -> Part {
    let title = "The tree";
    let (Some(number), Some(leaf)) = (record.int("step"), record.text("leaf")) else {
        let text = "Leaf and step are not both recorded: the tree cannot be told.".to_owned();
        return Part {
            title,
            lines: vec![line(Mark::Doubt, text)],
        };
    };
    let Some(place) = decided(record, number) else {
        let text = format!(
            "The record says step {number}, which the tree does not have: it cannot be told."
        );
        return Part {
            title,
            lines: vec![line(Mark::Doubt, text)],
        };
    };
    let mut lines = Vec::new();
    for (at, step) in STEPS.iter().enumerate() {
        let Step {
            number,
            question,
            leaf,
            ..
        } = step;
        let (mark, answer) = match at.cmp(&place) {
            std::cmp::Ordering::Less => (Mark::Plain, "no".to_owned()),
            std::cmp::Ordering::Equal => {
                let mark = if *leaf == "hold" { Mark::No } else { Mark::Yes };
                (
                    mark,
                    format!("YES, so the leaf is {leaf}{}", because(record, place)),
                )
            }
            std::cmp::Ordering::Greater => (Mark::Skipped, "not reached".to_owned()),
        };
        lines.push(line(mark, format!("{number}  {question} {answer}.")));
    }
    lines.extend(doubts(record, &STEPS[place], leaf));
    Part { title, lines }
}

/// Which of the steps matched. Step 0 has two; the reason tells them apart, or, where another reason stands in its place, whether a card was read.
fn decided(record: &Record, number: u64) -> Option<usize> {
    let by_number = |step: &&(usize, &Step)| step.1.number == number;
    let steps: Vec<(usize, &Step)> = STEPS.iter().enumerate().collect();
    let reason = record.text("reason");
    let both = steps
        .iter()
        .filter(by_number)
        .find(|(_, step)| step.reasons.iter().any(|own| reason == Some(own.code())));
    both.or_else(|| {
        let mut found: Vec<_> = steps.iter().filter(by_number).collect();
        if number == 0 && record.value["surface_named"].is_null() {
            found.truncate(1);
        }
        found.pop()
    })
    .map(|(at, _)| *at)
}

/// What the record has to say about the step that matched.
fn because(record: &Record, place: usize) -> String {
    let reason = record.text("reason").unwrap_or_default();
    let field = record.text("field");
    match place {
        0 => format!(" ({reason})"),
        1 | 4 => field.map_or_else(
            || " (the record does not name the field)".to_owned(),
            |field| format!(" (the first such field is {field})"),
        ),
        3 => format!(" (residue is {})", say(&record.value["residue"])),
        7 => format!(" (egress_class is {})", say(&record.value["egress_class"])),
        _ => String::new(),
    }
}

/// Where the record's own fields do not agree with the step it names.
fn doubts(record: &Record, step: &Step, leaf: &str) -> Vec<Line> {
    let mut doubts = Vec::new();
    let mut doubt = |text: String| doubts.push(line(Mark::Doubt, text));
    if step.leaf != leaf {
        doubt(format!(
            "The record says {leaf}; step {} gives {}: they contradict each other.",
            step.number, step.leaf
        ));
    }
    if record.text("verdict") == Some("forward") && leaf == "hold" {
        doubt("The verdict is forward under a hold: the record contradicts itself.".to_owned());
    }
    let class = match step.number {
        1 => Some("machine-local"),
        4 => Some("redacted-metadata"),
        5 => Some("public-fixture"),
        _ => None,
    };
    if let Some(class) = class
        && record.text("egress_class") != Some(class)
    {
        doubt(format!(
            "The record's egress_class is {}: the record contradicts itself.",
            say(&record.value["egress_class"])
        ));
    }
    let residue = record.value["residue"].as_array();
    if step.number > 2 && residue.is_none_or(|residue| !residue.is_empty()) {
        doubt(format!(
            "The record's residue is {}: the record contradicts itself.",
            say(&record.value["residue"])
        ));
    }
    doubts
}
