//! What somebody writes who may write to the folder and has no key, or an old one: both verifiers and the start find it, and its twin is whole.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::checkpoint::Checkpoint;
use super::super::hex::hex;
use super::super::keys::Signer;
use super::super::lineage::{sign_prune, sign_rotation};
use super::super::rotate::{Step as Turn, rotate};
use super::super::start::{start, take_lock};
use super::super::store::{Disk, Store};
use super::super::tree_hash::MerkleTree;
use super::super::{prune as pruning, rotate_key, seal};
use super::keep::{cut, segmented, soon};
use super::*;

fn at(dir: &TempDir, name: &str) -> std::path::PathBuf {
    dir.path().join("ledger").join(name)
}

/// Every line, with the name of its segment.
fn lines(dir: &TempDir) -> Vec<(String, String)> {
    let mut names: Vec<_> = fs::read_dir(dir.path().join("ledger"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a name"))
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let text = fs::read_to_string(at(dir, &name)).expect("a segment");
        all.extend(text.lines().map(|line| (name.clone(), line.to_owned())));
    }
    all
}

fn put(dir: &TempDir, lines: &[(String, String)]) {
    let names: BTreeSet<&String> = lines.iter().map(|(name, _)| name).collect();
    for name in names {
        let of_it = lines.iter().filter(|(of, _)| of == name);
        let text: String = of_it.map(|(_, line)| format!("{line}\n")).collect();
        fs::write(at(dir, name), text).expect("writable");
    }
}

/// Every record anew from `from` on: changed, numbered, chained, and signed where it is a rotation and there is a key for that.
fn forge(
    lines: &mut [(String, String)],
    from: usize,
    old: Option<&Signer>,
    change: &dyn Fn(&mut Value),
) {
    for here in from..lines.len() {
        let prev: [u8; 32] = Sha256::digest(&lines[here - 1].1).into();
        let mut record: Value = serde_json::from_str(&lines[here].1).expect("a record");
        change(&mut record);
        record["prev"] = hex(&prev).into();
        record["seq"] = here.into();
        if let (Some(old), Some("key")) = (old, record["t"].as_str()) {
            let key = record["key"].as_str().expect("a key");
            let key = super::super::keys::VerifierKey::parse(key).expect("a key");
            record["signature"] = sign_rotation(old, &key, here as u64, &prev).into();
        }
        lines[here].1 = record.to_string();
    }
}

fn note(signer: &Signer, lines: &[(String, String)]) -> String {
    let mut tree = MerkleTree::default();
    for (_, line) in lines {
        tree.push(line.as_bytes());
    }
    Checkpoint::note(signer, tree.size(), &tree.root())
}

fn key(dir: &TempDir) -> Signer {
    Signer::read(&dir.path().join("ledger"), "leafgate.key")
        .expect("readable")
        .expect("a key")
}

/// Both verifiers and the start say this; and the start changes nothing.
fn found(dir: &TempDir, name: &str, fault: &Fault, seq: u64) {
    let problem = check(dir)
        .problem
        .unwrap_or_else(|| panic!("{name}: not found"));
    assert_eq!(
        (&problem.fault, problem.seq),
        (fault, Some(seq)),
        "{name}: {problem}"
    );
    second_agrees(dir, name, Some(&problem));
    let before = (lines(dir), fs::read(at(dir, "checkpoint")).expect("a file"));
    match Ledger::start(&settings(dir.path()), facts()) {
        Err(LedgerError::Problem(at_start)) => assert_eq!(at_start, problem, "{name}"),
        other => panic!("{name}: {other:?}"),
    }
    assert!(seal(&dir.path().join("ledger")).is_err(), "{name}");
    let after = (lines(dir), fs::read(at(dir, "checkpoint")).expect("a file"));
    assert!(before == after, "{name}: something was written or deleted");
}

fn well(dir: &TempDir, name: &str) -> Report {
    let report = check(dir);
    let problem = report.problem.as_ref();
    assert_eq!(problem.map(ToString::to_string), None, "{name}");
    second_agrees(dir, name, None);
    report
}

#[test]
fn a_prune_record_that_the_key_did_not_sign_takes_nothing_away() {
    let dir = folder();
    segmented(&dir, 8);
    let ledger = dir.path().join("ledger");
    let kept = fs::read(at(&dir, "checkpoint")).expect("a checkpoint");
    let result = pruning::prune_with(&ledger, soon(), &mut |_| true, &mut |_| Err(cut()));
    assert!(result.is_err());
    assert_eq!(fs::read(at(&dir, "checkpoint")).expect("a file"), kept);
    well(&dir, "the twin: genuine records, not yet covered");
    let good = lines(&dir);
    let first = good
        .iter()
        .position(|(_, line)| line.contains("\"t\":\"prune\""))
        .expect("a prune record");
    let (other, _) = Signer::make(&ledger).expect("a key");
    type Edit<'a> = (&'a str, Box<dyn Fn(&mut Value) + 'a>);
    let edits: Vec<Edit<'_>> = vec![
        ("counts", Box::new(|r| r["counts"]["refused"] = 99.into())),
        (
            "the hash",
            Box::new(|r| r["sha256"] = "0".repeat(64).into()),
        ),
        (
            "the time",
            Box::new(|r| r["time"] = "2020-01-01T00:00:00.000000Z".into()),
        ),
        ("no signature", Box::new(|r| r["signature"] = "".into())),
        (
            "another member of that name",
            Box::new(|r| {
                r["recovered"] = serde_json::json!({"closed": 0, "signature": r["signature"]});
            }),
        ),
        (
            "another key's signature",
            Box::new(|r| {
                r.as_object_mut().expect("an object").remove("signature");
                let mut line = r.to_string().into_bytes();
                sign_prune(&other, &mut line);
                *r = serde_json::from_slice(&line).expect("a record");
            }),
        ),
    ];
    for (name, change) in &edits {
        let mut forged = good.clone();
        let mut record: Value = serde_json::from_str(&forged[first].1).expect("a record");
        change(&mut record);
        forged[first].1 = record.to_string();
        forge(&mut forged, first + 1, None, &|_| ());
        put(&dir, &forged);
        found(&dir, name, &Fault::PruneSignature, first as u64);
    }
    // Signed as it should be, and not true.
    let signer = key(&dir);
    let lies: [Edit<'_>; 5] = [
        ("bytes", Box::new(|r| r["bytes"] = 1.into())),
        ("counts", Box::new(|r| r["counts"]["refused"] = 99.into())),
        ("tree", Box::new(|r| r["tree"][0] = "0".repeat(64).into())),
        ("last", Box::new(|r| r["last"] = "0".repeat(64).into())),
        (
            "open",
            Box::new(|r| r["open"] = serde_json::json!([[0, "x"]])),
        ),
    ];
    for (name, lie) in &lies {
        let mut forged = good[..=first].to_vec();
        let mut record: Value = serde_json::from_str(&forged[first].1).expect("a record");
        lie(&mut record);
        record.as_object_mut().expect("one").remove("signature");
        let mut line = record.to_string().into_bytes();
        sign_prune(&signer, &mut line);
        forged[first].1 = String::from_utf8(line).expect("ASCII");
        put(&dir, &forged);
        found(&dir, name, &Fault::PruneFacts { segment: 0 }, first as u64);
    }
    put(&dir, &good);
    well(&dir, "the twin");
    start_in(&dir).stop();
    well(&dir, "the twin, completed");
    assert!(lines(&dir).len() < good.len(), "its segments are gone");
}

