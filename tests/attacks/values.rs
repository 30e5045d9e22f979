//! Values of a card that look like good ones: classes, residue, numbers, hashes, ids, and pins like the configured name.

use serde_json::{Value, json};

use crate::Built;
use crate::cards::{each, good, refused, stored, twin, value};
use crate::kit::{Kind, Lab};
use crate::support::{body, card, fixture_hash, split_card};

pub const CASES: &[Built] = &[
    ("JSON-06", a_class_that_is_no_string),
    ("JSON-07", a_residue_that_is_no_array),
    ("JSON-08", a_byte_class_that_is_blank_or_none),
    ("JSON-11", a_class_with_a_nul),
    ("JSON-18", numbers),
    ("JSON-23", one_field_decides),
    ("JSON-24", near_hashes),
    ("NET-03", |id| pins(id, &["012.0.0.1", "0177.0.0.1"])),
    ("NET-04", |id| {
        let forms = [
            "[::ffff:127.0.0.1]",
            "[::]",
            "[::1%25lo]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
        ];
        pins(id, &forms);
    }),
    ("NET-06", |id| {
        pins(id, &["MODELS.example.org", "Models.Example.Org"])
    }),
    ("NET-08", |id| {
        let forms = [
            "models.example.org@evil.example",
            "evil.example#models.example.org",
            "evil.example/.example.org",
        ];
        pins(id, &forms);
    }),
    ("NET-10", |id| {
        let forms = [
            "models\u{ff0e}example\u{ff0e}org",
            "models\u{3002}example.org",
            "\u{2100}models.example.org",
            "models.example.org\u{ff03}evil",
        ];
        pins(id, &forms);
    }),
    ("NET-12", |id| {
        pins(id, &["evil.example\0.example.org", "models.example.org\0"])
    }),
    ("NET-14", |id| {
        let forms = [
            "notmodels.example.org",
            "models.example.org.evil.example",
            "example.org",
            "models.example.org.",
            "models.example.org:443",
            " models.example.org",
        ];
        pins(id, &forms);
    }),
    ("CARD-09", a_fixture_id_that_carries_a_file),
    ("CARD-15", a_fixture_id_with_a_line_of_a_head),
];

fn pins(id: &str, pins: &[&str]) {
    let texts = pins
        .iter()
        .map(|pin| card(json!({"host_pin": pin})).to_string());
    each(id, "pin_unknown", texts);
}

fn a_class_that_is_no_string(id: &str) {
    let values = ["[\"public-fixture\"]", "1", "true", "null", "{}"];
    each(
        id,
        "card_malformed",
        values.map(|text| value("egress_class", text)),
    );
    each(
        id,
        "card_malformed",
        values.map(|text| format!("{{\"egress_class\":{text}}}")),
    );
}

fn a_residue_that_is_no_array(id: &str) {
    let values = ["null", "\"\"", "{}", "false", "\"[]\"", "0"];
    each(
        id,
        "card_malformed",
        values.map(|text| value("residue", text)),
    );
    each(
        id,
        "field_missing",
        [card(json!({"residue": null})).to_string()],
    );
}

fn a_byte_class_that_is_blank_or_none(id: &str) {
    each(id, "residue_present", [value("residue", "[\"\"]")]);
    each(
        id,
        "card_malformed",
        ["[null]", "[[]]", "[{}]", "[0]"].map(|text| value("residue", text)),
    );
}

fn a_class_with_a_nul(id: &str) {
    let text = value("egress_class", "\"public-fixture\\u0000machine-local\"");
    each(id, "class_unknown", [text]);
}

fn numbers(id: &str) {
    let lab = Lab::new();
    let fields: Vec<String> = card(json!({"failure_label": "pass", "note": "x"}))
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    for field in &fields {
        for number in ["1e400", "-0", "1E+2"] {
            refused(&lab, id, value(field, number), "card_malformed");
        }
    }
    refused(&lab, id, value("note", &"1".repeat(7000)), "card_malformed");
    let long = format!("1{}", "0".repeat(1_000_000));
    let bytes = lab.with_card(value("note", &long).as_bytes(), false);
    lab.refused(id, &bytes, 431, "head_too_large", Kind::Refused);
    std::fs::write(lab.gate.path("cards/long.json"), value("note", &long)).unwrap();
    stored(&lab, id, "long");
    assert_eq!(lab.host.accepts(), 0);
    twin(&lab, id, &good());
}

fn one_field_decides(id: &str) {
    each(
        id,
        "machine_local",
        [card(json!({"egress_class": "machine-local"})).to_string()],
    );
    each(
        id,
        "residue_present",
        [card(json!({"residue": ["prompt"]})).to_string()],
    );
}

fn near_hashes(id: &str) {
    let good = fixture_hash();
    let hex = good.strip_prefix("sha256:").unwrap();
    let texts = [
        "sha256:".to_owned(),
        format!("SHA256:{hex}"),
        format!("md5:{hex}"),
        format!("sha256:{}", &hex[1..]),
        format!("sha256:{}", hex.to_uppercase()),
        format!("sha256:{hex}:x"),
        format!("sha256:{hex}\n"),
        format!(" sha256:{hex}"),
        format!("sha512:{hex}"),
        hex.to_owned(),
    ];
    let cards = texts.map(|hash| card(json!({"fixture_hash": hash})).to_string());
    each(id, "hash_malformed", cards);
}

fn a_fixture_id_that_carries_a_file(id: &str) {
    let lab = Lab::new();
    for fixture_id in [
        "QUJD".repeat(1024),
        "a".repeat(65),
        "seed/04".into(),
        "seed 04".into(),
    ] {
        refused(
            &lab,
            id,
            split_card(json!({"fixture_id": fixture_id})).to_string(),
            "id_malformed",
        );
    }
    assert_eq!(lab.host.accepts(), 0);
    let text = split_card(json!({})).to_string();
    let reply = lab.gate.raw(&lab.with_card(text.as_bytes(), false));
    assert_eq!((reply.status, lab.host.seen().len()), (200, 1), "{id}");
    assert_ne!(lab.host.seen()[0].body, body(), "four values, not the body");
}

fn a_fixture_id_with_a_line_of_a_head(id: &str) {
    let lab = Lab::new();
    for fixture_id in ["a\r\nX-Leak: CANARY-7f3a", "a\nb", "a\rb"] {
        for make in [card as fn(Value) -> Value, split_card] {
            let text = make(json!({"fixture_id": fixture_id})).to_string();
            refused(&lab, id, text, "id_malformed");
        }
    }
    let lines = std::fs::read_to_string(lab.gate.path("ledger/000000000000.jsonl")).unwrap();
    assert!(!lines.contains('\r') && !lines.contains("X-Leak"), "{id}");
    assert_eq!(lab.host.accepts(), 0);
    twin(&lab, id, &good());
}
