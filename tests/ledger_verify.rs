//! The ledger from outside: `verify` and `docs/verify.py` over whole, rotated and pruned ledgers, and over each kind of tampering with them. Both must find it, and
//! name the same record.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leafgate::admit::{CallFacts, CallId, Refusal};
use leafgate::card::Reading;
use leafgate::ledger::{Ledger, RunFacts, prune, rotate_key, seal, verify};
use leafgate::policy::{LedgerSettings, Sync};
use leafgate::terms::{Reason, Verdict};
use leafgate::tree::classify;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;
type Lines = Vec<String>;

/// One run: `open`, twelve holds with a refused message after each, `stop`.
fn run(dir: &Path, segment_bytes: u64) -> Fallible<()> {
    let settings = LedgerSettings {
        dir: dir.to_owned(),
        segment_bytes,
        checkpoint_every: Duration::from_secs(10),
        checkpoint_copy: None,
        sync: Sync::Record,
    };
    let facts = RunFacts {
        version: env!("CARGO_PKG_VERSION"),
        policy: "00".repeat(32),
        oracle: "11".repeat(32),
    };
    let ledger = Ledger::start(&settings, facts)?;
    let ruling = classify(&Reading::Missing).ruling();
    tokio::runtime::Runtime::new()?.block_on(async {
        for number in 0..12 {
            let facts = CallFacts {
                call: CallId::new(number, [1; 10]),
                attach: None,
                card: None,
                ruling,
                route: None,
                host: None,
                failure_label: None,
                body: None,
                peer_uid: None,
            };
            let refusal = Refusal {
                facts,
                verdict: Verdict::Refuse,
                reason: ruling.reason,
                field: None,
                hint: String::new(),
            };
            let seq = ledger.refuse(&refusal).await.map_err(|e| e.reason.code());
            let next = ledger.message_refused(Reason::HttpMalformed, 17).await;
            let next = next.map_err(|e| e.reason.code());
            assert_eq!(seq.map(|seq| seq + 1), next, "one record after the other");
        }
    });
    ledger.stop();
    Ok(())
}

/// Exit status and words of `docs/verify.py`; `None`, loudly, where there is no python3.
#[allow(
    clippy::disallowed_methods,
    reason = "a test runs the verifier that an auditor would"
)]
fn python(dir: &Path) -> Option<(i32, String)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.py");
    match std::process::Command::new("python3")
        .arg(script)
        .arg(dir)
        .output()
    {
        Ok(done) => {
            let said = [done.stdout, done.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            Some((done.status.code().unwrap_or(-1), said))
        }
        Err(cause) => {
            eprintln!("SKIPPED: docs/verify.py was not run: python3: {cause}");
            None
        }
    }
}

/// That both find it whole.
fn whole(dir: &Path, name: &str) -> Fallible<()> {
    let problem = verify(dir, &mut |_, _| ())?.problem;
    assert_eq!(problem.map(|problem| problem.to_string()), None, "{name}");
    if let Some((status, said)) = python(dir) {
        assert_eq!(status, 0, "{name}: {said}");
    }
    Ok(())
}

/// That both find a problem and name this record, where one is to be named.
fn broken(dir: &Path, name: &str, seq: Option<u64>) -> Fallible<()> {
    let problem = verify(dir, &mut |_, _| ())?.problem;
    let problem = problem.ok_or(format!("{name}: not found"))?;
    assert_eq!(problem.seq, seq, "{name}: {problem}");
    if let Some((status, said)) = python(dir) {
        assert_eq!(status, 1, "{name}: {said}");
        if let Some(seq) = seq {
            assert!(said.contains(&format!("record {seq}")), "{name}: {said}");
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Fallible<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        std::fs::copy(&path, to.join(path.file_name().ok_or("a name")?))?;
    }
    Ok(())
}

/// The newest segment.
fn newest(dir: &Path) -> Fallible<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    all.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    Ok(all.into_iter().max().ok_or("no segment")?)
}

fn lines(path: &Path) -> Fallible<Lines> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn field(line: &str, key: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap_or_default()[key].clone()
}

fn seq(line: &str) -> u64 {
    field(line, "seq").as_u64().unwrap_or(u64::MAX)
}

/// Every line from `from` on follows the one before it again, and is numbered so.
fn chained(lines: &mut Lines, from: usize) {
    for at in from.max(1)..lines.len() {
        let before = Sha256::digest(&lines[at - 1]);
        let before: String = before.iter().map(|byte| format!("{byte:02x}")).collect();
        let number = seq(&lines[at - 1]) + 1;
        let mut record: Value = serde_json::from_str(&lines[at]).unwrap_or_default();
        record["prev"] = before.into();
        record["seq"] = number.into();
        lines[at] = record.to_string();
    }
}

