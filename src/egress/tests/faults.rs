//! A host that steers or breaks: the right reason, nothing of it relayed, the connection not used again.

use super::kit::*;
use crate::ledger::Sent;

/// Plays an answer on a connection that then stays open, or closes.
async fn answered(answer: &[u8], hold: bool) -> (Done, usize) {
    let mut script = vec![Step::Request];
    script.extend(answer.chunks(50_000).map(say));
    if hold {
        script.push(Step::Hold);
    }
    let scripted = Scripted::plays(vec![script]).await;
    let way = Way::to(host(scripted.port));
    let done = way.call().await;
    assert_eq!(scripted.accepts(), 1, "sent once");
    assert_eq!(
        (done.outcome().sent, done.outcome().sent_len),
        (Sent::All, 7)
    );
    (done, way.egress.inner.kept.count())
}

#[tokio::test]
async fn heads_that_are_not_clean() {
    let rest = "content-length: 2\r\n\r\n{}";
    let cases: Vec<Vec<u8>> = [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 0x2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n{}",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "{\"an\":\"answer of HTTP/0.9\"}",
        "HTTP/0.9 200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 99 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 099 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 1000 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 2x0 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1  200 X\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 100 Continue\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 100 Continue\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
        "HTTP/1.1 200 OK\r\nopenai-a: b\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nopenai-a: b\rc\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nopenai-a: b\0c\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nopenai-a: b\r\n c\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nopenai-a : b\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\n: b\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nno colon\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-type: c/d\r\ncontent-length: 2\r\n\r\n{}",
    ]
    .into_iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([
        format!("HTTP/1.1 200 OK\r\n{}{rest}", "a: b\r\n".repeat(100)).into_bytes(),
        format!("HTTP/1.1 200 OK\r\n{}{rest}", "a: b\r\n".repeat(10_000)).into_bytes(),
        format!("HTTP/1.1 200 OK\r\nopenai-a: {}\r\n{rest}", "b".repeat(1 << 20)).into_bytes(),
        vec![b'x'; 500_000],
        format!("HTTP/1.1 200 {}", "b".repeat(500_000)).into_bytes(),
        format!("{}HTTP/1.1 200 OK\r\n{rest}", "HTTP/1.1 102 P\r\n\r\n".repeat(9)).into_bytes(),
        format!("{}HTTP/1.1 200 OK\r\n{rest}", "HTTP/1.1 100 C\r\n\r\n".repeat(100_000)).into_bytes(),
    ])
    .collect();
    for answer in cases {
        let (done, kept) = answered(&answer, true).await;
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(90)]).into_owned();
        assert_eq!(done.reason, Some("host_malformed"), "{shown:?}");
        assert_eq!(done.outcome().error, Some("host_malformed"));
        assert_eq!(done.outcome().received_sha256, None);
        assert_eq!(kept, 0, "{shown:?}");
    }
    // The twin.
    let fields = format!("HTTP/1.1 200 OK\r\n{}{rest}", "a: b\r\n".repeat(99));
    let (done, kept) = answered(fields.as_bytes(), true).await;
    done.ok(b"{}");
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn redirects_are_refused_with_nothing_of_them() {
    let trap = Scripted::plays(vec![vec![Step::Hold]]).await;
    for status in [300, 301, 302, 303, 304, 305, 307, 308, 399] {
        let answer = format!(
            "HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:{}/v1/chat/completions?q=echo\r\ncontent-length: 0\r\n\r\n",
            trap.port
        );
        let (done, kept) = answered(answer.as_bytes(), true).await;
        assert_eq!(done.reason, Some("redirect_refused"));
        assert_eq!(done.outcome().error, Some("redirect_refused"));
        assert_eq!(done.outcome().status, Some(status));
        assert_eq!(kept, 0);
    }
    assert_eq!(trap.accepts(), 0);
    answered(OK, true).await.0.ok(b"{}");
}

#[tokio::test]
async fn a_head_that_does_not_come() {
    for (script, reason) in [
        (vec![Step::Request, Step::Hold], "host_timeout"),
        (
            vec![Step::Request, say("HTTP/1.1 200 OK\r\n"), Step::Hold],
            "host_timeout",
        ),
        (
            vec![Step::Request, say("HTTP/1.1 100 C\r\n\r\n"), Step::Hold],
            "host_timeout",
        ),
        (
            // Slow drip: the limit is for the whole head.
            [Step::Request]
                .into_iter()
                .chain(OK.chunks(1).flat_map(|byte| [say(byte), Step::Wait(60)]))
                .collect(),
            "host_timeout",
        ),
        (vec![Step::Request], "host_malformed"),
        (
            vec![Step::Request, say("HTTP/1.1 200 OK\r\n")],
            "host_malformed",
        ),
        (vec![Step::Request, Step::Reset], "host_malformed"),
        (
            vec![
                Step::Request,
                say("HTTP/1.1 200 OK\r\n"),
                Step::Wait(20),
                Step::Reset,
            ],
            "host_malformed",
        ),
    ] {
        let scripted =
            Scripted::plays(vec![script, vec![Step::Request, say(OK), Step::Hold]]).await;
        let way = Way::to(host(scripted.port));
        let done = way.call().await;
        assert_eq!(done.reason, Some(reason));
        assert_eq!(done.outcome().error, Some(reason));
        assert_eq!(done.outcome().status, None);
        assert_eq!(
            (done.outcome().sent, scripted.accepts()),
            (Sent::All, 1),
            "not sent again"
        );
        // The twin, on a new connection.
        way.call().await.ok(b"{}");
        assert_eq!(scripted.accepts(), 2);
    }
}

