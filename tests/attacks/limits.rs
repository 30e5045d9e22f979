//! Bodies and heads that end elsewhere than their message says, never, or too late.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Built;
use crate::kit::{Kind, Lab, PLAIN, ended, own};
use crate::support::{Gate, body, card, read_reply};

pub const CASES: &[Built] = &[
    ("H1-39", a_hundred_is_asked_for),
    ("H1-41", a_request_hidden_in_a_held_body),
    ("H1-49", heads_over_the_limit),
    ("H1-51", a_chunked_body_over_the_cap),
    ("H1-52", half_a_body),
    ("H1-53", one_byte_at_a_time),
    ("H1-55", a_tail_behind_a_good_request),
    ("CARD-05", cards_over_the_limit),
    ("CMP-02", a_body_that_expands),
];

fn a_hundred_is_asked_for(id: &str) {
    let lab = Lab::new();
    let expects = |card: &serde_json::Value| {
        let more = format!(
            "Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            body().len()
        );
        lab.gate.head(card, &more).into_bytes()
    };
    // The first line that comes is the refusal's: no 100 before it.
    for (changes, reason) in [
        (json!({"residue": ["x"]}), "residue_present"),
        (json!({"egress_class": "machine-local"}), "machine_local"),
        (json!({"host_pin": "free-server"}), "pin_placeholder"),
    ] {
        lab.refused(id, &expects(&card(changes)), 422, reason, Kind::Decision);
    }
    assert_eq!(lab.host.accepts(), 0);
    let mut stream = lab.gate.connect();
    stream.write_all(&expects(&card(json!({})))).unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n", "{id}");
    assert_eq!(lab.host.accepts(), 0, "{id}: not before the body is whole");
    stream.write_all(&body()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert_eq!(
        lab.host.seen(),
        [lab.release(&body())],
        "{id}: Expect stays here"
    );
}

/// Answers of one connection, to its end.
fn all_answers(gate: &Gate, bytes: &[u8]) -> String {
    let mut stream = gate.connect();
    stream.write_all(bytes).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the connection closes");
    String::from_utf8(all).unwrap()
}

fn a_request_hidden_in_a_held_body(id: &str) {
    let hidden = "{\"messages\":\"";
    let long = " ".repeat(100_000);
    // The length ends in the middle of the body, right before the hidden request, or before the line end in front of it.
    let rows = [
        (hidden, 2),
        (hidden, hidden.len()),
        ("{}\r\n", 2),
        ("", 0),
        // So long that the hidden request still lies with the kernel when the body ends.
        (&long, long.len()),
        (&long, long.len()),
        (&long, long.len()),
    ];
    for (front, length) in rows {
        let lab = Lab::new();
        let held = lab.gate.head(
            &card(json!({"residue": ["x"]})),
            &format!("Content-Length: {length}\r\n\r\n{front}"),
        );
        let bytes = [held.into_bytes(), lab.bytes(PLAIN), b"\"}".to_vec()].concat();
        let text = all_answers(&lab.gate, &bytes);
        let statuses: Vec<&str> = text.matches("HTTP/1.1 4").collect();
        assert!(
            text.starts_with("HTTP/1.1 422")
                && text.contains("HTTP/1.1 400")
                && statuses.len() == 2,
            "{id}: {length}: {text}"
        );
        assert!(!text.contains("HTTP/1.1 200"), "{id}: {text}");
        let records = lab.judged(0);
        assert_eq!(records.len(), 2, "{id}: {records:?}");
        assert_eq!(
            (
                records[0]["reason"].as_str(),
                records[1]["reason"].as_str(),
                records[1]["t"].as_str()
            ),
            (
                Some("residue_present"),
                Some("http_malformed"),
                Some("refused")
            ),
            "{id}"
        );
        assert_eq!(lab.host.accepts(), 0, "{id}: the hidden request left");
        // The twin: a length that is right, and the next request after the answer.
        let mut stream = lab.gate.connect();
        let held = lab.gate.head(
            &card(json!({"residue": ["x"]})),
            "Content-Length: 2\r\n\r\n{}",
        );
        stream.write_all(held.as_bytes()).unwrap();
        assert_eq!(read_reply(&mut stream).status, 422, "{id}");
        stream.write_all(&lab.bytes(PLAIN)).unwrap();
        assert_eq!(read_reply(&mut stream).status, 200, "{id}");
        assert_eq!(lab.host.seen(), [lab.release(&body())], "{id}");
    }
}

fn heads_over_the_limit(id: &str) {
    let lab = Lab::new();
    for template in [
        format!("{{REQ}}{}\\r\\n", "X-A: 12345\\r\\n".repeat(101)),
        format!("{{REQ}}X-Big: {}\\r\\n\\r\\n", "x".repeat(500_000)),
        format!(
            "GET /{} HTTP/1.1\\r\\nHost: {{AUTH}}\\r\\n\\r\\n",
            "x".repeat(500_000)
        ),
    ] {
        lab.refused(
            id,
            &lab.bytes(&template),
            431,
            "head_too_large",
            Kind::Refused,
        );
    }
    assert_eq!(lab.host.accepts(), 0);
    let fits = format!(
        "{{REQ}}{}X-Big: {}\\r\\nContent-Length: {{N}}\\r\\n\\r\\n{{BODY}}",
        "X-A: 12345\\r\\n".repeat(90),
        "x".repeat(50_000)
    );
    lab.forwarded(id, &lab.bytes(&fits));
}

fn a_chunked_body_over_the_cap(id: &str) {
    let lab = Lab::with("", "[limits]\nbody = \"64KiB\"\n");
    let head = lab
        .gate
        .head(&card(json!({})), "Transfer-Encoding: chunked\r\n\r\n");
    // 64 KiB and one byte, the first chunks of which are a body that could leave.
    let text = String::from_utf8(body()).unwrap();
    let space = " ".repeat(65_537 - text.len());
    let bytes = format!(
        "{head}{:x}\r\n{text}\r\n{:x}\r\n{space}\r\n0\r\n\r\n",
        text.len(),
        space.len()
    );
    lab.refused(id, bytes.as_bytes(), 413, "body_too_large", Kind::Decision);
    assert_eq!(lab.host.accepts(), 0);
    let fits = format!(
        "{head}{:x}\r\n{text}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        text.len(),
        space.len() - 1,
        &space[1..]
    );
    assert_eq!(lab.gate.raw(fits.as_bytes()).status, 200, "{id}");
    assert_eq!(lab.host.seen()[0].body.len(), 65_536);
}

fn half_a_body(id: &str) {
    let lab = Lab::new();
    for framing in [
        format!("Content-Length: 100\r\n\r\n{}", "x".repeat(50)),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n32\r\n{}\r\n",
            "x".repeat(50)
        ),
    ] {
        let known = lab.judged(0).len();
        let mut stream = lab.gate.connect();
        stream
            .write_all(lab.gate.head(&card(json!({})), &framing).as_bytes())
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Nobody is told anything: the client closed, and a half-closed one is closed.
        ended(id, &mut stream);
        lab.gate.wait("decision", known + 1);
        let records = lab.judged(known);
        assert_eq!(records.len(), 1, "{id}: {records:?}");
        assert_eq!(
            (
                records[0]["t"].as_str(),
                records[0]["reason"].as_str(),
                records[0]["verdict"].as_str()
            ),
            (Some("decision"), Some("client_timeout"), Some("refuse"))
        );
    }
    assert_eq!(lab.host.accepts(), 0);
    lab.good(id);
}

