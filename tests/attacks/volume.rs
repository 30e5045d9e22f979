//! Hosts that never end, against the program itself: what it holds at most is measured.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{Process, whole};
use crate::support::{Host, body, card, records_in};

/// What is taken of a body without end, in bytes, and what the program may hold, in KiB: less than it and the body would be together.
const MUCH: usize = 64 << 20;
const HOLDS: u64 = 56 << 10;

/// An answer: its beginning, what is said again and again, and how the outcome ends.
type Flood = (&'static str, &'static str, Vec<u8>, &'static str);

fn floods() -> Vec<Flood> {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        (
            "one status line",
            "HTTP/1.1 200 ",
            vec![b'x'; 1 << 16],
            "host_malformed",
        ),
        (
            "one field",
            "HTTP/1.1 200 OK\r\nx: ",
            vec![b'x'; 1 << 16],
            "host_malformed",
        ),
        (
            "fields",
            ok,
            b"x-request-id: 1\r\n".repeat(4096),
            "host_malformed",
        ),
        (
            "interim answers",
            "",
            b"HTTP/1.1 103 E\r\nlink: <x>\r\n\r\n".repeat(4096),
            "host_malformed",
        ),
        (
            "a chunk's extension",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;",
            vec![b'x'; 1 << 16],
            "host_malformed",
        ),
        (
            "trailers",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"x: 1\r\n".repeat(8192),
            "host_malformed",
        ),
        (
            "a body until the close",
            "HTTP/1.1 200 OK\r\n\r\n",
            vec![b'x'; 1 << 16],
            "client_gone",
        ),
        (
            "a body of a great length",
            "HTTP/1.1 200 OK\r\ncontent-length: 999999999999999999\r\n\r\n",
            vec![b'x'; 1 << 16],
            "client_gone",
        ),
        (
            "JSON",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":\"",
            vec![b'x'; 1 << 16],
            "client_gone",
        ),
        (
            "an event without end",
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ",
            vec![b'x'; 1 << 16],
            "client_gone",
        ),
        ("chunks", chunked, chunk, "client_gone"),
        (
            "one great chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffff\r\n",
            vec![b'x'; 1 << 16],
            "client_gone",
        ),
        (
            "small chunks",
            chunked,
            b"1;a\r\nx\r\n".repeat(8192),
            "client_gone",
        ),
    ]
}

/// Whether the head was good, and what came behind it was not.
fn chunked(what: &str) -> bool {
    what == "a chunk's extension" || what == "trailers"
}

/// Calls, and takes what comes, up to `most`.
fn taken(process: &Process, most: usize) -> usize {
    let mut stream = TcpStream::connect(process.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(&process.bytes(&card(json!({})), &body()))
        .unwrap();
    let (mut piece, mut taken) = (vec![0; 1 << 16], 0);
    while taken < most {
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => taken += read,
            Ok(_) | Err(_) => break,
        }
    }
    taken
}

#[test]
fn a_host_without_end_costs_a_bounded_memory() {
    let next = Mutex::new(floods().into_iter());
    let host = Host::start(move |stream, _| {
        let (_, begins, again, _) = next.lock().unwrap().next().unwrap();
        let _ = stream.write_all(begins.as_bytes());
        while stream.write_all(&again).is_ok() {}
        false
    });
    let mut process = Process::laid_out(&host, "", "");
    for (what, _, _, error) in floods() {
        let began = Instant::now();
        // A chunk of one byte costs as much time as a great one.
        let most = if what == "small chunks" {
            MUCH / 32
        } else {
            MUCH
        };
        let taken = if error == "client_gone" {
            taken(&process, most)
        } else {
            // leafgate's own answer, or a head of the host's and a cut.
            let reply = process.call(&card(json!({})), &body()).unwrap();
            assert_eq!(
                reply.status,
                if chunked(what) { 200 } else { 502 },
                "{what}"
            );
            reply.raw.len()
        };
        println!(
            "{what}: {} MiB in {} ms, at most {} KiB held",
            taken >> 20,
            began.elapsed().as_millis(),
            process.most_memory()
        );
        assert_eq!(taken >= most, error == "client_gone", "{what}: {taken}");
        assert!(
            process.most_memory() < HOLDS,
            "{what}: {} KiB",
            process.most_memory()
        );
    }
    assert_eq!(process.end(), Some(0));
    whole("volume", &process.ledger());
    let records = records_in(&process.ledger());
    let ended: Vec<_> = records
        .iter()
        .filter(|one| one["t"] == "outcome")
        .map(|one| {
            (
                one["error"].as_str().unwrap(),
                one["sent"].as_str().unwrap(),
            )
        })
        .collect();
    let expected: Vec<_> = floods().iter().map(|flood| (flood.3, "all")).collect();
    assert_eq!(ended, expected);
}
