//! What is done to a ledger that nobody runs: rotation, sealing, pruning; each cut at every point. And a clock that is set back.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use super::super::keys::Signer;
use super::super::rotate::{NEXT_FILE, Step as Turn, rotate};
use super::super::start::start;
use super::super::store::{Disk, Store};
use super::super::{past, prune as pruning};
use super::*;

fn at(dir: &TempDir, name: &str) -> std::path::PathBuf {
    dir.path().join("ledger").join(name)
}

pub(super) fn cut() -> LedgerError {
    LedgerError::io(Path::new("cut"), "go on")(std::io::Error::other("cut by the test"))
}

fn agree(dir: &TempDir, name: &str) -> Report {
    let report = check(dir);
    second_agrees(dir, name, report.problem.as_ref());
    report
}

fn well(dir: &TempDir, name: &str) -> Report {
    let report = agree(dir, name);
    let problem = report.problem.as_ref().map(ToString::to_string);
    assert_eq!(problem, None, "{name}");
    report
}

/// A stopped run in small segments.
pub(super) fn segmented(dir: &TempDir, calls: u64) {
    let mut settings = settings(dir.path());
    settings.segment_bytes = 2000;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for number in 0..calls {
            let (_, ticket) = forward(&ledger, number).await.expect("recorded");
            ticket.close(outcome());
        }
    });
    ledger.stop();
}

fn segment_names(dir: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir.path().join("ledger"))
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    names
}

pub(super) fn soon() -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_secs(60)
}

fn read_all(dir: &TempDir, names: &[String]) -> Vec<Vec<u8>> {
    let read = |name: &String| fs::read(at(dir, name)).expect("a segment");
    names.iter().map(read).collect()
}

#[test]
fn a_rotation_is_recorded_under_the_old_key_and_the_new_one_signs() {
    let dir = folder();
    filled(&dir, 2);
    let old = fs::read_to_string(at(&dir, "leafgate.pub")).expect("a key");
    let old_signer = fs::read_to_string(at(&dir, "leafgate.key")).expect("a key");
    let mac = fs::read(at(&dir, "mac.key")).expect("a key");
    assert_eq!(all(&dir)[0]["key"], old.trim_end());
    let rotated = super::super::rotate_key(&dir.path().join("ledger")).expect("rotated");
    let new = fs::read_to_string(at(&dir, "leafgate.pub")).expect("a key");
    assert_eq!(new.trim_end(), rotated.key);
    assert!(old.starts_with(&rotated.old) && old != new);
    assert_ne!(
        fs::read_to_string(at(&dir, "leafgate.key")).expect("a key"),
        old_signer
    );
    assert_eq!(
        fs::read(at(&dir, "mac.key")).expect("a key"),
        mac,
        "seals stay comparable"
    );
    let mode = fs::metadata(at(&dir, "leafgate.key"))
        .expect("a key")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let report = well(&dir, "rotated");
    assert_eq!(report.covered, Some(rotated.seq + 1));
    filled(&dir, 2);
    super::super::rotate_key(&dir.path().join("ledger")).expect("rotated again");
    filled(&dir, 1);
    well(&dir, "rotated twice");
    let records = all(&dir);
    let record = &records[rotated.seq as usize];
    assert_eq!(
        (&record["t"], &record["log"]),
        (&"key".into(), &rotated.old.as_str().into())
    );
    let runs: Vec<_> = records
        .iter()
        .map(|record| record["run"].as_str())
        .collect();
    let here = runs[rotated.seq as usize];
    assert_eq!(
        runs.iter().filter(|run| **run == here).count(),
        1,
        "a run of its own"
    );
    let next = &records[rotated.seq as usize + 1];
    assert_eq!(next["key"], rotated.key);
    assert!(
        rotated
            .key
            .starts_with(next["log"].as_str().expect("a name"))
    );
}