#[tokio::test]
async fn a_cut_body_looks_cut() {
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let close = "HTTP/1.1 200 OK\r\n\r\n";
    for (head, body, end, got, cut, error) in [
        (length, "abc", None, "abc", "host_malformed", "host_cut"),
        (
            length,
            "abc",
            Some(Step::Reset),
            "abc",
            "host_malformed",
            "host_cut",
        ),
        (
            length,
            "abc",
            Some(Step::Hold),
            "abc",
            "host_timeout",
            "host_timeout",
        ),
        (length, "", None, "", "host_malformed", "host_cut"),
        (
            chunked,
            "3\r\nabc\r\n",
            None,
            "abc",
            "host_malformed",
            "host_cut",
        ),
        (
            chunked,
            "3\r\nabc\r\n0\r\n",
            None,
            "abc",
            "host_malformed",
            "host_cut",
        ),
        (
            chunked,
            "5\r\nabc",
            None,
            "abc",
            "host_malformed",
            "host_cut",
        ),
        (
            chunked,
            "3\r\nabc\r\n",
            Some(Step::Hold),
            "abc",
            "host_timeout",
            "host_timeout",
        ),
        (
            chunked,
            "3\r\nabcX\r\n0\r\n\r\n",
            Some(Step::Hold),
            "abc",
            "host_malformed",
            "host_malformed",
        ),
        (
            chunked,
            "3\r\nabc\r\nzz\r\n",
            Some(Step::Hold),
            "abc",
            "host_malformed",
            "host_malformed",
        ),
        (
            chunked,
            "3\r\nabc\r\n0\r\na\nb\r\n\r\n",
            Some(Step::Hold),
            "abc",
            "host_malformed",
            "host_malformed",
        ),
        (
            close,
            "abc",
            Some(Step::Reset),
            "abc",
            "host_malformed",
            "host_cut",
        ),
        (
            close,
            "abc",
            Some(Step::Hold),
            "abc",
            "host_timeout",
            "host_timeout",
        ),
    ] {
        let mut script = vec![Step::Request, say(head), say(body), Step::Wait(30)];
        script.extend(end);
        let scripted = Scripted::plays(vec![script]).await;
        let way = Way::to(host(scripted.port));
        let done = way.call().await;
        assert_eq!(
            (done.status, done.cut),
            (200, Some(cut)),
            "{head:?} {body:?}"
        );
        assert_eq!(String::from_utf8_lossy(&done.body), got);
        let outcome = done.outcome();
        assert_eq!((outcome.error, outcome.status), (Some(error), Some(200)));
        assert_eq!(outcome.received_len, got.len() as u64);
        assert!(outcome.received_sha256.is_some());
        assert_eq!(way.egress.inner.kept.count(), 0);
    }
}

#[tokio::test]
async fn a_slow_stream_within_the_limit_is_no_fault() {
    let mut script = vec![
        Step::Request,
        say("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"),
    ];
    for _ in 0..6 {
        script.extend([Step::Wait(150), say("x")]);
    }
    let scripted = Scripted::plays(vec![script]).await;
    Way::to(host(scripted.port)).call().await.ok(b"xxxxxx");
}

#[tokio::test]
async fn a_slow_client_is_no_fault_of_the_host_and_holds_it_back() {
    use http_body_util::BodyExt;
    let scripted = Scripted::plays(vec![vec![
        Step::Request,
        say("HTTP/1.1 200 OK\r\n\r\n"),
        Step::Again(640, vec![b'x'; 100_000]),
    ]])
    .await;
    let way = Way::to(host(scripted.port));
    let (call, outcome) = way.start(way.departure(&b"{}"[..]));
    let mut answer = call.await.unwrap();
    let mut len = 0;
    for pause in 0..5 {
        let piece = answer
            .body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        assert!(piece.len() <= 64 << 10, "one read at most");
        len += piece.len();
        if pause < 2 {
            // Longer than `idle`: the host could send all the while.
            tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        }
    }
    while let Some(piece) = answer.body.frame().await {
        len += piece.unwrap().into_data().unwrap().len();
    }
    assert_eq!(len, 64_000_000);
    assert_eq!(outcome.try_recv().unwrap().error, None);
}