#[test]
fn an_old_key_signs_nothing_once_another_is_in_force() {
    let dir = folder();
    filled(&dir, 2);
    let (old, before) = (key(&dir), lines(&dir).len());
    let older = fs::read_to_string(at(&dir, "checkpoint")).expect("a note");
    let turned = rotate_key(&dir.path().join("ledger")).expect("rotated").seq;
    assert_eq!(turned, before as u64);
    let at_rotation = lines(&dir).len();
    for (name, runs) in [("right after the rotation", 0), ("a run later", 1)] {
        for _ in 0..runs {
            filled(&dir, 1);
        }
        let good = lines(&dir);
        let genuine = fs::read_to_string(at(&dir, "checkpoint")).expect("a note");
        well(&dir, name);
        // Nothing is changed but the checkpoint.
        fs::write(at(&dir, "checkpoint"), &older).expect("writable");
        found(&dir, name, &Fault::CheckpointKey, turned);
        // Everything is written anew under the old key, the rotation too.
        for covers in [1, before - 1, before] {
            let mut forged = good.clone();
            forge(&mut forged, 1, Some(&old), &|record| {
                if record["t"] == "decision" {
                    record["reason"] = "forged".into();
                }
            });
            put(&dir, &forged);
            let forged = note(&old, &forged[..covers]);
            fs::write(at(&dir, "checkpoint"), forged).expect("writable");
            found(&dir, name, &Fault::CheckpointKey, turned);
        }
        let forged = note(&old, &good[..at_rotation]);
        put(&dir, &good);
        fs::write(at(&dir, "checkpoint"), forged).expect("writable");
        let fault = check(&dir).problem.expect("a problem").fault;
        assert_eq!(fault, Fault::CheckpointSignature, "{name}");
        fs::write(at(&dir, "checkpoint"), genuine).expect("writable");
    }
    // Kept elsewhere it is as good as ever.
    let elsewhere = dir.path().join("kept");
    fs::write(&elsewhere, older).expect("writable");
    let held = verify_against(&dir.path().join("ledger"), &[elsewhere], &mut |_, _| ());
    assert_eq!(held.expect("readable").problem, None);
    well(&dir, "the twin");
}

