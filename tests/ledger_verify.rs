//! The ledger from outside: `verify` and `docs/verify.py` over whole, rotated and pruned ledgers, and over each kind of tampering with them. Both must find it, and
//! name the same record.

use std::ffi::OsStr;
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
fn python(dir: &Path) -> Option<(i32, String)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.py");
    python3(&[OsStr::new(script), dir.as_os_str()])
}

/// Exit status of `docs/sixty.py`, which knows no pruned segments.
fn sixty(dir: &Path) -> Option<i32> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sixty.py");
    python3(&[OsStr::new(script), dir.as_os_str()]).map(|(status, _)| status)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a test runs the verifier that an auditor would"
)]
fn python3(args: &[&OsStr]) -> Option<(i32, String)> {
    match std::process::Command::new("python3").args(args).output() {
        Ok(done) => {
            let said = [done.stdout, done.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            Some((done.status.code().unwrap_or(-1), said))
        }
        Err(cause) => {
            eprintln!("SKIPPED: nothing of docs/*.py was run: python3: {cause}");
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
        let pruned = dir.join("pruned").exists();
        if let Some(status) = sixty(dir) {
            assert_eq!(status, if pruned { 2 } else { 0 }, "{name}");
        }
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
            (
                "a field left out",
                Some(here),
                Box::new(|l| {
                    l[at] = l[at].replacen("\"bytes\":17,", "", 1).replacen(
                        "\"reason\":",
                        "\"peer\":",
                        1,
                    )
                }),
            ),
            (
                "a field of another kind",
                Some(here),
                Box::new(|l| l[at] = l[at].replacen(":17,", ":\"17\",", 1)),
            ),
            (
                // The form of a time is its digits: that no clock has such an hour, neither asks.
                "an hour that no clock has",
                Some(here + 1),
                Box::new(|l| l[at] = with_hour_99(&l[at])),
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
            if let (Some(status), false) = (sixty(&work), pruned) {
                assert_eq!(status, 1, "{name}: {edit}");
            }
        }
        // The checkpoint covers it, and the record says more than that one is missing.
        for cut in [1, 30] {
            copy(dir, &work)?;
            let whole = text(&good);
            let path = work.join(segment.file_name().ok_or("a name")?);
            std::fs::write(path, &whole[..whole.len() - cut])?;
            broken(&work, &format!("{name}: torn by {cut}"), Some(end))?;
        }
        loose_base64(name, dir, &work)?;
        other_keys(name, dir, stranger, &work)?;
    }
    rotations(&all[1].1, &foreign[1].1, &work)?;
    integers(&all[2].1, &work)?;
    prunes(&all[2].1, &work)
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn with_hour_99(line: &str) -> String {
    let hour = line.rfind('T').map_or(0, |at| at + 1);
    format!("{}99{}", &line[..hour], &line[hour + 2..])
}

/// The checkpoint's signature with a bit set that its base64 does not use: the same bytes to a reader that is lax.
fn loose_base64(name: &str, dir: &Path, work: &Path) -> Fallible<()> {
    copy(dir, work)?;
    let mut note = std::fs::read(dir.join("checkpoint"))?;
    let last = note.len() - 3;
    assert_eq!(
        &note[last + 1..],
        b"=\n",
        "68 bytes have one sign of padding"
    );
    note[last] = match note[last] {
        b'9' => b'+',
        b'Z' => b'a',
        b'z' => b'0',
        other => other + 1,
    };
    std::fs::write(work.join("checkpoint"), note)?;
    broken(work, &format!("{name}: loose base64"), None)
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
    type Forge<'a> = (&'a str, Option<u64>, Box<dyn Fn(&mut Lines) + 'a>);
    let forgeries: Vec<Forge<'_>> = vec![
        (
            "a record dropped",
            Some(number(carried)),
            Box::new(|l| drop(l.remove(carried))),
        ),
        (
            "a carried record dropped, and all after it written anew",
            Some(number(carried)),
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
            Some(number(carried)),
            Box::new(|l| l[carried] = l[carried].replacen("\"bytes\":", "\"bytes\":1", 1)),
        ),
        (
            "the record of pruned forged",
            Some(marked),
            Box::new(|l| l[at] = l[at].replacen("\"bytes\":", "\"bytes\":1", 1)),
        ),
        (
            "a record forged, and all after it written anew",
            Some(number(carried)),
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
    // `pruned` is forged to match as well: the signatures are left.
    copy(dir, work)?;
    let mut lines = good.clone();
    lines[carried] = lines[carried].replacen("\"bytes\":", "\"bytes\":1", 1);
    chained(&mut lines, carried + 1);
    std::fs::write(&path, text(&lines))?;
    std::fs::write(work.join("pruned"), format!("{}\n", lines[at]))?;
    broken(work, "all of it forged", Some(number(carried)))
}

/// An integer where a string stands, in each field of each type of record and of `pruned`: both name the record.
fn integers(dir: &Path, work: &Path) -> Fallible<()> {
    let segment = oldest(dir)?;
    let name = segment.file_name().ok_or("a name")?;
    let good = lines(&segment)?;
    let mut seen = std::collections::BTreeSet::new();
    for at in 0..good.len() {
        let record: Value = serde_json::from_str(&good[at])?;
        let kind = record["t"].as_str().ok_or("a type")?;
        for (key, value) in record.as_object().ok_or("an object")? {
            if !value.is_string() || !seen.insert(format!("{kind}.{key}")) {
                continue;
            }
            copy(dir, work)?;
            let mut lines = good.clone();
            let mut record = record.clone();
            record[key] = 7.into();
            lines[at] = record.to_string();
            std::fs::write(work.join(name), text(&lines))?;
            broken(work, &format!("{kind}.{key}"), Some(seq(&good[at])))?;
        }
    }
    assert!(seen.contains("prune.signature") && seen.contains("refused.reason"));
    let mark: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("pruned"))?)?;
    for key in ["key", "last", "log", "signature", "t"] {
        copy(dir, work)?;
        let mut mark = mark.clone();
        mark[key] = 7.into();
        std::fs::write(work.join("pruned"), format!("{mark}\n"))?;
        broken(work, &format!("pruned: {key}"), None)?;
    }
    Ok(())
}

#[test]
fn the_docs_verifier_takes_one_folder_and_prints_no_control_characters() -> Fallible<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path().join("ledger");
    run(&dir, 1 << 20)?;
    let script = OsStr::new(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.py"));
    for args in [
        &[script][..],
        &[script, dir.as_os_str(), OsStr::new("--checkpoint")],
    ] {
        if let Some((status, said)) = python3(args) {
            assert_eq!(status, 2, "{said}");
            assert!(said.contains("FOLDER"), "{said}");
        }
    }
    // A name that is no text is no segment's, to both.
    std::fs::write(dir.join(OsStr::from_bytes(b"\xff.jsonl")), "x\n")?;
    whole(&dir, "a name that is no text")?;
    std::fs::write(dir.join("\u{1b}[31m.jsonl"), "x\n")?;
    broken(&dir, "a name with an escape", None)?;
    if let Some((_, said)) = python(&dir) {
        let plain = |c: char| c == '\n' || !c.is_control();
        assert!(
            said.contains("\\x1b") && said.chars().all(plain),
            "{said:?}"
        );
    }
    Ok(())
}

/// RFC 8032, section 7.1: public key, message, signature.
const RFC_8032: [[&str; 3]; 4] = [
    [
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ],
    [
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ],
    [
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ],
    [
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ],
];

/// The arguments are a folder and hex in threes: each signature holds; none does with a bit of a part flipped, with `s` counted once around, or cut.
const ED25519: &str = r#"
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from ed25519 import ORDER, signed
hexes = [bytes.fromhex(text) for text in sys.argv[2:]]
tried = 0
for at in range(0, len(hexes), 3):
    good = hexes[at:at + 3]
    assert signed(*good) is True, at
    s = int.from_bytes(good[2][32:], "little")
    bad = [[good[0], good[1], good[2][:32] + (s + ORDER).to_bytes(32, "little")], [good[0], good[1], good[2][:63]], [good[0][:31], *good[1:]]]
    for part, data in enumerate(good):
        for byte in {0, len(data) // 2, len(data) - 1} if data else ():
            changed = list(good)
            changed[part] = data[:byte] + bytes([data[byte] ^ 128]) + data[byte + 1:]
            bad.append(changed)
    for each in bad:
        tried += 1
        assert signed(*each) is False, (at, [part.hex() for part in each])
print(len(hexes) // 3, tried)
"#;

#[test]
fn the_short_verifier_has_sixty_lines() {
    let text = include_str!("../docs/sixty.py");
    assert!(text.lines().count() <= 60);
}

#[test]
fn the_docs_ed25519_says_what_rfc_8032_says() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    let args: Vec<&OsStr> = ["-c", ED25519, docs]
        .into_iter()
        .chain(RFC_8032.iter().flatten().copied())
        .map(OsStr::new)
        .collect();
    if let Some((status, said)) = python3(&args) {
        assert_eq!((status, said.trim()), (0, "4 42"));
    }
}
