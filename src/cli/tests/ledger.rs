//! `ledger list`, `show`, `export` and `explain`, over ledgers that are written here by hand.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::out::Done;
use super::*;

const HASH: &str = "sha256:9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c";

/// Writes records as one segment; each gets its `seq`, `prev`, `log` and, where it has none, `run` and `time`.
fn ledger(dir: &Path, first: u64, records: &[Value]) {
    let mut prev = "0".repeat(64);
    let mut text = String::new();
    for (seq, record) in (first..).zip(records) {
        let mut record = record.clone();
        record["seq"] = json!(seq);
        record["prev"] = json!(prev);
        record["v"] = json!(1);
        record["log"] = json!("leafgate-0123456789abcdef");
        for (key, value) in [("run", "01R"), ("time", "2026-11-30T07:00:00.000000Z")] {
            if record[key].is_null() {
                record[key] = json!(value);
            }
        }
        let line = record.to_string();
        prev = Sha256::digest(&line)
            .iter()
            .fold(String::new(), |mut hex, byte| {
                use std::fmt::Write as _;
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        text.push_str(&line);
        text.push('\n');
    }
    std::fs::write(dir.join(format!("{first:012}.jsonl")), text).unwrap();
}

/// A decision with a whole card; `more` replaces members, `null` takes them away.
fn decision(call: &str, leaf: &str, step: u64, reason: &str, verdict: &str, more: Value) -> Value {
    let class = match leaf {
        "split" => "redacted-metadata",
        "release" => "public-fixture",
        _ => "machine-local",
    };
    let mut record = json!({
        "t": "decision", "call": call, "attach": "header", "leaf": leaf, "step": step, "reason": reason, "verdict": verdict,
        "fixture_id": "seed-04", "fixture_hash": HASH, "egress_class": class, "residue": [], "host_pin": "models.example.org",
        "replay_window": "24h", "surface_named": true,
    });
    for (key, value) in more.as_object().unwrap() {
        record[key] = value.clone();
    }
    record
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    record
}

fn release(call: &str, plan: &str, more: Value) -> Value {
    let mut record = decision(call, "release", 5, "public_fixture", "forward", more);
    record["host"] = json!("models.example.org");
    record["route"] = json!("POST /chat/completions");
    record["plan_len"] = json!(900);
    record["plan_sha256"] = json!(plan.repeat(32));
    record["bind"] = json!({"mode": "cover", "glue_sha256": "11".repeat(32), "vocabulary_sha256": "22".repeat(32)});
    record["dropped"] = json!({"names": ["cookie"], "other": 2});
    record
}

fn outcome(call: &str, of: u64, plan: &str, answer: &str, model: Value) -> Value {
    json!({
        "t": "outcome", "call": call, "of": of, "sent": "all", "sent_len": 900, "sent_sha256": plan.repeat(32), "peer": "203.0.113.7:443",
        "status": 200, "received_len": 40, "received_sha256": answer.repeat(32), "model": model, "ms": 12,
    })
}

fn open(policy: &str) -> Value {
    json!({"t": "open", "version": "0.1.0", "policy": policy.repeat(32), "oracle": "0b".repeat(32), "sync": "record"})
}

fn yes(args: &[&str]) -> String {
    let (done, text) = ran(args);
    assert_eq!(done.unwrap(), Done::Yes, "{args:?}: {text}");
    text
}

fn no(args: &[&str]) -> String {
    let (done, text) = ran(args);
    assert_eq!(done.unwrap(), Done::No, "{args:?}: {text}");
    text
}

fn usage(args: &[&str]) -> String {
    match ran(args).0 {
        Err(Failure::Lines(lines)) => lines.join("\n"),
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn list_filters_and_says_what_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    assert_eq!(no(&["ledger", "list", at]), "");
    ledger(
        dir.path(),
        700,
        &[
            json!({"t": "prune", "segments": 3, "reason_text": "<script>\u{1b}[2J"}),
            decision("01A", "hold", 1, "machine_local", "refuse", json!({})),
            release(
                "01B",
                "aa",
                json!({"time": "2026-11-30T09:00:00.000000Z", "fixture_id": "seed-05"}),
            ),
            outcome("01B", 702, "aa", "c1", json!("m-small")),
            json!({"t": "later", "what": {"len": 3}}),
        ],
    );
    let all = yes(&["ledger", "list", at]);
    assert_eq!(all.lines().count(), 5, "{all}");
    // A person sees a heading besides, and the same records.
    let line = ["ledger", "list", at];
    let read = ran_to(&line, Out::read_by_a_person).1;
    let (heading, rest) = read.split_once('\n').unwrap();
    assert!(
        heading.contains("TYPE     VERDICT LEAF    STEP REASON") && heading.contains(" HOST "),
        "{heading}"
    );
    assert_eq!(rest, all);
    let line = ["ledger", "list", at, "--json"];
    assert_eq!(ran_to(&line, Out::read_by_a_person).1.lines().count(), 5);
    assert!(
        all.contains("decision refuse  hold    1    machine_local")
            && all.contains("decision forward release 5    public_fixture"),
        "{all}"
    );
    assert!(
        all.contains("prune    reason_text <script>\\u{1b}[2J, segments 3"),
        "{all}"
    );
    assert!(all.contains(r#"later    what {"len":3}"#), "{all}");
    assert!(
        all.contains("models.example.org") && all.contains("01A"),
        "{all}"
    );
    for (flag, value, seqs) in [
        ("--leaf", "hold", vec![701]),
        ("--verdict", "forward", vec![702]),
        ("--reason", "machine_local", vec![701]),
        ("--fixture", "seed-05", vec![702]),
        ("--fixture", HASH, vec![701, 702]),
        ("--host", "models.example.org", vec![701, 702]),
        ("--call", "01B", vec![702, 703]),
        ("--type", "outcome", vec![703]),
        ("--kind", "prune", vec![700]),
        ("--since", "2026-11-30T08:00:00Z", vec![702]),
        ("--until", "2026-12-01", vec![700, 701, 702, 703, 704]),
        ("--last", "2", vec![703, 704]),
        ("--before", "702", vec![700, 701]),
    ] {
        let text = yes(&["ledger", "list", at, flag, value, "--json"]);
        let found: Vec<u64> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap()["seq"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        assert_eq!(found, seqs, "{flag} {value}");
    }
    for (flag, value, legal) in [
        ("--leaf", "holds", "hold, split, release"),
        ("--verdict", "allow", "forward, refuse, local"),
        ("--reason", "typo", "card_missing"),
        ("--type", "decisions", "decision, outcome"),
        ("--since", "soon", "2h, 30m, 7d"),
        ("--before", "+5", "a seq"),
    ] {
        let line = usage(&["ledger", "list", at, flag, value]);
        assert!(line.starts_with(flag) && line.contains(legal), "{line}");
    }
    assert_eq!(no(&["ledger", "list", at, "--leaf", "split"]), "");
    usage(&["ledger", "list", "/nowhere"]);
}

#[test]
fn show_tells_a_release_from_its_records_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    ledger(
        dir.path(),
        0,
        &[
            open("0a"),
            release("01B", "aa", json!({})),
            outcome("01B", 1, "aa", "c1", json!({"len": 9, "mac": "ee"})),
        ],
    );
    let story = yes(&["ledger", "show", "01B", at]);
    for sentence in [
        "Call 01B.",
        "fixture_id: seed-04",
        "residue: []",
        "+ 5  Is egress_class public-fixture? YES, so the leaf is release.",
        "4  Is egress_class redacted-metadata? no.",
        "- 6  Anything else, a typo included? not reached.",
        "+ 1  Method and path are on the host's routes: passed.",
        "+ 6  The fixture is registered under the card's hash: passed.",
        "- 8  A failure label is there, on the list, and the payload does not contradict the card: not asked (not a split).",
        "+ 10  The body is bound to the fixture: passed, by cover.",
        "The decision cleared 900 bytes",
        "+ The SHA-256 of what was sent is the one that the decision cleared.",
        "the address dialled was 203.0.113.7:443",
        "status 200",
        "do not list: the record has its length (9 bytes) and an HMAC alone",
        "Record 2 names that hash as the one before it.",
        "There is no checkpoint in the folder.",
    ] {
        assert!(story.contains(sentence), "{sentence:?} in\n{story}");
    }
    assert_eq!(
        yes(&["ledger", "show", "1", at]),
        story,
        "a record's seq tells its call"
    );
    assert_eq!(
        yes(&["ledger", "show", "2", at, "--json"]).lines().count(),
        1
    );
    assert_eq!(
        yes(&["ledger", "show", "01B", at, "--json"])
            .lines()
            .count(),
        2
    );
    assert!(yes(&["ledger", "show", "0", at]).contains("leafgate was started"));
    no(&["ledger", "show", "9", at]);
    no(&["ledger", "show", "01Z", at]);
    usage(&["ledger", "show", "+1", at]);
}

/// The story of one decision as the only record.
fn told(record: Value) -> String {
    let dir = tempfile::tempdir().unwrap();
    ledger(dir.path(), 40, &[record]);
    yes(&["ledger", "show", "40", dir.path().to_str().unwrap()])
}

#[test]
fn every_step_of_the_tree_is_told_as_it_was_walked() {
    for (step, leaf, reason, sentence) in [
        (
            0,
            "hold",
            "card_ambiguous",
            "x 0  Is the card missing, there twice, or malformed? YES, so the leaf is hold (card_ambiguous).",
        ),
        (
            0,
            "hold",
            "field_missing",
            "x 0  Is a required field absent? YES, so the leaf is hold (the first such field is residue).",
        ),
        (
            1,
            "hold",
            "machine_local",
            "x 1  Is egress_class machine-local? YES, so the leaf is hold.",
        ),
        (
            2,
            "hold",
            "residue_present",
            "x 2  Is residue not empty? YES, so the leaf is hold (residue is []).",
        ),
        (
            3,
            "hold",
            "field_blank",
            "blank? YES, so the leaf is hold (the first such field is residue).",
        ),
        (
            6,
            "hold",
            "class_unknown",
            "x 6  Anything else, a typo included? YES, so the leaf is hold (egress_class is machine-local).",
        ),
    ] {
        let story = told(decision(
            "01A",
            leaf,
            step,
            reason,
            "refuse",
            json!({"field": "residue"}),
        ));
        assert!(story.contains(sentence), "{sentence:?} in\n{story}");
        assert!(
            story.contains("Not reached: the tree held the call."),
            "{story}"
        );
        assert!(story.contains("Nothing. No name was looked up"), "{story}");
    }
    let story = told(decision(
        "01A",
        "split",
        4,
        "label_unknown",
        "refuse",
        json!({}),
    ));
    assert!(
        story.contains("+ 4  Is egress_class redacted-metadata? YES, so the leaf is split."),
        "{story}"
    );
}

#[test]
fn every_check_of_admission_is_told_passed_failed_or_not_reached() {
    let reasons = [
        ("route_not_allowed", 1),
        ("hash_malformed", 2),
        ("id_malformed", 2),
        ("pin_placeholder", 3),
        ("pin_unknown", 4),
        ("pin_stale", 5),
        ("fixture_unknown", 6),
        ("fixture_mismatch", 6),
        ("fixture_changed", 7),
        ("media_not_allowed", 9),
        ("body_unbound", 10),
    ];
    for (reason, number) in reasons {
        let story = told(decision(
            "01A",
            "release",
            5,
            reason,
            "refuse",
            json!({"route": "POST /chat/completions"}),
        ));
        let failed = format!("FAILED ({reason})");
        let lines: Vec<&str> = story
            .lines()
            .filter(|line| line.contains(&failed))
            .collect();
        assert_eq!(lines.len(), 1, "{story}");
        assert!(
            lines[0].trim().starts_with(&format!("x {number}  ")),
            "{}",
            lines[0]
        );
        // The sixth to the last step of the tree are not reached either: the release is step 5.
        // A body is held against its fixture only where the fixture was checked.
        let unasked = story.contains("fixture is checked only where bind is cover or exact");
        let asked = ["fixture_changed", "media_not_allowed"].contains(&reason);
        assert_eq!(unasked, asked, "{reason}: {story}");
        let after = story.matches("not reached.").count();
        assert_eq!(after, 10 - number + 1, "{reason}: {story}");
    }
    let local = told(decision(
        "01A",
        "release",
        5,
        "public_fixture",
        "local",
        json!({"route": "GET /models"}),
    ));
    assert!(
        local.contains("- 6  The fixture is registered under the card's hash: not reached."),
        "{local}"
    );
    assert!(local.contains("answered from its policy"), "{local}");
    let late = told(decision(
        "01A",
        "release",
        5,
        "client_timeout",
        "refuse",
        json!({}),
    ));
    assert!(
        late.contains("how far admission got, the record cannot tell"),
        "{late}"
    );
}

#[test]
fn a_folder_that_is_not_the_ledgers_is_told_with_the_one_to_name() {
    let top = tempfile::tempdir().unwrap();
    let ledger = top.path().join("ledger");
    let told = |dir: &std::path::Path| match crate::cli::ledger::there(dir) {
        Err(crate::cli::out::Failure::Lines(lines)) => lines.join("\n"),
        Err(_) => panic!("not a fault of the folder"),
        Ok(()) => String::new(),
    };
    let missing = told(&ledger);
    assert!(
        missing.contains("no such folder") && missing.contains("ledger.dir"),
        "{missing}"
    );
    assert_eq!(
        told(top.path()),
        "",
        "an empty folder may be a new ledger's"
    );
    std::fs::create_dir(&ledger).unwrap();
    std::fs::write(ledger.join("leafgate.pub"), "").unwrap();
    let near = told(top.path());
    assert!(
        near.ends_with(&format!("it is in {}", ledger.display())),
        "{near}"
    );
    assert_eq!(told(&ledger), "");
}

#[test]
fn show_says_what_the_records_cannot_tell_and_where_they_contradict() {
    let sealed = json!({"len": 17, "mac": "ab".repeat(32)});
    let story = told(decision(
        "01A",
        "hold",
        6,
        "class_unknown",
        "refuse",
        json!({"egress_class": sealed, "residue": []}),
    ));
    assert!(story.contains("egress_class: (sealed: 17 bytes"), "{story}");
    let story = told(decision(
        "01A",
        "release",
        5,
        "public_fixture",
        "forward",
        json!({"residue": ["x"]}),
    ));
    assert!(
        story.contains("residue is [x]: the record contradicts itself"),
        "{story}"
    );
    assert!(story.contains("It may have left."), "{story}");
    let story = told(decision(
        "01A",
        "hold",
        5,
        "public_fixture",
        "forward",
        json!({}),
    ));
    assert!(story.contains("they contradict each other"), "{story}");
    let story = told(decision("01A", "hold", 9, "x", "refuse", json!({})));
    assert!(
        story.contains("step 9, which the tree does not have"),
        "{story}"
    );
    // The decision was pruned away.
    let story = told(outcome("01A", 3, "aa", "c1", json!("m")));
    assert!(
        story.contains("record 3, is not in these segments")
            && story.contains("The model that the host named: m. "),
        "{story}"
    );
    // A model that the policy does not list fits its grammar all the same: what is said is why it is not shown.
    let model = json!({"len": 8, "mac": "ab".repeat(32)});
    let story = told(outcome("01A", 3, "aa", "c1", model));
    assert!(
        story.contains("its models in the policy do not list: the record has its length (8 bytes)")
            && !story.contains("outside the grammar"),
        "{story}"
    );
    // Nothing in a record steers the terminal.
    let story = told(json!({"t": "\u{1b}]0;x\u{7}", "a\u{202e}b": "<script>\n"}));
    assert!(
        !story.contains('\u{1b}') && !story.contains('\u{202e}'),
        "{story}"
    );
    assert!(
        story.contains("a type that this leafgate does not know") && story.contains("<script>\\n"),
        "{story}"
    );
    // The next record names another hash.
    let dir = tempfile::tempdir().unwrap();
    ledger(dir.path(), 0, &[open("0a"), open("0b")]);
    let file = dir.path().join("000000000000.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("record", "Record", 1)).unwrap();
    let story = yes(&["ledger", "show", "0", dir.path().to_str().unwrap()]);
    assert!(story.contains("x Record 1 names another hash"), "{story}");
}

#[test]
fn show_ends_with_where_to_read_on_where_a_call_was_refused_or_failed() {
    let last = |records: &[Value], which: &str| {
        let dir = tempfile::tempdir().unwrap();
        ledger(dir.path(), 0, records);
        let at = dir.path().to_str().unwrap();
        let story = yes(&["ledger", "show", which, at]);
        story.lines().last().unwrap_or_default().replace(at, "DIR")
    };
    let held = decision("01A", "hold", 1, "machine_local", "refuse", json!({}));
    let wanted = "What to do: docs/reasons.md, machine_local; the fixture's other runs: leafgate ledger explain seed-04 DIR";
    assert_eq!(last(std::slice::from_ref(&held), "0"), wanted);
    assert_eq!(last(&[held], "01A"), wanted);
    let nobody = decision(
        "01A",
        "hold",
        0,
        "card_missing",
        "refuse",
        json!({"fixture_id": null}),
    );
    assert_eq!(
        last(&[nobody], "0"),
        "What to do: docs/reasons.md, card_missing"
    );
    let message = json!({"t": "refused", "reason": "not_found", "bytes": 3, "count": 1});
    assert_eq!(
        last(&[message], "0"),
        "What to do: docs/reasons.md, not_found"
    );
    // Forwarded, then ended on the way: what ended it is what to read about.
    let sent = release("01B", "aa", json!({}));
    let mut cut = outcome("01B", 0, "aa", "c1", json!("m"));
    cut["error"] = json!("connect_failed");
    let failed = last(&[sent.clone(), cut], "1");
    assert!(
        failed.starts_with("What to do: docs/reasons.md, connect_failed; "),
        "{failed}"
    );
    // The twins: a call that went well, and a record that is no refusal.
    let well = outcome("01B", 0, "aa", "c1", json!("m"));
    assert_eq!(last(&[sent, well], "0"), "");
    assert_eq!(last(&[open("0a")], "0"), "");
}

/// A fixture that was held without a class, released twice with the same bytes, released from another model, and split.
fn scene(dir: &Path) {
    let later = |time: &str| json!({"time": format!("2026-11-30T{time}.000000Z")});
    let timed = |mut record: Value, time: &str| {
        record["time"] = later(time)["time"].clone();
        record
    };
    ledger(
        dir,
        0,
        &[
            open("0a"),
            decision(
                "01A",
                "hold",
                0,
                "field_missing",
                "refuse",
                json!({"egress_class": null, "field": "egress_class"}),
            ),
            timed(release("01B", "aa", json!({})), "07:01:00"),
            timed(release("01C", "bb", json!({})), "07:01:01"),
            outcome("01B", 2, "aa", "c1", json!("m-small")),
            outcome("01C", 3, "bb", "c2", json!("m-small")),
            timed(release("01D", "aa", json!({})), "07:02:00"),
            outcome("01D", 6, "aa", "c1", json!("m-small")),
            json!({"t": "config", "policy": "0c".repeat(32)}),
            timed(release("01E", "aa", json!({})), "07:03:00"),
            outcome("01E", 9, "aa", "c9", json!("m-other")),
            timed(
                decision(
                    "01F",
                    "split",
                    4,
                    "redacted_metadata",
                    "forward",
                    json!({"host": "models.example.org", "plan_len": 1, "plan_sha256": "dd".repeat(32)}),
                ),
                "07:04:00",
            ),
            json!({"t": "outcome", "call": "01F", "of": 11, "sent": "all", "sent_len": 1, "score": "local", "received_sha256": "c7".repeat(32)}),
            decision(
                "01G",
                "hold",
                0,
                "card_missing",
                "refuse",
                json!({"fixture_id": null, "fixture_hash": null}),
            ),
        ],
    );
}

#[test]
fn explain_says_what_changed_between_two_runs_and_what_did_not() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    scene(dir.path());
    for fixture in ["seed-04", HASH] {
        let text = yes(&["ledger", "explain", fixture, at]);
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert!(
            text.starts_with(&format!("Fixture {fixture}: 5 runs")),
            "{text}"
        );
        for sentence in [
            "Run 1: hold, refuse, field_missing",
            "The card never named a class: there is no leaf to attach a score to.",
            "Run 2: release, forward, public_fixture\n  2 calls, records 2 to 3",
            "changed: leaf was hold, is release",
            "changed: class was (none), is public-fixture",
            "nothing was sent in the first of the two, so there is no peer, model or answer to compare",
            "Run 3: release, forward, public_fixture\n  1 call, record 6,",
            "bytes sent: 1 body left in both runs, 1 only in the first, 0 only in the second",
            "answers to the same bytes: 1 the same, 0 different",
            "Run 4: release, forward, public_fixture",
            "changed: model was m-small, is m-other",
            "answers to the same bytes: 0 the same, 1 different",
            "Run 5: split, forward, redacted_metadata",
            "The answers to a split do not replace the local score and are not compared.",
            "1 of 2 replays gave ANOTHER answer digest to the same bytes",
            "1 decision had no card that could be read",
        ] {
            assert!(text.contains(sentence), "{sentence:?} in\n{text}");
        }
        let third = parts
            .iter()
            .find(|part| part.contains("model was m-small"))
            .unwrap();
        assert!(
            third.contains(&format!(
                "changed: policy was {}, is {}",
                "0a".repeat(32),
                "0c".repeat(32)
            )),
            "{third}"
        );
        assert!(
            third.contains(
                "not changed: leaf, verdict, reason, host, pin, fixture id, fixture hash, class"
            ),
            "{third}"
        );
        assert!(
            !text.contains(&"c7".repeat(32)),
            "a split's digest is no answer: {text}"
        );
    }
    let whole: Value =
        serde_json::from_str(&yes(&["ledger", "explain", "seed-04", at, "--json"])).unwrap();
    assert_eq!(whole["runs"].as_array().unwrap().len(), 5);
    assert_eq!(whole["runs"][0]["class_named"], false);
    assert_eq!(
        whole["changes"][2]["changed"]["model"],
        json!({"before": "m-small", "after": "m-other"})
    );
    assert_eq!(
        (
            &whole["replay"][0]["same"],
            &whole["replay"][0]["different"]
        ),
        (&json!(1), &json!(1))
    );
    assert_eq!(no(&["ledger", "explain", "seed-99", at]), "");
    assert_eq!(
        no(&["ledger", "explain", "seed-04", at, "--since", "2027-01-01"]),
        ""
    );
    usage(&["ledger", "explain", "sha256:xyz", at]);
    usage(&["ledger", "explain", "a b", at]);
    let one = yes(&["ledger", "explain", "seed-04", at, "--last", "1"]);
    assert!(
        one.contains("not shown: the first 4 runs; --last 5 shows all") && one.contains("Run 5"),
        "{one}"
    );
}

#[test]
fn explain_does_not_guess_how_long_a_named_window_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let window = |name: &str, time: &str| json!({"replay_window": name, "time": format!("2026-{time}T07:00:00.000000Z")});
    ledger(
        dir.path(),
        0,
        &[
            release("01A", "aa", window("nightly", "11-01")),
            outcome("01A", 0, "aa", "c1", json!("m")),
            release("01B", "aa", window("nightly", "11-02")),
            outcome("01B", 2, "aa", "c1", json!("m")),
            release("01C", "bb", window("7d", "11-01")),
            outcome("01C", 4, "bb", "c1", json!("m")),
            release("01D", "bb", window("7d", "11-20")),
            outcome("01D", 6, "bb", "c2", json!("m")),
        ],
    );
    let text = yes(&["ledger", "explain", "seed-04", at]);
    assert!(
        text.contains(
            "The replay window nightly of the pin models.example.org names no length of time"
        ),
        "{text}"
    );
    assert!(
        text.contains("replay window 7d: no replay lies within the window"),
        "{text}"
    );
    assert!(
        text.contains("1 replay, further apart than the window: not compared."),
        "{text}"
    );
}

#[test]
fn export_writes_a_file_and_its_manifest_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (records, to) = (dir.path().join("ledger"), dir.path().join("run.jsonl"));
    std::fs::create_dir(&records).unwrap();
    scene(&records);
    let (at, file) = (records.to_str().unwrap(), to.to_str().unwrap());
    yes(&["ledger", "export", at, "--format", "jsonl", "--out", file]);
    let bytes = std::fs::read(&to).unwrap();
    assert_eq!(
        bytes,
        std::fs::read(records.join("000000000000.jsonl")).unwrap()
    );
    let manifest = std::fs::read_to_string(dir.path().join("run.jsonl.manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(manifest["sha256"], json!(digest));
    assert_eq!(
        (
            &manifest["records"],
            &manifest["first_seq"],
            &manifest["last_seq"]
        ),
        (&json!(14), &json!(0), &json!(13))
    );
    assert!(
        usage(&["ledger", "export", at, "--format", "jsonl", "--out", file]).contains("--force")
    );
    yes(&[
        "ledger", "export", at, "--format", "csv", "--leaf", "split", "--out", file, "--force",
    ]);
    let text = std::fs::read_to_string(&to).unwrap();
    assert_eq!(
        text.split("\r\n").filter(|line| !line.is_empty()).count(),
        2,
        "{text}"
    );
    // Not into the ledger's folder, nor below it, nor by a link; its twin beside it was written above.
    let below = records.join("sub");
    std::fs::create_dir(&below).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&below, &link).unwrap();
    for inside in [&records, &below, &link] {
        let inside = inside.join("x");
        let inside = inside.to_str().unwrap();
        let refused = usage(&["ledger", "export", at, "--format", "csv", "--out", inside]);
        assert!(
            refused.contains("--out") && refused.contains("own folder"),
            "{refused}"
        );
        let refused = usage(&["ledger", "prove", "1", at, "--record", inside]);
        assert!(
            refused.contains("--record") && refused.contains("own folder"),
            "{refused}"
        );
        assert!(!Path::new(inside).exists());
    }
    let beside = dir.path().join("1.json");
    // There is no checkpoint here to prove against, and that is what it says.
    no(&[
        "ledger",
        "prove",
        "1",
        at,
        "--record",
        beside.to_str().unwrap(),
    ]);
    std::fs::remove_file(&link).unwrap();
    std::fs::remove_dir(&below).unwrap();
    assert!(usage(&["ledger", "export", at, "--format", "xml"]).contains("jsonl, csv, ocsf, html"));
    let other = dir.path().join("none.csv");
    no(&[
        "ledger",
        "export",
        at,
        "--format",
        "csv",
        "--fixture",
        "seed-99",
        "--out",
        other.to_str().unwrap(),
    ]);
    assert!(!other.exists());
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        3,
        "no scratch file stays"
    );
    let printed = yes(&["ledger", "export", at, "--format", "jsonl", "--call", "01B"]);
    assert_eq!(printed.lines().count(), 2);
}

/// A release at so many tenths of a second, with a window of two seconds.
fn at(call: &str, plan: &str, tenths: u64) -> Value {
    let time = format!("2026-11-30T07:00:{:02}.{}00000Z", tenths / 10, tenths % 10);
    release(call, plan, json!({"replay_window": "2s", "time": time}))
}

fn explained(records: &[Value], more: &[&str]) -> (String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    ledger(dir.path(), 0, records);
    let mut args = vec!["ledger", "explain", "seed-04", at];
    args.extend(more);
    let text = yes(&args);
    args.push("--json");
    (text, serde_json::from_str(&yes(&args)).unwrap())
}

#[test]
fn a_replays_distance_is_that_of_the_calls_not_of_their_runs() {
    // 2.7 s apart, though another call of the first run lies 0.1 s before it.
    let (text, _) = explained(
        &[
            at("01A", "aa", 0),
            outcome("01A", 0, "aa", "c1", json!("m")),
            at("01B", "bb", 26),
            outcome("01B", 2, "bb", "c1", json!("m")),
            at("01C", "aa", 27),
            outcome("01C", 4, "aa", "c1", json!("m")),
        ],
        &[],
    );
    assert!(
        text.contains("replay window 2s: no replay lies within the window."),
        "{text}"
    );
    // At once, though another call of the second run comes 2.6 s later.
    let (text, _) = explained(
        &[
            at("01A", "aa", 0),
            outcome("01A", 0, "aa", "c1", json!("m")),
            at("01B", "aa", 0),
            outcome("01B", 2, "aa", "c1", json!("m")),
            at("01C", "bb", 26),
            outcome("01C", 4, "bb", "c1", json!("m")),
        ],
        &[],
    );
    assert!(
        text.contains("the one replay gave the same answer digest"),
        "{text}"
    );
    assert!(!text.contains("further apart"), "{text}");
}

#[test]
fn a_body_counts_as_sent_where_its_outcome_says_so() {
    let ended = |call: &str, of: u64, sent: &str| json!({"t": "outcome", "call": call, "of": of, "sent": sent, "sent_len": 0, "error": "connect_failed", "ms": 1});
    for (sent, words, bytes) in [
        (
            "none",
            "nothing was sent in either run, so there is no peer, model or answer to compare",
            json!({"both": 0, "before_only": 0, "after_only": 0, "may_have_left": 0}),
        ),
        (
            "unknown",
            "bytes sent: 0 bodies left in both runs, 0 only in the first, 0 only in the second; of 1 more it is unknown",
            json!({"both": 0, "before_only": 0, "after_only": 0, "may_have_left": 1}),
        ),
        (
            "all",
            "bytes sent: 1 body left in both runs, 0 only in the first, 0 only in the second\n",
            json!({"both": 1, "before_only": 0, "after_only": 0, "may_have_left": 0}),
        ),
    ] {
        let (text, whole) = explained(
            &[
                at("01A", "aa", 0),
                ended("01A", 0, sent),
                at("01B", "aa", 1),
                ended("01B", 2, sent),
            ],
            &[],
        );
        assert!(text.contains(words), "{sent}: {text}");
        assert_eq!(whole["changes"][0]["bytes"], bytes, "{sent}");
        assert_eq!(whole["runs"][0]["answers"][0]["sent"], sent);
    }
    // No outcome: it may have left.
    let (_, whole) = explained(&[at("01A", "aa", 0), at("01B", "aa", 1)], &[]);
    assert_eq!(whole["changes"][0]["bytes"]["may_have_left"], 1);
}

#[test]
fn what_no_record_says_is_unknown_and_not_changed() {
    let calls = [
        at("01A", "aa", 0),
        outcome("01A", 1, "aa", "c1", json!("m")),
        json!({"t": "config", "policy": "0c".repeat(32)}),
        at("01B", "aa", 1),
        outcome("01B", 4, "aa", "c1", json!("m")),
    ];
    let mut with_open = vec![open("0a")];
    with_open.extend(calls.clone());
    let (text, _) = explained(&with_open, &[]);
    assert!(
        text.contains("changed: policy was 0a0a") && !text.contains("unknown:"),
        "{text}"
    );
    // The same, with another record where `open` was.
    let mut pruned = vec![json!({"t": "later"})];
    pruned.extend(calls);
    let (text, whole) = explained(&pruned, &[]);
    assert!(
        text.contains("unknown: policy, leafgate version: the record"),
        "{text}"
    );
    assert!(!text.contains("changed: policy"), "{text}");
    assert_eq!(
        whole["changes"][0]["unknown"],
        json!(["policy", "leafgate_version"])
    );
}

#[test]
fn an_answer_outside_2xx_is_compared_with_none() {
    for (status, replay, different) in [
        (
            429,
            "1 replay, answered with a status outside 2xx (429): not compared.",
            false,
        ),
        (201, "1 of 1 replays gave ANOTHER answer digest", true),
    ] {
        let mut refused = outcome("01B", 2, "aa", "c9", json!("m"));
        refused["status"] = json!(status);
        let (text, whole) = explained(
            &[
                at("01A", "aa", 0),
                outcome("01A", 0, "aa", "c1", json!("m")),
                at("01B", "aa", 1),
                refused,
            ],
            &[],
        );
        assert!(text.contains(replay), "{text}");
        assert!(
            text.contains(&format!("changed: status was 200, is {status}")),
            "{text}"
        );
        assert_eq!(text.contains("ANOTHER"), different, "{text}");
        assert_eq!(
            whole["changes"][0]["answers"]["different"],
            u64::from(different)
        );
    }
}

#[test]
fn decisions_without_a_card_are_counted_within_the_span() {
    let cardless = |time: &str| {
        decision(
            "01Z",
            "hold",
            0,
            "card_missing",
            "refuse",
            json!({"fixture_id": null, "fixture_hash": null, "time": format!("2026-11-{time}T07:00:00.000000Z")}),
        )
    };
    let records = [cardless("01"), cardless("02"), at("01A", "aa", 0)];
    let count = |more: &[&str]| explained(&records, more).1["decisions_without_a_card"].clone();
    assert_eq!(count(&[]), 2);
    assert_eq!(count(&["--since", "2026-11-02"]), 1);
    assert_eq!(count(&["--since", "2026-11-03"]), 0);
}

/// What a record holds never steers a terminal, in JSON either, and reads back as it was.
#[test]
fn json_is_ascii_and_says_the_same() {
    let model = "m\u{9b}2J\u{202e}\u{7f}\u{e9}\u{1f600}";
    let dir = tempfile::tempdir().unwrap();
    let at_dir = dir.path().to_str().unwrap();
    ledger(
        dir.path(),
        0,
        &[
            at("01A", "aa", 0),
            outcome("01A", 0, "aa", "c1", json!(model)),
        ],
    );
    let explained = yes(&["ledger", "explain", "seed-04", at_dir, "--json"]);
    let shown = yes(&["ledger", "show", "1", at_dir, "--json"]);
    let listed = yes(&["ledger", "list", at_dir, "--type", "outcome", "--json"]);
    for text in [&explained, &shown, &listed] {
        assert!(
            text.bytes()
                .all(|b| b == b'\n' || (b' '..=b'~').contains(&b)),
            "{text:?}"
        );
    }
    let value: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(value["runs"][0]["models"][0], model);
    assert_eq!(
        serde_json::from_str::<Value>(&shown).unwrap()["model"],
        model
    );
    assert_eq!(
        serde_json::from_str::<Value>(&listed).unwrap()["model"],
        model
    );
}

#[test]
fn prune_takes_a_length_of_time_as_since_does() {
    let dir = tempfile::tempdir().unwrap();
    let at_dir = dir.path().to_str().unwrap();
    for (text, legal) in [
        ("2026-06-01", true),
        ("2026-06-01T00:00:00Z", true),
        ("30d", true),
        ("12h", true),
        ("2026-06-01T00:00:00", false),
        ("2026-06", false),
        ("soon", false),
        ("", false),
    ] {
        let args = ["leafgate", "ledger", "prune", at_dir, "--before", text];
        let read = Args::try_parse_from(args);
        assert_eq!(read.is_ok(), legal, "{text}");
        if let Err(error) = read {
            assert!(
                text.is_empty() || error.to_string().contains("30d"),
                "{error}"
            );
        }
    }
}

#[test]
fn what_was_pruned_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let at_dir = dir.path().join("ledger");
    let gone = crate::ledger::tests::pruned_in(dir.path());
    let at_dir = at_dir.to_str().unwrap();
    assert!(gone > 1, "{gone}");
    no(&["ledger", "show", "0", at_dir]);
    assert!(yes(&["ledger", "show", &gone.to_string(), at_dir]).contains("refused"));
    let missing = crate::cli::ledger_show::missing;
    assert!(missing(Some(gone - 1), gone).contains("was pruned"));
    assert!(!missing(Some(gone), gone).contains("pruned"));
    assert!(missing(None, gone).contains("pruned") && !missing(None, 0).contains("pruned"));
}
