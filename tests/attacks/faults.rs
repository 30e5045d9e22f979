//! Hosts that break off, never end or say two things: the right reason, a cut that looks cut, and bounded memory.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Built;
use crate::kit::{Lab, PLAIN, once, own};
use crate::log::log;
use crate::support::{Host, body, ok_response, response};

pub const CASES: &[Built] = &[
    ("RSP-01", a_host_that_is_slow),
    ("RSP-02", streams_that_break_off),
    ("RSP-04", a_flood_of_interim_answers),
    ("RSP-06", heads_without_end),
    ("RSP-07", framings_that_say_two_things),
    ("RSP-09", two_answers_glued_together),
    ("RSP-10", a_body_without_end),
    ("RSP-11", a_client_that_leaves),
    ("RSP-12", an_error_that_quotes),
    ("RTY-03", a_kept_connection_that_closes),
];

const SHORT: &str = "[limits]\nfirst_byte = \"900ms\"\nidle = \"900ms\"\n";

/// A host that writes these pieces with pauses, then keeps silent for a while, or closes.
fn pieces(parts: Vec<(u64, Vec<u8>)>, keep_silent: bool) -> Host {
    once(move |stream, _| {
        for (pause, part) in &parts {
            std::thread::sleep(Duration::from_millis(*pause));
            if stream.write_all(part).is_err() {
                return false;
            }
        }
        if keep_silent {
            std::thread::sleep(Duration::from_secs(2));
        }
        false
    })
}

fn before(host: Host) -> Lab {
    Lab::before(host, Host::ok(), "", SHORT)
}

/// The outcome of the first call.
fn outcome(id: &str, lab: &Lab, error: &str) -> serde_json::Value {
    let found = lab.gate.wait("outcome", 1);
    assert_eq!(found.len(), 1, "{id}");
    assert_eq!(
        (found[0]["error"].as_str(), found[0]["sent"].as_str()),
        (Some(error), Some("all")),
        "{id}"
    );
    assert_eq!(
        found[0]["sent_len"].as_u64(),
        Some(body().len() as u64),
        "{id}"
    );
    assert_eq!(lab.host.seen().len(), 1, "{id}: sent once");
    found[0].clone()
}

/// The host's answer is refused for this reason; the next call is a call of its own, on a connection of its own.
fn refused(id: &str, lab: &Lab, status: u16, reason: &str) {
    own(id, &lab.gate.raw(&lab.bytes(PLAIN)), status, reason);
    outcome(id, lab, reason);
    lab.good(id);
    assert_eq!(
        lab.host.accepts(),
        2,
        "{id}: the connection is not used again"
    );
}

fn a_host_that_is_slow(id: &str) {
    let drip: Vec<(u64, Vec<u8>)> = ok_response()
        .into_iter()
        .map(|byte| (60, vec![byte]))
        .collect();
    for parts in [Vec::new(), drip] {
        refused(id, &before(pieces(parts, true)), 504, "host_timeout");
    }
    // In the middle of a body it is too late for another answer: the client sees a cut.
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\ndata: 1"
            .to_vec();
    let lab = before(pieces(vec![(0, head)], true));
    let reply = lab.gate.raw(&lab.bytes(PLAIN));
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, &b"data: 1"[..]),
        "{id}"
    );
    assert_eq!(outcome(id, &lab, "host_timeout")["received_len"], 7, "{id}");
    lab.good(id);
}

