//! The tree against its specification: the oracle, and the full cross product of field states against a second statement of the tree, a table of
//! predicates over states, written for this test alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests are tests"
)]

use std::sync::Arc;

use leafgate::card::{Card, Reading};
use leafgate::oracle::{Oracle, said};
use leafgate::tree::{Decision, classify};
use serde_json::{Map, Value, json};

#[test]
fn the_oracle_finds_no_difference() {
    let oracle = Oracle::embedded().expect("the oracle is read");
    let differences: Vec<_> = oracle.run().filter(|case| !case.passed()).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(oracle.count() >= 45);
}

#[test]
fn the_five_of_the_note_are_in_the_oracle() {
    let cases: Value = serde_json::from_str(include_str!("../policies/oracle.json")).unwrap();
    for (id, class, residue, pin, hash, leaf) in [
        (
            "ticket-1842",
            "public-fixture",
            json!(["customer_email"]),
            "local",
            "sha256:abc",
            "hold",
        ),
        (
            "doc-17",
            "redacted-metadata",
            json!([]),
            "local-builder",
            "sha256:def",
            "split",
        ),
        (
            "seed-04",
            "public-fixture",
            json!([]),
            "free-server",
            "sha256:9f2c",
            "release",
        ),
        (
            "seed-04",
            "public-fixture",
            json!([]),
            "",
            "sha256:9f2c",
            "hold",
        ),
        (
            "seed-04",
            "public-fixtre",
            json!([]),
            "free-server",
            "sha256:9f2c",
            "hold",
        ),
    ] {
        let found = cases.as_array().unwrap().iter().find(|case| {
            let card = &case["card"];
            card["fixture_id"] == id
                && card["egress_class"] == class
                && card["residue"] == residue
                && card["host_pin"] == pin
                && card["fixture_hash"] == hash
                && card["replay_window"] == "24h"
        });
        assert_eq!(
            found.unwrap_or_else(|| panic!("{id} {class} {pin}"))["leaf"],
            leaf
        );
    }
}

/// A state of a string field: what stands in the card, and whether the specification calls it blank.
#[derive(Clone, Copy)]
struct State {
    value: Option<&'static str>,
    blank: bool,
}

const ABSENT: State = State {
    value: None,
    blank: false,
};

const fn blank(value: &'static str) -> State {
    State {
        value: Some(value),
        blank: true,
    }
}

const fn good(value: &'static str) -> State {
    State {
        value: Some(value),
        blank: false,
    }
}

/// Absent; blanks of each family (none, White_Space, Cc, Cf, Default_Ignorable_Code_Point, U+2800); good ones.
const STATES: [State; 8] = [
    ABSENT,
    blank(""),
    blank(" \t\u{a0}"),
    blank("\0\u{7f}"),
    blank("\u{200b}\u{ad}"),
    blank("\u{3164}\u{fe0f}"),
    blank("\u{2800}"),
    good("x \u{200b}"),
];

const CLASSES: [Option<&str>; 8] = [
    None,
    Some("machine-local"),
    Some("redacted-metadata"),
    Some("public-fixture"),
    Some("public-fixtre"),
    Some("Machine-Local"),
    Some(""),
    Some("\u{2800}"),
];

const RESIDUES: [Option<&[&str]>; 5] = [
    None,
    Some(&[]),
    Some(&["customer_email"]),
    Some(&[""]),
    Some(&["a", "\u{200b}"]),
];

/// The string fields besides the class, in the order of the card.
const TEXTS: [&str; 5] = [
    "fixture_id",
    "fixture_hash",
    "host_pin",
    "replay_window",
    "writable_surface",
];

/// One point of the cross product.
struct Point {
    texts: [State; 5],
    class: Option<&'static str>,
    residue: Option<&'static [&'static str]>,
}

impl Point {
    fn text(&self, name: &str) -> State {
        self.texts[TEXTS.iter().position(|text| *text == name).unwrap()]
    }

