//! `prove` over whole ledgers: each record of ledgers of many sizes, against the ledger's own checkpoint and older ones.

use std::fs;

use super::super::keys::PUBLIC_FILE;
use super::*;

fn ledger_of(dir: &TempDir, messages: u64, segment_bytes: u64) {
    let mut settings = settings(dir.path());
    settings.segment_bytes = segment_bytes;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for bytes in 0..messages {
            let seq = ledger.message_refused(Reason::HttpMalformed, bytes).await;
            seq.expect("recorded");
        }
    });
    ledger.stop();
}

fn proof_of(dir: &TempDir, seq: u64, kept: Option<&Path>) -> (Proof, Vec<u8>) {
    match prove(&dir.path().join("ledger"), seq, kept).expect("a whole ledger") {
        Proved::Yes(proof, line) => (*proof, line),
        Proved::NotCovered { size } => panic!("record {seq} is not among {size}"),
        Proved::Pruned { gone } => panic!("record {seq} is among the {gone} that were pruned"),
    }
}

fn key(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("ledger").join(PUBLIC_FILE)).expect("a key")
}

fn lines(dir: &TempDir) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for segment in super::super::scan::segments(&dir.path().join("ledger")).expect("a folder") {
        let text = fs::read(segment.path).expect("a segment");
        all.extend(
            text.split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(<[u8]>::to_vec),
        );
    }
    all
}

#[test]
fn each_record_of_a_ledger_is_proven_and_no_other_line_is() {
    for (messages, segment_bytes) in [
        (0, 64 << 20),
        (1, 1024),
        (5, 1024),
        (6, 64 << 20),
        (31, 2000),
    ] {
        let dir = folder();
        ledger_of(&dir, messages, segment_bytes);
        let (key, lines) = (key(&dir), lines(&dir));
        assert_eq!(lines.len() as u64, messages + 2, "with open and stop");
        for (seq, line) in (0..).zip(&lines) {
            let (proof, found) = proof_of(&dir, seq, None);
            assert_eq!((proof.index, &found), (seq, line));
            // What is printed is what is checked.
            let proof = Proof::parse(&proof.to_string()).expect("the form");
            assert_eq!(proof.size(), messages + 2);
            assert!(proof.check(line, &key).is_ok(), "{seq} of {messages}");
            for other in lines.iter().filter(|other| *other != line) {
                assert_eq!(proof.check(other, &key), Err(ProofFault::Root));
            }
        }
    }
}

#[test]
fn a_checkpoint_kept_elsewhere_proves_what_it_covered_and_says_what_it_does_not() {
    let dir = folder();
    ledger_of(&dir, 3, 64 << 20);
    let kept = dir.path().join("kept");
    fs::copy(dir.path().join("ledger/checkpoint"), &kept).expect("copied");
    ledger_of(&dir, 4, 64 << 20);
    let (proof, line) = proof_of(&dir, 2, Some(&kept));
    assert_eq!(proof.size(), 5);
    assert!(proof.check(&line, &key(&dir)).is_ok());
    assert_eq!(proof_of(&dir, 7, None).0.size(), 11);
    let beyond = |seq, kept| prove(&dir.path().join("ledger"), seq, kept).expect("whole");
    assert!(matches!(
        beyond(5, Some(kept.as_path())),
        Proved::NotCovered { size: 5 }
    ));
    assert!(matches!(beyond(11, None), Proved::NotCovered { size: 11 }));
}

#[test]
fn a_ledger_that_is_not_the_checkpoints_proves_nothing_and_the_record_is_named() {
    let dir = folder();
    ledger_of(&dir, 6, 64 << 20);
    let segment = dir.path().join("ledger/000000000000.jsonl");
    let good = fs::read_to_string(&segment).expect("a segment");
    let wrong = |seq| match prove(&dir.path().join("ledger"), seq, None) {
        Err(LedgerError::Problem(problem)) => problem,
        other => panic!("{other:?}"),
    };
    // Also for a record that was not touched itself.
    fs::write(&segment, good.replacen("\"bytes\":2", "\"bytes\":9", 1)).expect("written");
    assert_eq!(
        wrong(0).seq,
        Some(4),
        "the one after the changed one does not follow it"
    );
    let cut: Vec<&str> = good.lines().take(4).collect();
    fs::write(&segment, cut.join("\n") + "\n").expect("written");
    assert_eq!(wrong(0).fault, Fault::Short { covers: 8, here: 4 });
    fs::write(&segment, &good).expect("written");
    let note = dir.path().join("ledger/checkpoint");
    let text = fs::read_to_string(&note).expect("a checkpoint");
    fs::write(&note, text.replacen("\n8\n", "\n7\n", 1)).expect("written");
    assert_eq!(wrong(0).fault, Fault::CheckpointSignature);
    fs::remove_file(&note).expect("removed");
    assert_eq!(wrong(0).fault, Fault::NoCheckpoint);
    // An older checkpoint still proves.
    fs::write(dir.path().join("kept"), &text).expect("written");
    let (proof, line) = proof_of(&dir, 3, Some(&dir.path().join("kept")));
    assert!(proof.check(&line, &key(&dir)).is_ok());
}

