//! What goes out, and what comes back, where nothing is wrong.

use http::{HeaderName, HeaderValue, Method};

use super::kit::*;
use crate::ledger::Sent;
use crate::policy::Credential;

#[tokio::test]
async fn the_request_is_built_anew_byte_for_byte() {
    let scripted = Scripted::plays(vec![vec![Step::Request, say(OK), Step::Hold]]).await;
    let way = Way::to(host(scripted.port));
    let mut departure = way.departure(&b"{\"x\": 1 }"[..]);
    departure.headers.push((
        HeaderName::from_static("anthropic-version"),
        HeaderValue::from_static("2023-06-01"),
    ));
    let (call, outcome) = way.start(departure);
    let done = finish(call.await, outcome).await;
    done.ok(b"{}");
    let port = scripted.port;
    assert_eq!(
        String::from_utf8(scripted.heard()[0].clone()).unwrap(),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: 9\r\naccept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\nauthorization: Bearer test\r\nanthropic-version: 2023-06-01\r\n\r\n{{\"x\": 1 }}"
        )
    );
    let outcome = done.outcome();
    assert_eq!((outcome.sent, outcome.sent_len), (Sent::All, 9));
    assert_eq!(outcome.sent_sha256, Some(sha(b"{\"x\": 1 }")));
    assert_eq!(outcome.peer.unwrap().port(), port);
    assert_eq!((outcome.status, outcome.received_len), (Some(200), 2));
    assert_eq!(outcome.received_sha256, Some(sha(b"{}")));
    let metrics = way.egress.metrics();
    assert_eq!(
        metrics
            .bytes_sent
            .load(std::sync::atomic::Ordering::Relaxed),
        9
    );
    assert_eq!(metrics.host_seconds.snapshot().count(), 1);
}

fn sha(bytes: &[u8]) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).into()
}

#[tokio::test]
async fn a_get_has_no_body_and_no_framing() {
    let scripted = Scripted::plays(vec![vec![Step::Request, say(OK), Step::Hold]]).await;
    let way = Way::to(host(scripted.port));
    let mut departure = way.departure(&b""[..]);
    departure.method = Method::GET;
    departure.path = "/v1/things".to_owned();
    let (call, outcome) = way.start(departure);
    let done = finish(call.await, outcome).await;
    done.ok(b"{}");
    assert_eq!(done.outcome().sent, Sent::All);
    let heard = String::from_utf8(scripted.heard()[0].clone()).unwrap();
    assert!(heard.starts_with("GET /v1/things HTTP/1.1\r\nhost: "));
    assert!(!heard.contains("content-"));
}

#[tokio::test]
async fn what_is_not_one_clean_message_is_not_written() {
    let scripted = Scripted::plays(vec![vec![Step::Request, say(OK), Step::Hold]]).await;
    let way = Way::to(host(scripted.port));
    for fault in 0..4 {
        let mut departure = way.departure(&b"{}"[..]);
        match fault {
            0 => departure.path = "/v1/x HTTP/1.1\r\nevil: 1".to_owned(),
            1 => departure.path = "//v1\u{e9}".to_owned(),
            2 => departure.method = Method::GET,
            _ => departure.headers.push((
                HeaderName::from_static("transfer-encoding"),
                HeaderValue::from_static("chunked"),
            )),
        }
        let (call, outcome) = way.start(departure);
        let done = finish(call.await, outcome).await;
        assert_eq!(done.reason, Some("route_not_allowed"));
        assert_eq!(done.outcome().sent, Sent::None);
    }
    assert_eq!(scripted.accepts(), 0);
    way.call().await.ok(b"{}");
}

