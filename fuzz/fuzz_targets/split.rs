//! Two splits with everything about them chosen by the bytes but the four values: rest of the card, payload, route and headers. Beside "no panic": what egress
//! would write is made of the four values and the policy, byte for byte; so two calls that are equal in those write the same, and two that are not do not.
//!
//! The first byte chooses host, id and labels. The rest is six pieces with a byte 0xff between them, three for each call: what follows the
//! fixed members in the card, the payload, and lines: the route, where the first begins with `/`, and headers.
#![no_main]

#[path = "kit/plans.rs"]
mod plans;

use http::{HeaderMap, HeaderName, HeaderValue};
use leafgate::admit::Plan;
use leafgate::egress::fuzzing::request;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const IDS: [&str; 2] = ["seed-04", "seed-05"];
const LABELS: [&str; 4] = ["", r#","failure_label":"pass""#, r#","failure_label":"wrong-answer""#, r#","failure_label":"other""#];

fn headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').take(40) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn plan(number: u64, chat: bool, id: &str, label: &str, [card, payload, lines]: [&[u8]; 3]) -> Option<Plan> {
    let pin = if chat { "localhost" } else { "local" };
    let fixed = format!(
        r#"{{"fixture_id":"{id}","fixture_hash":"{}","egress_class":"redacted-metadata","residue":[],"host_pin":"{pin}"{label}"#,
        plans::HASH
    );
    let card = [fixed.as_bytes(), card, b"}"].concat();
    let route = lines.split(|byte| *byte == b'\n').next().filter(|line| line.starts_with(b"/"));
    let route = route.map_or(Some("/chat/completions"), |route| std::str::from_utf8(route).ok())?;
    plans::split(&card, number, route, &headers(lines), payload)
}

/// What contract, section 4, says is sent.
fn expected(chat: bool, id: &str, label: &str) -> String {
    let object = format!(r#"{{"fixture_id":"{id}","fixture_hash":"{}","egress_class":"redacted-metadata","failure_label":"{label}"}}"#, plans::HASH);
    let (authority, body) = if chat {
        let content = Value::from(object);
        ("localhost:8000", format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}],"max_tokens":64}}"#))
    } else {
        ("127.0.0.1:11434", object)
    };
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\naccept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\n\r\n{body}",
        body.len()
    )
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let mut pieces = rest.splitn(6, |byte| *byte == 0xff).chain(std::iter::repeat(&b""[..]));
    let mut three = || std::array::from_fn(|_| pieces.next().unwrap_or_default());
    let (first, second) = (three(), three());
    let chat = choice & 1 != 0;
    let ids = [IDS[0], IDS[usize::from(choice & 6 == 6)]];
    let labels = [LABELS[usize::from(choice >> 3 & 3)], LABELS[usize::from(choice >> 5 & 3)]];
    let sent: Vec<_> = [(1, ids[0], labels[0], first), (2, ids[1], labels[1], second)]
        .into_iter()
        .filter_map(|(number, id, label, pieces)| {
            let plan = plan(number, chat, id, label, pieces)?;
            let label = plan.facts().failure_label.as_ref().expect("a split has a label").as_str().to_owned();
            let wire = request(plan).expect("admission makes no request that is not one clean message");
            assert_eq!(String::from_utf8(wire.clone()).expect("ASCII"), expected(chat, id, &label));
            Some(((id, label), wire))
        })
        .collect();
    if let [(values, wire), (others, other)] = &sent[..] {
        assert_eq!(values == others, wire == other);
    }
});
