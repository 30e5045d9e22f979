//! What a client could say beside the body: paths, headers, stray cards, media types.

use serde_json::{Value, json};

use crate::Built;
use crate::kit::{Kind, Lab, PLAIN};
use crate::support::{Gate, body, card, entry, fixture_hash, split_card};

pub const CASES: &[Built] = &[
    ("HDR-16", order_case_and_space_of_headers),
    ("CARD-02", a_second_card_in_the_body),
    ("CARD-07", a_card_where_none_is_looked_for),
    ("CARD-12", a_split_full_of_canaries),
    ("MPT-02", media_types),
    ("MPT-03", charsets),
    ("NET-23", a_web_page_that_drives_the_port),
    ("NET-24", a_header_that_names_another_way),
    ("BYP-07", a_host_of_another_card),
];

fn order_case_and_space_of_headers(id: &str) {
    let lab = Lab::new();
    let spellings = [
        "POST /v1/chat/completions HTTP/1.1\\r\\nHost: {AUTH}\\r\\n{CARD}\\r\\nContent-Type: application/json\\r\\nContent-Length: {N}\\r\\nanthropic-version: 2023-06-01\\r\\n\\r\\n{BODY}",
        "POST /v1/chat/completions HTTP/1.1\\r\\nANTHROPIC-VERSION:2023-06-01\\r\\ncontent-LENGTH:    {N}\\r\\nCONTENT-type:\\x09 application/json  \\r\\n{CARD}\\r\\nhOST:{AUTH}\\r\\n\\r\\n{BODY}",
        "POST /v1/chat/completions HTTP/1.1\\r\\nX-A: 1\\r\\nContent-Type: application/json;charset=utf-8\\r\\n{CARD}\\r\\nTransfer-Encoding:chunked\\r\\nAnthropic-Version:  2023-06-01\\r\\nHost: localhost:{PORT}\\r\\n\\r\\n{X}\\r\\n{BODY}\\r\\n0\\r\\n\\r\\n",
    ];
    let port = lab.gate.address.port().to_string();
    for spelling in spellings {
        let reply = lab.gate.raw(&lab.bytes(&spelling.replace("{PORT}", &port)));
        assert_eq!(reply.status, 200, "{id}: {reply:?}");
    }
    let seen = lab.host.seen();
    let mut want = lab.release(&body());
    want.head = want.head.replace(
        "leafgate\r\n\r\n",
        "leafgate\r\nanthropic-version: 2023-06-01\r\n\r\n",
    );
    assert_eq!(seen, [want.clone(), want.clone(), want], "{id}");
    lab.nothing_told(id);
}

fn a_second_card_in_the_body(id: &str) {
    let lab = Lab::new();
    let with_class = |class: &str| {
        let mut doc: Value = serde_json::from_slice(&body()).unwrap();
        doc["egress_class"] = class.into();
        doc.to_string().into_bytes()
    };
    let send = |card: &Value, payload: &[u8]| {
        let head = lab
            .gate
            .head(card, &format!("Content-Length: {}\r\n\r\n", payload.len()));
        [head.as_bytes(), payload].concat()
    };
    let held = card(json!({"egress_class": "machine-local"}));
    let whole = card(json!({})).to_string().into_bytes();
    for (card, payload, reason) in [
        (card(json!({})), with_class("machine-local"), "body_unbound"),
        (
            card(json!({})),
            with_class("public-fixture"),
            "body_unbound",
        ),
        (card(json!({})), whole.clone(), "body_unbound"),
        (held.clone(), whole, "machine_local"),
        (held, with_class("public-fixture"), "machine_local"),
        (
            split_card(json!({})),
            with_class("machine-local"),
            "payload_contradicts",
        ),
        (
            split_card(json!({})),
            with_class("public-fixture"),
            "payload_contradicts",
        ),
    ] {
        lab.refused(id, &send(&card, &payload), 422, reason, Kind::Decision);
    }
    assert_eq!(lab.host.accepts(), 0);
    lab.good(id);
    // A payload that says what its card says contradicts nothing.
    let reply = lab.gate.raw(&send(
        &split_card(json!({})),
        &with_class("redacted-metadata"),
    ));
    assert_eq!(reply.status, 200, "{id}");
}

