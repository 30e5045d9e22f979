//! Runs: group commit, recovery, rotation, one process at a time, and places.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::super::queue::PLACES;
use super::super::start::start;
use super::super::store::{Disk, Store};
use super::*;

#[test]
fn many_calls_share_syncs_and_all_are_whole() {
    const CALLS: u64 = 400;
    let dir = folder();
    let ledger = start_in(&dir);
    runtime().block_on(async {
        let tasks: Vec<_> = (0..CALLS)
            .map(|number| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    let (seq, ticket) = forward(&ledger, number).await.expect("recorded");
                    ticket.close(outcome());
                    seq
                })
            })
            .collect();
        let mut seqs = Vec::new();
        for task in tasks {
            seqs.push(task.await.expect("no panic"));
        }
        seqs.sort_unstable();
        seqs.dedup();
        assert_eq!(seqs.len() as u64, CALLS, "each has its own seq");
    });
    ledger.stop();
    let state = ledger.state();
    assert_eq!(state.records, 2 * CALLS + 2);
    assert_eq!(state.next_seq, 2 * CALLS + 2);
    assert!(
        state.batches < CALLS,
        "{} batches: nothing was shared",
        state.batches
    );
    assert_eq!(state.sync.count(), state.batches);
    assert!(!state.ok, "stopped");
    assert_eq!(ledger.shared().free(), PLACES, "every place is free again");
    let report = whole(&dir);
    assert_eq!(report.counts.forwarded, CALLS);
    assert_eq!(report.counts.unknown, 0);
    assert_eq!(report.covered, Some(2 * CALLS + 2));
}

#[test]
fn after_a_stop_every_call_is_refused() {
    let dir = folder();
    let ledger = start_in(&dir);
    ledger.stop();
    ledger.stop();
    runtime().block_on(async {
        assert_eq!(
            forward(&ledger, 1).await.err(),
            Some(Reason::LedgerUnavailable)
        );
        let refused = ledger.message_refused(Reason::HttpMalformed, 3).await;
        assert_eq!(refused.unwrap_err().reason, Reason::LedgerUnavailable);
    });
    assert_eq!(whole(&dir).records, 2);
}

#[test]
fn a_call_that_goes_away_still_has_one_outcome() {
    let dir = folder();
    let ledger = start_in(&dir);
    runtime().block_on(async {
        // Many futures are dropped while they wait, among them whoever leads a batch; those that stay are all woken.
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    forward(&ledger, number)
                        .await
                        .map(|(_, t)| t.close(outcome()))
                })
            })
            .collect();
        tokio::task::yield_now().await;
        for (number, task) in tasks.into_iter().enumerate() {
            if number % 3 == 0 {
                task.abort();
            } else {
                task.await.expect("no panic").expect("recorded");
            }
        }
        // Dropped before it was opened, and after.
        drop(forward(&ledger, 100).await.expect("recorded"));
        let (_, mut ticket) = forward(&ledger, 101).await.expect("recorded");
        ticket.opened = true;
        drop(ticket);
    });
    ledger.stop();
    let report = whole(&dir);
    assert_eq!(report.counts.unknown, 1);
    let dropped: Vec<_> = all(&dir)
        .into_iter()
        .filter(|record| record["error"] == "dropped")
        .collect();
    let last = &dropped[dropped.len() - 2..];
    assert_eq!(
        (&last[0]["sent"], &last[0]["sent_len"]),
        (&"none".into(), &0.into())
    );
    assert_eq!(
        (&last[1]["sent"], last[1].get("sent_len")),
        (&"unknown".into(), None)
    );
}