fn one_byte_at_a_time(id: &str) {
    let lab = Lab::with(
        "",
        "[limits]\nclient_head = \"900ms\"\nclient_body = \"900ms\"\n",
    );
    let whole = lab.bytes(PLAIN);
    let head = whole.len() - body().len();
    for (quick, kind) in [(0, Kind::Refused), (head, Kind::Decision)] {
        let known = lab.judged(0).len();
        let mut stream = lab.gate.connect();
        stream.write_all(&whole[..quick]).unwrap();
        let began = Instant::now();
        for byte in &whole[quick..] {
            if began.elapsed() > Duration::from_millis(1300) || stream.write_all(&[*byte]).is_err()
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        own(id, &read_reply(&mut stream), 408, "client_timeout");
        ended(id, &mut stream);
        let records = lab.judged(known);
        assert_eq!(records.len(), 1, "{id}: {records:?}");
        assert_eq!(
            records[0]["t"],
            if kind == Kind::Refused {
                "refused"
            } else {
                "decision"
            }
        );
        assert_eq!(records[0]["reason"], "client_timeout");
    }
    assert_eq!(lab.host.accepts(), 0);
    // The twin is as slow at its beginning, and in time.
    let mut stream = lab.gate.connect();
    for piece in whole.chunks(whole.len() / 8) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_reply(&mut stream).status, 200, "{id}");
}

fn a_tail_behind_a_good_request(id: &str) {
    let lab = Lab::new();
    let tail = "GET /leak?CANARY-7f3a HTTP/1.1\\r\\n\\r\\n";
    let text = all_answers(&lab.gate, &lab.bytes(&format!("{PLAIN}{tail}")));
    assert!(
        text.starts_with("HTTP/1.1 200") && text.matches("HTTP/1.1 400").count() == 1,
        "{id}: {text}"
    );
    let records = lab.judged(0);
    let kinds: Vec<_> = records.iter().map(|r| r["t"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["decision", "refused"], "{id}");
    assert_eq!(lab.host.seen(), [lab.release(&body())], "{id}");
    lab.nothing_told(id);
    lab.good(id);
}

fn cards_over_the_limit(id: &str) {
    let lab = Lab::new();
    let of = |bytes: usize| {
        card(json!({"note": "x".repeat(bytes)}))
            .to_string()
            .into_bytes()
    };
    lab.refused(
        id,
        &lab.with_card(&of(8_192), false),
        422,
        "card_malformed",
        Kind::Decision,
    );
    lab.refused(
        id,
        &lab.with_card(&of(8_192), true),
        422,
        "card_malformed",
        Kind::Decision,
    );
    lab.refused(
        id,
        &lab.with_card(&of(60_000), false),
        422,
        "card_malformed",
        Kind::Decision,
    );
    for size in [64 << 10, 300_000] {
        lab.refused(
            id,
            &lab.with_card(&of(size), false),
            431,
            "head_too_large",
            Kind::Refused,
        );
    }
    assert_eq!(lab.host.accepts(), 0);
    lab.forwarded(id, &lab.with_card(&of(7_800), false));
}

fn a_body_that_expands(id: &str) {
    let lab = Lab::new();
    // Never expanded: the head alone decides, and the body is as long as it is on the wire.
    for coding in ["gzip", "deflate", "br", "zstd", "x-gzip", "compress"] {
        let head = lab.gate.head(
            &card(json!({})),
            &format!("Content-Encoding: {coding}\r\nContent-Length: 10240\r\n\r\n"),
        );
        let bytes = [
            head.as_bytes(),
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
            &[0; 10_230],
        ]
        .concat();
        let record = lab.refused(id, &bytes, 422, "media_not_allowed", Kind::Decision);
        assert_eq!(record["body_len"], 10_240, "{id}");
    }
    assert_eq!(lab.host.accepts(), 0);
    lab.good(id);
}