fn a_card_where_none_is_looked_for(id: &str) {
    let lab = Lab::new();
    let stray = card(json!({"note": "CANARY-7f3a"})).to_string();
    let flat = crate::support::b64(stray.as_bytes());
    let start = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\n",
        lab.gate.address
    );
    let json_type = "Content-Type: application/json\r\n";
    for (text, status, reason) in [
        (
            start.replace(
                "completions ",
                &format!("completions?leafgate-card={flat} "),
            ) + "Content-Length: 2\r\n\r\n{}",
            422,
            "card_missing",
        ),
        (
            format!(
                "{start}{json_type}Cookie: leafgate-card={flat}\r\nContent-Length: 2\r\n\r\n{{}}"
            ),
            422,
            "card_missing",
        ),
        (
            format!(
                "{start}{json_type}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nleafgate-card: {stray}\r\n\r\n"
            ),
            400,
            "http_malformed",
        ),
        (
            format!(
                "{start}{json_type}Transfer-Encoding: chunked\r\n\r\n2;leafgate-card={flat}\r\n{{}}\r\n0\r\n\r\n"
            ),
            400,
            "http_malformed",
        ),
        (
            {
                let part = format!(
                    "--x\r\nContent-Disposition: form-data; name=\"leafgate-card\"\r\n\r\n{stray}\r\n--x--\r\n"
                );
                format!(
                    "{start}Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {}\r\n\r\n{part}",
                    part.len()
                )
            },
            422,
            "card_missing",
        ),
        (
            format!("{start}{json_type}X-Leafgate-Card: {stray}\r\nContent-Length: 2\r\n\r\n{{}}"),
            422,
            "card_missing",
        ),
    ] {
        let record = lab.refused(id, text.as_bytes(), status, reason, Kind::Decision);
        assert_eq!(record["leaf"], "hold", "{id}");
    }
    assert_eq!(lab.host.accepts(), 0);
    lab.good(id);
}

fn a_split_full_of_canaries(id: &str) {
    let lab = Lab::new();
    let golden = format!(
        r#"{{"fixture_id":"doc-17","fixture_hash":"{}","egress_class":"redacted-metadata","failure_label":"wrong-answer"}}"#,
        fixture_hash()
    );
    let payload = r#"{"model":"CANARY-7f3a","messages":[{"role":"CANARY-7f3a","content":"CANARY-7f3a"}],"CANARY-7f3a":1}"#;
    let send = |path: &str| {
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nleafgate-card: {}\r\nUser-Agent: CANARY-7f3a\r\nX-CANARY-7f3a: CANARY-7f3a\r\nAuthorization: Bearer CANARY-7f3a\r\nanthropic-version: 2023-06-01\r\nContent-Type: text/CANARY-7f3a\r\nContent-Length: {}\r\n\r\n{payload}",
            lab.gate.address,
            split_card(json!({"note": "CANARY-7f3a"})),
            payload.len()
        );
        text.into_bytes()
    };
    for path in [
        "/v1/chat/completions?q=CANARY-7f3a",
        "/v1/CANARY-7f3a",
        "/v1/chat/CANARY-7f3a/../completions",
    ] {
        lab.refused(id, &send(path), 422, "route_not_allowed", Kind::Decision);
    }
    assert_eq!(lab.host.accepts(), 0);
    let reply = lab.gate.raw(&send("/v1/chat/completions"));
    assert_eq!(
        (reply.status, reply.header("leafgate-score")),
        (200, Some("local")),
        "{id}: {reply:?}"
    );
    let want = lab.release(golden.as_bytes());
    assert_eq!(lab.host.seen(), [want], "{id}");
    lab.nothing_told(id);
}

/// Head lines that stand for a body's type.
fn typed(lab: &Lab, lines: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nleafgate-card: {}\r\n{lines}Content-Length: {}\r\n\r\n",
        lab.gate.address,
        card(json!({})),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}

fn media_types(id: &str) {
    let lab = Lab::new();
    for lines in [
        "Content-Type: text/plain\r\n",
        "Content-Type: application/jsonp\r\n",
        "Content-Type: application/json, text/html\r\n",
        "Content-Type: application/json;\r\n",
        "Content-Type: application/problem+json\r\n",
        "Content-Type: \r\n",
        "",
    ] {
        lab.refused(
            id,
            &typed(&lab, lines, &body()),
            422,
            "media_not_allowed",
            Kind::Decision,
        );
    }
    let json = "Content-Type: application/json\r\n";
    let twice = typed(&lab, &json.repeat(2), &body());
    lab.refused(id, &twice, 400, "http_malformed", Kind::Refused);
    assert_eq!(lab.host.accepts(), 0);
    lab.forwarded(id, &typed(&lab, json, &body()));
}