#[test]
fn a_rotation_cut_at_any_point_is_completed_or_never_was() {
    for step in [
        Turn::Stored,
        Turn::Recorded,
        Turn::Checkpoint,
        Turn::Signer,
        Turn::Public,
    ] {
        for by_start in [true, false] {
            let dir = folder();
            filled(&dir, 1);
            let ledger = dir.path().join("ledger");
            let before = fs::read_to_string(at(&dir, "leafgate.pub")).expect("a key");
            let result = rotate(&ledger, &mut |done| {
                if done == step { Err(cut()) } else { Ok(()) }
            });
            assert!(result.is_err(), "{step:?}");
            let left = agree(&dir, "cut").problem.map(|problem| problem.fault);
            let whole_already = matches!(step, Turn::Stored | Turn::Public);
            assert_eq!(
                left,
                (!whole_already).then_some(Fault::Rotation),
                "{step:?}"
            );
            let mut rotations = usize::from(step != Turn::Stored);
            if by_start {
                filled(&dir, 1);
            } else {
                super::super::rotate_key(&ledger).expect("rotated");
                rotations += 1;
            }
            well(&dir, "completed");
            assert!(!at(&dir, NEXT_FILE).exists(), "{step:?}");
            let found = all(&dir)
                .iter()
                .filter(|record| record["t"] == "key")
                .count();
            assert_eq!(found, rotations, "{step:?} by start {by_start}");
            let after = fs::read_to_string(at(&dir, "leafgate.pub")).expect("a key");
            assert_eq!(after != before, rotations > 0, "{step:?}");
            filled(&dir, 1);
            well(&dir, "goes on");
        }
    }
}

#[test]
fn a_rotation_whose_record_is_torn_never_was() {
    for by_start in [true, false] {
        let dir = folder();
        filled(&dir, 1);
        let ledger = dir.path().join("ledger");
        let segment = at(&dir, "000000000000.jsonl");
        let before = fs::read(&segment).expect("a segment");
        let stopped = rotate(&ledger, &mut |done| {
            if done == Turn::Recorded {
                Err(cut())
            } else {
                Ok(())
            }
        });
        assert!(stopped.is_err());
        let bytes = fs::read(&segment).expect("a segment");
        fs::write(&segment, &bytes[..before.len() + 100]).expect("writable");
        if by_start {
            filled(&dir, 1);
        } else {
            super::super::rotate_key(&ledger).expect("rotated");
        }
        well(&dir, "torn");
        let records = all(&dir);
        let recovered = records
            .iter()
            .find(|record| record.get("recovered").is_some());
        let recovered = recovered.expect("it says so");
        assert_eq!(recovered["recovered"]["cut"], 100);
        assert_eq!(recovered["t"], if by_start { "open" } else { "key" });
        assert!(!at(&dir, NEXT_FILE).exists());
    }
}

#[test]
fn a_running_ledger_is_not_maintained_and_a_lost_key_is_not_replaced() {
    let dir = folder();
    let running = start_in(&dir);
    let ledger = dir.path().join("ledger");
    let locked = |result: Result<(), LedgerError>| {
        assert!(
            matches!(result, Err(LedgerError::Locked { .. })),
            "{result:?}"
        );
    };
    locked(super::super::rotate_key(&ledger).map(drop));
    locked(super::super::seal(&ledger).map(drop));
    locked(super::super::prune(&ledger, soon(), &mut |_| true).map(drop));
    running.stop();
    let kept = fs::read(at(&dir, "leafgate.key")).expect("a key");
    fs::remove_file(at(&dir, "leafgate.key")).expect("removable");
    assert!(matches!(
        super::super::rotate_key(&ledger),
        Err(LedgerError::Key { .. })
    ));
    // Another key in the place of the signer is not taken for a rotation that was cut.
    let (_, text) = Signer::make(&ledger).expect("a key");
    fs::write(at(&dir, "leafgate.key"), text).expect("writable");
    fs::set_permissions(at(&dir, "leafgate.key"), fs::Permissions::from_mode(0o600))
        .expect("a mode");
    assert!(Ledger::start(&settings(dir.path()), facts()).is_err());
    fs::write(at(&dir, "leafgate.key"), kept).expect("writable");
    start_in(&dir).stop();
    well(&dir, "restored");
    // Nothing is made where there is no ledger.
    let empty = folder();
    assert!(super::super::seal(empty.path()).is_err());
    assert_eq!(fs::read_dir(empty.path()).expect("a folder").count(), 0);
}

#[test]
fn an_older_ledger_without_the_key_in_open_verifies_and_rotates_after_a_start() {
    let dir = folder();
    filled(&dir, 1);
    strip_keys(&dir);
    well(&dir, "older");
    let refused = super::super::rotate_key(&dir.path().join("ledger"));
    assert!(
        matches!(refused, Err(LedgerError::Unfit { .. })),
        "{refused:?}"
    );
    assert!(super::super::prune(&dir.path().join("ledger"), soon(), &mut |_| false).is_ok());
    filled(&dir, 1);
    super::super::rotate_key(&dir.path().join("ledger")).expect("rotated");
    filled(&dir, 1);
    well(&dir, "older, rotated");
}