    fn card(&self) -> Card {
        let mut card = Map::new();
        for (name, state) in TEXTS.iter().zip(self.texts) {
            if let Some(value) = state.value {
                card.insert((*name).to_owned(), value.into());
            }
        }
        if let Some(class) = self.class {
            card.insert("egress_class".to_owned(), class.into());
        }
        if let Some(residue) = self.residue {
            card.insert("residue".to_owned(), residue.into());
        }
        Card::parse(Value::Object(card).to_string().as_bytes()).unwrap()
    }
}

type Matches = fn(&Point) -> bool;

/// The second statement: row by row as contract, section 2 reads; the first row that matches wins.
const TABLE: [(Matches, &str); 17] = [
    (
        |p| p.text("fixture_id").value.is_none(),
        "hold 0 field_missing fixture_id",
    ),
    (
        |p| p.text("fixture_hash").value.is_none(),
        "hold 0 field_missing fixture_hash",
    ),
    (|p| p.class.is_none(), "hold 0 field_missing egress_class"),
    (|p| p.residue.is_none(), "hold 0 field_missing residue"),
    (
        |p| p.text("host_pin").value.is_none(),
        "hold 0 field_missing host_pin",
    ),
    (
        |p| p.text("replay_window").value.is_none(),
        "hold 0 field_missing replay_window",
    ),
    (
        |p| p.text("writable_surface").value.is_none(),
        "hold 0 field_missing writable_surface",
    ),
    (
        |p| p.class == Some("machine-local"),
        "hold 1 machine_local egress_class",
    ),
    (|p| p.residue != Some(&[]), "hold 2 residue_present residue"),
    (|p| p.text("host_pin").blank, "hold 3 field_blank host_pin"),
    (
        |p| p.text("fixture_hash").blank,
        "hold 3 field_blank fixture_hash",
    ),
    (
        |p| p.text("replay_window").blank,
        "hold 3 field_blank replay_window",
    ),
    (
        |p| p.text("fixture_id").blank,
        "hold 3 field_blank fixture_id",
    ),
    (
        |p| p.text("writable_surface").blank,
        "hold 3 field_blank writable_surface",
    ),
    (
        |p| p.class == Some("redacted-metadata"),
        "split 4 redacted_metadata egress_class",
    ),
    (
        |p| p.class == Some("public-fixture"),
        "release 5 public_fixture egress_class",
    ),
    (|_| true, "hold 6 class_unknown egress_class"),
];

#[test]
fn the_full_cross_product_agrees_with_the_second_statement() {
    let mut seen = [0_u64; TABLE.len()];
    let mut points = 0_u64;
    for index in 0..STATES.len().pow(5) {
        let digit = |place: u32| STATES[index / STATES.len().pow(place) % STATES.len()];
        let texts = [digit(0), digit(1), digit(2), digit(3), digit(4)];
        for class in CLASSES {
            for residue in RESIDUES {
                let point = Point {
                    texts,
                    class,
                    residue,
                };
                let row = TABLE
                    .iter()
                    .position(|(matches, _)| matches(&point))
                    .unwrap();
                let decision = classify(&Reading::Card(Arc::new(point.card())));
                assert_eq!(
                    said(&decision.ruling()),
                    TABLE[row].1,
                    "texts {:?}, class {class:?}, residue {residue:?}",
                    texts.map(|state| state.value)
                );
                // The kind of the decision is the leaf that it states.
                let kind = match decision {
                    Decision::Hold(_) => "hold ",
                    Decision::Split(_) => "split ",
                    Decision::Release(_) => "release ",
                };
                assert!(TABLE[row].1.starts_with(kind));
                seen[row] += 1;
                points += 1;
            }
        }
    }
    assert_eq!(points, 8_u64.pow(5) * 8 * 5);
    assert!(
        seen.iter().all(|count| *count > 0),
        "a row was never reached: {seen:?}"
    );
}
