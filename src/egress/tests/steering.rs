//! A host that steers by less than a fault: every status, every point where it may stop, fields that ask for something, bodies that are
//! not what they seem.

use super::kit::*;
use crate::ledger::Sent;

/// An answer that is played and then ends, in order or with a reset.
async fn played(answer: Vec<u8>, end: Option<Step>) -> (Done, usize) {
    let mut script = vec![Step::Request, say(answer), Step::Wait(10)];
    script.extend(end);
    let scripted = Scripted::plays(vec![script]).await;
    let way = Way::to(host(scripted.port));
    let done = way.call().await;
    assert_eq!(scripted.accepts(), 1, "sent once");
    assert_eq!(done.outcome().sent, Sent::All);
    (done, way.egress.inner.kept.count())
}

/// The body of `{}` as far as `n` bytes of the answer hold it, where its data begins at `data`.
fn so_far(n: usize, data: usize) -> &'static [u8] {
    &b"{}"[..n.saturating_sub(data).min(2)]
}

#[tokio::test]
async fn an_answer_that_stops_after_each_of_its_bytes() {
    let length = String::from_utf8(OK.to_vec()).unwrap();
    let interim = format!("HTTP/1.1 103 Early\r\nlink: </x>\r\n\r\n{length}");
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nt: v\r\n\r\n";
    let by_close = "HTTP/1.1 200 OK\r\n\r\n{}";
    let mut calls = Vec::new();
    for (answer, closes) in [
        (length.as_str(), false),
        (&interim, false),
        (chunked, false),
        (by_close, true),
    ] {
        let head = answer.find("200 OK").unwrap();
        let head = head + answer[head..].find("\r\n\r\n").unwrap() + 4;
        let data = answer.find("{}").unwrap();
        for n in 0..=answer.len() {
            for reset in [false, true] {
                let text = answer.as_bytes()[..n].to_vec();
                let whole = n == answer.len() && !closes;
                let shown = format!("{n} bytes of {answer:?}, reset: {reset}");
                calls.push(tokio::spawn(async move {
                    let (done, kept) = played(text, reset.then_some(Step::Reset)).await;
                    let outcome = done.outcome();
                    assert!(whole || kept == 0, "{shown}");
                    if n < head {
                        assert_eq!(done.reason, Some("host_malformed"), "{shown}");
                        assert_eq!(outcome.error, Some("host_malformed"), "{shown}");
                        assert_eq!((outcome.status, outcome.received_len), (None, 0), "{shown}");
                        assert_eq!(outcome.received_sha256, None, "{shown}");
                        return;
                    }
                    assert_eq!((done.reason, done.status), (None, 200), "{shown}");
                    assert_eq!(done.body, so_far(n, data), "{shown}");
                    assert_eq!(outcome.received_len, done.body.len() as u64, "{shown}");
                    let cut = !(whole || closes && !reset);
                    assert_eq!(done.cut, cut.then_some("host_malformed"), "{shown}");
                    assert_eq!(outcome.error, cut.then_some("host_cut"), "{shown}");
                }));
            }
        }
    }
    let count = calls.len();
    for call in calls {
        call.await.unwrap();
    }
    assert!(count > 500, "{count}");
}