/// Makes the ledger one that was written before `open` had a key: every record anew, signed with its own key.
fn strip_keys(dir: &TempDir) {
    rewrite(dir, &|record| {
        record.as_object_mut().expect("an object").remove("key");
    });
}

/// Every record anew, as somebody with the key would; canonical, chained and signed.
pub(super) fn rewrite(dir: &TempDir, change: &dyn Fn(&mut serde_json::Value)) {
    let (mut prev, mut text) = ([0; 32], String::new());
    let mut tree = super::super::tree_hash::MerkleTree::default();
    for mut record in all(dir) {
        change(&mut record);
        record["prev"] = super::super::hex::hex(&prev).into();
        let line = record.to_string();
        prev = sha2::Digest::finalize(sha2::Digest::chain_update(sha2::Sha256::default(), &line))
            .into();
        tree.push(line.as_bytes());
        text += &line;
        text.push('\n');
    }
    fs::write(at(dir, "000000000000.jsonl"), text).expect("writable");
    let ledger = dir.path().join("ledger");
    let signer = Signer::read(&ledger, "leafgate.key")
        .expect("readable")
        .expect("a key");
    let note = super::super::checkpoint::Checkpoint::note(&signer, tree.size(), &tree.root());
    fs::write(at(dir, "checkpoint"), note).expect("writable");
}

#[test]
fn the_key_in_open_is_the_one_that_the_record_names() {
    let dir = folder();
    filled(&dir, 1);
    let ledger = dir.path().join("ledger");
    let (other, _) = Signer::make(&ledger).expect("a key");
    rewrite(&dir, &|record| {
        if record["t"] == "open" {
            record["key"] = other.public().line().into();
        }
    });
    let problem = agree(&dir, "another key in open")
        .problem
        .expect("a problem");
    assert_eq!(problem.seq, Some(0), "{problem}");
    assert!(matches!(problem.fault, Fault::Form(_)), "{problem}");
}

#[test]
fn a_record_of_maintenance_is_a_run_of_its_own() {
    let dir = folder();
    filled(&dir, 1);
    let rotated = super::super::rotate_key(&dir.path().join("ledger")).expect("rotated");
    start_in(&dir).stop();
    well(&dir, "rotated");
    let run = all(&dir)[rotated.seq as usize]["run"].clone();
    // The next run under the name of the rotation's, and a record amid it without an open.
    let kept = fs::read_to_string(at(&dir, "000000000000.jsonl")).expect("a segment");
    for (name, seq) in [
        ("the record after it", rotated.seq + 1),
        ("the stop", rotated.seq + 2),
    ] {
        rewrite(&dir, &|record| {
            if record["seq"] == seq {
                record["run"] = run.clone();
                if name == "the record after it" {
                    record["t"] = "stop".into();
                    for key in ["key", "oracle", "sync", "version"] {
                        record.as_object_mut().expect("an object").remove(key);
                    }
                }
            }
        });
        let problem = agree(&dir, name).problem.expect("a problem");
        assert_eq!(problem.seq, Some(seq), "{name}: {problem}");
        fs::write(at(&dir, "000000000000.jsonl"), &kept).expect("writable");
    }
}

#[test]
fn sealing_closes_the_open_segment_once() {
    let dir = folder();
    filled(&dir, 1);
    let ledger = dir.path().join("ledger");
    let records = well(&dir, "unsealed").records;
    assert_eq!(super::super::seal(&ledger).expect("sealed"), Some(records));
    assert_eq!(super::super::seal(&ledger).expect("nothing to do"), None);
    assert_eq!(
        segment_names(&dir),
        [
            "000000000000.jsonl".to_owned(),
            format!("{records:012}.jsonl")
        ]
    );
    well(&dir, "sealed");
    filled(&dir, 1);
    well(&dir, "goes on");
}