#[test]
fn a_crash_leaves_what_the_next_start_closes() {
    let dir = folder();
    let ledger = start_in(&dir);
    let ticket = runtime().block_on(async {
        ledger
            .message_refused(Reason::NotFound, 17)
            .await
            .expect("recorded");
        forward(&ledger, 1).await.expect("recorded").1
    });
    // The last clone goes without a stop: the files are as a crash leaves them. The ticket outlives the writer.
    drop(ledger);
    let ledger_dir = dir.path().join("ledger");
    let segment = ledger_dir.join("000000000000.jsonl");
    let begun = std::time::Instant::now();
    while check(&dir).running {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the writer never ended"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(ticket);
    let left = check(&dir);
    assert_eq!(
        left.problem.map(|problem| problem.fault),
        Some(Fault::Unclosed)
    );
    OpenOptions::new()
        .append(true)
        .open(&segment)
        .and_then(|mut file| file.write_all(b"{\"call\":\"01"))
        .expect("a torn line");
    assert_eq!(
        check(&dir).problem.map(|problem| problem.fault),
        Some(Fault::Torn { bytes: 11 })
    );

    let again = start_in(&dir);
    assert!(check(&dir).running);
    again.stop();
    let report = whole(&dir);
    assert_eq!((report.counts.runs, report.counts.unknown), (2, 1));
    let records = all(&dir);
    assert_eq!(
        records[3]["recovered"],
        serde_json::json!({"closed": 1, "cut": 11, "unsigned": 2})
    );
    assert_eq!(records[4]["sent"], "unknown");
    assert_eq!(records[4]["of"], 2);
    assert_eq!(records[0].get("recovered"), None);
    assert_ne!(records[0]["run"], records[3]["run"]);
}

#[test]
fn a_stop_with_calls_on_their_way_closes_them() {
    let dir = folder();
    let ledger = start_in(&dir);
    let (_, ticket) = runtime().block_on(forward(&ledger, 1)).expect("recorded");
    ledger.stop();
    ticket.close(outcome());
    assert_eq!(whole(&dir).counts.unknown, 1);
    assert_eq!(all(&dir)[2]["error"], "shutdown");
}

#[test]
fn segments_are_sealed_and_named_by_their_first_record() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.segment_bytes = 2000;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for number in 0..20 {
            forward(&ledger, number)
                .await
                .expect("recorded")
                .1
                .close(outcome());
        }
    });
    ledger.stop();
    let report = whole(&dir);
    assert!(report.segments > 3, "{report:?}");
    // The next run goes on in the newest one.
    Ledger::start(&settings, facts())
        .expect("starts again")
        .stop();
    let again = whole(&dir);
    assert_eq!(again.records, report.records + 2);
    let newest = page(&settings.dir, &Filter::default(), 3, usize::MAX).expect("readable");
    let newest: Vec<u64> = newest.records.iter().map(|record| record.seq).collect();
    assert_eq!(
        newest,
        [again.records - 1, again.records - 2, again.records - 3]
    );
    assert_eq!(end(&settings.dir).expect("readable"), again.records);
}

#[test]
fn one_ledger_has_one_writer() {
    let dir = folder();
    let ledger = start_in(&dir);
    let second = Ledger::start(&settings(dir.path()), facts());
    assert!(
        matches!(second, Err(LedgerError::Locked { .. })),
        "{second:?}"
    );
    ledger.stop();
    start_in(&dir).stop();
    assert_eq!(whole(&dir).counts.runs, 2);
}

#[test]
fn keys_are_private_and_a_lost_or_open_one_refuses_the_start() {
    let dir = folder();
    filled(&dir, 1);
    let ledger = dir.path().join("ledger");
    let mode = |name: &str| {
        fs::metadata(ledger.join(name))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("leafgate.key"), mode("mac.key"), mode(".")),
        (0o600, 0o600, 0o700)
    );
    let refused = |what: &str| match Ledger::start(&settings(dir.path()), facts()) {
        Err(error @ LedgerError::Key { .. }) => {
            assert!(error.to_string().contains(what), "{error}")
        }
        other => panic!("{what}: {other:?}"),
    };
    for name in ["leafgate.key", "mac.key"] {
        let path = ledger.join(name);
        let kept = fs::read(&path).expect("a key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        refused("its owner alone");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::write(&path, &kept[1..]).expect("writable");
        refused("restore it from a copy");
        fs::remove_file(&path).expect("removable");
        refused("is missing");
        fs::write(&path, &kept).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o777)).expect("a mode");
    refused("others may write");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o700)).expect("a mode");
    start_in(&dir).stop();
    whole(&dir);
}

/// A store whose syncs wait until the test lets them go on.
struct Gated(Disk, Arc<std::sync::Mutex<()>>);
struct GatedFile(<Disk as Store>::Open, Arc<std::sync::Mutex<()>>);

impl Store for Gated {
    type Open = GatedFile;
    fn create(&mut self, first: u64) -> std::io::Result<GatedFile> {
        Ok(GatedFile(self.0.create(first)?, self.1.clone()))
    }
    fn reopen(&mut self, path: &Path, len: u64) -> std::io::Result<GatedFile> {
        Ok(GatedFile(self.0.reopen(path, len)?, self.1.clone()))
    }
}

impl super::super::store::Segment for GatedFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.append(bytes)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        drop(self.1.lock());
        self.0.sync()
    }
    fn whole(&self) -> std::io::Result<Result<(), &'static str>> {
        self.0.whole()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
}

#[test]
fn a_full_queue_refuses_and_the_count_is_recorded_later() {
    let dir = folder();
    let settings = settings(dir.path());
    let gate = Arc::new(std::sync::Mutex::new(()));
    let store = Gated(Disk::new(&settings.dir), gate.clone());
    let ledger = start(&settings, &facts(), store).expect("the ledger starts");
    let held = gate.lock().expect("the gate");
    let rt = runtime();
    let tasks: Vec<_> = (0..PLACES as u64 / 2)
        .map(|number| {
            let ledger = ledger.clone();
            rt.spawn(async move {
                forward(&ledger, number)
                    .await
                    .map(|(_, t)| t.close(outcome()))
            })
        })
        .collect();
    let begun = std::time::Instant::now();
    while ledger.shared().free() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the queue never filled"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // Each forwarding decision took two places. Now there is none, for nobody; and nobody was told yes.
    assert_eq!(
        rt.block_on(forward(&ledger, 1)).err(),
        Some(Reason::Overloaded)
    );
    let refused = rt.block_on(ledger.message_refused(Reason::NotFound, 1));
    assert_eq!(refused.unwrap_err().reason, Reason::Overloaded);
    ledger.count_unrecorded(Reason::Overloaded);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    drop(held);
    for task in tasks {
        rt.block_on(task).expect("no panic").expect("recorded");
    }
    ledger.stop();
    whole(&dir);
    let counted: u64 = all(&dir)
        .iter()
        .filter(|record| record["reason"] == "overloaded")
        .map(|record| record["count"].as_u64().expect("a count"))
        .sum();
    assert_eq!(counted, 3);
    assert_eq!(ledger.shared().free(), PLACES);
}