#[tokio::test]
async fn only_listed_headers_come_back() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Encoding: br\r\nRetry-After: 3\r\nRequest-Id: a\r\nX-Request-Id: b\r\nOpenAI-Version: 1\r\nAnthropic-X: 2\r\nX-RateLimit-Limit: 9\r\n\
        Set-Cookie: a=b\r\nAlt-Svc: h2=\":443\"\r\nRefresh: 0\r\nLink: </x>\r\nWWW-Authenticate: Basic\r\nProxy-Authenticate: Basic\r\nX-Should-Retry: true\r\nLocation: http://127.0.0.1/\r\nContent-Location: /x\r\n\
        Leafgate-Leaf: hold\r\nLeafgate-Verdict: forward\r\nStrict-Transport-Security: max-age=1\r\nClear-Site-Data: *\r\nNEL: {}\r\nOpenai: x\r\nConnection: keep-alive\r\nServer: s\r\n\r\n{}";
    let scripted = Scripted::plays(vec![vec![Step::Request, say(answer), Step::Hold]]).await;
    let done = Way::to(host(scripted.port)).call().await;
    done.ok(b"{}");
    assert_eq!(
        done.headers,
        [
            "content-type: application/json",
            "content-length: 2",
            "content-encoding: br",
            "retry-after: 3",
            "request-id: a",
            "x-request-id: b",
            "openai-version: 1",
            "anthropic-x: 2",
            "x-ratelimit-limit: 9"
        ]
    );
}

/// The names of the fields that reach a client from a host with this scheme and secret.
async fn relayed_beside(secret: Option<(&str, &str)>, fields: &str) -> Vec<String> {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\n{{}}");
    let scripted = Scripted::plays(vec![vec![Step::Request, say(answer), Step::Hold]]).await;
    let mut host = host(scripted.port);
    if let Some((scheme, secret)) = secret {
        host.credential = Credential::Fixed {
            header: http::header::AUTHORIZATION,
            value: crate::terms::Secret::new(format!("{scheme}{secret}")),
            scheme: scheme.len(),
        };
    }
    let done = Way::to(host).call().await;
    done.ok(b"{}");
    let names = done.headers.iter().map(|field| field.split_once(": "));
    let mut names: Vec<_> = names.map(|field| field.unwrap().0.to_owned()).collect();
    names.sort();
    assert_eq!(names.remove(0), "content-length");
    names
}

#[tokio::test]
async fn a_field_with_the_hosts_own_key_stays() {
    let fields = "OpenAI-Key: k=sk-12345;\r\nOpenAI-Version: 1\r\nX-Request-Id: sk-1234\r\n";
    // With its scheme and without, also where the scheme was written into the secret; and what is too short to be told from chance.
    for (secret, stays) in [
        (Some(("Bearer ", "sk-12345")), true),
        (Some(("", "Bearer sk-12345")), true),
        (Some(("", "sk-12345")), true),
        (Some(("Bearer ", "sk-1234")), false),
        (Some(("", "sk-1234")), false),
        (Some(("", "sk-123456")), false),
        (None, false),
    ] {
        let mut want = vec!["openai-key", "openai-version", "x-request-id"];
        if stays {
            want.remove(0);
        }
        assert_eq!(relayed_beside(secret, fields).await, want, "{secret:?}");
    }
}

#[tokio::test]
async fn a_field_that_is_named_by_the_hosts_own_key_stays() {
    // A name is in lower case on its way to the client, and case is all that is lost.
    let fields = "OpenAI-sk-AbC12-3: 1\r\nx-RateLimit-SK-abc12-3-left: 1\r\nOpenAI-sk-AbC12: 1\r\n";
    let all = [
        "openai-sk-abc12",
        "openai-sk-abc12-3",
        "x-ratelimit-sk-abc12-3-left",
    ];
    for secret in [("Bearer ", "sk-aBc12-3"), ("", "sk-aBc12-3")] {
        assert_eq!(relayed_beside(Some(secret), fields).await, all[..1]);
    }
    for other in [None, Some(("", "sk-abc12-4"))] {
        assert_eq!(relayed_beside(other, fields).await, all);
    }
}