#[test]
fn pruning_keeps_the_chain_and_says_what_went() {
    let dir = folder();
    segmented(&dir, 12);
    let ledger = dir.path().join("ledger");
    let names = segment_names(&dir);
    let files = read_all(&dir, &names);
    let records = all(&dir);
    // Nothing is that old; then only a look; then the deed.
    let none = super::super::prune(
        &ledger,
        "2020-01-01T00:00:00Z".parse().expect("a time"),
        &mut |_| true,
    );
    assert_eq!(none.expect("a plan").segments.len(), 0);
    let look = super::super::prune(&ledger, soon(), &mut |_| false).expect("a plan");
    assert_eq!((look.segments.len(), look.done), (names.len() - 1, false));
    assert_eq!(segment_names(&dir), names, "a look changes nothing");
    let gone = super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    assert!(gone.done && gone.stopped.is_none() && gone.carried == 0);
    assert_eq!(segment_names(&dir), names[names.len() - 1..]);
    let report = well(&dir, "pruned");
    let first: u64 = names[names.len() - 1][..12].parse().expect("digits");
    assert_eq!(report.counts.pruned, first);
    let kept = all(&dir);
    let prunes: Vec<_> = kept
        .iter()
        .filter(|record| record["t"] == "prune")
        .collect();
    assert_eq!(prunes.len(), names.len() - 1);
    for (place, record) in prunes.iter().enumerate() {
        let segment = record["segment"].as_u64().expect("a seq");
        let count = record["count"].as_u64().expect("a count");
        assert_eq!(names[place], format!("{segment:012}.jsonl"));
        assert_eq!(record["bytes"], files[place].len());
        let hash: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(&files[place]).into();
        assert_eq!(record["sha256"], super::super::hex::hex(&hash));
        let of_kind = |kind: &str| {
            records[segment as usize..(segment + count) as usize]
                .iter()
                .filter(|record| record["t"] == kind)
                .count()
        };
        assert_eq!(
            record["counts"]["decision"].as_u64().unwrap_or(0),
            of_kind("decision") as u64
        );
        assert_eq!(
            record["counts"]["outcome"].as_u64().unwrap_or(0),
            of_kind("outcome") as u64
        );
    }
    assert!(
        !prunes
            .iter()
            .all(|record| record["open"] == serde_json::json!([])),
        "an open decision is carried over"
    );
    // Reading, starting and going on work from a first seq that is not 0.
    assert_eq!(
        super::super::records(&ledger)
            .expect("readable")
            .next()
            .expect("one")
            .expect("a record")
            .0,
        first
    );
    assert_eq!(
        page(&ledger, &Filter::default(), 3, 100)
            .expect("readable")
            .records
            .len(),
        3
    );
    segmented(&dir, 6);
    well(&dir, "pruned and gone on");
}

#[test]
fn a_second_prune_carries_what_the_first_one_said() {
    let dir = folder();
    segmented(&dir, 8);
    let ledger = dir.path().join("ledger");
    let mut said = BTreeSet::new();
    let mut ever = BTreeSet::new();
    let mut rotations = 0;
    for round in 0..3 {
        let gone = super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
        assert!(gone.done);
        assert_eq!(gone.carried > 0, round > 0, "{gone:?}");
        let pruned_keys = gone.segments.iter().filter_map(|old| old.counts.get("key"));
        rotations += pruned_keys.sum::<u64>();
        ever.extend(gone.segments.iter().map(|old| old.first));
        said = all(&dir)
            .iter()
            .filter(|record| record["t"] == "prune")
            .map(|record| record["segment"].as_u64().expect("a seq"))
            .collect();
        assert_eq!(said, ever, "each segment ever pruned has its record");
        well(&dir, "pruned again");
        if round == 1 {
            super::super::rotate_key(&ledger).expect("rotated");
        }
        segmented(&dir, 8);
        well(&dir, "and gone on");
    }
    assert!(said.len() > 5);
    // A rotation in a pruned segment: the prune record holds the key that was in force after it.
    assert!(rotations > 0 && all(&dir).iter().all(|record| record["t"] != "key"));
    let gone = super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    assert!(gone.done);
    well(&dir, "the rotation is pruned");
}

