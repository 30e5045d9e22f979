//! Every kind of tampering is found, by `verify` and by the start, and the record at fault is named.

use std::fs;

use super::super::error::Fault;
use super::*;

fn lines(dir: &TempDir) -> Vec<Vec<u8>> {
    fs::read(segment(dir))
        .expect("the segment")
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

fn segment(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("ledger/000000000000.jsonl")
}

fn replaced(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(line.to_vec()).expect("ASCII");
    assert!(text.contains(from), "{from} is not in {text}");
    text.replacen(from, to, 1).into_bytes()
}

#[test]
fn each_kind_of_tampering_is_found_and_named() {
    let dir = folder();
    filled(&dir, 4);
    whole(&dir);
    second_agrees(&dir, "untouched", None);
    let good = lines(&dir);
    assert_eq!(good.len(), 11);
    let other = folder();
    filled(&other, 4);
    let foreign = lines(&other);
    type Is = fn(&Fault) -> bool;
    let prev: Is = |fault| matches!(fault, Fault::Prev);
    let seq: Is = |fault| matches!(fault, Fault::Seq { .. });
    let root: Is = |fault| matches!(fault, Fault::Root);
    let form: Is = |fault| matches!(fault, Fault::Form(_));
    let short: Is = |fault| {
        matches!(
            fault,
            Fault::Short {
                covers: 11,
                here: 9
            }
        )
    };

    type Edit = (&'static str, Vec<Vec<u8>>, Option<u64>, Is);
    let mut edits: Vec<Edit> = Vec::new();
    let mut edit = |name, at, is, change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut lines = good.clone();
        change(&mut lines);
        edits.push((name, lines, at, is));
    };
    edit("flipped", Some(4), prev, &|l| {
        l[3] = replaced(&l[3], "seed-04", "seed-05")
    });
    edit("a word flipped", Some(3), form, &|l| {
        l[3] = replaced(&l[3], "release", "relaase")
    });
    edit("another form", Some(3), form, &|l| {
        l[3] = replaced(&l[3], ":", ": ")
    });
    edit("dropped", Some(3), seq, &|l| drop(l.remove(3)));
    edit("swapped", Some(2), seq, &|l| l.swap(2, 3));
    edit("cut", None, short, &|l| l.truncate(9));
    edit("duplicated", Some(4), seq, &|l| l.insert(4, l[3].clone()));
    edit("spliced from another ledger", Some(5), prev, &|l| {
        l[5] = foreign[5].clone()
    });
    edit("the last edited", Some(10), root, &|l| {
        l[10] = replaced(&l[10], "abab", "abac")
    });
    edit("the last edited out of form", Some(10), form, &|l| {
        l[10] = replaced(&l[10], "\"v\":1", "\"v\":9")
    });
    edit("renumbered", Some(3), prev, &|l| {
        l.remove(3);
        for (n, line) in l.iter_mut().enumerate().skip(3) {
            *line = replaced(
                line,
                &format!("\"seq\":{},", n + 1),
                &format!("\"seq\":{n},"),
            );
        }
    });
    edit("an empty line", Some(3), form, &|l| {
        l.insert(3, b"\n".to_vec())
    });
    for (name, lines, at, is) in edits {
        fs::write(segment(&dir), lines.concat()).expect("writable");
        let problem = check(&dir)
            .problem
            .unwrap_or_else(|| panic!("{name} was not found"));
        assert!(is(&problem.fault), "{name}: {problem}");
        assert_eq!(problem.seq, at, "{name}: {problem}");
        second_agrees(&dir, name, Some(&problem));
        match Ledger::start(&settings(dir.path()), facts()) {
            Err(LedgerError::Problem(at_start)) => assert_eq!(at_start, problem, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    fs::write(segment(&dir), good.concat()).expect("writable");
    whole(&dir);
    start_in(&dir).stop();
    whole(&dir);
}

#[test]
fn an_outcome_must_be_of_an_open_decision() {
    let dir = folder();
    filled(&dir, 2);
    // The chain is made anew by somebody without the key: every hash holds, the pairing does not.
    let mut prev = [0; 32];
    let mut text = Vec::new();
    for line in lines(&dir) {
        let record = String::from_utf8(line)
            .expect("ASCII")
            .replace("\"of\":3", "\"of\":1");
        let at = record.find("\"prev\":\"").expect("prev") + 8;
        let record = format!(
            "{}{}{}",
            &record[..at],
            super::super::hex::hex(&prev),
            &record[at + 64..]
        );
        prev = sha2::Digest::finalize(sha2::Digest::chain_update(
            sha2::Sha256::default(),
            record.trim_end(),
        ))
        .into();
        text.extend_from_slice(record.as_bytes());
    }
    fs::write(segment(&dir), text).expect("writable");
    let problem = check(&dir).problem.expect("a problem");
    second_agrees(&dir, "an outcome of nothing", Some(&problem));
    assert_eq!(
        (problem.fault, problem.seq),
        (Fault::OutcomeOfNothing, Some(4))
    );
}

#[test]
fn the_checkpoint_and_its_key_are_held_against_the_records() {
    let dir = folder();
    filled(&dir, 2);
    let other = folder();
    filled(&other, 2);
    let at = |dir: &TempDir, name: &str| dir.path().join("ledger").join(name);
    let names = [
        "checkpoint",
        "leafgate.pub",
        "leafgate.key",
        "000000000000.jsonl",
    ];
    let kept: Vec<_> = names
        .iter()
        .map(|name| fs::read(at(&dir, name)).expect("a file"))
        .collect();
    let fault = || {
        let problem = check(&dir).problem.expect("a problem");
        if let Some((status, text)) = second(&dir) {
            assert_ne!(status, 0, "verify.py said {text} and verify {problem}");
        }
        problem.fault
    };

    fs::remove_file(at(&dir, "checkpoint")).expect("removable");
    assert_eq!(fault(), Fault::NoCheckpoint);
    assert!(
        Ledger::start(&settings(dir.path()), facts()).is_err(),
        "starts without its checkpoint"
    );
    fs::copy(at(&other, "checkpoint"), at(&dir, "checkpoint")).expect("copied");
    assert_eq!(fault(), Fault::CheckpointSignature);
    fs::write(at(&dir, "checkpoint"), "nonsense\n").expect("writable");
    assert_eq!(fault(), Fault::CheckpointForm);
    // Another key with its own checkpoint: every record names the key that is gone.
    for name in &names[..3] {
        fs::copy(at(&other, name), at(&dir, name)).expect("copied");
    }
    assert_eq!(fault(), Fault::Log);
    fs::write(at(&dir, "leafgate.pub"), "leafgate+00000000+AAAA\n").expect("writable");
    assert_eq!(fault(), Fault::VerifierKey);
    for (name, bytes) in names.iter().zip(&kept) {
        fs::write(at(&dir, name), bytes).expect("writable");
    }
    whole(&dir);
    fs::remove_file(segment(&dir)).expect("removable");
    assert_eq!(fault(), Fault::Nothing);
    assert!(
        Ledger::start(&settings(dir.path()), facts()).is_err(),
        "starts without its records"
    );
}

#[test]
fn a_missing_or_torn_segment_is_found() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.segment_bytes = 1500;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for number in 0..10 {
            forward(&ledger, number)
                .await
                .expect("recorded")
                .1
                .close(outcome());
        }
    });
    ledger.stop();
    whole(&dir);
    let mut names: Vec<_> = fs::read_dir(&settings.dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    names.sort();
    let away = settings.dir.join("away");
    fs::rename(&names[1], &away).expect("renamed");
    assert!(matches!(
        check(&dir).problem.expect("a problem").fault,
        Fault::Name { .. }
    ));
    fs::rename(&away, &names[1]).expect("renamed back");
    let sealed = fs::read(&names[0]).expect("a segment");
    fs::write(&names[0], &sealed[..sealed.len() - 1]).expect("writable");
    assert!(matches!(
        check(&dir).problem.expect("a problem").fault,
        Fault::Torn { .. }
    ));
    assert!(
        Ledger::start(&settings, facts()).is_err(),
        "a sealed segment is not cut"
    );
    fs::write(&names[0], &sealed).expect("writable");
    whole(&dir);
    second_agrees(&dir, "segments", None);
}
