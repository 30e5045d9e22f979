//! Non-interference: what leaves of a split is a function of four values and the policy, and of a held call nothing leaves, not even a
//! question to a name server.

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::dress::{Dress, Payload, ROUTES, STORED, dress, dresses};
use crate::support::{
    Gate, HOST, Host, Seen, b64, card, entry, fixture_hash, lay_out, read_reply, split_card,
};

struct Bench {
    host: Host,
    gate: Gate,
    /// Questions that reached the policy's name server, and connections to it.
    asked: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Bench {
        let host = Host::ok();
        let (server, asked) = name_server();
        let dir = tempfile::tempdir().unwrap();
        let hosts = entry(&host, "").replace("resolve = [\"127.0.0.1\"]\n", "");
        lay_out(
            dir.path(),
            &hosts,
            &format!("[resolver]\nservers = [\"{server}\"]\n"),
            "",
        );
        for n in 0..STORED {
            let text =
                split_card(json!({"note": format!("note {n}"), "replay_window": format!("{n}h")}));
            std::fs::write(
                dir.path().join(format!("cards/stored-{n}.json")),
                text.to_string(),
            )
            .unwrap();
        }
        let gate = Gate::start(dir);
        Bench { host, gate, asked }
    }

    /// The request of this dress, for a card of these values.
    fn request(&self, dress: &Dress, make: &dyn Fn(Value) -> Value) -> Vec<u8> {
        let mut changes = json!({"note": dress.note, "replay_window": dress.window, "writable_surface": dress.surface});
        if dress.payload.has_label() {
            changes["failure_label"] = Value::Null;
        }
        let text = make(changes).to_string();
        let stored = format!("stored-{}", dress.route % STORED);
        let mut path = format!("/v1{}", ROUTES[dress.route]);
        let mut headers = dress.headers.clone();
        let attached = match dress.attach {
            0 if text.is_ascii() => Some(("leafgate-card", text)),
            1 => Some(("leafgate-card", format!("@{stored}"))),
            2 if !dress.absolute => {
                path = format!("/card/{stored}{path}");
                None
            }
            3 => Some(("authorization", format!("Bearer card:{stored}"))),
            4 => Some(("x-api-key", format!("card:{stored}"))),
            _ => Some(("leafgate-card", b64(text.as_bytes()))),
        };
        if let Some((name, value)) = attached {
            let at = if dress.card_last { headers.len() } else { 0 };
            headers.insert(at, (name.to_owned(), value));
        }
        let mut authority = self.gate.address.to_string();
        if dress.absolute {
            authority = format!("{HOST}:{}", self.host.address.port());
            path = format!("http://{authority}{path}");
        }
        headers.push(("host".to_owned(), authority));
        let payload = dress.payload.bytes();
        headers.push(match &dress.chunks {
            Some(_) => ("transfer-encoding".to_owned(), "chunked".to_owned()),
            None => ("content-length".to_owned(), payload.len().to_string()),
        });
        let mut bytes = format!("POST {path} HTTP/1.1\r\n").into_bytes();
        for (name, value) in headers {
            let name = if dress.upper {
                name.to_uppercase()
            } else {
                name
            };
            bytes.extend(format!("{name}:{0}{value}{0}\r\n", dress.space).bytes());
        }
        bytes.extend(b"\r\n");
        match &dress.chunks {
            None => bytes.extend(payload),
            Some(sizes) => {
                let mut rest = &payload[..];
                let mut sizes = sizes.iter().cycle();
                while !rest.is_empty() {
                    let (piece, more) = rest.split_at(rest.len().min(*sizes.next().unwrap() * 37));
                    bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
                    bytes.extend(piece);
                    bytes.extend(b"\r\n");
                    rest = more;
                }
                bytes.extend(b"0\r\n\r\n");
            }
        }
        bytes
    }

    /// Sends in so many pieces; the status and the reason.
    fn send(&self, bytes: &[u8], pace: usize) -> (u16, String) {
        let mut stream = self.gate.connect();
        for piece in bytes.chunks(bytes.len().div_ceil(pace)) {
            if stream.write_all(piece).is_err() {
                break;
            }
            if pace > 1 {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        let reply = read_reply(&mut stream);
        (reply.status, reply.reason().to_owned())
    }
}

/// A name server that knows 127.0.0.1 alone, and counts.
fn name_server() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let (tcp, udp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            break (tcp, udp);
        }
    };
    let address = udp.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (by_udp, by_tcp) = (asked.clone(), asked.clone());
    std::thread::spawn(move || {
        for _ in tcp.incoming() {
            by_tcp.fetch_add(1, Ordering::SeqCst);
        }
    });
    std::thread::spawn(move || {
        let mut question = [0; 1500];
        while let Ok((_, from)) = udp.recv_from(&mut question) {
            by_udp.fetch_add(1, Ordering::SeqCst);
            let mut end = 12;
            while question[end] != 0 {
                end += 1 + usize::from(question[end]);
            }
            let is_a = question[end + 1..end + 3] == [0, 1];
            let mut answer = question[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            answer.extend(&question[12..end + 5]);
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
            }
            udp.send_to(&answer, from).unwrap();
        }
    });
    (address, asked)
}