/// The lines of Python that `docs/ledger.md` gives to whoever checks a proof.
fn python_of_the_docs() -> &'static str {
    let page = include_str!("../../../docs/ledger.md");
    let start = page.find("```python\n# check_proof.py").expect("the block") + "```python\n".len();
    let end = page[start..].find("```").expect("its end") + start;
    &page[start..end]
}

/// Its exit status; `None`, loudly, where there is no python3 here.
#[allow(
    clippy::disallowed_methods,
    reason = "a test runs the lines that an auditor would"
)]
fn python(dir: &TempDir, record: &str, proof: &str) -> Option<i32> {
    let script = dir.path().join("check_proof.py");
    fs::write(&script, python_of_the_docs()).expect("written");
    let verify = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    let run = std::process::Command::new("python3")
        .env("PYTHONPATH", verify)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(&script)
        .args([dir.path().join(proof), dir.path().join(record)])
        .arg(dir.path().join("ledger").join(PUBLIC_FILE))
        .output();
    match run {
        Ok(done) => {
            eprintln!("{}", String::from_utf8_lossy(&done.stderr));
            done.status.code()
        }
        Err(cause) => {
            eprintln!("SKIPPED: the lines of docs/ledger.md were not run: python3: {cause}");
            None
        }
    }
}

#[test]
fn the_docs_python_checks_a_proof() {
    let dir = folder();
    ledger_of(&dir, 9, 64 << 20);
    for seq in [0, 5, 9, 10] {
        let (proof, line) = proof_of(&dir, seq, None);
        fs::write(dir.path().join("proof"), proof.to_string()).expect("written");
        fs::write(dir.path().join("record"), [&line[..], b"\n"].concat()).expect("written");
        assert!(
            matches!(python(&dir, "record", "proof"), None | Some(0)),
            "{seq}"
        );
    }
    let (proof, line) = proof_of(&dir, 5, None);
    let text = proof.to_string();
    fs::write(dir.path().join("record"), &line).expect("written");
    fs::write(dir.path().join("other"), &lines(&dir)[4]).expect("written");
    fs::write(dir.path().join("proof"), &text).expect("written");
    assert!(
        matches!(python(&dir, "other", "proof"), None | Some(1)),
        "another record"
    );
    for (from, to) in [
        ("index 5", "index 4"),
        ("index 5", "index 12"),
        ("\n11\n", "\n12\n"),
        ("@v1", "@v2"),
    ] {
        fs::write(dir.path().join("bad"), text.replacen(from, to, 1)).expect("written");
        assert!(
            matches!(python(&dir, "record", "bad"), None | Some(1)),
            "{from} as {to}"
        );
    }
    let mut path: Vec<&str> = text.split_inclusive('\n').collect();
    path.remove(2);
    fs::write(dir.path().join("bad"), path.concat()).expect("written");
    assert!(
        matches!(python(&dir, "record", "bad"), None | Some(1)),
        "a step is missing"
    );
}

#[test]
fn a_pruned_and_rotated_ledger_still_proves_what_it_kept() {
    let dir = folder();
    let at = dir.path().join("ledger");
    ledger_of(&dir, 9, 1500);
    let old = key(&dir);
    let kept = dir.path().join("kept");
    fs::copy(at.join("checkpoint"), &kept).expect("copied");
    super::super::rotate_key(&at).expect("rotated");
    ledger_of(&dir, 4, 1500);
    // A checkpoint from before the rotation proves under the key of its time.
    let (proof, line) = proof_of(&dir, 3, Some(&kept));
    assert!(proof.check(&line, &old).is_ok());
    assert_eq!(proof.check(&line, &key(&dir)), Err(ProofFault::Signature));
    let held = super::super::verify_against(&at, std::slice::from_ref(&kept), &mut |_, _| {});
    assert_eq!(held.expect("read").problem, None);

    let all = lines(&dir);
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    let pruning = super::super::prune(&at, soon, &mut |_| true).expect("pruned");
    assert!(pruning.done && pruning.segments.len() > 1);
    let last = pruning.segments.last().expect("one");
    let gone = last.first + last.records;
    for (seq, line) in (0..).zip(&all) {
        match prove(&at, seq, None).expect("whole") {
            Proved::Pruned { gone: said } => assert!(said == gone && seq < gone),
            Proved::Yes(proof, found) => {
                assert!(seq >= gone && found == *line);
                assert!(proof.check(line, &key(&dir)).is_ok(), "{seq}");
            }
            Proved::NotCovered { size } => panic!("{seq} of {size}"),
        }
    }
    let held = super::super::verify_against(&at, std::slice::from_ref(&kept), &mut |_, _| {});
    let fault = held.expect("read").problem.expect("one").fault;
    assert_eq!(fault, Fault::KeptPruned { covers: 11, gone });
}