#[tokio::test]
async fn a_key_with_a_blank_in_it_stays() {
    let fields = "OpenAI-A: k=correct-horse 7;\r\nOpenAI-B: Bearer sk-1;\r\nOpenAI-C: horse 7\r\n";
    for (secret, want) in [
        (("", "correct-horse 7"), ["openai-b", "openai-c"]),
        (("Bearer ", "correct-horse 7"), ["openai-b", "openai-c"]),
        // A short secret is told by its whole value.
        (("Bearer ", "sk-1"), ["openai-a", "openai-c"]),
    ] {
        assert_eq!(relayed_beside(Some(secret), fields).await, want);
    }
    let all = ["openai-a", "openai-b", "openai-c"];
    assert_eq!(
        relayed_beside(Some(("", "correct-horse 8")), fields).await,
        all
    );
}

#[tokio::test]
async fn every_framing_is_relayed_whole() {
    let long = "x".repeat(300_000);
    let cases: Vec<(String, &str, u16, bool)> = vec![
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc".into(), "abc", 200, true),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n".into(), "", 200, true),
        ("HTTP/1.1 204 No Content\r\n\r\n".into(), "", 204, true),
        ("HTTP/1.1 429 Slow\r\ncontent-length: 1\r\n\r\n!".into(), "!", 429, true),
        ("HTTP/1.1 401 No\r\nwww-authenticate: Basic\r\ncontent-length: 1\r\n\r\n!".into(), "!", 401, true),
        ("HTTP/1.1 500 Oh\r\ntransfer-encoding: Chunked\r\n\r\n1;a=b\r\n!\r\n2\r\nab\r\n0\r\nt: v\r\n\r\n".into(), "!ab", 500, true),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end".into(), "until the end", 200, false),
        ("HTTP/1.0 200 OK\r\n\r\nold".into(), "old", 200, false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold".into(), "old", 200, false),
        ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 3\r\n\r\nabc".into(), "abc", 200, false),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc".into(), "abc", 200, true),
        (format!("{}HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", "HTTP/1.1 102 P\r\n\r\n".repeat(8)), "abc", 200, true),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n{long}"), &long, 200, true),
        (format!("HTTP/1.1 200 OK\r\nopenai-x: {}\r\ncontent-length: 3\r\n\r\nabc", "y".repeat(60_000)), "abc", 200, true),
    ];
    for (answer, body, status, kept) in cases {
        // Whole, and in small pieces.
        for pieces in [answer.len(), 7_919] {
            let mut script = vec![Step::Request];
            script.extend(answer.as_bytes().chunks(pieces).map(say));
            if kept {
                script.push(Step::Hold);
            }
            let scripted = Scripted::plays(vec![script]).await;
            let way = Way::to(host(scripted.port));
            let done = way.call().await;
            done.ok(body.as_bytes());
            assert_eq!(done.status, status);
            assert!(done.headers.iter().all(|h| !h.starts_with("link")));
            assert_eq!(
                way.egress.inner.kept.count(),
                usize::from(kept),
                "{:?}",
                &answer[..answer.len().min(80)]
            );
        }
    }
}

#[tokio::test]
async fn a_stream_arrives_as_it_is_said_and_names_its_model() {
    use http_body_util::BodyExt;
    let event = "data: {\"model\":\"m-small\"}\n\n";
    let scripted = Scripted::plays(vec![vec![
        Step::Request,
        say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"),
        say(format!("{:x}\r\n{event}\r\n", event.len())),
        Step::Wait(150),
        say("0\r\n\r\n"),
        Step::Hold,
    ]])
    .await;
    let way = Way::to(host(scripted.port));
    let (call, outcome) = way.start(way.departure(&b"{}"[..]));
    let mut answer = call.await.unwrap();
    let first = answer.body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), event);
    assert!(outcome.try_recv().is_err(), "the host has not ended yet");
    assert!(answer.body.frame().await.is_none());
    let outcome = outcome.try_recv().unwrap();
    assert_eq!(outcome.model, Some(("m-small".to_owned(), true)));
    assert_eq!(outcome.error, None);
}
