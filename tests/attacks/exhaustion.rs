//! Clients that take without giving: none of them stops the next good call.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{Lab, PLAIN};
use crate::process::Process;
use crate::support::{Host, body, card};

/// Waits, and expects that the process did next to nothing meanwhile.
fn rests(process: &Process, what: &str) {
    let before = process.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = process.ticks() - before;
    assert!(spent < 30, "{what}: {spent} ticks in a second");
}

#[test]
fn a_thousand_connections_that_send_nothing() {
    let host = Host::ok();
    let process = Process::laid_out(&host, "[limits]\nclient_head = \"4s\"\n", "");
    let mut idle: Vec<TcpStream> = (0..1000)
        .map(|_| TcpStream::connect(process.address).unwrap())
        .collect();
    rests(&process, "a thousand idle clients");
    let memory = process.most_memory();
    assert!(memory < 100 << 10, "{memory} KiB");
    // Beside them, and after they were sent away.
    assert_eq!(process.call(&card(json!({})), &body()).unwrap().status, 200);
    let mut last = idle.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(
        last.read(&mut [0; 16]).unwrap(),
        0,
        "closed, and told nothing"
    );
    assert_eq!(process.call(&card(json!({})), &body()).unwrap().status, 200);
    let records = crate::support::records_in(&process.ledger());
    assert!(
        records.iter().all(|record| record["t"] != "refused"),
        "no byte, no record"
    );
}

#[test]
fn more_idle_clients_than_file_descriptors() {
    let host = Host::ok();
    let process = Process::laid_out(
        &host,
        "[limits]\nclient_head = \"1500ms\"\n",
        "ulimit -n 64",
    );
    let idle: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(process.address).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    rests(&process, "no file descriptors");
    // They stay; their time is up, all the same.
    let began = Instant::now();
    while process
        .call(&card(json!({})), &body())
        .is_none_or(|reply| reply.status != 200)
    {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{}",
            process.log()
        );
    }
    drop(idle);
}

#[test]
fn clients_that_never_read() {
    let long = "x".repeat(8 << 20);
    let host = Host::start(move |stream, _| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", long.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(long.as_bytes()).is_ok()
    });
    let lab = Lab::before(
        host,
        Host::ok(),
        "",
        "[limits]\nidle = \"600ms\"\nin_flight = 4\n",
    );
    let stuck: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = lab.gate.connect();
            stream.write_all(&lab.bytes(PLAIN)).unwrap();
            stream
        })
        .collect();
    let outcomes = lab.gate.wait("outcome", 4);
    assert_eq!(outcomes.len(), 4);
    assert!(
        outcomes.iter().all(|one| one["error"] == "client_gone"),
        "{outcomes:?}"
    );
    // Their places came back although nobody let go.
    let reply = lab.gate.raw(&lab.bytes(PLAIN));
    assert_eq!((reply.status, reply.body.len()), (200, 8 << 20));
    drop(stuck);
}

#[test]
fn slow_heads_and_bodies_beside_a_good_call() {
    let lab = Lab::with(
        "",
        "[limits]\nclient_head = \"800ms\"\nclient_body = \"800ms\"\n",
    );
    let whole = lab.bytes(PLAIN);
    let head = whole.len() - body().len();
    let mut slow: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = lab.gate.connect();
            let part = if n % 2 == 0 { 20 } else { head + 5 };
            stream.write_all(&whole[..part]).unwrap();
            stream
        })
        .collect();
    lab.good("beside a hundred slow ones");
    for stream in &mut slow {
        assert_eq!(
            crate::support::read_reply(stream).reason(),
            "client_timeout"
        );
    }
    let records = lab.judged(0);
    let late = |kind: &str| {
        let late = records
            .iter()
            .filter(|one| one["t"] == kind && one["reason"] == "client_timeout");
        late.count()
    };
    assert_eq!((late("refused"), late("decision")), (50, 50));
    lab.good("after them");
    assert_eq!(lab.host.seen().len(), 2);
}