#[tokio::test]
async fn every_status_is_an_answer_or_a_redirect_or_neither() {
    let mut calls = Vec::new();
    for status in 100..=999_u16 {
        calls.push(tokio::spawn(async move {
            let text = format!(
                "HTTP/1.1 {status} X\r\nlocation: /x\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
            );
            let (done, kept) = played(text.into_bytes(), Some(Step::Hold)).await;
            let reason = match status {
                200..=299 | 400..=599 => None,
                300..=399 => Some("redirect_refused"),
                _ => Some("host_malformed"),
            };
            assert_eq!(done.reason, reason, "{status}");
            assert_eq!(done.outcome().error, reason, "{status}");
            let told = (200..=599).contains(&status).then_some(status);
            assert_eq!(done.outcome().status, told, "{status}");
            assert_eq!(kept, usize::from(reason.is_none()), "{status}");
            if reason.is_none() {
                assert_eq!(done.status, status);
                assert!(
                    done.headers
                        .iter()
                        .all(|line| !line.starts_with("location"))
                );
            } else {
                assert!(done.headers.is_empty() && done.body.is_empty(), "{status}");
            }
        }));
        if calls.len() == 100 {
            for call in calls.drain(..) {
                call.await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_transfer_coding_is_chunked_or_it_is_refused() {
    for coding in [
        "chunked;q=1",
        "chunked,",
        ",chunked",
        "\"chunked\"",
        "",
        "chunke",
        "chunkedd",
        "chunked\u{b}",
        "gzip",
        "chunked, gzip",
        "identity, chunked",
        "chunked identity",
        "chunked\tx",
        "CHUNKED, CHUNKED",
        "\u{e7}hunked",
        "trailers",
    ] {
        let text =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
        let (done, kept) = played(text.into_bytes(), None).await;
        assert_eq!(done.reason, Some("host_malformed"), "{coding:?}");
        assert_eq!((done.outcome().error, kept), (Some("host_malformed"), 0));
    }
    for line in [
        "transfer-encoding: chunked",
        "Transfer-Encoding:CHUNKED",
        "transfer-encoding: \t chunked \t ",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
        let (done, kept) = played(text.into_bytes(), Some(Step::Hold)).await;
        done.ok(b"{}");
        assert_eq!((done.headers.len(), kept), (0, 1), "{line:?}");
    }
}

#[tokio::test]
async fn a_field_that_asks_for_something_gets_nothing() {
    // The call after it is the same to the byte, on the same connection where that stays.
    for (fields, accepts) in [
        (
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x",
            1,
        ),
        ("connection: upgrade, close\r\nupgrade: h2c", 2),
        (
            "connection: set-cookie, x-ratelimit-limit\r\nset-cookie: a=b; domain=test",
            1,
        ),
        ("proxy-connection: close\r\nkeep-alive: timeout=0", 1),
        ("trailer: content-type, set-cookie", 1),
        (
            "accept-ch: user-agent\r\ncritical-ch: user-agent\r\nvary: *",
            1,
        ),
        ("alt-svc: h3=\":1\"; persist=1\r\nalt-used: other.test", 1),
        (
            "refresh: 0; url=http://127.0.0.1:1/\r\nlink: <http://127.0.0.1:1/>; rel=preconnect",
            1,
        ),
        ("retry-after: 0\r\nx-should-retry: true", 1),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\ncontent-length: 2\r\n\r\n{{}}");
        let second = vec![Step::Request, say(OK), Step::Hold];
        let first = [vec![Step::Request, say(text)], second.clone()].concat();
        let scripted = Scripted::plays(vec![first, second]).await;
        let way = Way::to(host(scripted.port));
        let done = way.call().await;
        done.ok(b"{}");
        let listed = |line: &String| line.starts_with("content-length") || line == "retry-after: 0";
        assert!(done.headers.iter().all(listed), "{:?}", done.headers);
        way.call().await.ok(b"{}");
        assert_eq!(scripted.accepts(), accepts, "{fields:?}");
        let heard = scripted.heard().concat();
        let (one, two) = heard.split_at(heard.len() / 2);
        assert_eq!(one, two, "{fields:?}");
    }
}

#[tokio::test]
async fn a_body_in_a_coding_passes_as_it_is() {
    // A gzip head and noise, and what is no such coding at all: nothing here expands it, nor looks into it for a model.
    let packed = [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..], &[0xff; 64]].concat();
    let plain = b"{\"model\":\"m-small\"}".to_vec();
    for coding in [
        "gzip",
        "x-gzip",
        "br",
        "zstd",
        "deflate, gzip",
        "identity",
        "nonsense",
    ] {
        for body in [&packed, &plain] {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let (done, _) = played([head.into_bytes(), body.clone()].concat(), None).await;
            done.ok(body);
            assert!(
                done.headers
                    .contains(&format!("content-encoding: {coding}"))
            );
            assert_eq!(done.outcome().received_len, body.len() as u64);
            assert_eq!(done.outcome().model, None);
        }
    }
    // The twin: the same text in no coding names its model.
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        plain.len()
    );
    let (done, _) = played([head.into_bytes(), plain].concat(), None).await;
    assert_eq!(done.outcome().model, Some(("m-small".to_owned(), true)));
}

#[tokio::test]
async fn a_stream_that_names_another_model_is_told_of_as_such() {
    for (events, model) in [
        ("data: {\"model\":\"m-small\"}\n\n", Some(("m-small", true))),
        (
            "data: {\"model\":\"m-large\"}\n\n",
            Some(("m-large", false)),
        ),
        (
            "data: {\"model\":\"M-small\"}\n\n",
            Some(("M-small", false)),
        ),
        // The first event is what is told; the bytes pass as they are.
        (
            "data: {\"model\":\"m-large\"}\n\ndata: {\"model\":\"m-small\"}\n\n",
            Some(("m-large", false)),
        ),
        (
            ": note\n\nevent: x\ndata: {\"response\":{\"model\":\"m-large\"}}\n\n",
            Some(("m-large", false)),
        ),
        (
            "data: {\"model\":\"m-small\",\"model\":\"m-large\"}\n\n",
            None,
        ),
        ("data: [DONE]\n\n", None),
    ] {
        for pieces in [1, 7, 1000] {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let mut script = vec![Step::Request, say(head)];
            script.extend(events.as_bytes().chunks(pieces).map(say));
            let scripted = Scripted::plays(vec![script]).await;
            let done = Way::to(host(scripted.port)).call().await;
            done.ok(events.as_bytes());
            let told = done.outcome().model.clone();
            let told = told.as_ref().map(|(name, known)| (name.as_str(), *known));
            assert_eq!(told, model, "{events:?}");
        }
    }
}
