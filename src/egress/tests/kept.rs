//! Connections kept between calls: used again where that is safe, and never otherwise.

use std::sync::Arc;
use std::time::Duration;

use super::kit::*;
use crate::ledger::Sent;

fn again(times: usize) -> Vec<Step> {
    let mut script = Vec::new();
    for _ in 0..times {
        script.extend([Step::Request, say(OK)]);
    }
    script.push(Step::Hold);
    script
}

#[tokio::test]
async fn a_clean_connection_carries_the_next_call() {
    let scripted = Scripted::plays(vec![again(5)]).await;
    let way = Way::to(host(scripted.port));
    for _ in 0..5 {
        let done = way.call().await;
        done.ok(b"{}");
        assert_eq!(done.outcome().peer.unwrap().port(), scripted.port);
    }
    assert_eq!(scripted.accepts(), 1);
}

#[tokio::test]
async fn calls_at_the_same_time_have_their_own_connections() {
    let scripted = Scripted::plays(vec![again(100)]).await;
    let way = Way::to(host(scripted.port));
    for _ in 0..5 {
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let way = way.clone();
                tokio::spawn(async move { way.call().await.ok(b"{}") })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    }
    assert!(
        (1..=20).contains(&scripted.accepts()),
        "{}",
        scripted.accepts()
    );
    assert!(way.egress.inner.kept.count() <= 20);
}

#[tokio::test]
async fn a_reload_closes_kept_connections_and_those_in_use() {
    let scripted = Scripted::plays(vec![again(5)]).await;
    let way = Way::to(host(scripted.port));
    way.call().await.ok(b"{}");
    way.egress.close_kept();
    assert_eq!(way.egress.inner.kept.count(), 0);
    way.call().await.ok(b"{}");
    assert_eq!(scripted.accepts(), 2);
    // In use while the reload comes.
    let (call, outcome) = way.start(way.departure(&b"{}"[..]));
    let answer = {
        let mut call = Box::pin(call);
        let early = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(early.is_pending());
        way.egress.close_kept();
        call.await
    };
    finish(answer, outcome).await.ok(b"{}");
    assert_eq!((way.egress.inner.kept.count(), scripted.accepts()), (0, 2));
}

#[tokio::test]
async fn another_policy_never_uses_it() {
    let scripted = Scripted::plays(vec![again(5)]).await;
    let way = Way::to(host(scripted.port));
    way.call().await.ok(b"{}");
    let other = Way {
        egress: way.egress.clone(),
        policy: Arc::new(policy()),
        host: Arc::new(host(scripted.port)),
    };
    other.call().await.ok(b"{}");
    assert_eq!(scripted.accepts(), 2);
    // The twins: each goes on with its own.
    way.call().await.ok(b"{}");
    other.call().await.ok(b"{}");
    assert_eq!(scripted.accepts(), 2);
}

#[tokio::test]
async fn glued_answers_never_reach_the_next_call() {
    let poison: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let chunked: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let empty: &[u8] = b"HTTP/1.1 204 No\r\n\r\n";
    for (answer, body) in [(OK, &b"{}"[..]), (chunked, b"{}"), (empty, b"")] {
        // In the same write, a little later, and one stray byte.
        for script in [
            vec![Step::Request, say([answer, poison].concat()), Step::Hold],
            vec![
                Step::Request,
                say(answer),
                Step::Wait(20),
                say(poison),
                Step::Hold,
            ],
            vec![
                Step::Request,
                say(answer),
                Step::Wait(20),
                say(b"\n"),
                Step::Hold,
            ],
        ] {
            let scripted = Scripted::plays(vec![script, again(3)]).await;
            let way = Way::to(host(scripted.port));
            way.call().await.ok(body);
            tokio::time::sleep(Duration::from_millis(60)).await;
            way.call().await.ok(b"{}");
            assert_eq!(scripted.accepts(), 2, "the poisoned one was dropped");
            way.call().await.ok(b"{}");
            assert_eq!(scripted.accepts(), 2, "the clean one is kept");
        }
    }
}

