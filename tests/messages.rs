//! One clean message or nothing: raw bytes against a whole leafgate. Each refusal leaves its record and reaches no host; each group ends with
//! the twin that is forwarded.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use serde_json::json;
use support::{CANARY, Gate, Host, Reply, body, card, read_reply};

fn chunked(body: &[u8]) -> String {
    format!(
        "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        body.len(),
        String::from_utf8_lossy(body)
    )
}

/// Sends, expects this status and reason and a closed connection, no host, and one record more of this kind.
fn refused(
    gate: &Gate,
    host: &Host,
    name: &str,
    bytes: &[u8],
    status: u16,
    reason: &str,
    kind: &str,
) {
    let before = gate.of_kind(kind).len();
    let mut stream = gate.connect();
    let _ = stream.write_all(bytes);
    let reply = read_reply(&mut stream);
    assert_eq!(
        (reply.status, reply.reason()),
        (status, reason),
        "{name}: {reply:?}"
    );
    assert_eq!(reply.header("x-should-retry"), Some("false"), "{name}");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(
        rest.is_empty(),
        "{name}: something was answered after the refusal: {rest:?}"
    );
    let records = gate.wait(kind, before + 1);
    assert_eq!(records.len(), before + 1, "{name}: records of kind {kind}");
    assert_eq!(records[before]["reason"], reason, "{name}");
    assert_eq!(host.accepts(), 0, "{name}: reached the host");
}