/// Copies the files, as a crash leaves them.
fn crashed(from: &TempDir) -> TempDir {
    let to = folder();
    let ledger = to.path().join("ledger");
    fs::create_dir(&ledger).expect("a folder");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o700)).expect("a mode");
    for entry in fs::read_dir(from.path().join("ledger")).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, ledger.join(path.file_name().expect("a name"))).expect("copied");
    }
    to
}

/// A run whose checkpoint stays at its first record, killed after `messages` more.
fn killed(dir: &TempDir, messages: u64) -> TempDir {
    let settings = LedgerSettings {
        checkpoint_every: Duration::from_secs(3600),
        ..settings(dir.path())
    };
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for bytes in 0..messages {
            let seq = ledger.message_refused(Reason::HttpMalformed, bytes).await;
            seq.expect("recorded");
        }
    });
    let left = crashed(dir);
    ledger.stop();
    left
}

#[test]
fn a_checkpoint_of_an_earlier_run_that_was_put_back_is_found() {
    let dir = folder();
    let first = killed(&dir, 5);
    let young = fs::read_to_string(at(&first, "checkpoint")).expect("a note");
    let stopped = fs::read_to_string(at(&dir, "checkpoint")).expect("a note");
    filled(&dir, 2);
    let good = lines(&dir);
    let genuine = fs::read_to_string(at(&dir, "checkpoint")).expect("a note");
    well(&dir, "the twin");
    for forged in [false, true] {
        let mut changed = good.clone();
        if forged {
            // Everything but what that checkpoint covers, without any key.
            forge(&mut changed, 1, None, &|record| {
                if record["t"] == "refused" {
                    record["bytes"] = 4711.into();
                }
            });
        }
        put(&dir, &changed);
        fs::write(at(&dir, "checkpoint"), &young).expect("writable");
        found(&dir, "of the first start", &Fault::Uncovered, 1);
    }
    put(&dir, &good);
    fs::write(at(&dir, "checkpoint"), stopped).expect("writable");
    found(
        &dir,
        "of the stop before the last run",
        &Fault::Uncovered,
        7,
    );
    // Its twin: that run went no further than its first record, which a start writes before the checkpoint.
    put(&dir, &good[..8]);
    let report = well(&dir, "cut between open and checkpoint");
    assert_eq!((report.unsigned, report.stopped), (1, false));
    put(&dir, &good);
    fs::write(at(&dir, "checkpoint"), genuine).expect("writable");
    assert_eq!(well(&dir, "the twin").unsigned, 0);
    // Maintenance begins runs too.
    let ledger = dir.path().join("ledger");
    let earlier = fs::read_to_string(at(&dir, "checkpoint")).expect("a note");
    filled(&dir, 1);
    let here = good.len() as u64;
    seal(&ledger).expect("sealed");
    pruning::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    fs::write(at(&dir, "checkpoint"), earlier).expect("writable");
    let problem = check(&dir).problem.expect("a problem");
    assert!(
        matches!(problem.fault, Fault::PrunedUncovered { seq } if seq > here),
        "{problem}"
    );
}

#[test]
fn the_start_signs_what_it_found_before_it_adds_to_it_and_says_how_much() {
    let dir = folder();
    let left = killed(&dir, 5);
    let report = well(&left, "killed");
    assert_eq!((report.covered, report.unsigned), (Some(1), 5));
    assert!(!report.stopped);
    // Sealing adds no record that could say it.
    let refused = seal(&left.path().join("ledger"));
    assert!(
        matches!(refused, Err(LedgerError::Unfit { .. })),
        "{refused:?}"
    );
    assert_eq!(well(&left, "not sealed").unsigned, 5);

    let cut_short = crashed(&left);
    let settings_of = settings(cut_short.path());
    let disk = Stuck(Disk::new(&settings_of.dir));
    assert!(start(&settings_of, &facts(), disk).is_err());
    let report = well(&cut_short, "cut before its open");
    assert_eq!((report.covered, report.unsigned), (Some(6), 0));

    let turned = crashed(&left);
    let ledger = turned.path().join("ledger");
    let result = rotate(&ledger, &mut |done| {
        if done == Turn::Recorded {
            Err(cut())
        } else {
            Ok(())
        }
    });
    assert!(result.is_err());
    assert_eq!(lines(&turned).len(), 7);
    assert_eq!(
        all(&turned)[6]["recovered"],
        serde_json::json!({"closed": 0, "cut": 0, "unsigned": 5})
    );
    start_in(&turned).stop();
    well(&turned, "the rotation is completed");

    start_in(&left).stop();
    let opened = &all(&left)[6];
    assert_eq!(
        (&opened["t"], &opened["recovered"]),
        (
            &"open".into(),
            &serde_json::json!({"closed": 0, "cut": 0, "unsigned": 5})
        )
    );
    assert_eq!(well(&left, "started").unsigned, 0);
    // An orderly stop leaves nothing to say.
    start_in(&left).stop();
    let last = all(&left).len() - 2;
    assert_eq!(all(&left)[last].get("recovered"), None);
    seal(&left.path().join("ledger")).expect("sealed");
}

