//! The strict card reader and attaching: every malformed kind of contract, section 1 and the JSON-* and CARD-* attacks that concern them, each
//! beside its twin without the fault, which is read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests are tests"
)]

use http::{HeaderMap, HeaderName, HeaderValue};
use leafgate::card::{
    Attach, CARD_HEADER, Card, CardFault, CardStore, MAX_CARD_BYTES, Reading, attach, is_card_key,
};
use leafgate::oracle::said;
use leafgate::terms::Field;
use leafgate::tree::classify;

const GOOD: &str = r#"{"fixture_id":"seed-04","fixture_hash":"sha256:9f2c","egress_class":"public-fixture","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"tmpdir"}"#;

fn fault(text: impl AsRef<[u8]>) -> CardFault {
    match Card::parse(text.as_ref()) {
        Err(fault) => fault,
        Ok(_) => panic!("read: {}", String::from_utf8_lossy(text.as_ref())),
    }
}

fn good() -> Card {
    Card::parse(GOOD.as_bytes()).unwrap()
}

/// The good card with one more member in front, and one behind.
fn with(member: &str) -> [String; 2] {
    let inside = &GOOD[1..GOOD.len() - 1];
    [
        format!("{{{member},{inside}}}"),
        format!("{{{inside},{member}}}"),
    ]
}

fn value(field: &str, json: &str) -> String {
    let mut card: serde_json::Value = serde_json::from_str(GOOD).unwrap();
    card[field] = "MARK".into();
    card.to_string().replace("\"MARK\"", json)
}

#[test]
fn json_01_03_a_key_twice_however_spelled() {
    for member in [
        r#""egress_class":"machine-local""#,
        r#""egress_class":"public-fixture""#,
        r#""egress_cla\u0073s":"machine-local""#,
        r#""\u0065\u0067\u0072ess_class":"machine-local""#,
    ] {
        for text in with(member) {
            assert_eq!(
                fault(&text),
                CardFault::KeyTwice(Some(Field::EgressClass)),
                "{text}"
            );
        }
    }
    for text in with(r#""note":"a","note":"b""#) {
        assert_eq!(fault(&text), CardFault::KeyTwice(None));
    }
    // Twins: once, also with escapes.
    let escaped = GOOD.replace("egress_class", r"egress_cla\u0073s");
    assert_eq!(Card::parse(escaped.as_bytes()).unwrap(), good());
    for text in with(r#""note":"a""#) {
        assert_eq!(Card::parse(text.as_bytes()).unwrap(), good());
    }
}

#[test]
fn json_02_unknown_keys() {
    for key in [
        "Egress_Class",
        "egress_class ",
        "egress-class",
        "",
        "\\u0000",
        "notes",
        "__proto__",
    ] {
        for text in with(&format!("\"{key}\":\"machine-local\"")) {
            assert_eq!(fault(&text), CardFault::UnknownKey, "{text}");
        }
    }
    for text in with(r#""failure_label":"pass""#) {
        assert_eq!(
            Card::parse(text.as_bytes())
                .unwrap()
                .text(Field::FailureLabel),
            Some("pass")
        );
    }
}

#[test]
fn json_04_not_one_object() {
    for text in ["[]", "[\"a\"]", "\"x\"", "1", "-1", "1.5", "true", "null"] {
        assert_eq!(fault(text), CardFault::NotObject, "{text}");
    }
    assert_eq!(fault(format!("[{GOOD}]")), CardFault::NotObject);
    assert!(Card::parse(b"{}").is_ok());
}

#[test]
fn json_06_07_08_18_wrong_types_name_their_field() {
    let all = [
        Field::FixtureId,
        Field::FixtureHash,
        Field::EgressClass,
        Field::HostPin,
        Field::ReplayWindow,
        Field::WritableSurface,
        Field::FailureLabel,
    ];
    for field in all {
        for json in [
            "null",
            "true",
            "1",
            "-1",
            "-0",
            "1.5",
            "1E+2",
            "[]",
            "[\"public-fixture\"]",
            "{}",
            r#"{"a":"b"}"#,
        ] {
            let text = value(field.name(), json);
            assert_eq!(fault(&text), CardFault::WrongType(Some(field)), "{text}");
        }
        assert!(Card::parse(value(field.name(), "\"x\"").as_bytes()).is_ok());
    }
    for json in [
        "null",
        "\"\"",
        "{}",
        "false",
        "0",
        "\"[]\"",
        "[null]",
        "[[]]",
        "[1]",
        "[\"a\",{}]",
        "[true]",
    ] {
        let text = value("residue", json);
        assert_eq!(
            fault(&text),
            CardFault::WrongType(Some(Field::Residue)),
            "{text}"
        );
    }
    for json in ["[]", "[\"\"]", "[\"a\",\"b\"]"] {
        assert!(
            Card::parse(value("residue", json).as_bytes()).is_ok(),
            "{json}"
        );
    }
    for json in ["null", "1", "[]", "{}"] {
        assert_eq!(fault(value("note", json)), CardFault::WrongType(None));
    }
    // Numbers that no float holds are malformed too, whatever they are called.
    for json in ["1e400".to_owned(), "1".repeat(7000)] {
        fault(value("host_pin", &json));
    }
    assert_eq!(
        fault(value("host_pin", &"1".repeat(1_000_000))),
        CardFault::TooLong
    );
}

