//! Cards that two readers may read differently: one card for both, or none.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Built;
use crate::kit::{Kind, Lab, own};
use crate::support::{card, fixture_hash};

pub const CASES: &[Built] = &[
    ("JSON-01", a_key_twice),
    ("JSON-02", a_key_in_another_case),
    ("JSON-03", a_key_twice_by_escapes),
    ("JSON-04", an_array_for_an_object),
    ("JSON-14", other_encodings),
    ("JSON-15", bytes_behind_the_card),
    ("JSON-16", near_json),
    ("JSON-17", depth),
    ("JSON-21", any_order_is_one_card),
];

pub fn good() -> String {
    card(json!({})).to_string()
}

/// The good card with one more member, in front and behind.
fn with(member: &str) -> [String; 2] {
    let all = good();
    let inside = &all[1..all.len() - 1];
    [
        format!("{{{member},{inside}}}"),
        format!("{{{inside},{member}}}"),
    ]
}

/// The good card with this JSON text as the value of a field.
pub fn value(field: &str, text: &str) -> String {
    card(json!({field: "MARK"}))
        .to_string()
        .replace("\"MARK\"", text)
}

/// Each card is refused for this reason: as JSON, where a header can hold it as it is, and as base64url.
pub fn refused(lab: &Lab, id: &str, text: impl AsRef<[u8]>, reason: &str) {
    let text = text.as_ref();
    let bare = text.first() == Some(&b'{')
        && text.last() != Some(&b' ')
        && text.iter().all(|byte| (0x20..0x7f).contains(byte));
    for encoded in [false, true] {
        if bare || encoded {
            lab.refused(
                id,
                &lab.with_card(text, encoded),
                422,
                reason,
                Kind::Decision,
            );
        }
    }
}

/// The twin, in both spellings.
pub fn twin(lab: &Lab, id: &str, text: &str) {
    for encoded in [false, true] {
        lab.forwarded(id, &lab.with_card(text.as_bytes(), encoded));
    }
}

pub fn each(id: &str, reason: &str, texts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    let lab = Lab::new();
    for text in texts {
        refused(&lab, id, text, reason);
    }
    assert_eq!(lab.host.accepts(), 0, "{id}");
    twin(&lab, id, &good());
}

fn a_key_twice(id: &str) {
    let texts = ["machine-local", "public-fixture"]
        .map(|class| with(&format!("\"egress_class\":\"{class}\"")))
        .concat();
    each(id, "card_malformed", texts);
}

fn a_key_in_another_case(id: &str) {
    each(
        id,
        "card_malformed",
        with("\"Egress_Class\":\"machine-local\""),
    );
}

fn a_key_twice_by_escapes(id: &str) {
    let texts = [
        with("\"egress_cla\\u0073s\":\"machine-local\""),
        with("\"\\u0065gress_class\":\"public-fixture\""),
    ];
    each(id, "card_malformed", texts.concat());
}

fn an_array_for_an_object(id: &str) {
    let list = json!([
        "seed-04",
        fixture_hash(),
        "public-fixture",
        [],
        "x",
        "24h",
        "tmpdir"
    ]);
    each(
        id,
        "card_malformed",
        [list.to_string(), format!("[{}]", good())],
    );
}

fn other_encodings(id: &str) {
    let text = good();
    let wide =
        |order: fn(u16) -> [u8; 2]| -> Vec<u8> { text.encode_utf16().flat_map(order).collect() };
    let (little, big) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
    each(
        id,
        "card_malformed",
        [
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            [b"\xff\xfe", &little[..]].concat(),
            [b"\xfe\xff", &big[..]].concat(),
            little,
            big,
            text.replace("24h", "24h\u{fffd}").into_bytes()[..]
                .iter()
                .map(|b| if *b == 0xef { 0xff } else { *b })
                .collect(),
        ],
    );
}

fn bytes_behind_the_card(id: &str) {
    let tails = [
        "{\"egress_class\":\"machine-local\"}",
        "garbage",
        "\0",
        "#",
        ",",
        "}",
        "\u{a0}",
    ];
    each(id, "card_malformed", tails.map(|tail| good() + tail));
}

fn near_json(id: &str) {
    let all = good();
    let inside = &all[1..all.len() - 1];
    let mut texts = vec![
        format!("{{/* */{inside}}}"),
        format!("{{{inside}}}// x"),
        format!("{{{inside},}}"),
        all.replace('"', "'"),
        all.replace("\"residue\"", "residue"),
        all.replace('[', "[,"),
        all.replace(':', "="),
        all.replace(',', ";"),
    ];
    for odd in [
        "NaN",
        "Infinity",
        "-Infinity",
        "0x1",
        "+1",
        ".5",
        "01",
        "1.",
        "undefined",
        "True",
    ] {
        texts.push(value("replay_window", odd));
    }
    each(id, "card_malformed", texts);
}

fn depth(id: &str) {
    let lab = Lab::new();
    // What a card may hold at most: the reader gives up at the first bracket that stands where a string belongs.
    for opening in ["[", "{\"a\":"] {
        let deep = opening.repeat(8000 / opening.len());
        refused(&lab, id, &deep, "card_malformed");
        refused(&lab, id, value("note", &deep), "card_malformed");
        // More than that does not fit into a head.
        let deeper = opening.repeat(100_000);
        let bytes = lab.with_card(deeper.as_bytes(), false);
        lab.refused(id, &bytes, 431, "head_too_large", Kind::Refused);
    }
    // A card file has no head around it.
    std::fs::write(lab.gate.path("cards/deep.json"), "[".repeat(100_000)).unwrap();
    std::fs::write(
        lab.gate.path("cards/deeper.json"),
        "{\"a\":".repeat(100_000),
    )
    .unwrap();
    for name in ["deep", "deeper"] {
        stored(&lab, id, name);
    }
    assert_eq!(lab.host.accepts(), 0);
    twin(&lab, id, &good());
}

/// The call that names this card is refused as malformed once the file was taken.
pub fn stored(lab: &Lab, id: &str, name: &str) {
    let bytes = lab.bytes(&format!(
        "POST /card/{name}/v1/chat/completions HTTP/1.1\\r\\nHost: {{AUTH}}\\r\\nContent-Length: 0\\r\\n\\r\\n"
    ));
    let began = Instant::now();
    loop {
        let reply = lab.gate.raw(&bytes);
        if reply.reason() != "card_missing" {
            return own(id, &reply, 422, "card_malformed");
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{id}: not taken");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn any_order_is_one_card(id: &str) {
    let lab = Lab::new();
    let all = card(json!({}));
    let mut members: Vec<(&String, &Value)> = all.as_object().unwrap().iter().collect();
    let mut decided = Vec::new();
    let mut seed = 7_usize;
    for round in 0..40 {
        for place in (1..members.len()).rev() {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            members.swap(place, (seed >> 33) % (place + 1));
        }
        let space = ["", " ", "\n", "\t\r\n  "][round % 4];
        let inside: Vec<String> = members
            .iter()
            .map(|(key, value)| format!("{space}\"{key}\"{space}:{space}{value}{space}"))
            .collect();
        let text = format!("{space}{{{}}}{space}", inside.join(","));
        let mut record = lab.forwarded(id, &lab.with_card(text.as_bytes(), true));
        for own in ["call", "seq", "prev", "time"] {
            record.as_object_mut().unwrap().remove(own);
        }
        decided.push(record);
    }
    assert!(decided.iter().all(|one| *one == decided[0]), "{decided:?}");
}