/// It is the answer of the first call or of none, and its connection carries no second one.
#[tokio::test]
async fn an_answer_before_any_request_puts_no_call_behind_another() {
    let early = vec![
        say(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly"),
        Step::Request,
        say(OK),
        Step::Hold,
    ];
    for _ in 0..10 {
        let scripted = Scripted::plays(vec![early.clone()]).await;
        let way = Way::to(host(scripted.port));
        for _ in 0..3 {
            let done = way.call().await;
            assert!(matches!(done.reason, None | Some("connect_failed")));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let requests = |bytes: &[u8]| bytes.windows(5).filter(|five| five == b"POST ").count();
        assert!(scripted.heard().iter().all(|bytes| requests(bytes) <= 1));
        assert_eq!(scripted.accepts(), 3);
    }
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_replaced_before_a_byte_is_written() {
    for end in [None, Some(Step::Reset)] {
        let mut script = vec![Step::Request, say(OK), Step::Wait(20)];
        script.extend(end);
        let scripted = Scripted::plays(vec![script, again(1)]).await;
        let way = Way::to(host(scripted.port));
        way.call().await.ok(b"{}");
        tokio::time::sleep(Duration::from_millis(80)).await;
        let done = way.call().await;
        done.ok(b"{}");
        assert_eq!((done.outcome().sent, scripted.accepts()), (Sent::All, 2));
    }
}

#[tokio::test]
async fn a_closed_one_is_seen_without_the_runtime_having_looked() {
    // The close and the call happen with no turn of the runtime between: only the socket itself can tell.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (go, went) = std::sync::mpsc::channel::<()>();
    let (gone, wait) = std::sync::mpsc::channel::<()>();
    let peer = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut tcp, _) = listener.accept().unwrap();
        let mut buf = [0; 4096];
        let _ = tcp.read(&mut buf).unwrap();
        tcp.write_all(OK).unwrap();
        went.recv().unwrap();
        drop(tcp);
        gone.send(()).unwrap();
        let (mut tcp, _) = listener.accept().unwrap();
        let _ = tcp.read(&mut buf).unwrap();
        tcp.write_all(OK).unwrap();
    });
    let way = Way::to(host(port));
    way.call().await.ok(b"{}");
    go.send(()).unwrap();
    wait.recv().unwrap();
    way.call().await.ok(b"{}");
    peer.join().unwrap();
}

#[tokio::test]
async fn closed_after_a_byte_was_written_is_never_sent_again() {
    // The host reads the second request, or a part of it, and closes or resets.
    for second in [
        vec![Step::Request],
        vec![Step::Bytes(1)],
        vec![Step::Bytes(1), Step::Wait(10)],
    ] {
        let reset = second.len() == 2;
        let mut script = vec![Step::Request, say(OK)];
        script.extend(second);
        if reset {
            script.push(Step::Reset);
        }
        let scripted = Scripted::plays(vec![script, again(3)]).await;
        let way = Way::to(host(scripted.port));
        way.call().await.ok(b"{}");
        let done = way.call().await;
        assert_eq!(done.reason, Some("host_malformed"));
        assert_eq!((done.outcome().sent, scripted.accepts()), (Sent::All, 1));
        // The twin: a further call is a call of its own.
        way.call().await.ok(b"{}");
        assert_eq!(scripted.accepts(), 2);
    }
}

#[tokio::test]
async fn old_ones_are_not_used_and_close_by_themselves() {
    let scripted = Scripted::plays(vec![again(5)]).await;
    let way = Way::to(host(scripted.port));
    way.call().await.ok(b"{}");
    assert_eq!(way.egress.inner.kept.count(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(55)).await;
    tokio::time::resume();
    way.call().await.ok(b"{}");
    assert_eq!(scripted.accepts(), 1, "55 s after the dial");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    way.call().await.ok(b"{}");
    assert_eq!(
        scripted.accepts(),
        2,
        "61 s after the dial, although used 6 s ago"
    );
    assert_eq!(way.egress.inner.kept.count(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        if way.egress.inner.kept.count() == 0 {
            return;
        }
    }
    panic!("an idle connection stayed open beyond its age");
}

#[tokio::test]
async fn the_number_kept_is_bounded() {
    let scripted = Scripted::plays(vec![again(1)]).await;
    let way = Way::to(host(scripted.port));
    let calls: Vec<_> = (0..300)
        .map(|_| {
            let way = way.clone();
            tokio::spawn(async move {
                let (call, outcome) = way.start(way.departure(&b"{}"[..]));
                let answer = call.await;
                (answer, outcome)
            })
        })
        .collect();
    for call in calls {
        let (answer, outcome) = call.await.unwrap();
        finish(answer, outcome).await;
    }
    assert!(way.egress.inner.kept.count() <= 256);
}