fn streams_that_break_off(id: &str) {
    let events = "data: 1\n\ndata: 2\n\ndata: 3\n\n";
    let chunk = format!("{:x}\r\n{events}\r\n", events.len());
    for (framing, text, whole) in [
        ("transfer-encoding: chunked", chunk.clone(), false),
        ("transfer-encoding: chunked", format!("{chunk}0\r\n"), false),
        ("content-length: 1000", events.to_owned(), false),
        (
            "transfer-encoding: chunked",
            format!("{chunk}0\r\n\r\n"),
            true,
        ),
        ("content-length: 27", events.to_owned(), true),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n{text}"
        );
        let lab = before(pieces(vec![(0, head.into_bytes())], false));
        let reply = lab.gate.raw(&lab.bytes(PLAIN));
        let got = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(
            reply.status == 200 && got.contains(events),
            "{id}: {reply:?}"
        );
        let ended = got.ends_with("0\r\n\r\n")
            || reply
                .header("content-length")
                .is_some_and(|length| length == got.len().to_string());
        assert_eq!(ended, whole, "{id}: {framing}: {got:?}");
        if whole {
            let outcome = lab.gate.wait("outcome", 1).pop().unwrap();
            assert_eq!(outcome.get("error"), None, "{id}");
        } else {
            assert_eq!(outcome(id, &lab, "host_cut")["received_len"], 27, "{id}");
        }
        lab.good(id);
    }
    a_long_stream_that_breaks_off(id);
}

/// A long answer that breaks off, and a client that takes its time: every byte that came is passed on before the cut.
fn a_long_stream_that_breaks_off(id: &str) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 4 << 20);
    let text = [head.into_bytes(), vec![b'x'; 3 << 20]].concat();
    let lab = before(pieces(vec![(0, text)], false));
    let mut stream = lab.gate.connect();
    stream.write_all(&lab.bytes(PLAIN)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let reply = crate::support::read_reply(&mut stream);
    assert_eq!((reply.status, reply.body.len()), (200, 3 << 20), "{id}");
    assert_eq!(
        outcome(id, &lab, "host_cut")["received_len"],
        3 << 20,
        "{id}"
    );
    lab.good(id);
}

fn a_flood_of_interim_answers(id: &str) {
    let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000).into_bytes();
    let lab = before(pieces(vec![(0, [flood, ok_response()].concat())], false));
    refused(id, &lab, 502, "host_malformed");
    let few = "HTTP/1.1 103 Early\r\nlink: <x>\r\n\r\n"
        .repeat(3)
        .into_bytes();
    let lab = before(pieces(vec![(0, [few, ok_response()].concat())], true));
    let reply = lab.gate.raw(&lab.bytes(PLAIN));
    assert!(
        reply.status == 200 && !reply.head.contains("103"),
        "{id}: {reply:?}"
    );
}

fn heads_without_end(id: &str) {
    let ok = "HTTP/1.1 200 OK\r\n";
    let rest = "content-length: 2\r\n\r\n{}";
    for head in [
        format!(
            "{ok}{}{rest}",
            format!("x-a: {}\r\n", "b".repeat(5_000)).repeat(100)
        ),
        format!("{ok}{}{rest}", "x-a: b\r\n".repeat(10_000)),
        format!("{ok}x-a: {}\r\n{rest}", "b".repeat(1 << 20)),
        format!("{ok}x-request-id: a\0b\r\n{rest}"),
        format!("{ok}x-request-id: a\rb\r\n{rest}"),
        format!("{ok}x-request-id: a\nb: c\r\n{rest}"),
        format!("{ok}x-request-id: a\r\n b\r\n{rest}"),
    ] {
        refused(
            id,
            &before(pieces(vec![(0, head.into_bytes())], false)),
            502,
            "host_malformed",
        );
    }
}

fn framings_that_say_two_things(id: &str) {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "{\"choices\":[]}",
        "HTTP/1.1 99 Odd\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 1000 Odd\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    ] {
        refused(
            id,
            &before(pieces(vec![(0, head.as_bytes().to_vec())], false)),
            502,
            "host_malformed",
        );
    }
}