#[test]
fn a_prune_cut_at_any_point_is_whole_and_goes_on() {
    for cut_at in 0..6 {
        for by_start in [true, false] {
            let dir = folder();
            segmented(&dir, 8);
            let ledger = dir.path().join("ledger");
            let sealed = segment_names(&dir).len() - 1;
            let mut steps = 0;
            let result = pruning::prune_with(&ledger, soon(), &mut |_| true, &mut |_| {
                steps += 1;
                if steps > cut_at { Err(cut()) } else { Ok(()) }
            });
            assert!(result.is_err(), "{cut_at}: {result:?}");
            well(&dir, "cut");
            if by_start {
                filled(&dir, 1);
            } else {
                super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
            }
            assert_eq!(segment_names(&dir).len(), 1, "{cut_at}");
            let report = well(&dir, "completed");
            let said = all(&dir)
                .iter()
                .filter(|record| record["t"] == "prune")
                .count();
            assert_eq!(said, sealed, "{cut_at}");
            assert!(report.counts.pruned > 0);
            assert_eq!(
                fs::metadata(at(&dir, past::FILE))
                    .expect("a file")
                    .permissions()
                    .mode()
                    & 0o777,
                0o644
            );
        }
    }
}

#[test]
fn a_prune_whose_records_are_torn_goes_on_from_the_whole_ones() {
    let dir = folder();
    segmented(&dir, 8);
    let ledger = dir.path().join("ledger");
    let names = segment_names(&dir);
    let newest = at(&dir, names.last().expect("one"));
    let before = fs::read(&newest).expect("a segment").len();
    let result = pruning::prune_with(&ledger, soon(), &mut |_| true, &mut |_| Err(cut()));
    assert!(result.is_err());
    let bytes = fs::read(&newest).expect("a segment");
    let second = before + memchr::memchr(b'\n', &bytes[before..]).expect("a line") + 20;
    fs::write(&newest, &bytes[..second]).expect("writable");
    filled(&dir, 1);
    well(&dir, "torn");
    assert_eq!(
        segment_names(&dir),
        names[1..],
        "one record was whole: one segment went"
    );
    super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    well(&dir, "done");
    assert_eq!(segment_names(&dir), names[names.len() - 1..]);
}

#[test]
fn archived_segments_put_back_verify_from_the_first_record() {
    let dir = folder();
    segmented(&dir, 8);
    let ledger = dir.path().join("ledger");
    let names = segment_names(&dir);
    let files = read_all(&dir, &names);
    super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    for (name, bytes) in names.iter().zip(&files).take(names.len() - 1) {
        fs::write(at(&dir, name), bytes).expect("writable");
    }
    well(&dir, "remains are not read");
    fs::remove_file(at(&dir, past::FILE)).expect("removable");
    assert_eq!(well(&dir, "all of it").counts.pruned, 0);
}

#[test]
fn what_pruning_leaves_is_held_against_the_chain() {
    let dir = folder();
    segmented(&dir, 8);
    let ledger = dir.path().join("ledger");
    let older = fs::read(at(&dir, "checkpoint")).expect("a checkpoint");
    super::super::prune(&ledger, soon(), &mut |_| true).expect("pruned");
    let kept = fs::read(at(&dir, past::FILE)).expect("a file");
    let text = String::from_utf8(kept.clone()).expect("ASCII");
    let record: serde_json::Value = serde_json::from_str(&text).expect("a record");
    let other = "0".repeat(64);
    let flipped = |key: &str| text.replacen(record[key].as_str().expect("text"), &other, 1);
    let forged_count = text.replacen("\"counts\":{", "\"counts\":{\"a\":1,", 1);
    let named = |seq: u64| Some(seq);
    let seq = record["seq"].as_u64().expect("a seq");
    let first =
        record["segment"].as_u64().expect("a seq") + record["count"].as_u64().expect("a count");
    for (name, bytes, at_seq) in [
        ("last edited", flipped("last"), named(first)),
        ("sha256 edited", flipped("sha256"), named(seq)),
        ("counts edited", forged_count, named(seq)),
        (
            "tree edited",
            text.replacen(record["tree"][0].as_str().expect("text"), &other, 1),
            named(seq),
        ),
        ("not a record", "{}\n".to_owned(), None),
        ("torn", text.trim_end().to_owned(), None),
        ("two lines", text.repeat(2), None),
    ] {
        fs::write(at(&dir, past::FILE), bytes).expect("writable");
        let problem = agree(&dir, name)
            .problem
            .unwrap_or_else(|| panic!("{name} was not found"));
        assert_eq!(problem.seq, at_seq, "{name}: {problem}");
        assert!(
            Ledger::start(&settings(dir.path()), facts()).is_err(),
            "{name}"
        );
    }
    fs::remove_file(at(&dir, past::FILE)).expect("removable");
    let problem = agree(&dir, "missing").problem.expect("a problem");
    assert!(
        matches!(problem.fault, Fault::Name { here: 0, .. }),
        "{problem}"
    );
    fs::write(at(&dir, past::FILE), &kept).expect("writable");
    well(&dir, "restored");
    // An older checkpoint, from before the prune, does not vouch for it.
    let newer = fs::read(at(&dir, "checkpoint")).expect("a checkpoint");
    fs::write(at(&dir, "checkpoint"), older).expect("writable");
    let problem = agree(&dir, "older checkpoint").problem.expect("a problem");
    assert_eq!(problem.fault, Fault::PrunedUncovered { seq }, "{problem}");
    fs::write(at(&dir, "checkpoint"), newer).expect("writable");
    well(&dir, "restored");
}

