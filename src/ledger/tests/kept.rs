//! Checkpoints kept elsewhere: `verify` against them, and `ledger.checkpoint_copy`.

use std::fs;
use std::path::PathBuf;

use super::super::verify_against;
use super::*;

fn copied(dir: &TempDir) -> LedgerSettings {
    fs::create_dir_all(dir.path().join("kept")).expect("a folder");
    LedgerSettings {
        checkpoint_copy: Some(dir.path().join("kept/checkpoint")),
        ..settings(dir.path())
    }
}

/// A run with so many refused messages.
fn run(settings: &LedgerSettings, messages: u64) {
    let ledger = Ledger::start(settings, facts()).expect("the ledger starts");
    add(&ledger, messages);
    ledger.stop();
}

fn add(ledger: &Ledger, messages: u64) {
    runtime().block_on(async {
        for bytes in 0..messages {
            let seq = ledger.message_refused(Reason::HttpMalformed, bytes).await;
            seq.expect("recorded");
        }
    });
}

fn refused(settings: &LedgerSettings) -> String {
    match Ledger::start(settings, facts()) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

/// The folder as it is, to be put back later.
fn save(dir: &TempDir, name: &str) {
    let (from, to) = (dir.path().join("ledger"), dir.path().join(name));
    fs::create_dir_all(&to).expect("a folder");
    for entry in fs::read_dir(from).expect("the folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

fn put_back(dir: &TempDir, name: &str) {
    fs::remove_dir_all(dir.path().join("ledger")).expect("removed");
    fs::rename(dir.path().join(name), dir.path().join("ledger")).expect("renamed");
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(dir.path().join("ledger"), fs::Permissions::from_mode(0o700)).expect("set");
}

fn against(dir: &TempDir, kept: &[&str]) -> Option<Problem> {
    let kept: Vec<PathBuf> = kept.iter().map(|name| dir.path().join(name)).collect();
    verify_against(&dir.path().join("ledger"), &kept, &mut |_, _| {})
        .expect("readable files")
        .problem
}

#[test]
fn verify_holds_a_ledger_against_checkpoints_kept_elsewhere() {
    let dir = folder();
    let settings = settings(dir.path());
    run(&settings, 2);
    fs::copy(
        dir.path().join("ledger/checkpoint"),
        dir.path().join("first"),
    )
    .expect("copied");
    save(&dir, "young");
    run(&settings, 3);
    fs::copy(
        dir.path().join("ledger/checkpoint"),
        dir.path().join("second"),
    )
    .expect("copied");
    assert_eq!(against(&dir, &["first"]), None);
    assert_eq!(against(&dir, &["second", "first", "first"]), None);

    // Ledger and checkpoint cut together: by itself the ledger is whole.
    put_back(&dir, "young");
    assert_eq!(against(&dir, &["first"]), None);
    let problem = against(&dir, &["first", "second"]).expect("cut");
    assert_eq!(problem.fault, Fault::KeptShort { covers: 9, here: 4 });
    assert_eq!(problem.file, dir.path().join("second"));

    // The same length again, and other records.
    run(&settings, 3);
    let problem = against(&dir, &["second", "first"]).expect("written anew");
    assert_eq!(problem.fault, Fault::KeptRoot { covers: 9 });

    let another = folder();
    run(&super::settings(another.path()), 2);
    fs::copy(
        another.path().join("ledger/checkpoint"),
        dir.path().join("foreign"),
    )
    .expect("copied");
    assert_eq!(
        against(&dir, &["foreign"]).expect("foreign").fault,
        Fault::KeptSignature
    );
    let note = fs::read_to_string(dir.path().join("first")).expect("a note");
    fs::write(
        dir.path().join("forged"),
        note.replacen("\n4\n", "\n3\n", 1),
    )
    .expect("written");
    assert_eq!(
        against(&dir, &["forged"]).expect("forged").fault,
        Fault::KeptSignature
    );
    fs::write(dir.path().join("broken"), "4\n").expect("written");
    assert_eq!(
        against(&dir, &["broken"]).expect("broken").fault,
        Fault::CheckpointForm
    );
    let missing = [dir.path().join("missing")];
    let error = verify_against(&dir.path().join("ledger"), &missing, &mut |_, _| {});
    assert!(matches!(error, Err(LedgerError::Io { .. })), "{error:?}");
}

#[test]
fn the_copy_is_the_checkpoint_and_a_missing_one_is_made() {
    let dir = folder();
    let settings = copied(&dir);
    let copy = dir.path().join("kept/checkpoint");
    let own = || fs::read_to_string(dir.path().join("ledger/checkpoint")).expect("a checkpoint");
    for _ in 0..2 {
        let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
        assert_eq!(fs::read_to_string(&copy).expect("made at the start"), own());
        add(&ledger, 2);
        ledger.stop();
        assert_eq!(fs::read_to_string(&copy).expect("made at the stop"), own());
    }
    fs::remove_file(&copy).expect("removed");
    run(&settings, 1);
    assert_eq!(fs::read_to_string(&copy).expect("made anew"), own());
    assert_eq!(
        fs::read_dir(dir.path().join("kept"))
            .expect("a folder")
            .count(),
        1,
        "nothing else is left there"
    );
    whole(&dir);
}

#[test]
fn a_ledger_that_is_not_the_copys_refuses_the_start_and_names_the_copy() {
    let dir = folder();
    let settings = copied(&dir);
    run(&settings, 2);
    save(&dir, "young");
    run(&settings, 2);
    let copy = dir.path().join("kept/checkpoint");
    let name = copy.display().to_string();

    // Cut together with its checkpoint.
    save(&dir, "old");
    put_back(&dir, "young");
    save(&dir, "young");
    let why = refused(&settings);
    assert!(why.contains(&name) && why.contains("was cut"), "{why}");
    // The same length, other records.
    run(
        &LedgerSettings {
            checkpoint_copy: None,
            ..settings.clone()
        },
        2,
    );
    let why = refused(&settings);
    assert!(
        why.contains(&name) && why.contains("was rewritten"),
        "{why}"
    );
    // A new ledger in its place.
    fs::remove_dir_all(dir.path().join("ledger")).expect("removed");
    let why = refused(&settings);
    assert!(
        why.contains(&name) && why.contains("not signed by"),
        "{why}"
    );
    fs::remove_dir_all(dir.path().join("ledger")).expect("removed");
    fs::create_dir(dir.path().join("ledger")).expect("made");
    put_back(&dir, "old");
    run(&settings, 1);

    let good = fs::read_to_string(&copy).expect("a copy");
    fs::write(&copy, good.replacen("leafgate-", "other-", 1)).expect("written");
    let why = refused(&settings);
    assert!(
        why.contains(&name) && why.contains("not signed by"),
        "{why}"
    );
    fs::write(&copy, &good[..good.len() - 2]).expect("written");
    let why = refused(&settings);
    assert!(why.contains(&name) && why.contains("form"), "{why}");
    fs::write(&copy, &good).expect("written");
    run(&settings, 1);
    whole(&dir);
}

#[test]
fn a_copy_without_a_folder_or_within_the_ledgers_refuses_the_start() {
    let dir = folder();
    let at = |path: &str| LedgerSettings {
        checkpoint_copy: Some(dir.path().join(path)),
        ..settings(dir.path())
    };
    let why = refused(&at("missing/checkpoint"));
    assert!(
        why.contains("missing/checkpoint") && why.contains("checkpoint_copy"),
        "{why}"
    );
    std::os::unix::fs::symlink(dir.path().join("ledger"), dir.path().join("link")).expect("a link");
    let why = refused(&at("link/copy"));
    assert!(
        why.contains("link/copy") && why.contains("in the ledger's folder"),
        "{why}"
    );
    assert!(
        !dir.path().join("ledger/leafgate.key").exists(),
        "nothing was made"
    );
}

#[test]
fn a_copy_that_fails_does_not_latch_is_shown_and_is_tried_again() {
    let dir = folder();
    let mut settings = copied(&dir);
    settings.checkpoint_every = Duration::from_millis(20);
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    // Not even root writes into a folder that is gone.
    let (kept, away) = (dir.path().join("kept"), dir.path().join("away"));
    fs::rename(&kept, &away).expect("moved");
    let wait_for = |failed: bool| {
        for _ in 0..400 {
            add(&ledger, 1);
            let error = ledger.state().checkpoint_error;
            if error.is_some() == failed {
                return error;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("checkpoint_error never was there: {failed}");
    };
    let why = wait_for(true).expect("an error");
    assert!(why.contains("copy"), "{why}");
    assert!(ledger.state().ok);
    fs::rename(&away, &kept).expect("moved back");
    wait_for(false);
    ledger.stop();
    let own = fs::read(dir.path().join("ledger/checkpoint")).expect("a checkpoint");
    assert_eq!(fs::read(kept.join("checkpoint")).expect("a copy"), own);
    whole(&dir);
}

#[test]
fn a_copy_from_before_a_prune_is_written_anew_and_a_cut_after_that_is_still_found() {
    let dir = folder();
    let settings = copied(&dir);
    run(&settings, 2);
    let at = dir.path().join("ledger");
    super::super::rotate_key(&at).expect("rotated");
    super::super::seal(&at).expect("sealed");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    let pruning = super::super::prune(&at, soon, &mut |_| true).expect("pruned");
    assert!(pruning.done);
    run(&settings, 1);
    let copy = fs::read_to_string(dir.path().join("kept/checkpoint")).expect("a copy");
    assert_eq!(
        copy,
        fs::read_to_string(at.join("checkpoint")).expect("a checkpoint")
    );
    save(&dir, "short");
    run(&settings, 2);
    put_back(&dir, "short");
    assert!(refused(&settings).contains("was cut"));
}

#[test]
fn a_longer_ledger_without_its_checkpoint_refuses_the_start() {
    let dir = folder();
    let settings = settings(dir.path());
    // `open` alone is what a crash of the first start leaves; one more record is not.
    for messages in [0, 3] {
        run(&settings, messages);
        fs::remove_file(dir.path().join("ledger/checkpoint")).expect("removed");
        assert!(refused(&settings).contains("checkpoint"), "{messages}");
        fs::remove_dir_all(dir.path().join("ledger")).expect("removed");
    }
    run(&settings, 0);
    let segment = dir.path().join("ledger/000000000000.jsonl");
    let text = fs::read_to_string(&segment).expect("a segment");
    let first = text.split_inclusive('\n').next().expect("open");
    fs::write(&segment, first).expect("cut");
    fs::remove_file(dir.path().join("ledger/checkpoint")).expect("removed");
    run(&settings, 1);
    whole(&dir);
}
