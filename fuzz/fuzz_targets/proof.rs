//! The three files of `check-proof`: a proof, a record's line, a verifier key. Beside "no panic": what is read is written again as it was, but for an `extra` line;
//! and what checks under the ledger's own key is a record of that ledger at its place, whatever the proof says.
//!
//! The first byte chooses one of the ledger's records, whose proof, line and key stand for what is not given; the second what is: `p` a proof, `l` a line, `k` a
//! key, `+` bytes put over the proof at the place that the next two bytes name, `r` the proof of this record with the line of the one that the next byte names.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use leafgate::ledger::{Ledger, Proof, Proved, RunFacts, prove};
use leafgate::policy::{LedgerSettings, Sync};
use leafgate::terms::Reason;
use libfuzzer_sys::fuzz_target;

struct Room {
    proofs: Vec<(String, Vec<u8>)>,
    key: String,
}

static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = LedgerSettings {
        dir: dir.path().to_owned(),
        segment_bytes: 1500,
        checkpoint_every: Duration::from_secs(3600),
        checkpoint_copy: None,
        sync: Sync::Record,
    };
    let run = RunFacts { version: "0.1.0", policy: "ab".repeat(32), oracle: "cd".repeat(32) };
    let ledger = Ledger::start(&settings, run).expect("a ledger");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for bytes in 0..11 {
        runtime.block_on(ledger.message_refused(Reason::HttpMalformed, bytes)).expect("a record");
    }
    ledger.stop();
    let proofs = (0..13)
        .map(|seq| match prove(dir.path(), seq, None) {
            Ok(Proved::Yes(proof, line)) => (proof.to_string(), line),
            other => panic!("{other:?}"),
        })
        .collect();
    let key = std::fs::read_to_string(dir.path().join("leafgate.pub")).expect("a key");
    Room { proofs, key }
});

/// The proof without an `extra` line, for which nothing vouches.
fn plain(text: &str) -> String {
    match text.split_once("\nextra ") {
        Some((head, rest)) if !head.contains('\n') => format!("{head}\n{}", rest.split_once('\n').map_or("", |two| two.1)),
        _ => text.to_owned(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [which, what, rest @ ..] = bytes else { return };
    let Room { proofs, key } = &*ROOM;
    let (own, line) = &proofs[usize::from(*which) % proofs.len()];
    let (mut proof, mut line, mut by) = (own.as_bytes().to_vec(), line.clone(), key.clone());
    match (what, rest) {
        (b'p', text) => proof = text.to_vec(),
        (b'l', text) => line = text.to_vec(),
        (b'k', text) => by = String::from_utf8_lossy(text).into_owned(),
        (b'+', [high, low, over @ ..]) => {
            let at = usize::from(u16::from_be_bytes([*high, *low])) % proof.len();
            let end = (at + over.len()).min(proof.len());
            proof[at..end].copy_from_slice(&over[..end - at]);
        }
        (b'r', [other, ..]) => line = proofs[usize::from(*other) % proofs.len()].1.clone(),
        _ => return,
    }
    let Ok(text) = std::str::from_utf8(&proof) else { return };
    let Ok(read) = Proof::parse(text) else {
        assert_ne!(text, own);
        return;
    };
    let again = read.to_string();
    assert_eq!(again, plain(text));
    assert_eq!(Proof::parse(&again).map(|again| again.to_string()).as_deref(), Ok(&again[..]));
    match read.check(&line, &by) {
        Ok(name) => {
            assert!(by.starts_with(&name));
            if by.trim_end() == key.trim_end() {
                let at = usize::try_from(read.index).expect("a small index");
                assert_eq!(proofs[at].1, line, "another line is proven");
                assert_eq!(read.size(), proofs.len() as u64);
            }
        }
        Err(why) => {
            assert!(!why.to_string().contains('\n'));
            assert!(text != own || by != *key || proofs.iter().find(|(proof, _)| proof == own).is_none_or(|(_, own)| *own != line));
        }
    }
});
