//! A ledger's folder with anything done to its files, and the start of a run over it. Beside "no panic":
//!
//! - a start that refuses says why in one line, and has changed nothing but a torn last line that it cut off;
//! - a start that goes on has not altered one whole record; the next decision is recorded, and after the stop `verify` finds a whole ledger;
//! - a folder that `verify` calls whole, with the keys it had, starts;
//! - what maintenance does to such a ledger afterwards leaves it whole too.
//!
//! The first byte chooses one of the recorded folders, the second what follows the start; the rest are changes, each
//! `what, which file, place (2), how much, bytes…`.
#![no_main]

#[path = "kit/plans.rs"]
mod plans;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leafgate::ledger::{Ledger, RunFacts, fuzzing, prune, rotate_key, verify};
use leafgate::policy::{LedgerSettings, Sync};
use leafgate::terms::Reason;
use libfuzzer_sys::fuzz_target;

type Files = BTreeMap<String, Vec<u8>>;

/// Names that a start looks at, or steps over.
const NAMES: [&str; 9] = [
    ".leafgate.key.next",
    "pruned",
    "checkpoint",
    "leafgate.pub",
    "leafgate.key",
    "mac.key",
    "000000000000.jsonl",
    "000000000004.jsonl",
    ".checkpoint.new",
];
const SMALL: u64 = 1500;

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

struct Room {
    dir: tempfile::TempDir,
    bases: Vec<Files>,
}

fn settings(dir: &Path, segment_bytes: u64) -> LedgerSettings {
    LedgerSettings {
        dir: dir.to_owned(),
        segment_bytes,
        checkpoint_every: Duration::from_secs(3600),
        checkpoint_copy: None,
        sync: Sync::Record,
    }
}

fn start(dir: &Path, segment_bytes: u64) -> Result<Ledger, leafgate::ledger::LedgerError> {
    let run = RunFacts { version: "0.1.0", policy: "ab".repeat(32), oracle: "cd".repeat(32) };
    Ledger::start(&settings(dir, segment_bytes), run)
}

fn refuse(ledger: &Ledger, messages: u64) {
    for bytes in 0..messages {
        RUNTIME.block_on(ledger.message_refused(Reason::HttpMalformed, bytes)).expect("a record");
    }
}

/// All files but the lock.
fn files(dir: &Path) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("ASCII");
        if name != "LOCK" {
            files.insert(name, fs::read(entry.path()).expect("a file"));
        }
    }
    files
}

fn put(dir: &Path, files: &Files) {
    for entry in fs::read_dir(dir).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("a file");
    }
    for (name, bytes) in files {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(name)).expect("a file");
        file.write_all(bytes).expect("a file");
    }
}

fn soon() -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(60)
}

static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let mut bases = Vec::new();
    // 0: stopped. 1: the same while it ran, with a call on its way: what a crash leaves.
    let ledger = start(at, 64 << 20).expect("a ledger");
    refuse(&ledger, 2);
    let cleared = RUNTIME.block_on(ledger.commit(plans::plain(1))).expect("a record");
    let crashed = files(at);
    drop(cleared);
    ledger.stop();
    bases.extend([files(at), crashed]);
    // 2: a second run, in small segments. 3: a third one that crashed.
    let ledger = start(at, SMALL).expect("a ledger");
    refuse(&ledger, 8);
    ledger.stop();
    bases.push(files(at));
    let ledger = start(at, SMALL).expect("a ledger");
    refuse(&ledger, 3);
    bases.push(files(at));
    ledger.stop();
    let whole = files(at);
    // 4 to 8: a rotation, cut at each step. 9: done.
    for step in 0..5 {
        put(at, &whole);
        fuzzing::rotate_to(at, step);
        bases.push(files(at));
    }
    put(at, &whole);
    rotate_key(at).expect("a rotation");
    bases.push(files(at));
    // 10 to 13: a prune of that, cut at each step. 14: done. 15: pruned, run and rotated once more.
    let whole = files(at);
    for step in 0..4 {
        put(at, &whole);
        fuzzing::prune_to(at, soon(), step);
        bases.push(files(at));
    }
    put(at, &whole);
    assert!(prune(at, soon(), &mut |_| true).expect("a prune").done);
    bases.push(files(at));
    let ledger = start(at, SMALL).expect("a ledger");
    refuse(&ledger, 3);
    ledger.stop();
    rotate_key(at).expect("a rotation");
    bases.push(files(at));
    // 16: nothing yet.
    bases.push(Files::new());
    Room { dir, bases }
});