/// A disk whose clock the test sets.
struct Clocked(Disk, Arc<AtomicU64>);

impl Store for Clocked {
    type Open = <Disk as Store>::Open;
    fn create(&mut self, first: u64) -> std::io::Result<Self::Open> {
        self.0.create(first)
    }
    fn reopen(&mut self, path: &Path, len: u64) -> std::io::Result<Self::Open> {
        self.0.reopen(path, len)
    }
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.1.load(Ordering::SeqCst))
    }
}

#[test]
fn a_clock_set_back_is_said_in_the_record() {
    let dir = folder();
    let settings = settings(dir.path());
    let clock = Arc::new(AtomicU64::new(1_796_021_550_000));
    let begin = || {
        start(
            &settings,
            &facts(),
            Clocked(Disk::new(&settings.dir), clock.clone()),
        )
        .expect("the ledger starts")
    };
    let record = |ledger: &Ledger| {
        runtime()
            .block_on(ledger.message_refused(Reason::NotFound, 1))
            .expect("recorded")
    };
    let ledger = begin();
    assert_eq!(record(&ledger), 1);
    clock.fetch_add(5000, Ordering::SeqCst);
    assert_eq!(record(&ledger), 2);
    clock.fetch_sub(12_345, Ordering::SeqCst);
    assert_eq!(record(&ledger), 4, "the record that says so stands before");
    assert_eq!(record(&ledger), 5, "it is said once");
    ledger.stop();
    clock.fetch_sub(1, Ordering::SeqCst);
    begin().stop();
    let records = all(&dir);
    let said = |seq: usize| (records[seq]["t"].as_str(), records[seq]["error"].as_str());
    assert_eq!(
        said(3),
        (Some("config"), Some("clock set back by 12.345000 s"))
    );
    assert_eq!(records[3]["policy"], facts().policy);
    assert_eq!(
        said(7),
        (Some("open"), None),
        "a run begins with open all the same"
    );
    assert_eq!(
        said(8),
        (Some("config"), Some("clock set back by 0.001000 s"))
    );
    assert_eq!(
        records
            .iter()
            .filter(|record| record.get("error").is_some())
            .count(),
        2
    );
    let report = well(&dir, "set back");
    assert_eq!(
        (report.counts.set_back, report.counts.set_back_at),
        (2, Some(3))
    );
}

#[test]
fn a_segment_whose_record_would_be_too_long_stays() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.segment_bytes = 2_000_000;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    // All on their way at once: none has its outcome where the first segment ends.
    let tickets: Vec<_> = runtime().block_on(async {
        let tasks: Vec<_> = (0..3500)
            .map(|number| {
                let ledger = ledger.clone();
                tokio::spawn(async move { forward(&ledger, number).await.expect("recorded").1 })
            })
            .collect();
        let mut tickets = Vec::new();
        for task in tasks {
            tickets.push(task.await.expect("no panic"));
        }
        tickets
    });
    for ticket in tickets {
        ticket.close(outcome());
    }
    ledger.stop();
    let names = segment_names(&dir);
    assert!(names.len() > 1);
    let plan = super::super::prune(&settings.dir, soon(), &mut |_| true).expect("a plan");
    let (file, open) = plan.stopped.expect("it says which stays");
    assert!(file.ends_with(&names[0]) && open > 1800, "{open}");
    assert!(plan.segments.is_empty() && !plan.done);
    assert_eq!(segment_names(&dir), names);
    well(&dir, "as before");
}