#[test]
fn heads_that_two_parsers_may_read_differently() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let text = String::from_utf8(body()).unwrap();
    let n = text.len();
    let req = gate.head(&card(json!({})), "");
    let rows = [
        (
            "length and coding",
            format!(
                "{req}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGPOST /x HTTP/1.1\r\n\r\n"
            ),
        ),
        (
            "coding and length",
            format!("{req}Transfer-Encoding: chunked\r\nContent-Length: {n}\r\n\r\n0\r\n\r\n"),
        ),
        (
            "unknown coding",
            format!("{req}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "two lengths",
            format!("{req}Content-Length: {n}\r\nContent-Length: 0\r\n\r\n{text}"),
        ),
        (
            "a list of lengths",
            format!("{req}Content-Length: {n}, {n}\r\n\r\n{text}"),
        ),
        (
            "a signed length",
            format!("{req}Content-Length: +{n}\r\n\r\n{text}"),
        ),
        (
            "a space before the colon",
            format!("{req}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "folding",
            format!("{req}X-A: one\r\n two\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "bare LF",
            format!("{}Content-Length: {n}\n\n{text}", req.replace("\r\n", "\n")),
        ),
        (
            "bare CR",
            format!("{req}X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "NUL",
            format!("{req}X-A: v\0w\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "escape",
            format!("{req}X-Log: \u{1b}[2J\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "another host",
            format!("{req}Host: other.example\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "not our host",
            req.replace(&gate.address.to_string(), "evil.example")
                + &format!("Content-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "upgrade",
            format!("{req}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n{CANARY}"),
        ),
        (
            "origin",
            format!("{req}Origin: http://ci.internal\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "another site",
            format!("{req}Sec-Fetch-Site: cross-site\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
        (
            "HTTP/1.0",
            req.replace("HTTP/1.1", "HTTP/1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("HTTP/0.9", "GET /v1/models\r\n".into()),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("TLS", "\u{16}\u{3}\u{1}\0\u{5}\u{1}\0\0\u{1}\0".into()),
        (
            "CONNECT",
            "CONNECT models.example.org:443 HTTP/1.1\r\nHost: models.example.org:443\r\n\r\n"
                .into(),
        ),
        (
            "a strange method",
            format!(
                "G=\":<>(e),[T]{{}}\" /v1/models HTTP/1.1\r\nHost: {}\r\n\r\n",
                gate.address
            ),
        ),
        (
            "a body on GET",
            req.replace("POST", "GET") + "Content-Length: 2\r\n\r\n{}",
        ),
        (
            "expectation",
            format!("{req}Expect: 200-ok\r\nContent-Length: {n}\r\n\r\n{text}"),
        ),
    ];
    for (name, text) in rows {
        let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
        refused(&gate, &host, name, &bytes, 400, "http_malformed", "refused");
    }
    assert_eq!(gate.of_kind("decision").len(), 0);
    for good in [
        format!("{req}Content-Length: {n}\r\n\r\n{text}"),
        req.clone() + &chunked(text.as_bytes()),
    ] {
        assert_eq!(gate.raw(good.as_bytes()).status, 200);
    }
    assert!(!gate.ledger_text().contains(CANARY));
}

#[test]
fn chunked_bodies_that_are_not_clean() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let req = gate.head(&card(json!({})), "Transfer-Encoding: chunked\r\n\r\n");
    for (name, rest) in [
        ("a size too large", "f0000000000000003\r\nabc\r\n0\r\n\r\n"),
        ("no size", "\r\n0\r\n\r\n"),
        ("junk after a size", "0_2e\r\n\r\n"),
        ("an extension", "2;secret=CANARY-7f3a91\r\n{}\r\n0\r\n\r\n"),
        ("data that goes on", "5\r\nhelloXX0\r\n\r\n"),
        (
            "a trailer",
            "2\r\n{}\r\n0\r\nX-Leak: CANARY-7f3a91\r\nContent-Length: 99\r\n\r\n",
        ),
        (
            "a request in a trailer",
            "2\r\n{}\r\n0\r\nX:POST /v1/x HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
    ] {
        refused(
            &gate,
            &host,
            name,
            format!("{req}{rest}").as_bytes(),
            400,
            "http_malformed",
            "decision",
        );
    }
    let records = gate.of_kind("decision");
    assert!(
        records
            .iter()
            .all(|r| r["leaf"] == "release" && r["verdict"] == "refuse"),
        "{records:?}"
    );
    assert!(!gate.ledger_text().contains(CANARY));
    assert_eq!(
        gate.raw((gate.head(&card(json!({})), "") + &chunked(&body())).as_bytes())
            .status,
        200
    );
}

#[test]
fn what_follows_a_refused_message_is_never_a_request() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let good = gate.head(
        &card(json!({})),
        &format!(
            "Content-Length: {}\r\n\r\n{}",
            body().len(),
            String::from_utf8(body()).unwrap()
        ),
    );
    let hidden = gate.head(
        &card(json!({"residue": ["x"]})),
        "Content-Length: 4, 4\r\n\r\n",
    ) + &good;
    refused(
        &gate,
        &host,
        "hidden behind a fault",
        hidden.as_bytes(),
        400,
        "http_malformed",
        "refused",
    );
    // Nor what was sent behind a held call before its answer came.
    let held = gate.head(
        &card(json!({"residue": ["x"]})),
        "Content-Length: 2\r\n\r\n{}",
    );
    let mut stream = gate.connect();
    stream
        .write_all(format!("{held}{good}").as_bytes())
        .unwrap();
    assert_eq!(read_reply(&mut stream).status, 422);
    assert_eq!(read_reply(&mut stream).status, 400);
    assert_eq!((host.accepts(), gate.of_kind("refused").len()), (0, 2));
    // The twins: after the answer the next request is one, and behind a call that was forwarded it need not wait.
    let mut stream = gate.connect();
    stream.write_all(held.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 422);
    stream
        .write_all(format!("{good}{good}").as_bytes())
        .unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert_eq!(read_reply(&mut stream).status, 200);
    assert_eq!(host.seen().len(), 2);
}

#[test]
fn a_tail_after_a_good_request_is_refused_after_its_answer() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let good = gate.head(
        &card(json!({})),
        &format!(
            "Content-Length: {}\r\n\r\n{}",
            body().len(),
            String::from_utf8(body()).unwrap()
        ),
    );
    let mut stream = gate.connect();
    stream
        .write_all(format!("{good}GET /leak?{CANARY} HTTP/1.0\r\n\r\n").as_bytes())
        .unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.starts_with("HTTP/1.1 200") && text.contains("HTTP/1.1 400"),
        "{text}"
    );
    assert_eq!(
        (
            gate.of_kind("decision").len(),
            gate.wait("refused", 1).len()
        ),
        (1, 1)
    );
    assert!(!host.seen()[0].head.contains(CANARY) && !gate.ledger_text().contains(CANARY));
}

/// With the largest `limits.head` there is: what the gate lets through the HTTP library takes, and what it would not take never reaches it.
#[test]
fn the_gate_refuses_what_the_library_would_and_nothing_else() {
    let host = Host::ok();
    let gate = Gate::with(&support::entry(&host, ""), "[limits]\nhead = \"1MiB\"\n");
    let call = |line: &str| gate.call_with(&card(json!({})), line, &body());
    assert_eq!(call(&format!("{}: 1\r\n", "a".repeat(65_535))).status, 200);
    assert_eq!(
        call(&format!("x: {}\r\n", "a".repeat(1_000_000))).status,
        200
    );
    let long = format!("{}: 1\r\n", "a".repeat(10_000));
    assert_eq!(call(&long.repeat(90)).status, 200);
    let aim = |length: usize| {
        let path = format!("/v1/{}", "a".repeat(length - 4));
        gate.head(&card(json!({})), "")
            .replacen("/v1/chat/completions", &path, 1)
            + "\r\n"
    };
    let off = gate.raw(aim(65_534).as_bytes());
    assert_eq!(off.reason(), "route_not_allowed", "{}", off.head);
    assert_eq!(
        (host.accepts() > 0, gate.of_kind("refused").len()),
        (true, 0)
    );
    let empty = Host::ok();
    for (what, bytes) in [
        (
            "a name",
            gate.head(&card(json!({})), "") + &"a".repeat(65_536) + ": 1\r\n\r\n",
        ),
        (
            "a long name",
            gate.head(&card(json!({})), "") + &"a".repeat(1_000_000) + ": 1\r\n\r\n",
        ),
        ("a target", aim(65_535)),
        ("a long target", aim(1_000_000)),
    ] {
        refused(
            &gate,
            &empty,
            what,
            bytes.as_bytes(),
            431,
            "head_too_large",
            "refused",
        );
    }
}

#[test]
fn limits_of_head_and_body() {
    let host = Host::ok();
    let gate = Gate::with(
        &support::entry(&host, ""),
        "[limits]\nbody = \"64KiB\"\nhead = \"16KiB\"\n",
    );
    let req = gate.head(&card(json!({})), "");
    refused(
        &gate,
        &host,
        "a long header",
        format!("{req}X-Big: {}\r\n\r\n", "x".repeat(20_000)).as_bytes(),
        431,
        "head_too_large",
        "refused",
    );
    refused(
        &gate,
        &host,
        "a long target",
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000)).as_bytes(),
        431,
        "head_too_large",
        "refused",
    );
    refused(
        &gate,
        &host,
        "many lines",
        format!("{req}{}\r\n", "X-A: 1\r\n".repeat(101)).as_bytes(),
        431,
        "head_too_large",
        "refused",
    );
    refused(
        &gate,
        &host,
        "a declared length",
        format!("{req}Content-Length: 5000000000\r\n\r\n").as_bytes(),
        413,
        "body_too_large",
        "decision",
    );
    let pieces = "1000\r\n".to_owned() + &" ".repeat(4096) + "\r\n";
    let long = format!(
        "{req}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        pieces.repeat(17)
    );
    refused(
        &gate,
        &host,
        "a chunked body over the cap",
        long.as_bytes(),
        413,
        "body_too_large",
        "decision",
    );
    // 413 wins over admission, a hold wins over 413.
    let unknown = gate.head(
        &card(json!({"host_pin": "free-server"})),
        "Content-Length: 70000\r\n\r\n",
    );
    refused(
        &gate,
        &host,
        "over a placeholder",
        unknown.as_bytes(),
        413,
        "body_too_large",
        "decision",
    );
    let held = gate.head(
        &card(json!({"residue": ["x"]})),
        "Content-Length: 70000\r\n\r\n",
    );
    refused(
        &gate,
        &host,
        "under a hold",
        held.as_bytes(),
        422,
        "residue_present",
        "decision",
    );
    let fits = gate.call(&card(json!({})), &support::body_with(support::FIXTURE));
    assert_eq!(fits.status, 200, "{fits:?}");
}

#[test]
fn a_client_that_is_slow_or_goes() {
    let host = Host::ok();
    let gate = Gate::with(
        &support::entry(&host, ""),
        "[limits]\nclient_head = \"300ms\"\nclient_body = \"300ms\"\n",
    );
    let req = gate.head(&card(json!({})), "");
    refused(
        &gate,
        &host,
        "half a head",
        b"POST /v1/chat",
        408,
        "client_timeout",
        "refused",
    );
    refused(
        &gate,
        &host,
        "half a body",
        format!("{req}Content-Length: 100\r\n\r\n{{").as_bytes(),
        408,
        "client_timeout",
        "decision",
    );
    // Closed before its end: a record, and no answer.
    for (bytes, kind, count) in [
        ("POST /v1/chat", "refused", 2),
        (
            &*format!("{req}Content-Length: 100\r\n\r\n{{"),
            "decision",
            2,
        ),
    ] {
        let mut stream = gate.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert!(all.is_empty(), "{all:?}");
        let records = gate.wait(kind, count);
        assert_eq!(
            (records.len(), records[count - 1]["reason"].as_str()),
            (count, Some("client_timeout"))
        );
    }
    // Nothing sent, nothing recorded.
    let before = gate.records().len();
    drop(gate.connect());
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(gate.records().len(), before);
    assert_eq!(
        (host.accepts(), gate.call(&card(json!({})), &body()).status),
        (0, 200)
    );
}

#[test]
fn expect_continue_is_answered_after_the_head_was_judged() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let expects = |card: &serde_json::Value| {
        gate.head(
            card,
            &format!(
                "Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                body().len()
            ),
        )
    };
    for card in [
        card(json!({"residue": ["x"]})),
        card(json!({"host_pin": "free-server"})),
    ] {
        let reply: Reply = gate.raw(expects(&card).as_bytes());
        assert_eq!(reply.status, 422, "{reply:?}");
    }
    let mut stream = gate.connect();
    stream
        .write_all(expects(&card(json!({}))).as_bytes())
        .unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert!(!host.seen()[0].head.contains("expect"));
}

#[test]
fn paths_outside_the_api_root() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let req = gate
        .head(&card(json!({})), "Content-Length: 2\r\n\r\n{}")
        .replace("/v1/chat/completions", "/chat/completions");
    let reply = gate.raw(req.as_bytes());
    assert_eq!(
        (reply.status, reply.reason(), reply.header("leafgate-leaf")),
        (404, "not_found", None)
    );
    assert!(
        reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&format!("http://{}/v1", gate.address))
    );
    assert_eq!(
        (
            gate.wait("refused", 1).len(),
            gate.of_kind("decision").len(),
            host.accepts()
        ),
        (1, 0, 0)
    );
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
}