#[test]
fn splits_that_agree_in_four_values_are_one_message() {
    let bench = Bench::new();
    let golden = format!(
        r#"{{"fixture_id":"doc-17","fixture_hash":"{}","egress_class":"redacted-metadata","failure_label":"wrong-answer"}}"#,
        fixture_hash()
    );
    let want = Seen {
        head: format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {HOST}:{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\naccept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\n\r\n",
            bench.host.address.port(),
            golden.len()
        ),
        body: golden.into_bytes(),
    };
    let sent = AtomicUsize::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let done = runner.run(&(dresses(), dresses()), |(one, other)| {
        for dress in [&one, &other] {
            let (status, reason) = bench.send(&bench.request(dress, &split_card), dress.pace);
            prop_assert_eq!((status, reason.as_str()), (200, "redacted_metadata"));
            sent.fetch_add(1, Ordering::SeqCst);
        }
        let seen = bench.host.seen();
        prop_assert_eq!(
            seen.len(),
            sent.load(Ordering::SeqCst),
            "each call is one request"
        );
        let last = &seen[seen.len() - 2..];
        prop_assert_eq!(&last[0], &last[1], "two calls, two messages");
        prop_assert_eq!(&last[0], &want);
        Ok(())
    });
    done.unwrap_or_else(|fault| panic!("{fault}"));
    println!(
        "{} split calls in pairs, one message",
        sent.load(Ordering::SeqCst)
    );
    // The twin: one of the four values differs, and so does the message.
    let other = |changes: Value| split_card(merged(changes, &json!({"failure_label": "timeout"})));
    let plain = Dress {
        attach: 6,
        payload: Payload::Bytes(b"{}".to_vec()),
        ..dress()
    };
    assert_eq!(bench.send(&bench.request(&plain, &other), 1).0, 200);
    assert_ne!(bench.host.seen().pop().unwrap(), want);
}

fn merged(mut all: Value, more: &Value) -> Value {
    all.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    all
}

/// What makes a card a hold, or a call a refusal.
fn faults() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"egress_class": "machine-local"})),
        "[a-z_]{0,12}".prop_map(|class| json!({"residue": [class]})),
        "[ \u{200b}\u{3164}]{0,4}".prop_map(|blank| json!({"host_pin": blank})),
        "[ \t]{0,4}".prop_map(|blank| json!({"replay_window": blank})),
        "[a-z]{1,12}".prop_map(|class| json!({"egress_class": class})),
        Just(json!({"writable_surface": Value::Null})),
        "[a-z]{1,12}".prop_map(|key| json!({key: "x"})),
        "[a-z]{1,12}\\.example".prop_map(|pin| json!({"host_pin": pin})),
        "[a-z]{1,12}".prop_map(|id| json!({"fixture_id": id})),
        "[a-f0-9]{64}".prop_map(|hex| json!({"fixture_hash": format!("sha256:{hex}")})),
        Just(json!({"host_pin": "free-server"})),
    ]
}

#[test]
fn held_calls_open_nothing_and_ask_nobody() {
    let bench = Bench::new();
    let count = AtomicUsize::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let done = runner.run(
        &(dresses(), faults(), any::<bool>()),
        |(mut dress, fault, split)| {
            // The card itself is what holds: none of the store's.
            dress.attach = 6;
            dress.pace = dress.pace.min(2);
            let made = |changes: Value| {
                let changes = merged(changes, &fault);
                if split {
                    split_card(changes)
                } else {
                    card(changes)
                }
            };
            let (status, reason) = bench.send(&bench.request(&dress, &made), dress.pace);
            prop_assert_eq!(status, 422, "{}", reason);
            count.fetch_add(1, Ordering::SeqCst);
            prop_assert_eq!(
                (bench.host.accepts(), bench.asked.load(Ordering::SeqCst)),
                (0, 0)
            );
            Ok(())
        },
    );
    done.unwrap_or_else(|fault| panic!("{fault}"));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        (bench.host.accepts(), bench.asked.load(Ordering::SeqCst)),
        (0, 0)
    );
    let records = bench.gate.of_kind("decision");
    assert_eq!(records.len(), count.load(Ordering::SeqCst));
    assert!(records.iter().all(|record| record["verdict"] == "refuse"));
    println!(
        "{} held or refused calls: no connection, no question",
        records.len()
    );
    // The twin asks twice, A and AAAA, and connects once.
    let released = Dress {
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        ..dress()
    };
    assert_eq!(bench.send(&bench.request(&released, &card), 1).0, 200);
    assert_eq!(
        (bench.host.accepts(), bench.asked.load(Ordering::SeqCst)),
        (1, 2)
    );
}