/// The three ledgers: one run; two runs with a rotation between; three runs, pruned.
fn ledgers(scratch: &Path) -> Fallible<Vec<(&'static str, PathBuf)>> {
    let at = |name| (name, scratch.join(name));
    let all = vec![at("plain"), at("rotated"), at("pruned")];
    let [plain, rotated, pruned] = [0, 1, 2].map(|place: usize| all[place].1.as_path());
    run(plain, 1 << 20)?;
    run(rotated, 1 << 20)?;
    rotate_key(rotated)?;
    run(rotated, 1 << 20)?;
    run(pruned, 2000)?;
    rotate_key(pruned)?;
    seal(pruned)?;
    let soon = Timestamp::now() + SignedDuration::from_secs(60);
    assert!(prune(pruned, soon, &mut |_| true)?.done);
    // The first prune records go too, and are carried.
    run(pruned, 1 << 20)?;
    seal(pruned)?;
    assert!(prune(pruned, soon, &mut |_| true)?.carried > 0);
    run(pruned, 1 << 20)?;
    Ok(all)
}

#[test]
fn both_verifiers_find_each_kind_of_tampering_and_name_the_record() -> Fallible<()> {
    let scratch = tempfile::tempdir()?;
    let work = scratch.path().join("work");
    let all = ledgers(scratch.path())?;
    let strangers = scratch.path().join("strangers");
    std::fs::create_dir(&strangers)?;
    let foreign = ledgers(&strangers)?;
    for ((name, dir), (_, stranger)) in all.iter().zip(&foreign) {
        whole(dir, name)?;
        let segment = newest(dir)?;
        let good = lines(&segment)?;
        let other = lines(&newest(stranger)?)?;
        assert_eq!(good.len(), other.len(), "{name}: the same runs");
        // A refused message of the last run, and what stands after it.
        let at = good
            .iter()
            .rposition(|line| field(line, "t") == "refused")
            .ok_or("a refused message")?
            - 4;
        let here = seq(&good[at]);
        let last = good.len() - 1;
        let end = seq(&good[last]);
        type Edit<'a> = (&'a str, Option<u64>, Box<dyn Fn(&mut Lines) + 'a>);
        let edits: Vec<Edit<'_>> = vec![
            (
                "flip",
                Some(here + 1),
                Box::new(|l| l[at] = l[at].replacen(":17,", ":18,", 1)),
            ),
            ("drop", Some(here), Box::new(|l| drop(l.remove(at)))),
            ("swap", Some(here), Box::new(|l| l.swap(at, at + 1))),
            ("cut", None, Box::new(|l| l.truncate(last))),
            (
                "duplicate",
                Some(here + 1),
                Box::new(|l| l.insert(at, good[at].clone())),
            ),
            (
                "splice",
                Some(here),
                Box::new(|l| l[at].clone_from(&other[at])),
            ),
            (
                "the last line edited",
                Some(end),
                Box::new(|l| l[last] = l[last].replacen("00", "01", 1)),
            ),
            (
                "renumbered",
                Some(here),
                Box::new(|l| {
                    l.remove(at);
                    for line in &mut l[at..] {
                        let number = seq(line);
                        *line = line.replacen(
                            &format!("\"seq\":{number},"),
                            &format!("\"seq\":{},", number - 1),
                            1,
                        );
                    }
                }),
            ),
            (
                "written anew",
                Some(end),
                Box::new(|l| {
                    l[at] = l[at].replacen(":17,", ":18,", 1);
                    chained(l, at + 1);
                }),
            ),
            (
                "out of form",
                Some(here),
                Box::new(|l| l[at] = l[at].replacen(':', ": ", 1)),
            ),
        ];
        for (edit, named, change) in edits {
            copy(dir, &work)?;
            let mut lines = good.clone();
            change(&mut lines);
            std::fs::write(
                work.join(segment.file_name().ok_or("a name")?),
                text(&lines),
            )?;
            broken(&work, &format!("{name}: {edit}"), named)?;
        }
        other_keys(name, dir, stranger, &work)?;
    }
    rotations(&all[1].1, &foreign[1].1, &work)?;
    prunes(&all[2].1, &work)
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Another ledger's key and checkpoint over these records.
fn other_keys(name: &str, dir: &Path, stranger: &Path, work: &Path) -> Fallible<()> {
    copy(dir, work)?;
    std::fs::copy(stranger.join("leafgate.pub"), work.join("leafgate.pub"))?;
    std::fs::copy(stranger.join("checkpoint"), work.join("checkpoint"))?;
    // The first record under the last key: it is that key's word against leafgate.pub.
    let first = match name {
        "plain" => 0,
        "rotated" => 26,
        _ => seq(&lines(&oldest(dir)?)?[0]),
    };
    broken(work, &format!("{name}: another key"), Some(first))?;
    copy(dir, work)?;
    std::fs::copy(stranger.join("checkpoint"), work.join("checkpoint"))?;
    broken(work, &format!("{name}: another checkpoint"), None)
}

