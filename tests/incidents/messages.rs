//! Messages that two readers take for different ones.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::Place;
use crate::support::{CANARY, HOST, Host, body, card, read_reply, response};

/// A whole release, with a canary in it: what an attacker would like to be sent beside the rules.
fn hidden(place: &Place) -> String {
    let text = String::from_utf8(body()).unwrap();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nX-Hidden: {CANARY}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        place.process.address,
        card(json!({})),
        text.len()
    )
}

/// The head of a good call, up to its framing.
fn head(place: &Place) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\n",
        place.process.address,
        card(json!({}))
    )
}

/// The statuses of the answers; an answer stands at the beginning, or right behind the body of another.
fn statuses(answers: &str) -> Vec<&str> {
    answers
        .match_indices("HTTP/1.1 ")
        .map(|(at, found)| &answers[at + found.len()..at + found.len() + 3])
        // leafgate's own words may name the protocol.
        .filter(|status| status.bytes().all(|b| b.is_ascii_digit()))
        .collect()
}

/// mitmproxy: a coding that only contains `chunked` was taken for chunked here and for nothing there, so that a request lay in a body.
#[test]
fn a_request_in_a_body_is_no_request() {
    let place = Place::plain();
    let inner = hidden(&place);
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for framing in [
        "Transfer-Encoding: chunkedasd\r\nContent-Length: 4",
        "Transfer-Encoding: chunkedasd",
        "Transfer-Encoding: asd, chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked\r\nContent-Length: 4",
        "Transfer-Encoding:\u{b}chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 0",
        "Content-Length: +4",
    ] {
        let known = place.judged();
        let bytes = format!("{}{framing}\r\n\r\n{chunk}", head(&place));
        let answers = place.all_answers(bytes.as_bytes());
        assert_eq!(statuses(&answers), ["400"], "{framing}: {answers}");
        assert_eq!(place.judged(), known + 1, "{framing}");
    }
    assert_eq!(place.host.accepts(), 0);
    // The twin: the same head, cleanly chunked, is one request on the host's wire, framed anew.
    let text = String::from_utf8(body()).unwrap();
    let good = format!(
        "{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
        head(&place),
        text.len()
    );
    assert_eq!(place.ask(good.as_bytes()).status, 200);
    let seen = place.host.seen();
    assert_eq!((seen.len(), &seen[0].body), (1, &body()));
    let head = seen[0].head.to_lowercase();
    assert!(head.contains("content-length: ") && !head.contains("transfer-encoding"));
}

/// mitmproxy, the other way: an answer that lay in the body of another's.
#[test]
fn an_answer_in_an_answer_is_no_answer() {
    let poison = response("200 OK", "", &format!("{{\"x\":\"{CANARY}\"}}"));
    let poison = String::from_utf8(poison).unwrap();
    for framing in [
        "transfer-encoding: chunkedasd\r\ncontent-length: 2",
        "transfer-encoding: chunked\r\ncontent-length: 2",
        "content-length: 2\r\ncontent-length: 900",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{{}}{poison}");
        let host = Host::start(move |stream, _| stream.write_all(bytes.as_bytes()).is_ok());
        let place = Place::before(host, "", "");
        for _ in 0..2 {
            let reply = place.call(&card(json!({})), &body());
            assert_eq!(
                (reply.status, reply.reason()),
                (502, "host_malformed"),
                "{framing}"
            );
            assert!(!String::from_utf8_lossy(&reply.raw).contains(CANARY));
        }
        assert_eq!(place.host.accepts(), 2, "{framing}: not used again");
    }
    // The twin: two clean answers, one connection.
    let place = Place::plain();
    for _ in 0..2 {
        assert_eq!(place.call(&card(json!({})), &body()).status, 200);
    }
    assert_eq!(place.host.accepts(), 1);
}