/// One change, taken from the front of `rest`.
fn change(files: &mut Files, bases: &[Files], rest: &mut &[u8]) -> Option<()> {
    let [what, which, high, low, len, after @ ..] = *rest else { return None };
    let (data, after) = after.split_at(usize::from(*len).min(after.len()));
    *rest = after;
    let name = match files.len() {
        0 => NAMES[usize::from(*which) % NAMES.len()].to_owned(),
        most => files.keys().nth(usize::from(*which) % most)?.clone(),
    };
    let place = usize::from(u16::from_be_bytes([*high, *low]));
    let len = usize::from(*len);
    let bytes = files.entry(name.clone()).or_default();
    let at = place % (bytes.len() + 1);
    match what % 10 {
        0 => bytes.truncate(at),
        1 => {
            let end = (at + data.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&data[..end - at]);
        }
        2 => drop(bytes.splice(at..at, data.iter().copied())),
        3 => drop(files.remove(&name)),
        4 => bytes.extend_from_slice(data),
        // The file as it was, or will be.
        5 => {
            let other = bases.get(len % bases.len())?.get(&name)?;
            *bytes = other.clone();
        }
        6 => {
            let copy = bytes.clone();
            files.insert(NAMES[len % NAMES.len()].to_owned(), copy);
        }
        7 => {
            let bit = bytes.get_mut(at)?;
            *bit ^= 1 << (len % 8);
        }
        8 => drop(bytes.drain(at..(at + len).min(bytes.len()))),
        // A file of another folder, under its own name.
        _ => {
            let other = bases.get(len % bases.len())?;
            let (name, copy) = other.iter().nth(place % other.len().max(1))?;
            files.insert(name.clone(), copy.clone());
        }
    }
    Some(())
}

fn is_segment(name: &str) -> bool {
    name.len() == 18 && name.ends_with(".jsonl") && name[..12].bytes().all(|byte| byte.is_ascii_digit())
}

/// The whole lines at the front.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &bytes[..end]
}

/// A start that refused: the files are what they were, but for a torn last line. A rotation that was cut after its record may be completed where the other keys
/// refuse after it.
fn unchanged(before: &Files, after: &Files, why: &str) {
    let completed = why.contains("mac.key");
    let turned = |name: &str| completed && [".leafgate.key.next", "checkpoint", "leafgate.key", "leafgate.pub"].contains(&name);
    for (name, bytes) in before.iter().filter(|(name, _)| !turned(name)) {
        let now = after.get(name).unwrap_or_else(|| panic!("{name} is gone: {why}"));
        assert!(now == bytes || is_segment(name) && now == whole_lines(bytes), "{name} is another: {why}");
    }
    for name in after.keys().filter(|name| !turned(name)) {
        assert!(before.contains_key(name), "{name} is new: {why}");
    }
}

fn sound(dir: &Path, doing: &str) -> leafgate::ledger::Report {
    let report = verify(dir, &mut |_, _| {}).expect("a folder that can be read");
    assert!(report.problem.is_none() && report.torn == 0, "{doing}: {report:?}");
    report
}

fuzz_target!(|bytes: &[u8]| {
    let [base, then, rest @ ..] = bytes else { return };
    let Room { dir, bases } = &*ROOM;
    let dir = dir.path();
    let base = &bases[usize::from(*base) % bases.len()];
    let mut before = base.clone();
    let mut rest = rest;
    while change(&mut before, bases, &mut rest).is_some() {}
    put(dir, &before);
    let keys = ["leafgate.key", "mac.key", ".leafgate.key.next"];
    let own_keys = keys.iter().all(|key| before.get(*key) == base.get(*key));
    let whole = verify(dir, &mut |_, _| {}).is_ok_and(|report| report.problem.is_none() && report.records > 0);
    assert_eq!(files(dir), before, "verify changes nothing");

    let ledger = match start(dir, if then & 1 == 0 { 64 << 20 } else { SMALL }) {
        Ok(ledger) => ledger,
        Err(error) => {
            let why = error.to_string();
            assert!(!why.is_empty() && !why.contains('\n'));
            assert!(!(whole && own_keys), "a whole ledger does not start: {why}");
            return unchanged(&before, &files(dir), &why);
        }
    };
    refuse(&ledger, 1);
    ledger.stop();
    let report = sound(dir, "after a start");
    assert!(report.stopped);
    let after = files(dir);
    for (name, bytes) in before.iter().filter(|(name, _)| is_segment(name)) {
        match after.get(name) {
            Some(now) => assert!(now.starts_with(whole_lines(bytes)), "{name} is another"),
            None => assert!(report.counts.pruned > 0 || bytes.is_empty(), "{name} is gone"),
        }
    }
    if then & 2 != 0 {
        prune(dir, soon(), &mut |_| true).expect("a prune");
        sound(dir, "after a prune");
    }
    if then & 4 != 0 {
        rotate_key(dir).expect("a rotation");
        sound(dir, "after a rotation");
    }
});
