//! The program killed at any moment, its pages lost, its clock set: what stands on the disk is whole.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leafgate::ledger::{Ledger, RunFacts};
use leafgate::policy::Policy;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Built;
use crate::process::{Process, call, whole};
use crate::support::{Host, body, card, records_in};

pub const CASES: &[Built] = &[
    ("RES-04", killed_at_any_moment),
    ("RES-05", pages_that_were_never_written),
    ("RES-06", a_clock_that_was_set),
];

/// Clients that call without a pause until told to stop; the answers that came.
fn load(
    address: SocketAddr,
    bytes: Vec<u8>,
    stop: &Arc<AtomicBool>,
    answers: &Arc<AtomicUsize>,
) -> Vec<std::thread::JoinHandle<()>> {
    let one = || {
        let (bytes, stop, answers) = (bytes.clone(), stop.clone(), answers.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                if call(address, &bytes).is_some_and(|reply| reply.status == 200) {
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    };
    (0..3).map(|_| one()).collect()
}

fn killed_at_any_moment(id: &str) {
    let host = Host::ok();
    let mut process = Process::laid_out(&host, "", "");
    let answers = Arc::new(AtomicUsize::new(0));
    for round in 0..12_u64 {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = load(
            process.address,
            process.bytes(&card(json!({})), &body()),
            &stop,
            &answers,
        );
        std::thread::sleep(Duration::from_millis(40 + (round * 37) % 90));
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
        let dir = std::mem::replace(&mut process.dir, tempfile::tempdir().unwrap());
        process = Process::start(dir, "");
    }
    assert_eq!(
        process.call(&card(json!({})), &body()).unwrap().status,
        200,
        "{id}: the twin"
    );
    assert_eq!(process.end(), Some(0), "{id}");
    whole(id, &process.ledger());
    let records = records_in(&process.ledger());
    let of = |kind: &str| {
        records
            .iter()
            .filter(|record| record["t"] == kind)
            .collect::<Vec<_>>()
    };
    let (decisions, outcomes) = (of("decision"), of("outcome"));
    assert_eq!(of("open").len(), 13, "{id}");
    // Whatever the host saw was decided before, and each decision has one outcome, `unknown` where nobody lived to tell.
    assert!(
        host.seen().len() <= decisions.len(),
        "{id}: {} {}",
        host.seen().len(),
        decisions.len()
    );
    assert!(answers.load(Ordering::SeqCst) < decisions.len(), "{id}");
    assert_eq!(decisions.len(), outcomes.len(), "{id}");
    let unknown = outcomes
        .iter()
        .filter(|outcome| outcome["sent"] == "unknown")
        .count();
    println!(
        "{id}: {} decisions, {unknown} of them with an unknown outcome",
        decisions.len()
    );
    assert!(decisions.len() > 3, "{id}: there was load");
}

const DECISION: &[u8] = b"\"t\":\"decision\"";

fn pages_that_were_never_written(id: &str) {
    let host = Host::ok();
    let process = Process::laid_out(&host, "", "");
    let stop = Arc::new(AtomicBool::new(false));
    let answers = Arc::new(AtomicUsize::new(0));
    let clients = load(
        process.address,
        process.bytes(&card(json!({})), &body()),
        &stop,
        &answers,
    );
    let mut settings = Policy::load(&process.dir.path().join("policy.toml"))
        .unwrap()
        .ledger
        .clone();
    let from = settings.dir.clone();
    for round in 0..8 {
        std::thread::sleep(Duration::from_millis(60));
        let answered = answers.load(Ordering::SeqCst);
        // Whatever a client was answered is on the disk; what comes behind it in the file may be lost at any byte.
        let copy = tempfile::tempdir().unwrap();
        settings.dir = copy.path().join("ledger");
        fs::create_dir(&settings.dir).unwrap();
        for entry in fs::read_dir(&from).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if name != "LOCK" && path.extension().is_none_or(|ext| ext != "jsonl") {
                fs::copy(&path, settings.dir.join(name)).unwrap();
            }
        }
        let text = fs::read(from.join("000000000000.jsonl")).unwrap();
        // What the checkpoint covers was durable before it was written; its second line says how many records that is.
        let note = fs::read_to_string(settings.dir.join("checkpoint")).unwrap();
        let covered: usize = note.lines().nth(1).unwrap().parse().unwrap();
        let (mut found, mut lines) = (0, 0);
        let mut durable = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if found >= answered && lines >= covered {
                break;
            }
            durable += line.len();
            lines += 1;
            found += usize::from(
                line.ends_with(b"}\n") && line.windows(DECISION.len()).any(|part| part == DECISION),
            );
        }
        assert!(
            found >= answered && lines >= covered,
            "{id}: an answer without its record"
        );
        let cut = durable + (text.len() - durable) * round / 7;
        fs::write(settings.dir.join("000000000000.jsonl"), &text[..cut]).unwrap();
        let facts = RunFacts {
            version: "test",
            policy: "0".repeat(64),
            oracle: "0".repeat(64),
        };
        Ledger::start(&settings, facts)
            .unwrap_or_else(|error| panic!("{id}: {error}"))
            .stop();
        whole(id, &settings.dir);
        let records = records_in(&settings.dir);
        let count = |kind: &str| records.iter().filter(|record| record["t"] == kind).count();
        assert!(count("decision") >= answered, "{id}: {answered}");
        assert_eq!(count("decision"), count("outcome"), "{id}");
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    assert!(answers.load(Ordering::SeqCst) > 0, "{id}: there was load");
}

/// A run whose records bear times of a hundred years ahead, as if the clock had been set back since.
fn a_clock_that_was_set(id: &str) {
    let host = Host::ok();
    let mut process = Process::laid_out(&host, "", "");
    for _ in 0..3 {
        assert_eq!(
            process.call(&card(json!({})), &body()).unwrap().status,
            200,
            "{id}"
        );
    }
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    let segment = process.ledger().join("000000000000.jsonl");
    let mut prev = "0".repeat(64);
    let mut text = String::new();
    for line in fs::read_to_string(&segment).unwrap().lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        // The checkpoint covers the first record already, and only that one.
        if record["seq"] != 0 {
            record["time"] = record["time"]
                .as_str()
                .unwrap()
                .replacen("20", "21", 1)
                .into();
            record["prev"] = prev.into();
        }
        let line = record.to_string();
        prev = Sha256::digest(&line)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        text += &(line + "\n");
    }
    fs::write(&segment, text).unwrap();
    let dir = std::mem::replace(&mut process.dir, tempfile::tempdir().unwrap());
    let mut process = Process::start(dir, "");
    assert_eq!(
        process.call(&card(json!({})), &body()).unwrap().status,
        200,
        "{id}"
    );
    assert_eq!(process.end(), Some(0), "{id}");
    whole(id, &process.ledger());
    let records = records_in(&process.ledger());
    let seqs: Vec<u64> = records
        .iter()
        .map(|record| record["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(
        seqs,
        (0..records.len() as u64).collect::<Vec<_>>(),
        "{id}: the order is that of seq"
    );
    let time = |place: usize| records[place]["time"].as_str().unwrap();
    assert!(
        time(records.len() - 1) < time(1),
        "{id}: the clock went back"
    );
}