/// A disk on which no segment opens.
struct Stuck(Disk);

impl Store for Stuck {
    type Open = <Disk as Store>::Open;
    fn create(&mut self, first: u64) -> std::io::Result<Self::Open> {
        self.0.create(first)
    }
    fn reopen(&mut self, _path: &Path, _len: u64) -> std::io::Result<Self::Open> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
    fn now(&self) -> std::time::SystemTime {
        self.0.now()
    }
}

#[test]
fn a_rotation_that_was_cut_is_not_completed_over_records_after_it() {
    let dir = folder();
    filled(&dir, 1);
    let ledger = dir.path().join("ledger");
    let result = rotate(&ledger, &mut |done| {
        if done == Turn::Recorded {
            Err(cut())
        } else {
            Ok(())
        }
    });
    assert!(result.is_err());
    let twin = crashed(&dir);
    start_in(&twin).stop();
    well(&twin, "the twin");
    let mut forged = lines(&dir);
    let (here, old) = (forged.len(), all(&dir)[0].clone());
    let key = all(&dir)[here - 1]["key"].clone();
    let mut open = old;
    open["run"] = "01KFORGED".into();
    open["log"] = key.as_str().and_then(|key| key.split('+').next()).into();
    open["key"] = key;
    forged.push(("000000000000.jsonl".to_owned(), open.to_string()));
    forge(&mut forged, here, None, &|_| ());
    put(&dir, &forged);
    let Err(LedgerError::Problem(problem)) = Ledger::start(&settings(dir.path()), facts()) else {
        panic!("it started");
    };
    let named = (problem.fault, problem.seq);
    assert_eq!(named, (Fault::CheckpointKey, Some(here as u64 - 1)));
}

#[test]
fn what_a_held_lock_hides_is_counted() {
    let dir = folder();
    let left = killed(&dir, 2);
    let segment = at(&left, "000000000000.jsonl");
    let text = fs::read_to_string(&segment).expect("a segment");
    fs::write(&segment, text + "{\"call\":\"01").expect("writable");
    let torn = check(&left).problem.expect("a problem").fault;
    assert_eq!(torn, Fault::Torn { bytes: 11 });
    let _held = take_lock(&left.path().join("ledger")).expect("free");
    let report = check(&left);
    assert_eq!(report.problem, None);
    assert!(report.running);
    assert_eq!((report.torn, report.in_flight, report.unsigned), (11, 0, 2));
}

#[test]
fn what_is_no_regular_file_is_refused_and_nothing_waits() {
    let dir = folder();
    filled(&dir, 1);
    let kept = dir.path().join("kept");
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a FIFO");
    };
    let zero = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).expect("a link");
    type Make<'a> = &'a dyn Fn(&Path);
    let makes: [Make<'_>; 2] = [&fifo, &zero];
    for name in [
        "checkpoint",
        "leafgate.pub",
        "pruned",
        "leafgate.key",
        "mac.key",
        ".leafgate.key.next",
        "000000000000.jsonl",
    ] {
        for make in makes {
            let path = at(&dir, name);
            let there = fs::rename(&path, &kept).is_ok();
            make(&path);
            let started = Ledger::start(&settings(dir.path()), facts());
            assert!(started.is_err(), "{name}");
            let read = verify(&dir.path().join("ledger"), &mut |_, _| ());
            let secret = name.contains(".key");
            let found = read.map_or(true, |report| report.problem.is_some());
            assert_eq!(found, !secret, "{name}");
            if !secret && let Some((status, said)) = second(&dir) {
                assert_eq!(status, 1, "{name}: {said}");
                assert!(!said.contains("Traceback"), "{name}: {said}");
            }
            fs::remove_file(&path).expect("removable");
            if there {
                fs::rename(&kept, &path).expect("renamed");
            }
        }
    }
    // LOCK is only looked at; a FIFO there is no lock that is held.
    fs::remove_file(at(&dir, "LOCK")).expect("removable");
    fifo(&at(&dir, "LOCK"));
    well(&dir, "a FIFO for LOCK");
}