#[test]
fn interval_is_said_in_the_record_and_is_whole() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.sync = Sync::Interval;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for number in 0..50 {
            forward(&ledger, number)
                .await
                .expect("recorded")
                .1
                .close(outcome());
        }
    });
    ledger.stop();
    whole(&dir);
    assert_eq!(all(&dir)[0]["sync"], "interval");
    let state = ledger.state();
    assert!(state.sync.count() < state.batches);
}

#[test]
fn the_checkpoint_follows_without_a_stop() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.checkpoint_every = Duration::from_millis(30);
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime()
        .block_on(ledger.message_refused(Reason::NotFound, 1))
        .expect("recorded");
    let begun = std::time::Instant::now();
    while whole(&dir).covered != Some(2) {
        assert!(begun.elapsed() < Duration::from_secs(5), "no checkpoint");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(ledger.state().checkpoint_error, None);
    ledger.stop();
}

#[test]
fn a_crash_before_the_first_checkpoint_does_not_lock_the_ledger() {
    let dir = folder();
    start_in(&dir).stop();
    let at = |name: &str| dir.path().join("ledger").join(name);
    // As a crash right after the first record leaves it.
    let text = fs::read_to_string(at("000000000000.jsonl")).expect("the segment");
    let first = text.split_inclusive('\n').next().expect("a line");
    fs::write(at("000000000000.jsonl"), first).expect("writable");
    fs::remove_file(at("checkpoint")).expect("removable");
    start_in(&dir).stop();
    assert_eq!(whole(&dir).records, 3);
    // Its twin, a longer ledger without a checkpoint, does not start.
    fs::remove_file(at("checkpoint")).expect("removable");
    let refused = Ledger::start(&settings(dir.path()), facts());
    assert!(
        matches!(&refused, Err(LedgerError::Problem(problem)) if problem.fault == Fault::NoCheckpoint),
        "{refused:?}"
    );
}

/// Figures, not a test: `cargo test --release --lib ledger::tests::run::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    for (sync, waiting) in [
        (Sync::Record, 1),
        (Sync::Record, 8),
        (Sync::Record, 64),
        (Sync::Record, 256),
        (Sync::Interval, 64),
    ] {
        let dir = folder();
        let mut settings = settings(dir.path());
        settings.sync = sync;
        let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
        let rt = runtime();
        let begun = std::time::Instant::now();
        let calls = 300 * waiting.min(32) * if sync == Sync::Interval { 10 } else { 1 };
        let each = calls / waiting;
        let mut waits: Vec<Duration> = rt.block_on(async {
            let tasks: Vec<_> = (0..waiting)
                .map(|task| {
                    let ledger = ledger.clone();
                    tokio::spawn(async move {
                        let mut waits = Vec::new();
                        for number in 0..each {
                            let begun = std::time::Instant::now();
                            let (_, ticket) = forward(&ledger, task * each + number)
                                .await
                                .expect("recorded");
                            waits.push(begun.elapsed());
                            ticket.close(outcome());
                        }
                        waits
                    })
                })
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic"));
            }
            all
        });
        let took = begun.elapsed();
        waits.sort_unstable();
        ledger.stop();
        let state = ledger.state();
        println!(
            "{} {waiting:3} waiting: {:6.0} calls/s, wait p50 {:?} p99 {:?}, {:.1} records a batch",
            sync.name(),
            waits.len() as f64 / took.as_secs_f64(),
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100],
            state.records as f64 / state.batches as f64,
        );
        if sync == Sync::Interval {
            // Time on the processor, so that a busy machine does not spoil the figure.
            let cpu = || -> f64 {
                let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
                text.split(' ')
                    .next()
                    .and_then(|ns| ns.parse::<f64>().ok())
                    .expect("ns")
                    / 1e9
            };
            let begun = cpu();
            let report = whole(&dir);
            let took = cpu() - begun;
            println!(
                "verify: {} records, {:.1} MB, {:.0} MB/s, {:.2} million records/s",
                report.records,
                report.bytes as f64 / 1e6,
                report.bytes as f64 / 1e6 / took,
                report.records as f64 / 1e6 / took
            );
        }
    }
}
