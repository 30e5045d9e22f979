//! Tests of the strict head check: each refusal beside the twin that passes.

use super::head::{Framing, HeadFacts, HeadFault, Names, check, scan};
use crate::terms::Reason;

const START: &str = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8484\r\n";

fn names() -> Names {
    Names::new(
        "127.0.0.1:8484".parse().unwrap(),
        false,
        &["gate.internal:8484".to_owned()],
    )
}

/// As a connection does it: scan, then check.
fn read(text: &str) -> Result<HeadFacts, HeadFault> {
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    match scan(&bytes, 0)? {
        Some(length) => check(&bytes[..length], &names()),
        None => panic!("the head does not end: {text:?}"),
    }
}

#[test]
fn clean_heads_pass() {
    for (more, framing) in [
        ("Content-Length: 12\r\n", Framing::Length(12)),
        ("content-length:\t12 \r\n", Framing::Length(12)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("", Framing::Length(0)),
        (
            "Expect: 100-Continue\r\nContent-Length: 1\r\n",
            Framing::Length(1),
        ),
        ("Sec-Fetch-Site: none\r\n", Framing::Length(0)),
        ("Sec-Fetch-Site: same-origin\r\n", Framing::Length(0)),
        ("X-A: v\u{e9}\tw\r\n", Framing::Length(0)),
        (
            "Connection: keep-alive, X-Leak\r\nX-Leak: 1\r\n",
            Framing::Length(0),
        ),
        ("Content-Type: application/json\r\n", Framing::Length(0)),
        ("X-Empty:\r\n", Framing::Length(0)),
    ] {
        let facts = read(&format!("{START}{more}\r\n"));
        assert_eq!(
            facts,
            Ok(HeadFacts {
                framing,
                fragment: false
            }),
            "{more:?}"
        );
    }
}

#[test]
fn every_host_of_this_listener_is_ours() {
    for host in [
        "127.0.0.1:8484",
        "localhost:8484",
        "LOCALHOST:8484",
        "[::1]:8484",
        "gate.internal:8484",
    ] {
        assert!(
            read(&format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n")).is_ok(),
            "{host}"
        );
    }
    for host in [
        "127.0.0.1",
        "127.0.0.1:8485",
        "evil.example",
        "evil.example:8484",
        "localhost",
        "",
        "127.0.0.1:8484.evil.example",
        "127.0.0.1:8484,evil",
    ] {
        let got = read(&format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(
            got.map_err(|f| f.reason),
            Err(Reason::HttpMalformed),
            "{host}"
        );
    }
    let bare = Names::new("127.0.0.1:80".parse().unwrap(), false, &[]);
    assert!(check(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &bare).is_ok());
}

#[test]
fn absolute_form_needs_its_own_authority_in_host() {
    assert!(read("POST http://models.example.org/v1/messages HTTP/1.1\r\nHost: models.example.org\r\n\r\n").is_ok());
    for (target, host) in [
        ("http://models.example.org/v1/messages", "127.0.0.1:8484"),
        ("http://models.example.org:80/v1", "models.example.org"),
        ("http://a@models.example.org/v1", "models.example.org"),
        ("models.example.org:443", "models.example.org:443"),
        ("*", "127.0.0.1:8484"),
        ("v1/messages", "127.0.0.1:8484"),
    ] {
        let got = read(&format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(
            got.map_err(|f| f.reason),
            Err(Reason::HttpMalformed),
            "{target}"
        );
    }
}

#[test]
fn a_fragment_is_seen() {
    let facts = read("POST /v1/chat/completions#x HTTP/1.1\r\nHost: localhost:8484\r\n\r\n");
    assert_eq!(facts.map(|f| f.fragment), Ok(true));
}

#[test]
fn what_is_not_one_clean_message_is_malformed() {
    let with = |more: &str| format!("{START}{more}\r\n");
    let rows = [
        with("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n"),
        with("Transfer-Encoding: xchunked\r\n"),
        with("Transfer-Encoding: chunked;q=1\r\n"),
        with("Transfer-Encoding: gzip, chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding:\r\n"),
        with("Content-Length: 6\r\nContent-Length: 6\r\n"),
        with("Content-Length: 6, 6\r\n"),
        with("Content-Length: +6\r\n"),
        with("Content-Length: -6\r\n"),
        with("Content-Length: 6.0\r\n"),
        with("Content-Length:\r\n"),
        with("Content-Length: 99999999999999999999\r\n"),
        with("Transfer-Encoding : chunked\r\n"),
        with("X-A: one\r\n two\r\n"),
        with(" X-A: one\r\n"),
        with("X-A: v\0w\r\n"),
        with("X-A: \u{1b}[2J\r\n"),
        with("X-A: b\rTransfer-Encoding: chunked\r\n"),
        with("X-A\r\n"),
        with(": x\r\n"),
        with("X A: x\r\n"),
        with("X\u{e9}: x\r\n"),
        with("Host: other.example\r\n"),
        with("Upgrade: websocket\r\nConnection: Upgrade\r\n"),
        with("Trailer: X-Leak\r\n"),
        with("Expect: 200-ok\r\n"),
        with("Expect: 100-continue\r\nExpect: 100-continue\r\n"),
        with("Content-Type: application/json\r\nContent-Type: text/plain\r\n"),
        with("Origin: http://127.0.0.1:8484\r\n"),
        with("Origin: null\r\n"),
        with("Sec-Fetch-Site: cross-site\r\n"),
        with("Sec-Fetch-Site: same-site\r\n"),
        "POST /v1/x HTTP/1.1\r\n\r\n".into(),
        "POST /v1/x HTTP/1.0\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST /v1/x HTTP/1.2\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST /v1/x http/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST  /v1/x HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST /v1/x y HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST\t/v1/x HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "POST /v1/\u{e9} HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "post /v1/x HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "G=\":<>(e),[T]{}\" /v1/models HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "CONNECT localhost:8484 HTTP/1.1\r\nHost: localhost:8484\r\n\r\n".into(),
        "GET /v1/models HTTP/1.1\r\nHost: localhost:8484\r\nContent-Length: 1\r\n\r\n".into(),
        "GET /v1/models HTTP/1.1\r\nHost: localhost:8484\r\nTransfer-Encoding: chunked\r\n\r\n"
            .into(),
        "GET /v1/models\r\n".into(),
        "PRI * HTTP/2.0\r\n".into(),
        "\r\n".into(),
        "\u{16}\u{3}\u{1}\0".into(),
        "POST /v1/x HTTP/1.1\nHost: localhost:8484\n\n".into(),
        format!("{START}X-A: 1\n\r\n"),
    ];
    for text in rows {
        assert_eq!(
            read(&text).map_err(|f| f.reason),
            Err(Reason::HttpMalformed),
            "{text:?}"
        );
    }
}

#[test]
fn a_head_has_at_most_a_hundred_lines() {
    let lines = |n: usize| "X-A: 1\r\n".repeat(n);
    assert!(read(&format!("{START}{}\r\n", lines(99))).is_ok());
    let got = read(&format!("{START}{}\r\n", lines(100)));
    assert_eq!(got.map_err(|f| f.reason), Err(Reason::HeadTooLarge));
}

/// The bounds are the library's: one byte more and it would answer by itself.
#[test]
fn a_name_or_target_that_the_library_would_refuse_is_too_large() {
    let reason = |text: &str| read(text).map(drop).map_err(|fault| fault.reason);
    for (length, good) in [(65_535, true), (65_536, false), (1 << 20, false)] {
        let name = "a".repeat(length);
        let library = http::HeaderName::from_bytes(name.as_bytes());
        assert_eq!(library.is_ok(), good, "{length}");
        let wanted = if good {
            Ok(())
        } else {
            Err(Reason::HeadTooLarge)
        };
        assert_eq!(reason(&format!("{START}{name}: 1\r\n\r\n")), wanted);
        let connect = format!("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n{name}: 1\r\n\r\n");
        let connect = super::connect::check_connect(connect.as_bytes());
        assert_eq!(connect.map(drop).map_err(|fault| fault.reason), wanted);
    }
    let (_, rest) = START.split_once("\r\n").unwrap();
    for (length, good) in [(65_534, true), (65_535, false), (1 << 20, false)] {
        let wanted = if good {
            Ok(())
        } else {
            Err(Reason::HeadTooLarge)
        };
        for front in ["/v1/", "http://a.b/", "/?"] {
            let target = format!("{front}{}", "a".repeat(length - front.len()));
            assert_eq!(http::Uri::try_from(target.as_str()).is_ok(), good);
            let text = format!("POST {target} HTTP/1.1\r\n{rest}\r\n");
            let text = if front.starts_with('/') {
                text
            } else {
                format!("POST {target} HTTP/1.1\r\nHost: a.b\r\n\r\n")
            };
            assert_eq!(reason(&text), wanted, "{front} {length}");
        }
    }
    // Of a value it takes any length.
    assert_eq!(
        reason(&format!("{START}X: {}\r\n\r\n", "a".repeat(1 << 20))),
        Ok(())
    );
}

#[test]
fn a_scan_in_pieces_sees_what_a_scan_at_once_sees() {
    let text = format!("{START}Content-Length: 2\r\n\r\n{{}}");
    let end = text.len() - 2;
    for first in 0..text.len() {
        let seen = scan(&text.as_bytes()[..first], 0).unwrap();
        assert_eq!(seen, (first >= end).then_some(end));
        if seen.is_none() {
            assert_eq!(scan(text.as_bytes(), first), Ok(Some(end)), "{first}");
        }
    }
    let bad = format!("{START}X: 1\n\r\n");
    for first in 0..START.len() {
        assert!(scan(bad.as_bytes(), first).is_err());
    }
}
