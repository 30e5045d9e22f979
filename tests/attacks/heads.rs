//! The cases that are bytes: sent as the data has them.

use crate::kit::{CHUNKED, Case, Kind, Lab, PLAIN, cases};

struct Row {
    id: &'static str,
    status: u16,
    reason: &'static str,
    kind: Kind,
    /// The same message without the fault.
    twin: &'static str,
}

const fn malformed(id: &'static str, twin: &'static str) -> Row {
    Row {
        id,
        status: 400,
        reason: "http_malformed",
        kind: Kind::Refused,
        twin,
    }
}

const fn in_body(id: &'static str) -> Row {
    Row {
        id,
        status: 400,
        reason: "http_malformed",
        kind: Kind::Decision,
        twin: CHUNKED,
    }
}

const fn judged(id: &'static str, reason: &'static str, twin: &'static str) -> Row {
    Row {
        id,
        status: 422,
        reason,
        kind: Kind::Decision,
        twin,
    }
}

const REFUSED: [Row; 31] = [
    malformed("H1-01", CHUNKED),
    malformed("H1-06", CHUNKED),
    malformed("H1-07", CHUNKED),
    malformed("H1-09", PLAIN),
    malformed("H1-11", PLAIN),
    malformed("H1-12", PLAIN),
    malformed("H1-15", PLAIN),
    in_body("H1-19"),
    in_body("H1-20"),
    in_body("H1-22"),
    malformed("H1-23", CHUNKED),
    in_body("H1-24"),
    in_body("H1-25"),
    malformed("H1-26", PLAIN),
    malformed(
        "H1-27",
        "{REQ}X-A: b\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    malformed(
        "H1-28",
        "{REQ}X-A: one\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    malformed(
        "H1-30",
        "{REQ}X-A: vw\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    malformed("H1-32", PLAIN),
    malformed("H1-34", PLAIN),
    malformed(
        "H1-38",
        "{REQ}Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    malformed("H1-44", CHUNKED),
    malformed("H1-45", PLAIN),
    malformed("H1-46", PLAIN),
    malformed("H1-47", PLAIN),
    malformed("H1-54", PLAIN),
    malformed(
        "HDR-07",
        "{REQ}Referer: http://ci.internal/CANARY-7f3a\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    judged("HDR-13", "route_not_allowed", PLAIN),
    judged("HDR-14", "route_not_allowed", PLAIN),
    judged("HDR-15", "route_not_allowed", PLAIN),
    malformed(
        "HDR-20",
        "{REQ}X-Log: allow reason=release\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    judged("CARD-01", "card_ambiguous", PLAIN),
];

const ENCODED: [Row; 2] = [
    judged(
        "CMP-03",
        "media_not_allowed",
        "{REQ}Accept-Encoding: identity, gzip\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}",
    ),
    malformed("CMP-04", CHUNKED),
];

/// Released all the same: the names that the record shows, and how many it counts.
const PASSED: [(&str, &[&str], u64); 5] = [
    ("HDR-02", &[], 1),
    ("HDR-06", &["x-stainless-os"], 2),
    ("HDR-11", &[], 1),
    (
        "HDR-12",
        &["x-http-method-override", "x-original-url", "x-rewrite-url"],
        0,
    ),
    ("HDR-18", &["accept-language", "if-none-match", "range"], 0),
];

pub fn ids() -> Vec<&'static str> {
    let refused = REFUSED.iter().chain(&ENCODED).map(|row| row.id);
    refused.chain(PASSED.iter().map(|row| row.0)).collect()
}

fn sent<'a>(cases: &'a [Case], id: &str) -> &'a str {
    let case = cases.iter().find(|case| case.id == id).unwrap();
    case.send
        .strip_prefix("bytes:")
        .unwrap_or_else(|| panic!("{id} is no bytes"))
}

#[test]
fn heads_and_framings_that_two_parsers_may_read_differently() {
    let cases = cases();
    for row in REFUSED.iter().chain(&ENCODED) {
        let lab = Lab::new();
        let bytes = lab.bytes(sent(&cases, row.id));
        lab.refused(row.id, &bytes, row.status, row.reason, row.kind);
        assert_eq!(lab.host.accepts(), 0, "{}", row.id);
        lab.forwarded(row.id, &lab.bytes(row.twin));
        println!("{}", row.id);
    }
}

#[test]
fn headers_that_do_not_leave() {
    let cases = cases();
    for (id, names, other) in PASSED {
        let lab = Lab::new();
        let record = lab.forwarded(id, &lab.bytes(sent(&cases, id)));
        let dropped = &record["dropped"];
        assert_eq!(dropped["names"], serde_json::json!(names), "{id}");
        assert_eq!(dropped["other"].as_u64().unwrap_or(0), other, "{id}");
        // The twin: without them the host sees the same bytes.
        assert_eq!(
            lab.good(id)["dropped"]["names"],
            serde_json::json!([]),
            "{id}"
        );
        println!("{id}");
    }
}
