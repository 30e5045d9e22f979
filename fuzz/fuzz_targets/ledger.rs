//! What a folder of records may hold, by the first byte:
//!
//! - `l` one record's line: what passes is, byte for byte, what Python's `json.dumps(sort_keys=True, separators=(",", ":"))` writes of it;
//! - `k` a verifier key: what passes is written again as it was;
//! - `c` a checkpoint, with the key it may be signed by: no other note than the ledger's own has its signature and another text;
//! - `s` a whole segment, `n` a checkpoint, `p` a verifier key in a ledger's folder: `verify` calls it whole only where nothing was changed.
//!
//! A `+` after the letter means: the ledger's own bytes with the rest put over them, from the place that the next two bytes name.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use leafgate::ledger::{Filter, Ledger, RunFacts, fuzzing, page, records, verify};
use leafgate::policy::{LedgerSettings, Sync};
use leafgate::terms::Reason;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A ledger at rest, and its files' bytes.
struct Room {
    dir: tempfile::TempDir,
    segment: (PathBuf, Vec<u8>),
    note: (PathBuf, Vec<u8>),
    key: (PathBuf, Vec<u8>),
}

static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = LedgerSettings {
        dir: dir.path().to_owned(),
        segment_bytes: 64 << 20,
        checkpoint_every: Duration::from_secs(3600),
        checkpoint_copy: None,
        sync: Sync::Record,
    };
    let run = RunFacts { version: "0.1.0", policy: "ab".repeat(32), oracle: "cd".repeat(32) };
    let ledger = Ledger::start(&settings, run).expect("a ledger");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for bytes in 0..3 {
        runtime.block_on(ledger.message_refused(Reason::HttpMalformed, bytes)).expect("a record");
    }
    ledger.stop();
    drop(ledger);
    let read = |name: &str| {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        (path, bytes)
    };
    let (segment, note, key) = (read("000000000000.jsonl"), read("checkpoint"), read("leafgate.pub"));
    let report = verify(dir.path(), &mut |_, _| {}).expect("a folder that can be read");
    assert!(report.problem.is_none() && report.records == 5, "{report:?}");
    Room { dir, segment, note, key }
});

/// `json.dumps(value, sort_keys=True, separators=(",", ":"))`
fn dumps(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|member| member.0);
            for (place, (name, value)) in sorted.into_iter().enumerate() {
                out.push(if place == 0 { '{' } else { ',' });
                dumps(&Value::from(name.as_str()), out);
                out.push(':');
                dumps(value, out);
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                out.push(if place == 0 { '[' } else { ',' });
                dumps(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::String(text) => {
            out.push('"');
            for unit in text.encode_utf16() {
                match unit {
                    0x22 => out.push_str("\\\""),
                    0x5c => out.push_str("\\\\"),
                    0x08 => out.push_str("\\b"),
                    0x09 => out.push_str("\\t"),
                    0x0a => out.push_str("\\n"),
                    0x0c => out.push_str("\\f"),
                    0x0d => out.push_str("\\r"),
                    0x20..=0x7e => out.push(char::from(unit as u8)),
                    other => out.push_str(&format!("\\u{other:04x}")),
                }
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn line(bytes: &[u8]) {
    if fuzzing::line(bytes).is_err() {
        return;
    }
    let value: Value = serde_json::from_slice(bytes).expect("a second reader reads it too");
    let mut again = String::new();
    dumps(&value, &mut again);
    assert_eq!(again.as_bytes(), bytes);
}

/// The file as it is with `rest` instead; `verify` may call it whole only where that is what was there.
fn changed(room: &Room, (path, own): &(PathBuf, Vec<u8>), bytes: &[u8], same: impl Fn(&[u8]) -> bool) {
    std::fs::write(path, bytes).expect("a file");
    let report = verify(room.dir.path(), &mut |_, _| {}).expect("a folder that can be read");
    assert_eq!(report.problem.is_none(), same(bytes), "{report:?}");
    let all: Vec<_> = records(room.dir.path()).expect("a folder").collect();
    if let Ok(newest) = page(room.dir.path(), &Filter::default(), 2, usize::MAX) {
        assert!(newest.records.len() <= 2);
        let end: Vec<_> = newest.records.into_iter().rev().map(|record| (record.seq, record.value)).collect();
        if all.iter().all(Result::is_ok) {
            let all: Vec<_> = all.into_iter().flatten().collect();
            assert!(all.ends_with(&end));
        }
    }
    std::fs::write(path, own).expect("a file");
}

fuzz_target!(|bytes: &[u8]| {
    let room = &*ROOM;
    let Some((kind, rest)) = bytes.split_first() else { return };
    let file = match kind {
        b'l' | b's' => &room.segment,
        b'c' | b'n' => &room.note,
        b'k' | b'p' => &room.key,
        _ => return,
    };
    let patched = match rest {
        [b'+', high, low, over @ ..] => {
            let mut own = file.1.clone();
            if *kind == b'l' {
                own.truncate(own.iter().position(|byte| *byte == b'\n').unwrap_or(0));
            }
            let at = usize::from(u16::from_be_bytes([*high, *low])) % own.len();
            let end = (at + over.len()).min(own.len());
            own[at..end].copy_from_slice(&over[..end - at]);
            own
        }
        whole => whole.to_vec(),
    };
    let text = std::str::from_utf8(&patched);
    let own_key = std::str::from_utf8(&room.key.1).expect("ASCII");
    match (kind, text) {
        (b'l', _) => line(&patched),
        (b'k', Ok(text)) => {
            if let Some(again) = fuzzing::verifier_key(text) {
                assert_eq!(again, text.strip_suffix('\n').unwrap_or(text));
            }
        }
        (b'c', Ok(text)) => {
            if let Some((size, _, signed)) = fuzzing::checkpoint(text, own_key) {
                assert!(size < 1 << 53);
                let own = std::str::from_utf8(&room.note.1).expect("UTF-8");
                assert!(!signed || text.split("\n\n").next() == own.split("\n\n").next());
            }
        }
        (b's', _) => changed(room, file, &patched, |bytes| bytes == file.1),
        // More signatures may stand beside the ledger's own; its text may not change.
        (b'n', _) => {
            let own = std::str::from_utf8(&file.1).expect("UTF-8");
            let signature = own.split_once("\n\n").expect("a note").1;
            let head = own.strip_suffix(signature).expect("a note");
            changed(room, file, &patched, |bytes| {
                std::str::from_utf8(bytes).is_ok_and(|text| {
                    text.starts_with(head) && text[head.len()..].split_inclusive('\n').any(|line| line == signature) && fuzzing::checkpoint(text, own_key).is_some()
                })
            });
        }
        (b'p', _) => changed(room, file, &patched, |bytes| {
            bytes.strip_suffix(b"\n").unwrap_or(bytes) == own_key.trim_end().as_bytes()
        }),
        _ => {}
    }
});
