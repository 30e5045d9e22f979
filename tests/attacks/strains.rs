//! The program with few open files, little memory, and signals in the middle of its calls.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Built;
use crate::kit::own;
use crate::process::{Process, call, whole};
use crate::support::{Host, body, card, ok_response, records_in};

pub const CASES: &[Built] = &[
    ("RES-03", few_file_descriptors),
    ("RES-09", signals_while_calls_are_under_way),
    ("RES-14", more_bodies_than_memory),
];

fn few_file_descriptors(id: &str) {
    let host = Host::ok();
    let mut process = Process::laid_out(&host, "", "ulimit -n 32");
    assert_eq!(
        process.call(&card(json!({})), &body()).unwrap().status,
        200,
        "{id}"
    );
    let idle: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(process.address).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = process.ticks();
    // Longer than a fixture may go on looking changed.
    std::thread::sleep(Duration::from_secs(4));
    let spent = process.ticks() - before;
    assert!(
        spent < 80,
        "{id}: a busy loop: {spent} ticks in four seconds"
    );
    drop(idle);
    let began = Instant::now();
    // Those who waited are gone; the next good call passes, and its record is there.
    while process
        .call(&card(json!({})), &body())
        .is_none_or(|reply| reply.status != 200)
    {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{id}: {}",
            process.log()
        );
    }
    assert_eq!(process.end(), Some(0), "{id}");
    whole(id, &process.ledger());
    let records = records_in(&process.ledger());
    let count = |kind: &str| records.iter().filter(|record| record["t"] == kind).count();
    let decided: Vec<_> = records
        .iter()
        .filter(|record| record["t"] == "decision")
        .collect();
    assert!(
        decided.iter().all(|one| one["verdict"] == "forward"),
        "{id}: {decided:?}"
    );
    assert_eq!(decided.len(), count("outcome"), "{id}");
    assert!(decided.len() >= 2, "{id}");
}

fn signals_while_calls_are_under_way(id: &str) {
    let host = Host::start(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..400 {
            if stream.write_all(b"5\r\ndata:\r\n").is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    });
    let mut process = Process::laid_out(&host, "", "");
    let bytes = process.bytes(&card(json!({})), &body());
    let streams: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(process.address).unwrap();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    while host.seen().len() < streams.len() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{id}: {}",
            host.seen().len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    for name in ["HUP", "USR1", "USR2", "PIPE", "HUP"] {
        process.signal(name);
        std::thread::sleep(Duration::from_millis(100));
        assert!(
            process.child.try_wait().unwrap().is_none(),
            "{id}: ended by {name}"
        );
    }
    // It goes on as before: a held call is answered beside the open streams.
    let held = process
        .call(&card(json!({"residue": ["x"]})), &body())
        .unwrap();
    own(id, &held, 422, "residue_present");
    // The first asks for an end, the second for one at once.
    process.signal("TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        process.child.try_wait().unwrap().is_none(),
        "{id}: what is under way was not waited for"
    );
    let began = Instant::now();
    assert_eq!(process.end(), Some(0), "{id}");
    assert!(began.elapsed() < Duration::from_secs(10), "{id}");
    drop(streams);
    whole(id, &process.ledger());
    let records = records_in(&process.ledger());
    let of = |kind: &str| records.iter().filter(|record| record["t"] == kind).count();
    assert_eq!(
        (of("decision"), of("outcome"), of("stop")),
        (41, 40, 1),
        "{id}"
    );
    assert_eq!(of("config"), 2, "{id}: each SIGHUP leaves a record");
    assert!(
        process.log().contains("SIGUSR1"),
        "{id}: what is ignored is said: {}",
        process.log()
    );
}

fn more_bodies_than_memory(id: &str) {
    let host = Host::start(|stream, _| stream.write_all(&ok_response()).is_ok());
    let limits = "[limits]\nbody = \"10MiB\"\nin_flight_bytes = \"32MiB\"\n";
    let mut process = Process::laid_out(&host, limits, "ulimit -v 4000000");
    let mut payload = body();
    payload.resize(8 << 20, b' ');
    let bytes = Arc::new(process.bytes(&card(json!({})), &payload));
    let calls: Vec<_> = (0..30)
        .map(|_| {
            let (address, bytes) = (process.address, bytes.clone());
            std::thread::spawn(move || {
                call(address, &bytes).map(|reply| (reply.status, reply.reason().to_owned()))
            })
        })
        .collect();
    let replies: Vec<_> = calls
        .into_iter()
        .map(|call| call.join().unwrap().expect("an answer"))
        .collect();
    let good = replies.iter().filter(|reply| reply.0 == 200).count();
    let over = replies
        .iter()
        .filter(|reply| **reply == (503, "overloaded".to_owned()))
        .count();
    assert_eq!(good + over, 30, "{id}: {replies:?}");
    assert!(good >= 1, "{id}");
    println!(
        "{id}: {good} released, {over} overloaded, at most {} KiB",
        process.most_memory()
    );
    // 32 MiB of bodies, what the same bodies take on their way, and the program itself.
    assert!(
        process.most_memory() < 200 << 10,
        "{id}: {} KiB",
        process.most_memory()
    );
    assert!(
        host.seen().iter().all(|seen| seen.body == payload),
        "{id}: a partial body left"
    );
    assert_eq!(host.seen().len(), good, "{id}");
    assert_eq!(
        process.call(&card(json!({})), &body()).unwrap().status,
        200,
        "{id}"
    );
    assert_eq!(process.end(), Some(0), "{id}");
    whole(id, &process.ledger());
    let counted: u64 = records_in(&process.ledger())
        .iter()
        .filter(|record| record["reason"] == "overloaded")
        .map(|record| record["count"].as_u64().unwrap())
        .sum();
    assert_eq!(counted as usize, over, "{id}");
}