#[test]
fn json_08_a_blank_byte_class_is_residue() {
    let card = Card::parse(value("residue", "[\"\"]").as_bytes()).unwrap();
    assert_eq!(
        said(&classify(&Reading::Card(card.into())).ruling()),
        "hold 2 residue_present residue"
    );
}

#[test]
fn json_11_nothing_is_trimmed_folded_or_normalised() {
    for class in [
        r"public-fixture\u0000machine-local",
        r"public-fixture ",
        r"Public-fixture",
        r"publi\u0441-fixture",
    ] {
        let card = Card::parse(value("egress_class", &format!("\"{class}\"")).as_bytes()).unwrap();
        assert_eq!(
            said(&classify(&Reading::Card(card.into())).ruling()),
            "hold 6 class_unknown egress_class"
        );
    }
    let card = Card::parse(value("host_pin", r#""\u0065\u0301 \ud83d\ude00""#).as_bytes()).unwrap();
    assert_eq!(card.text(Field::HostPin), Some("e\u{301} \u{1f600}"));
}

#[test]
fn json_14_encodings() {
    assert_eq!(fault(format!("\u{feff}{GOOD}")), CardFault::NotUtf8);
    let wide: Vec<u16> = GOOD.encode_utf16().collect();
    let little: Vec<u8> = wide.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = wide.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    for text in [little.clone(), big.clone()] {
        assert_eq!(fault(&text), CardFault::NotJson);
    }
    assert_eq!(
        fault([&[0xff, 0xfe][..], &little].concat()),
        CardFault::NotUtf8
    );
    assert_eq!(
        fault([&[0xfe, 0xff][..], &big].concat()),
        CardFault::NotUtf8
    );
    for bytes in [&b"\xff"[..], b"\xc0\xaf", b"\xed\xa0\x80"] {
        let mut text = GOOD.replace("24h", "MARK").into_bytes();
        let at = text
            .windows(4)
            .position(|window| window == b"MARK")
            .unwrap();
        text.splice(at..at + 4, bytes.iter().copied());
        assert_eq!(fault(&text), CardFault::NotUtf8);
    }
    assert_eq!(fault(GOOD.replace("24h", r"\ud800")), CardFault::NotJson);
    assert!(Card::parse(GOOD.replace("24h", "é").as_bytes()).is_ok());
}

#[test]
fn json_15_16_trailing_bytes_and_near_json() {
    for tail in [
        r#"{"egress_class":"machine-local"}"#,
        "garbage",
        "\0",
        "#",
        ",",
        "}",
        "//x",
        "\u{a0}",
        "\u{b}",
    ] {
        assert_eq!(
            fault(format!("{GOOD}{tail}")),
            CardFault::NotJson,
            "{tail:?}"
        );
    }
    for text in [
        GOOD.replacen('{', "{/**/", 1),
        format!("// x\n{GOOD}"),
        GOOD.replace("\"tmpdir\"}", "\"tmpdir\",}"),
        GOOD.replace('"', "'"),
        GOOD.replace("\"residue\"", "residue"),
        GOOD.replace("24h", "24h\n"),
        GOOD.replace("24h", r"\x41"),
        GOOD[..GOOD.len() - 1].to_owned(),
        String::new(),
        " ".to_owned(),
    ] {
        assert_eq!(fault(&text), CardFault::NotJson, "{text}");
    }
    for json in ["NaN", "Infinity", "0x1", "+1", ".5", "01"] {
        fault(value("replay_window", json));
    }
    for text in [format!(" \r\n\t{GOOD}\n"), GOOD.replace(',', " ,\n\t")] {
        assert_eq!(Card::parse(text.as_bytes()).unwrap(), good());
    }
}

#[test]
fn json_17_card_05_depth_and_length() {
    assert_eq!(fault("[".repeat(100_000)), CardFault::TooLong);
    assert_eq!(fault("{\"a\":".repeat(100_000)), CardFault::TooLong);
    fault("[".repeat(8000));
    fault(value("host_pin", &"[".repeat(8000)));
    fault(value("residue", &"[".repeat(8000)));
    fault("{\"residue\":".repeat(700));
    let pad = |length: usize| {
        let [_, text] = with(r#""note":"""#);
        let more = length - text.len();
        text.replace(r#""note":"""#, &format!(r#""note":"{}""#, "n".repeat(more)))
    };
    assert_eq!(pad(MAX_CARD_BYTES).len(), MAX_CARD_BYTES);
    assert_eq!(Card::parse(pad(MAX_CARD_BYTES).as_bytes()).unwrap(), good());
    assert_eq!(fault(pad(MAX_CARD_BYTES + 1)), CardFault::TooLong);
}

#[test]
fn json_21_the_order_of_keys_means_nothing() {
    let card: serde_json::Value = serde_json::from_str(GOOD).unwrap();
    let mut members: Vec<String> = card
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| format!("\"{key}\" :\n{value}"))
        .collect();
    let mut orders = 0;
    permute(&mut members, 0, &mut |order| {
        let text = format!("{{ {} }}", order.join(" ,\t"));
        assert_eq!(Card::parse(text.as_bytes()).unwrap(), good());
        orders += 1;
    });
    assert_eq!(orders, 5040);
}

fn permute(items: &mut Vec<String>, from: usize, each: &mut impl FnMut(&[String])) {
    if from == items.len() {
        return each(items);
    }
    for place in from..items.len() {
        items.swap(from, place);
        permute(items, from + 1, each);
        items.swap(from, place);
    }
}

#[test]
fn no_fault_quotes_the_card() {
    for text in with(r#""SECRETKEY":"SECRETVALUE""#) {
        assert!(!fault(&text).to_string().contains("SECRET"));
    }
    for text in [
        value("host_pin", "[\"SECRET\"]"),
        GOOD.replace("24h", "SECRET\n"),
        format!("{GOOD}SECRET"),
    ] {
        assert!(
            !format!("{0} {0:?}", fault(&text)).contains("SECRET"),
            "{text}"
        );
    }
}

// Attaching (contract, section 5).

struct Store(CardStore, tempfile::TempDir);

fn store() -> Store {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put("seed-04.json", GOOD);
    put("broken.json", "{");
    put("long.json", &" ".repeat(MAX_CARD_BYTES + 1));
    put("no card.json", GOOD);
    put("seed-05.txt", GOOD);
    Store(CardStore::read(dir.path()).unwrap(), dir)
}

fn headers(all: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in all {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    map
}

fn b64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

fn found(all: &[(&str, &[u8])], path: Option<&str>) -> (Option<Attach>, Reading) {
    let attached = attach(&headers(all), path, &store().0);
    (attached.place, attached.reading)
}

fn is_good(reading: &Reading) -> bool {
    matches!(reading, Reading::Card(card) if **card == good())
}

#[test]
fn the_three_places_each_alone() {
    let encoded = b64(GOOD);
    for value in [GOOD, &encoded, "@seed-04"] {
        let (place, reading) = found(&[(CARD_HEADER, value.as_bytes())], None);
        assert_eq!(place, Some(Attach::Header));
        assert!(is_good(&reading), "{value}");
    }
    let (place, reading) = found(&[], Some("seed-04"));
    assert!(place == Some(Attach::Path) && is_good(&reading));
    for (name, value) in [
        ("authorization", "Bearer card:seed-04"),
        ("authorization", "bearer card:seed-04"),
        ("x-api-key", "card:seed-04"),
    ] {
        let (place, reading) = found(&[(name, value.as_bytes())], None);
        assert!(place == Some(Attach::Key) && is_good(&reading), "{value}");
        assert!(is_card_key(value.as_bytes()));
    }
    // A key of another kind is no card, and stands beside one.
    for value in ["Bearer sk-x", "Basic card:seed-04", "card"] {
        let (place, reading) = found(
            &[
                ("authorization", value.as_bytes()),
                (CARD_HEADER, b"@seed-04"),
            ],
            None,
        );
        assert!(
            place == Some(Attach::Header) && is_good(&reading),
            "{value}"
        );
    }
}

#[test]
fn card_01_two_cards_even_equal_ones_are_ambiguous() {
    let header = (CARD_HEADER, GOOD.as_bytes());
    let key = ("x-api-key", &b"card:seed-04"[..]);
    let bearer = ("authorization", &b"Bearer card:seed-04"[..]);
    for (all, path) in [
        (vec![header, header], None),
        (vec![header, (CARD_HEADER, b"")], None),
        (vec![header], Some("seed-04")),
        (vec![header, key], None),
        (vec![header, bearer], None),
        (vec![key], Some("seed-04")),
        (vec![bearer], Some("nowhere")),
        (vec![key, bearer], None),
        (vec![key, key], None),
        (vec![bearer, bearer], None),
        (vec![header, key, bearer], Some("seed-04")),
        // One that could not be read is one all the same.
        (vec![(CARD_HEADER, b"x"), key], None),
        (vec![header, ("x-api-key", b"card:\xff")], None),
    ] {
        let (place, reading) = found(&all, path);
        assert_eq!(
            (place, reading),
            (None, Reading::Ambiguous),
            "{all:?} {path:?}"
        );
    }
}

#[test]
fn card_07_no_card_where_none_is_looked_for() {
    for all in [
        vec![],
        vec![("cookie", GOOD.as_bytes())],
        vec![("leafgate-cards", GOOD.as_bytes())],
        vec![("x-leafgate-card", b"@seed-04")],
    ] {
        assert_eq!(found(&all, None), (None, Reading::Missing), "{all:?}");
    }
}

#[test]
fn a_name_that_is_not_in_the_store_is_missing() {
    for name in [
        "nowhere",
        "",
        "../seed-04",
        "seed-04.json",
        "SEED-04",
        "seed-04 ",
        "no card",
        "seed-05",
    ] {
        let value = format!("@{name}");
        assert_eq!(
            found(&[(CARD_HEADER, value.as_bytes())], None).1,
            Reading::Missing,
            "{name}"
        );
        assert_eq!(found(&[], Some(name)).1, Reading::Missing, "{name}");
        let key = format!("card:{name}");
        let (place, reading) = found(&[("x-api-key", key.as_bytes())], None);
        assert_eq!(
            (place, reading),
            (Some(Attach::Key), Reading::Missing),
            "{name}"
        );
    }
    assert_eq!(
        found(&[], Some("broken")).1,
        Reading::Malformed(CardFault::NotJson)
    );
    assert_eq!(
        found(&[], Some("long")).1,
        Reading::Malformed(CardFault::TooLong)
    );
    // Read once: a file that comes later is in the next reading.
    let Store(first, dir) = store();
    std::fs::write(dir.path().join("late.json"), GOOD).unwrap();
    assert_eq!(first.get("late"), Reading::Missing);
    assert!(is_good(&CardStore::read(dir.path()).unwrap().get("late")));
}

#[test]
fn a_header_value_is_compact_json_or_unpadded_base64url() {
    let padded = format!("{}=", b64(&GOOD[..GOOD.len() - 1]));
    for (value, wanted) in [
        (b"".to_vec(), CardFault::NotJson),
        (b"seed-04!".to_vec(), CardFault::Encoding),
        (padded.into_bytes(), CardFault::Encoding),
        (GOOD.replace("24h", "é").into_bytes(), CardFault::Encoding),
        (b64("{").into_bytes(), CardFault::NotJson),
        (b64("\u{feff}{}").into_bytes(), CardFault::NotUtf8),
        (b"{".to_vec(), CardFault::NotJson),
        (
            b64(&" ".repeat(MAX_CARD_BYTES + 1)).into_bytes(),
            CardFault::TooLong,
        ),
    ] {
        let (place, reading) = found(&[(CARD_HEADER, &value)], None);
        assert_eq!(place, Some(Attach::Header));
        assert_eq!(
            reading,
            Reading::Malformed(wanted),
            "{}",
            String::from_utf8_lossy(&value)
        );
    }
    // Its twin outside ASCII goes as base64url.
    let (_, reading) = found(
        &[(CARD_HEADER, b64(&GOOD.replace("24h", "é")).as_bytes())],
        None,
    );
    assert!(matches!(reading, Reading::Card(card) if card.text(Field::ReplayWindow) == Some("é")));
}

#[test]
fn card_15_control_bytes_in_a_decoded_card_stay_values() {
    let card = GOOD.replace("seed-04", r"a\r\nX-Leak: 1");
    let (_, reading) = found(&[(CARD_HEADER, b64(&card).as_bytes())], None);
    let Reading::Card(card) = reading else {
        panic!("not read")
    };
    assert_eq!(card.text(Field::FixtureId), Some("a\r\nX-Leak: 1"));
    assert!(leafgate::terms::FixtureId::parse("a\r\nX-Leak: 1").is_none());
}