fn oldest(dir: &Path) -> Fallible<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    all.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    Ok(all.into_iter().min().ok_or("no segment")?)
}

/// A rotation that the old key did not sign, with the key that signs now to match.
fn rotations(dir: &Path, stranger: &Path, work: &Path) -> Fallible<()> {
    let segment = newest(dir)?;
    let good = lines(&segment)?;
    let at = good
        .iter()
        .position(|line| field(line, "t") == "key")
        .ok_or("a rotation")?;
    let theirs = std::fs::read_to_string(stranger.join("leafgate.pub"))?;
    for (edit, whose) in [("their key", true), ("an empty signature", false)] {
        copy(dir, work)?;
        let mut lines = good.clone();
        let mut record: Value = serde_json::from_str(&lines[at])?;
        if whose {
            record["key"] = theirs.trim_end().into();
            std::fs::copy(stranger.join("leafgate.pub"), work.join("leafgate.pub"))?;
        } else {
            record["signature"] = "".into();
        }
        lines[at] = record.to_string();
        chained(&mut lines, at + 1);
        std::fs::write(work.join("000000000000.jsonl"), text(&lines))?;
        broken(work, edit, Some(at as u64))?;
    }
    Ok(())
}

/// The file `pruned` and the prune records.
fn prunes(dir: &Path, work: &Path) -> Fallible<()> {
    let mark = std::fs::read_to_string(dir.join("pruned"))?;
    let marked = seq(mark.trim_end());
    let segment = oldest(dir)?;
    let good = lines(&segment)?;
    let base = seq(&good[0]);
    let zeros = "0".repeat(64);
    let hash = |key: &str| {
        field(mark.trim_end(), key)
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    for (edit, text, named) in [
        (
            "its hash",
            mark.replacen(&hash("sha256"), &zeros, 1),
            Some(marked),
        ),
        (
            "its last line",
            mark.replacen(&hash("last"), &zeros, 1),
            Some(base),
        ),
        (
            "its counts",
            mark.replacen("\"refused\":", "\"refused\":1", 1),
            Some(marked),
        ),
        ("another form", mark.replacen(':', ": ", 1), None),
        ("empty", String::new(), None),
    ] {
        copy(dir, work)?;
        std::fs::write(work.join("pruned"), text)?;
        broken(work, &format!("pruned: {edit}"), named)?;
    }
    copy(dir, work)?;
    std::fs::remove_file(work.join("pruned"))?;
    broken(work, "pruned: missing", None)?;

    let path = work.join(segment.file_name().ok_or("a name")?);
    let at = usize::try_from(marked - base)?;
    let carried = good
        .iter()
        .position(|line| field(line, "t") == "prune" && field(line, "segment") == 0)
        .ok_or("a carried record")?;
    let number = |at: usize| base + at as u64;
    let root = number(good.len() - 1);
    type Forge<'a> = (&'a str, Option<u64>, Box<dyn Fn(&mut Lines) + 'a>);
    let forgeries: Vec<Forge<'_>> = vec![
        (
            "a record dropped",
            Some(number(carried)),
            Box::new(|l| drop(l.remove(carried))),
        ),
        (
            "a carried record dropped, and all after it written anew",
            Some(marked),
            Box::new(|l| {
                let gone = l.remove(carried);
                // The next one takes its place.
                let mut next: Value = serde_json::from_str(&l[carried]).unwrap_or_default();
                next["prev"] = field(&gone, "prev");
                next["seq"] = field(&gone, "seq");
                l[carried] = next.to_string();
                chained(l, carried + 1);
            }),
        ),
        (
            "a record forged",
            Some(number(carried + 1)),
            Box::new(|l| l[carried] = l[carried].replacen("\"bytes\":", "\"bytes\":1", 1)),
        ),
        (
            "the record of pruned forged",
            Some(marked),
            Box::new(|l| l[at] = l[at].replacen("\"bytes\":", "\"bytes\":1", 1)),
        ),
        (
            "a record forged, and all after it written anew",
            Some(marked),
            Box::new(|l| {
                l[carried] = l[carried].replacen("\"bytes\":", "\"bytes\":1", 1);
                chained(l, carried + 1);
            }),
        ),
    ];
    for (edit, named, change) in forgeries {
        copy(dir, work)?;
        let mut lines = good.clone();
        change(&mut lines);
        std::fs::write(&path, text(&lines))?;
        broken(work, edit, named)?;
    }
    // `pruned` is forged to match as well: the checkpoint's root is left.
    copy(dir, work)?;
    let mut lines = good.clone();
    lines[carried] = lines[carried].replacen("\"bytes\":", "\"bytes\":1", 1);
    chained(&mut lines, carried + 1);
    std::fs::write(&path, text(&lines))?;
    std::fs::write(work.join("pruned"), format!("{}\n", lines[at]))?;
    broken(work, "all of it forged", Some(root))
}
