//! A start that refuses leaves every file as it was: what is missing may be put back, and then it starts. Each case with the twin that does.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::super::rotate::{NEXT_FILE, Step, rotate};
use super::keep::cut;
use super::*;

type Files = BTreeMap<String, Vec<u8>>;

fn ledger(dir: &TempDir) -> PathBuf {
    dir.path().join("ledger")
}

fn files(dir: &TempDir) -> Files {
    fs::read_dir(ledger(dir))
        .expect("a folder")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name");
            (name, fs::read(entry.path()).expect("a file"))
        })
        .filter(|(name, _)| name != "LOCK")
        .collect()
}

/// What a start says that must refuse and change nothing.
fn refused(dir: &TempDir, case: &str) -> String {
    let before = files(dir);
    let why = Ledger::start(&settings(dir.path()), facts()).expect_err(case);
    assert_eq!(files(dir), before, "{case}");
    why.to_string()
}

fn starts(dir: &TempDir, case: &str) {
    start_in(dir).stop();
    let report = whole(dir);
    assert!(report.stopped, "{case}");
}

/// A rotation of a stopped ledger, cut after this step.
fn rotated_to(step: Step) -> TempDir {
    let dir = folder();
    filled(&dir, 1);
    let stopped = rotate(&ledger(&dir), &mut |done| {
        if done == step { Err(cut()) } else { Ok(()) }
    });
    assert!(stopped.is_err(), "{step:?}");
    dir
}

#[test]
fn no_key_is_made_where_something_speaks_of_a_ledger_that_is_gone() {
    for left in ["checkpoint", "leafgate.pub"] {
        let dir = folder();
        filled(&dir, 1);
        let own = files(&dir);
        for name in own.keys().filter(|name| *name != left) {
            fs::remove_file(ledger(&dir).join(name)).expect("removed");
        }
        refused(&dir, left);
        // The files are put back beside what was left: no key stands in their way.
        for (name, bytes) in own.iter().filter(|(name, _)| *name != left) {
            keys::write_new(
                &ledger(&dir),
                name,
                std::str::from_utf8(bytes).expect("text"),
                0o600,
            )
            .expect("put back");
        }
        starts(&dir, left);
    }
    let dir = folder();
    starts(&dir, "an empty folder");
}

#[test]
fn the_key_that_waits_stays_where_the_ledger_lost_its_record() {
    let dir = rotated_to(Step::Checkpoint);
    let segment = ledger(&dir).join("000000000000.jsonl");
    let own = fs::read(&segment).expect("a segment");
    let mut lines = own.split_inclusive(|byte| *byte == b'\n');
    let last = lines.next_back().expect("a line").len();
    fs::write(&segment, &own[..own.len() - last]).expect("writable");
    refused(&dir, "the record of the rotation is gone");
    fs::write(&segment, &own).expect("put back");
    starts(&dir, "the record is back");
    assert!(!ledger(&dir).join(NEXT_FILE).exists());
    // One that no record names goes, but not before the other keys were looked at.
    let dir = rotated_to(Step::Stored);
    let mac = ledger(&dir).join("mac.key");
    let own = fs::read(&mac).expect("a key");
    fs::write(&mac, "no key\n").expect("writable");
    refused(&dir, "no key of the seals");
    fs::write(&mac, own).expect("put back");
    starts(&dir, "the key of the seals is back");
    assert!(!ledger(&dir).join(NEXT_FILE).exists());
}

#[test]
fn no_verifier_key_is_replaced_over_a_checkpoint_that_does_not_hold() {
    let dir = rotated_to(Step::Signer);
    let checkpoint = ledger(&dir).join("checkpoint");
    let own = fs::read_to_string(&checkpoint).expect("a checkpoint");
    let mut other = own.clone().into_bytes();
    // In the middle of the signature, which is the last line's end.
    let at = other.len() - 40;
    other[at] = if other[at] == b'A' { b'B' } else { b'A' };
    fs::write(&checkpoint, other).expect("writable");
    refused(&dir, "another signature");
    fs::write(&checkpoint, own).expect("put back");
    starts(&dir, "the checkpoint is back");
}

#[test]
fn a_key_that_waits_and_is_none_refuses_the_first_start_too() {
    let dir = folder();
    fs::create_dir(ledger(&dir)).expect("a folder");
    fs::set_permissions(
        ledger(&dir),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("a mode");
    keys::write_new(&ledger(&dir), NEXT_FILE, "no key\n", 0o600).expect("written");
    let why = refused(&dir, "no key");
    assert!(why.contains(NEXT_FILE), "{why}");
    fs::remove_file(ledger(&dir).join(NEXT_FILE)).expect("removed");
    starts(&dir, "without it");
}

#[test]
fn the_verifier_key_may_have_lost_its_newline_and_nothing_more() {
    let dir = folder();
    filled(&dir, 1);
    let file = ledger(&dir).join("leafgate.pub");
    let text = fs::read_to_string(&file).expect("a line");
    fs::write(&file, text.trim_end()).expect("written");
    starts(&dir, "without the newline");
    for other in [
        format!("{text}\n"),
        format!(" {text}"),
        text.trim_end()[1..].to_owned(),
    ] {
        fs::write(&file, other).expect("written");
        refused(&dir, "another line");
    }
}