fn two_answers_glued_together(id: &str) {
    let poison = response("200 OK", "", "{\"poison\":\"CANARY-7f3a\"}");
    for pause in [0, 30] {
        let parts = vec![(0, ok_response()), (pause, poison.clone())];
        let lab = before(pieces(parts, true));
        assert_eq!(lab.gate.raw(&lab.bytes(PLAIN)).status, 200, "{id}");
        std::thread::sleep(Duration::from_millis(60));
        let next = lab.gate.raw(&lab.bytes(PLAIN));
        assert!(
            next.status == 200 && !String::from_utf8_lossy(&next.raw).contains("poison"),
            "{id}: {next:?}"
        );
        assert_eq!(
            lab.host.accepts(),
            2,
            "{id}: the poisoned connection is dropped"
        );
        lab.good(id);
        assert_eq!(lab.host.accepts(), 2, "{id}: the clean one is kept");
    }
}

fn a_body_without_end(id: &str) {
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let lab = before(once(move |stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        let piece = vec![b'x'; 1 << 16];
        while stream.write_all(&piece).is_ok() {
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
        false
    }));
    // The client reads a little and then nothing: the host is held back, and after `idle` the client has gone.
    let mut stream = lab.gate.connect();
    stream.write_all(&lab.bytes(PLAIN)).unwrap();
    let mut some = vec![0; 1 << 16];
    stream.read_exact(&mut some).unwrap();
    let record = outcome(id, &lab, "client_gone");
    let took = written.load(Ordering::SeqCst);
    // What the two sockets' buffers hold, and one read of leafgate's own.
    assert!(
        took < 32 << 20,
        "{id}: {took} bytes were taken for a client that reads nothing"
    );
    assert!(
        record["received_len"].as_u64().unwrap() <= took as u64 + (1 << 20),
        "{id}"
    );
    drop(stream);
    lab.good(id);
}

fn a_client_that_leaves(id: &str) {
    let (sender, closed) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let lab = before(once(move |stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        while stream.write_all(b"5\r\ndata:\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = sender.lock().unwrap().send(Instant::now());
        false
    }));
    let mut stream = lab.gate.connect();
    stream.write_all(&lab.bytes(PLAIN)).unwrap();
    let mut some = [0; 64];
    stream.read_exact(&mut some).unwrap();
    let left = Instant::now();
    drop(stream);
    let host_saw = closed
        .recv_timeout(Duration::from_secs(5))
        .expect("the host sees the end");
    assert!(
        host_saw.duration_since(left) < Duration::from_secs(1),
        "{id}"
    );
    outcome(id, &lab, "client_gone");
    lab.good(id);
}

fn an_error_that_quotes(id: &str) {
    let said = "{\"error\":{\"message\":\"CANARY-7f3a with key sk-CANARY-7f3a\"}}";
    let lab = Lab::said(&String::from_utf8(response("500 Oh", "", said)).unwrap());
    let reply = lab.gate.raw(&lab.bytes(PLAIN));
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (500, said.as_bytes()),
        "{id}: as it came"
    );
    lab.gate.wait("outcome", 1);
    lab.nothing_told(id);
    assert!(
        log().contains("leafgate::call"),
        "{id}: the log was listened to"
    );
    lab.good(id);
}

fn a_kept_connection_that_closes(id: &str) {
    // The second request is read and the connection closed without an answer.
    let count = AtomicUsize::new(0);
    let host = Host::start(move |stream, _| {
        count.fetch_add(1, Ordering::SeqCst) != 1 && stream.write_all(&ok_response()).is_ok()
    });
    let lab = before(host);
    lab.good(id);
    own(id, &lab.gate.raw(&lab.bytes(PLAIN)), 502, "host_malformed");
    assert_eq!(
        (lab.host.accepts(), lab.host.seen().len()),
        (1, 2),
        "{id}: never a second time"
    );
    let found = lab.gate.wait("outcome", 2);
    assert_eq!(
        (found[1]["sent"].as_str(), found[1]["error"].as_str()),
        (Some("all"), Some("host_malformed")),
        "{id}"
    );
    lab.good(id);
    assert_eq!(lab.host.accepts(), 2, "{id}");
}