fn charsets(id: &str) {
    let lab = Lab::new();
    let text = String::from_utf8(body()).unwrap();
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (charset, payload) in [
        ("utf-16", &wide),
        ("utf-16le", &wide),
        ("utf-7", &body()),
        ("iso-8859-1", &body()),
        ("utf-8; charset=utf-16", &wide),
        ("\"utf-16\"", &wide),
    ] {
        let lines = format!("Content-Type: application/json; charset={charset}\r\n");
        lab.refused(
            id,
            &typed(&lab, &lines, payload),
            422,
            "media_not_allowed",
            Kind::Decision,
        );
    }
    // Under the right name the wrong bytes are bound to nothing.
    let plain = "Content-Type: application/json\r\n";
    lab.refused(
        id,
        &typed(&lab, plain, &wide),
        422,
        "body_unbound",
        Kind::Decision,
    );
    assert_eq!(lab.host.accepts(), 0);
    lab.forwarded(
        id,
        &typed(
            &lab,
            "Content-Type: application/json; charset=utf-8\r\n",
            &body(),
        ),
    );
}

fn a_web_page_that_drives_the_port(id: &str) {
    let lab = Lab::new();
    let port = lab.gate.address.port();
    for (card, host) in [
        ("", "evil.example"),
        ("{CARD}\\r\\n", "evil.example"),
        ("{CARD}\\r\\n", "127.0.0.1.evil.example"),
    ] {
        let template = format!(
            "POST /v1/chat/completions HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n{card}Content-Type: text/plain\\r\\nContent-Length: {{N}}\\r\\n\\r\\n{{BODY}}"
        );
        lab.refused(
            id,
            &lab.bytes(&template),
            400,
            "http_malformed",
            Kind::Refused,
        );
    }
    // What a page in a browser cannot hide: where it comes from.
    for line in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        let template = format!("{{REQ}}{line}\\r\\nContent-Length: {{N}}\\r\\n\\r\\n{{BODY}}");
        lab.refused(
            id,
            &lab.bytes(&template),
            400,
            "http_malformed",
            Kind::Refused,
        );
    }
    // The question before it: no permission.
    let asks = "OPTIONS /v1/chat/completions HTTP/1.1\\r\\nHost: {AUTH}\\r\\nOrigin: http://evil.example\\r\\nAccess-Control-Request-Method: POST\\r\\n\\r\\n";
    lab.refused(id, &lab.bytes(asks), 400, "http_malformed", Kind::Refused);
    assert_eq!(lab.host.accepts(), 0);
    let twin = "{REQ}Sec-Fetch-Site: none\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}";
    lab.forwarded(id, &lab.bytes(twin));
}

fn a_header_that_names_another_way(id: &str) {
    let lab = Lab::new();
    for name in [
        "X-Upstream-Https-Proxy",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Target-Url",
        "Proxy-Authorization",
    ] {
        let template = format!(
            "{{REQ}}{name}: http://{{TRAP}}\\r\\nContent-Length: {{N}}\\r\\n\\r\\n{{BODY}}"
        );
        lab.forwarded(id, &lab.bytes(&template));
    }
    lab.good(id);
}

fn a_host_of_another_card(id: &str) {
    let lab = Lab::new();
    let other = crate::support::Host::ok();
    let second = entry(&other, "").replace("models.example.org", "other.example.org");
    let gate = Gate::with(&format!("{}{second}", entry(&lab.host, "")), "");
    let target = |authority: &str, pin: &str| {
        let payload = String::from_utf8(body()).unwrap();
        let text = format!(
            "POST http://{authority}/v1/chat/completions HTTP/1.1\r\nHost: {authority}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{payload}",
            card(json!({"host_pin": pin})),
            payload.len()
        );
        gate.raw(text.as_bytes())
    };
    let first = format!("models.example.org:{}", lab.host.address.port());
    let second = format!("other.example.org:{}", other.address.port());
    // The client asks for one host, the card pins another, or the policy has none of the card's.
    for (authority, pin, reason) in [
        (&second, "models.example.org", "route_not_allowed"),
        (&first, "other.example.org", "route_not_allowed"),
    ] {
        let reply = target(authority, pin);
        crate::kit::own(id, &reply, 422, reason);
    }
    let reply = lab.gate.raw(
        &lab.with_card(
            card(json!({"host_pin": "other.example.org"}))
                .to_string()
                .as_bytes(),
            false,
        ),
    );
    crate::kit::own(id, &reply, 422, "pin_unknown");
    assert_eq!((lab.host.accepts(), other.accepts()), (0, 0), "{id}");
    assert_eq!(target(&first, "models.example.org").status, 200);
    assert_eq!((lab.host.accepts(), other.accepts()), (1, 0), "{id}");
    assert_eq!(target(&second, "other.example.org").status, 200);
    assert_eq!((lab.host.seen().len(), other.seen().len()), (1, 1), "{id}");
    let _ = lab.gate.raw(&lab.bytes(PLAIN));
}