/// pingora: an answer out of the cache, the request's body not read, and its bytes taken for the next request of the connection.
#[test]
fn an_answer_before_the_body_was_read_makes_no_request_of_it() {
    let place = Place::plain();
    let inner = hidden(&place);
    let of = |line: &str, card: &str, framing: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{card}{framing}\r\n\r\n",
            place.process.address
        )
    };
    let held = format!("leafgate-card: {}\r\n", card(json!({"residue": ["x"]})));
    let length = format!("Content-Length: {}", inner.len());
    let chunks = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    // `/models` is the one answer that leafgate has of its own; a held call is answered whatever its body is.
    for (line, card) in [
        ("GET /v1/models", ""),
        ("POST /v1/chat/completions", held.as_str()),
        ("POST /v1/nothing", held.as_str()),
    ] {
        for bytes in [
            of(line, card, &length) + &inner,
            of(line, card, "Transfer-Encoding: chunked") + &chunks,
        ] {
            let known = place.judged();
            let answers = place.all_answers(bytes.as_bytes());
            assert_eq!(statuses(&answers).len(), 1, "{line}: {answers}");
            assert_eq!(place.judged(), known + 1, "{line}: one message, one record");
            assert_eq!(place.host.accepts(), 0, "{line}: the hidden request left");
        }
        // A length that ends before the hidden request: what follows an answer unasked is refused, not read.
        let answers = place.all_answers((of(line, card, "Content-Length: 0") + &inner).as_bytes());
        assert_eq!(statuses(&answers).last(), Some(&"400"), "{line}: {answers}");
        assert_eq!(place.host.accepts(), 0, "{line}: the hidden request left");
    }
    // The twin: the same request after the answer, on the same connection, is a request.
    let mut stream = TcpStream::connect(place.process.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(8)))
        .unwrap();
    let first = of("POST /v1/chat/completions", &held, &length) + &inner;
    stream.write_all(first.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 422);
    stream.write_all(inner.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut stream).status, 200);
    assert!(!place.host.seen()[0].head.contains(CANARY));
}

/// pingora: a request that asks for another protocol turned the connection into a pipe before the host had agreed.
#[test]
fn nothing_becomes_a_pipe() {
    let place = Place::plain();
    let inner = hidden(&place);
    let text = String::from_utf8(body()).unwrap();
    let with = |more: &str| {
        format!(
            "{}{more}Content-Length: {}\r\n\r\n{text}",
            head(&place),
            text.len()
        )
    };
    for more in [
        "Upgrade: foo\r\n",
        "Connection: upgrade\r\nUpgrade: foo\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n",
    ] {
        let known = place.judged();
        let answers = place.all_answers((with(more) + &inner).as_bytes());
        assert_eq!(statuses(&answers), ["400"], "{more}: {answers}");
        assert_eq!(place.judged(), known + 1, "{more}");
    }
    assert_eq!(place.host.accepts(), 0);
    // A host that switches all the same gets no pipe either.
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: foo\r\n\r\n";
    let host = Host::start(move |stream, _| stream.write_all(switch).is_ok());
    let other = Place::before(host, "", "");
    let reply = other.call(&card(json!({})), &body());
    assert_eq!((reply.status, reply.reason()), (502, "host_malformed"));
    // The twin: without the header, the first is forwarded and what is behind it is judged as a message of its own.
    let answers = place.all_answers((with("") + &inner).as_bytes());
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
    assert_eq!(
        (place.host.seen().len(), place.records("decision").len()),
        (2, 2)
    );
}

/// httpjail: judged by the absolute target, sent with the client's own `Host`, by which a shared front chooses whose server answers.
#[test]
fn the_host_that_was_judged_is_the_host_that_is_named() {
    let place = Place::plain();
    let authority = format!("{HOST}:{}", place.host.address.port());
    let text = String::from_utf8(body()).unwrap();
    let send = |target: &str, lines: &str| {
        place.ask(
            format!(
                "POST {target} HTTP/1.1\r\n{lines}leafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                card(json!({})),
                text.len()
            )
            .as_bytes(),
        )
    };
    let absolute = format!("http://{authority}/v1/chat/completions");
    for (target, lines) in [
        (absolute.as_str(), "Host: evil.example.org\r\n".to_owned()),
        (&absolute, format!("Host: {}\r\n", place.process.address)),
        (
            &absolute,
            format!("Host: {authority}\r\nHost: evil.example.org\r\n"),
        ),
        (
            "/v1/chat/completions",
            "Host: evil.example.org\r\n".to_owned(),
        ),
        (
            "http://evil.example.org/v1/chat/completions",
            "Host: evil.example.org\r\n".to_owned(),
        ),
        (
            "http://evil.example.org/v1/chat/completions",
            format!("Host: {authority}\r\n"),
        ),
    ] {
        let reply = send(target, &lines);
        assert_eq!(
            reply.header("leafgate-verdict"),
            Some("refuse"),
            "{target} {lines}"
        );
    }
    assert_eq!(place.host.accepts(), 0);
    // The twins: a `Host` that is the target's; and names in other headers, which stay here.
    let more = "X-Forwarded-Host: evil.example.org\r\nForwarded: host=evil.example.org\r\nX-Host: evil.example.org\r\n";
    for (target, own) in [
        (absolute.as_str(), authority.clone()),
        ("/v1/chat/completions", place.process.address.to_string()),
    ] {
        assert_eq!(
            send(target, &format!("Host: {own}\r\n{more}")).status,
            200,
            "{target}"
        );
    }
    for seen in place.host.seen() {
        assert!(
            seen.head.contains(&format!("\r\nhost: {authority}\r\n")),
            "{}",
            seen.head
        );
        assert!(!seen.head.contains("evil"), "{}", seen.head);
    }
}
