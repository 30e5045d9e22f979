//! What the outcome says was sent, at every point where it can stop.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::kit::*;
use crate::ledger::Sent;

const BIG: usize = 12 << 20;

/// Limits that a loaded machine does not reach.
fn patient(host: crate::policy::Host) -> Way {
    let mut policy = policy();
    policy.limits.idle = Duration::from_secs(5);
    policy.limits.first_byte = Duration::from_secs(5);
    Way::by(policy, host)
}

fn big() -> Vec<u8> {
    (0..BIG).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn a_host_that_answers_before_it_has_read_all() {
    // A small answer and a close; a large answer, to which neither side may deadlock; a reset.
    let large = 8 << 20;
    for (script, body_len, reason) in [
        (
            vec![
                Step::Bytes(1000),
                say(b"HTTP/1.1 413 Big\r\ncontent-length: 2\r\n\r\n{}"),
                Step::Wait(5000),
            ],
            2,
            None,
        ),
        (
            vec![
                Step::Bytes(1000),
                say(format!(
                    "HTTP/1.1 400 No\r\ncontent-length: {large}\r\n\r\n"
                )),
                Step::Again(8, vec![b'x'; 1 << 20]),
                Step::Wait(5000),
            ],
            large,
            None,
        ),
        (
            vec![Step::Bytes(1000), Step::Reset],
            0,
            Some("host_malformed"),
        ),
        (
            vec![Step::Bytes(1000), Step::Wait(3000)],
            0,
            Some("host_timeout"),
        ),
    ] {
        let scripted = Scripted::plays(vec![script]).await;
        let way = Way::to(host(scripted.port));
        let body = big();
        let done = way.call_with(body.clone()).await;
        assert_eq!((done.reason, done.cut), (reason, None));
        assert_eq!(done.body.len(), body_len);
        let outcome = done.outcome();
        assert_eq!(outcome.sent, Sent::Partial);
        let taken = usize::try_from(outcome.sent_len).unwrap();
        assert!((1..BIG).contains(&taken), "{taken}");
        assert_eq!(
            outcome.sent_sha256,
            Some(Sha256::digest(&body[..taken]).into())
        );
        assert_eq!((way.egress.inner.kept.count(), scripted.accepts()), (0, 1));
    }
}

#[tokio::test]
async fn an_early_answer_is_relayed_while_the_request_goes_on() {
    // The host begins its answer, then reads everything, then ends the answer: the twin that is sent whole.
    let scripted = Scripted::plays(vec![vec![
        Step::Bytes(100),
        say(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{}"),
        Step::Bytes(BIG),
        say(b"{}"),
        Step::Hold,
    ]])
    .await;
    let way = patient(host(scripted.port));
    let body = big();
    let done = way.call_with(body.clone()).await;
    done.ok(b"{}{}");
    assert_eq!(
        (done.outcome().sent, done.outcome().sent_len),
        (Sent::All, BIG as u64)
    );
    assert_eq!(
        done.outcome().sent_sha256,
        Some(Sha256::digest(&body).into())
    );
    assert_eq!(
        way.egress.inner.kept.count(),
        0,
        "it answered before it had read all"
    );
}

#[tokio::test]
async fn a_host_that_reads_slowly_is_no_fault() {
    let mut script = Vec::new();
    for _ in 0..6 {
        script.extend([Step::Bytes(2 << 20), Step::Wait(100)]);
    }
    script.extend([say(OK)]);
    let scripted = Scripted::plays(vec![script]).await;
    patient(host(scripted.port))
        .call_with(big())
        .await
        .ok(b"{}");
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_the_truth() {
    for (script, body, sent) in [
        (vec![Step::Request, Step::Hold], vec![b'x'; 10], Sent::All),
        (
            vec![Step::Bytes(10), Step::Wait(5000)],
            big(),
            Sent::Partial,
        ),
    ] {
        let scripted = Scripted::plays(vec![script]).await;
        let way = Way::to(host(scripted.port));
        let (call, outcome) = way.start(way.departure(body));
        assert!(
            tokio::time::timeout(Duration::from_millis(150), call)
                .await
                .is_err()
        );
        let outcome = outcome.try_recv().unwrap();
        assert_eq!((outcome.sent, outcome.error), (sent, Some("client_gone")));
    }
    // Never polled: nothing left.
    let scripted = Scripted::plays(vec![vec![Step::Hold]]).await;
    let way = Way::to(host(scripted.port));
    let (call, outcome) = way.start(way.departure(&b"{}"[..]));
    drop(call);
    let outcome = outcome.try_recv().unwrap();
    assert_eq!(
        (outcome.sent, outcome.sent_len, outcome.sent_sha256),
        (Sent::None, 0, None)
    );
    assert_eq!((outcome.peer, scripted.accepts()), (None, 0));
}

#[tokio::test]
async fn a_client_that_goes_away_closes_the_host_at_once() {
    use http_body_util::BodyExt;
    let (seen, closed) = tokio::sync::oneshot::channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        play(
            &mut tcp,
            vec![
                Step::Request,
                say("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nabc"),
                Step::Hold,
            ],
            |_| {},
        )
        .await;
        seen.send(()).unwrap();
    });
    let way = Way::to(host(port));
    for shutdown in [false] {
        let (call, outcome) = way.start(way.departure(&b"{}"[..]));
        let mut answer = call.await.unwrap();
        answer.body.frame().await.unwrap().unwrap();
        assert!(outcome.try_recv().is_err());
        if shutdown {
            way.egress.shutting_down();
        }
        drop(answer);
        let outcome = outcome.try_recv().unwrap();
        assert_eq!(
            (outcome.error, outcome.received_len),
            (Some("client_gone"), 3)
        );
    }
    tokio::time::timeout(Duration::from_secs(1), closed)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_call_that_ends_with_the_process_says_so() {
    let scripted = Scripted::plays(vec![vec![Step::Request, Step::Hold]]).await;
    let way = Way::to(host(scripted.port));
    let (call, outcome) = way.start(way.departure(&b"{}"[..]));
    way.egress.shutting_down();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), call)
            .await
            .is_err()
    );
    assert_eq!(outcome.try_recv().unwrap().error, Some("shutdown"));
}
