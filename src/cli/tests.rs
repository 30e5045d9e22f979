use super::*;
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn ran(line: &[&str]) -> (Result<Done, Failure>, String) {
    ran_to(line, |out| out)
}

fn ran_to(line: &[&str], to: impl Fn(Out) -> Out) -> (Result<Done, Failure>, String) {
    let kept = Kept::default();
    let mut out = to(Out::to(kept.clone(), false));
    let args = Args::try_parse_from(std::iter::once(&"leafgate").chain(line)).unwrap();
    let done = dispatch(args.command, &mut out);
    drop(out);
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    (done, text)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

const RELEASE: &str = r#"{"fixture_id":"seed-04","fixture_hash":"sha256:9f2c","egress_class":"public-fixture","residue":[],"host_pin":"free-server","replay_window":"24h","writable_surface":"tmpdir"}"#;

#[test]
fn every_command_has_an_example_in_its_help() {
    fn walk(command: &clap::Command, path: &str) {
        if command.get_name() == "help" {
            return;
        }
        let path = format!("{path} {}", command.get_name());
        let after = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let example = path.trim().to_owned();
        assert!(after.contains(&example), "{path}: {after}");
        assert!(after.lines().all(|line| line.len() <= 120), "{path}");
        for sub in command.get_subcommands() {
            walk(sub, &path);
        }
    }
    Args::command().debug_assert();
    for command in Args::command().get_subcommands() {
        walk(command, "leafgate");
    }
}

#[test]
fn classify_says_the_leaf_and_expects_one() {
    let card = file(RELEASE);
    let name = card.path().to_str().unwrap();
    let (done, text) = ran(&["classify", name]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert_eq!(
        text,
        format!("{name}: release 5 public_fixture egress_class\n")
    );
    assert_eq!(
        ran(&["classify", "--expect", "release", name]).0.unwrap(),
        Done::Yes
    );
    assert_eq!(
        ran(&["classify", "--expect", "hold", name]).0.unwrap(),
        Done::No
    );
    let broken = file("{");
    let (done, text) = ran(&["classify", "--json", broken.path().to_str().unwrap()]);
    assert_eq!(done.unwrap(), Done::Yes);
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(facts["reason"], "card_malformed");
    assert!(
        facts["fault"]
            .as_str()
            .unwrap()
            .contains("exactly one JSON object")
    );
    assert!(matches!(
        ran(&["classify", "/nowhere.json"]).0,
        Err(Failure::Lines(_))
    ));
}

#[test]
fn oracle_says_ok_and_fail() {
    let (done, text) = ran(&["oracle"]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(
        text.contains("OK note-H ticket-1842: hold\n") && !text.contains("FAIL"),
        "{text}"
    );
    let wrong =
        file(r#"[{"id":"x","attached":"none","leaf":"release","step":0,"reason":"card_missing"}]"#);
    let (done, text) = ran(&["oracle", wrong.path().to_str().unwrap()]);
    assert_eq!(done.unwrap(), Done::No);
    assert!(
        text.starts_with("FAIL x: got hold 0 card_missing -, expected release 0 card_missing -\n"),
        "{text}"
    );
}

#[test]
fn hash_is_of_each_file_or_of_all_joined() {
    let (a, b) = (file("ab"), file("c"));
    let paths = [a.path().to_str().unwrap(), b.path().to_str().unwrap()];
    let (_, text) = ran(&["hash", "--joined", paths[0], paths[1]]);
    assert!(
        text.starts_with(
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  "
        ),
        "{text}"
    );
    assert_eq!(ran(&["hash", paths[0], paths[1]]).1.lines().count(), 2);
    let (done, _) = ran(&["hash", "--key-env", "LEAFGATE_NOT_SET_ANYWHERE", paths[0]]);
    let Err(Failure::Lines(lines)) = done else {
        panic!("taken")
    };
    assert_eq!(
        lines,
        ["--key-env: the variable LEAFGATE_NOT_SET_ANYWHERE is not set"]
    );
}

#[test]
fn the_keyed_hash_is_hmac_sha256() {
    // RFC 4231, test case 2.
    let text = file("what do ya want for nothing?");
    let mut hasher = hash::Hasher::new(Some(b"Jefe"));
    hasher.file(text.path()).unwrap();
    assert_eq!(
        hasher.end().as_str(),
        "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[test]
fn card_lint_and_card_new_agree() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = file("text");
    let card = dir.path().join("seed-04.json");
    let line = [
        "card",
        "new",
        "--fixture",
        fixture.path().to_str().unwrap(),
        "--id",
        "seed-04",
        "--class",
        "public-fixture",
        "--no-residue",
        "--pin",
        "local",
        "--window",
        "24h",
        "--surface",
        "tmpdir",
        "--out",
        card.to_str().unwrap(),
    ];
    let (done, text) = ran(&line);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(
        text.contains("leaf     release 5 public_fixture egress_class\n"),
        "{text}"
    );
    assert!(
        text.ends_with("attach   leafgate-card: @seed-04\n"),
        "{text}"
    );
    assert_eq!(
        ran(&["card", "lint", card.to_str().unwrap()]).0.unwrap(),
        Done::Yes
    );
    let Err(Failure::Lines(lines)) = ran(&line).0 else {
        panic!("written over")
    };
    assert!(lines[0].contains("is there already"), "{lines:?}");
    let split = line.map(|word| match word {
        "public-fixture" => "redacted-metadata",
        "--out" => "--label",
        word if word == card.to_str().unwrap() => "timeout",
        word => word,
    });
    let (_, text) = ran(&split);
    assert!(text.contains("\"failure_label\":\"timeout\""), "{text}");
    let other = dir.path().join("split.json");
    let without = line.map(|word| match word {
        "public-fixture" => "redacted-metadata",
        word if word == card.to_str().unwrap() => other.to_str().unwrap(),
        word => word,
    });
    let (_, text) = ran(&without);
    assert!(text.contains("label    none: the payload"), "{text}");
    let note = file(RELEASE);
    let (done, text) = ran(&["card", "lint", note.path().to_str().unwrap()]);
    assert_eq!(done.unwrap(), Done::No);
    assert!(
        text.contains("  fixture_hash ") && text.contains("  host_pin "),
        "{text}"
    );
}

#[test]
fn completions_and_man_come_from_the_binary() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            ran(&["completions", shell]).1.contains("leafgate"),
            "{shell}"
        );
    }
    assert!(ran(&["man"]).1.contains(".TH leafgate 1"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        ran(&["man", "--dir", dir.path().to_str().unwrap()])
            .0
            .unwrap(),
        Done::Yes
    );
    assert!(dir.path().join("leafgate-serve.1").exists());
}

#[test]
fn usage_errors_are_two() {
    let status = |line: &[&str]| run(std::iter::once(&"leafgate").chain(line).map(OsString::from));
    assert_eq!(status(&["classify", "--no-such-flag"]), 2);
    assert_eq!(status(&["no-such-command"]), 2);
    assert_eq!(status(&[]), 2);
    assert_eq!(status(&["hash", "/nowhere"]), 2);
}

#[test]
fn a_fixture_added_anew_keeps_its_glue() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("f.txt"), "a fixture that is long enough").unwrap();
    std::fs::write(at("g.json"), "[\"Explain this, please: \"]").unwrap();
    let (file, glue, lock) = (at("f.txt"), at("g.json"), at("fixtures.lock"));
    let first = ["fixture", "add", &file, "--id", "f", "--lock", &lock];
    let with_glue = [&first[..], &["--glue", &glue]].concat();
    assert!(!ran(&first).1.contains("glue"));
    assert!(ran(&with_glue).1.contains("glue: g.json\n"));
    assert!(ran(&first).1.contains("glue: g.json, kept\n"));
    let text = std::fs::read_to_string(&lock).unwrap();
    assert!(text.contains("glue = \"g.json\""), "{text}");
}

#[test]
fn a_fixture_that_is_registered_already_is_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("f.txt"), "a fixture that is long enough").unwrap();
    std::fs::write(at("g.txt"), "another one, as long as that").unwrap();
    let (f, g, lock) = (at("f.txt"), at("g.txt"), at("fixtures.lock"));
    let add = |files: &[&str], id: &str| {
        let line = [&["fixture", "add"], files, &["--id", id, "--lock", &lock]].concat();
        ran(&line)
    };
    let first = add(&[&f], "one").1;
    assert!(!first.contains("regist"), "{first}");
    let again = add(&[&f], "one").1;
    assert!(
        again.contains("registered already, and as it was\n"),
        "{again}"
    );
    let other = add(&[&f], "two").1;
    assert!(
        other.contains("f.txt is registered under one too\n"),
        "{other}"
    );
    let hash = first.split_whitespace().nth(1).unwrap();
    let wider = add(&[&f, &g], "one").1;
    assert!(
        wider.contains(&format!("takes the place of {hash}: a card with that hash")),
        "{wider}"
    );
    match add(&[&f, &f], "one").0 {
        Err(Failure::Lines(lines)) => {
            assert!(lines[0].contains("f.txt is named twice"), "{lines:?}")
        }
        other => panic!("{other:?}"),
    }
    let line = [
        "fixture", "add", &f, "--id", "two", "--lock", &lock, "--json",
    ];
    let facts: serde_json::Value = serde_json::from_str(&ran(&line).1).unwrap();
    assert_eq!(facts["same"], true);
    assert_eq!(facts["before"], hash);
    assert_eq!(
        facts["also"],
        serde_json::json!([{"file": "f.txt", "id": "one"}])
    );
}

#[test]
fn a_card_and_a_body_cannot_both_be_standard_input() {
    match ran(&["explain", "-", "--body", "-"]).0 {
        Err(Failure::Lines(lines)) => {
            assert!(lines[0].contains("both are standard input"), "{lines:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn fixture_check_and_learn_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let policy = "version = 1\n[fixtures]\nlock = \"fixtures.lock\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"tiny\"]\n";
    std::fs::write(at("policy.toml"), policy).unwrap();
    std::fs::write(at("f.txt"), "a fixture that is long enough").unwrap();
    let (file, lock, policy) = (at("f.txt"), at("fixtures.lock"), at("policy.toml"));
    for id in ["f", "g"] {
        let line = ["fixture", "add", &file, "--id", id, "--lock", &lock];
        assert_eq!(ran(&line).0.unwrap(), Done::Yes);
    }
    let body = at("body.json");
    let content = r#"{"model":"tiny","messages":[{"role":"user","content":"a fixture that is long enough"}]}"#;
    std::fs::write(&body, content).unwrap();
    let check =
        |more: &[&str]| ran(&[&["fixture", "check", &body, "--policy", &policy], more].concat());
    let failed = |done: Result<Done, Failure>| match done {
        Err(Failure::Lines(lines)) => lines.join("\n"),
        other => panic!("{other:?}"),
    };
    assert!(failed(check(&[]).0).contains("name one of the fixtures of"));
    assert!(failed(check(&["--id", "h"]).0).ends_with("it has f, g"));
    let far = failed(check(&["--id", "f", "--host", "x"]).0);
    assert!(
        far.ends_with(&format!(
            "no such host; leafgate pin list --policy {policy} shows them"
        )),
        "{far}"
    );
    let near = failed(check(&["--id", "f", "--host", "loacl"]).0);
    assert!(near.ends_with("did you mean `local`?"), "{near}");
    let (done, text) = check(&["--id", "f"]);
    assert_eq!((done.unwrap(), &*text), (Done::Yes, "bound\n"));
    let (done, text) = check(&["--id", "f", "--route", "/audio"]);
    assert_eq!(done.unwrap(), Done::No);
    assert!(text.contains("no vocabulary"), "{text}");

    let lines = at("bodies.jsonl");
    let other = content.replace("a fixture", "PRIVATE: a fixture");
    std::fs::write(&lines, format!("{content}\n\n{other}\n")).unwrap();
    let line = [
        "fixture", "learn", "--policy", &policy, "--id", "f", "--from", &lines,
    ];
    let (done, text) = ran(&line);
    assert_eq!(done.unwrap(), Done::No);
    assert!(
        text.contains("never proposed: 1 uncovered string (a terminal shows them)\n")
            && !text.contains("PRIVATE"),
        "{text}"
    );
    let facts: serde_json::Value =
        serde_json::from_str(&ran(&[&line[..], &["--json"]].concat()).1).unwrap();
    assert_eq!(
        (&facts["then"]["bound"], &facts["single"]),
        (&1.into(), &1.into())
    );
    std::fs::write(&file, "another text").unwrap();
    let changed = failed(check(&["--id", "f"]).0);
    assert!(
        changed.contains("no longer have the recorded hash")
            && changed.contains(&format!(
                "leafgate fixture add {file} --format text --id f --lock {lock} "
            )),
        "{changed}"
    );
    assert_eq!(
        ran(&["fixture", "add", &file, "--id", "seed-04", "--lock", &lock])
            .0
            .unwrap(),
        Done::Yes
    );
    let near = failed(check(&["--id", "seed-4"]).0);
    assert!(near.ends_with("did you mean `seed-04`?"), "{near}");
    let host = |name: &str| failed(ran(&["pin", "confirm", name, "--policy", &policy]).0);
    assert!(host("locl").ends_with("shows them; did you mean `local`?"));
    assert!(host("other").ends_with("shows them"));
}

#[test]
fn explain_says_which_policy_it_took() {
    let card = file(RELEASE);
    let card = card.path().to_str().unwrap();
    let policy = file("version = 1\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n");
    let policy = policy.path().to_str().unwrap();
    let facts = |line: &[&str]| -> serde_json::Value {
        serde_json::from_str(&ran(&[&["explain", card, "--json"], line].concat()).1).unwrap()
    };
    assert!(
        ran(&["explain", card])
            .1
            .starts_with("policy      built-in: ")
    );
    assert!(facts(&[])["policy"].is_null() && facts(&[]).get("policy").is_some());
    let own = ran(&["explain", card, "--policy", policy]).1;
    assert!(own.starts_with(&format!("policy      {policy}\n")), "{own}");
    assert_eq!(facts(&["--policy", policy])["policy"], policy);
}

#[test]
fn check_learn_and_explain_know_what_a_host_adds() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let host = |pin: &str, more: &str| {
        format!(
            "[hosts.\"{pin}\"]\nbase_url = \"https://{pin}/v1\"\nmodels = [\"tiny\"]\nmax_age = \"366d\"\ncopied_at = {}\n{more}\n",
            jiff::Timestamp::now()
        )
    };
    let policy = format!(
        "version = 1\n[fixtures]\nlock = \"fixtures.lock\"\n{}{}",
        host("plain.example", ""),
        host("own.example", "vocabulary = { min_p = \"number\" }")
    );
    std::fs::write(at("policy.toml"), policy).unwrap();
    std::fs::write(at("f.txt"), "a fixture that is long enough").unwrap();
    let (file, lock, policy) = (at("f.txt"), at("fixtures.lock"), at("policy.toml"));
    let added = ["fixture", "add", &file, "--id", "f", "--lock", &lock];
    assert_eq!(ran(&added).0.unwrap(), Done::Yes);
    let shown = ran(&["policy", "check", &policy]).1;
    assert!(
        shown.contains("hosts.\"own.example\".vocabulary.min_p"),
        "{shown}"
    );
    let content = |more: &str| {
        format!(
            r#"{{"model":"tiny","messages":[{{"role":"user","content":"a fixture that is long enough"}}],{more}}}"#
        )
    };
    let body = at("body.jsonl");
    for (value, hosts) in [
        ("\"min_p\":0.1", [None, Some("own.example")].as_slice()),
        ("\"min_p\":true", &[]),
        (
            "\"top_p\":0.1",
            &[None, Some("own.example"), Some("plain.example")],
        ),
    ] {
        std::fs::write(&body, content(value)).unwrap();
        for host in [None, Some("own.example"), Some("plain.example")] {
            let more = host.map_or(Vec::new(), |host| vec!["--host", host]);
            let wanted = if hosts.contains(&host) {
                Done::Yes
            } else {
                Done::No
            };
            let check = [&["fixture", "check", &body, "--policy", &policy][..], &more].concat();
            let (done, text) = ran(&check);
            assert_eq!(done.unwrap(), wanted, "{value} {host:?}: {text}");
            let advice = "the policy may name it under the host's vocabulary";
            assert_eq!(
                text.contains(advice),
                value.contains("min_p") && host == Some("plain.example"),
                "{text}"
            );
            let learn = ["fixture", "learn", "--policy", &policy, "--from", &body];
            let (done, text) = ran(&[&learn[..], &more].concat());
            assert_eq!(done.unwrap(), wanted, "{value} {host:?}: {text}");
        }
    }
    std::fs::write(&body, content("\"min_p\":0.1")).unwrap();
    let hash = ran(&["hash", &file]).1;
    for (pin, wanted) in [("own.example", Done::Yes), ("plain.example", Done::No)] {
        let card = serde_json::json!({"fixture_id": "f", "fixture_hash": hash.split_whitespace().next(), "egress_class": "public-fixture",
            "residue": [], "host_pin": pin, "replay_window": "24h", "writable_surface": "tmpdir"});
        std::fs::write(at("card.json"), card.to_string()).unwrap();
        let (done, text) = ran(&[
            "explain",
            &at("card.json"),
            "--body",
            &body,
            "--policy",
            &policy,
        ]);
        assert_eq!(done.unwrap(), wanted, "{text}");
        assert_eq!(
            text.contains("under the host's vocabulary"),
            wanted == Done::No,
            "{text}"
        );
    }
}

#[test]
fn a_record_is_proven_and_checked_and_nothing_else_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let settings = crate::policy::LedgerSettings {
        dir: dir.path().join("ledger"),
        segment_bytes: 64 << 20,
        checkpoint_every: std::time::Duration::from_secs(10),
        checkpoint_copy: None,
        sync: crate::policy::Sync::Record,
    };
    let run = crate::ledger::RunFacts {
        version: "0.1.0",
        policy: "ab".repeat(32),
        oracle: "cd".repeat(32),
    };
    crate::ledger::Ledger::start(&settings, run).unwrap().stop();
    let (ledger, record, proof) = (at("ledger"), at("1.json"), at("1.tlog-proof"));
    let key = at("ledger/leafgate.pub");

    let line = ["ledger", "prove", "1", &ledger, "--record", &record];
    let (done, text) = ran(&line);
    assert_eq!(done.unwrap(), Done::Yes);
    let note = std::fs::read_to_string(at("ledger/checkpoint")).unwrap();
    assert!(
        text.starts_with("c2sp.org/tlog-proof@v1\nindex 1\n"),
        "{text}"
    );
    assert!(text.ends_with(&format!("\n\n{note}")), "{text}");
    std::fs::write(&proof, &text).unwrap();
    let check = ["ledger", "check-proof", &proof, &record, "--key", &key];
    let (done, said) = ran(&check);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(
        said.starts_with("PROVEN record 1 of the 2 that leafgate-"),
        "{said}"
    );

    // A file that is there is not written over, and then nothing is printed.
    let (done, text) = ran(&line);
    assert!(
        matches!(done, Err(Failure::Lines(_))) && text.is_empty(),
        "{text}"
    );
    let (done, text) = ran(&["ledger", "prove", "2", &ledger]);
    assert_eq!((done.unwrap(), &*text), (Done::No, ""), "not covered");

    let (_, text) = ran(&["ledger", "prove", "1", &ledger, "--json"]);
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    let stands = std::fs::read_to_string(&record).unwrap();
    assert_eq!((&facts["index"], &facts["size"]), (&1.into(), &2.into()));
    assert_eq!(facts["record"], stands.trim_end());
    assert_eq!(
        (
            &facts["checkpoint"],
            facts["path"].as_array().unwrap().len()
        ),
        (&note.clone().into(), 1)
    );

    std::fs::write(&record, stands.replace("stop", "open")).unwrap();
    let (done, said) = ran(&check);
    assert_eq!(done.unwrap(), Done::No);
    assert!(said.starts_with("NOT PROVEN this record"), "{said}");
    let (done, said) = ran(&[&check[..], &["--json"]].concat());
    assert_eq!(done.unwrap(), Done::No);
    assert!(said.contains("\"ok\":false"), "{said}");

    std::fs::write(at("kept"), &note).unwrap();
    let verify = |file: &str| ran(&["ledger", "verify", &ledger, "--checkpoint", file]);
    let (done, said) = verify(&at("kept"));
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(said.contains("the one kept elsewhere too"), "{said}");
    std::fs::write(at("kept"), note.replacen("\n2\n", "\n3\n", 1)).unwrap();
    let (done, said) = verify(&at("kept"));
    assert_eq!(done.unwrap(), Done::No);
    assert!(
        said.contains("kept: this checkpoint is not signed"),
        "{said}"
    );
    assert!(matches!(verify(&at("missing")).0, Err(Failure::Lines(_))));
}

#[test]
fn a_stopped_ledger_is_rotated_sealed_and_pruned() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("ledger");
    let at = dir.to_str().unwrap();
    let settings = crate::policy::LedgerSettings {
        dir: dir.clone(),
        segment_bytes: 64 << 20,
        checkpoint_every: std::time::Duration::from_secs(10),
        checkpoint_copy: None,
        sync: crate::policy::Sync::Record,
    };
    let facts = || crate::ledger::RunFacts {
        version: "0.1.0",
        policy: "ab".repeat(32),
        oracle: "cd".repeat(32),
    };
    let begin = || crate::ledger::Ledger::start(&settings, facts()).unwrap();
    let running = begin();
    for command in [
        &["ledger", "rotate-key", at][..],
        &["ledger", "seal", at],
        &["ledger", "prune", at, "--before", "2026-01-01"],
    ] {
        let (Err(Failure::Lines(lines)), _) = ran(command) else {
            panic!("{command:?}: a running ledger");
        };
        assert!(
            lines[0].contains("is running on this ledger; stop it"),
            "{lines:?}"
        );
    }
    let verified = |what: &str| {
        let (done, text) = ran(&["ledger", "verify", at]);
        assert_eq!(done.unwrap(), Done::Yes);
        assert!(text.contains(what), "{text}");
    };
    verified(
        "\nleafgate is running on it (LOCK is held): 0 calls on their way and 0 bytes of a last line were not judged\n",
    );
    let note = std::fs::read(dir.join("checkpoint")).unwrap();
    running.stop();
    let kept = std::fs::read(dir.join("checkpoint")).unwrap();
    std::fs::write(dir.join("checkpoint"), note).unwrap();
    verified(
        "\n1 record is under no signature yet and could be forged, changed or cut; the checkpoint of the stop is missing;",
    );
    let (_, text) = ran(&["ledger", "verify", at, "--json"]);
    assert!(
        text.contains("\"unsigned\":1") && text.contains("\"torn\":0"),
        "{text}"
    );
    std::fs::write(dir.join("checkpoint"), kept).unwrap();
    let (_, text) = ran(&["ledger", "verify", at]);
    assert!(!text.contains("no signature yet"), "{text}");
    let (done, text) = ran(&["ledger", "rotate-key", at]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(text.contains("ROTATED record 2 "), "{text}");
    let public = std::fs::read_to_string(dir.join("leafgate.pub")).unwrap();
    assert!(text.ends_with(&public), "{text}");
    let (_, text) = ran(&["ledger", "seal", at]);
    assert!(text.contains("begins with record 3"), "{text}");
    let (done, text) = ran(&["ledger", "seal", at]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(text.contains("nothing to seal"), "{text}");

    let prune = |more: &[&str]| ran(&[&["ledger", "prune", at, "--before"], more].concat());
    assert!(prune(&["2020-01-01"]).1.contains("nothing to prune"));
    let (done, text) = prune(&["9999-01-01T00:00:00Z"]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(
        text.contains("records 0 to 2") && text.contains("--yes"),
        "{text}"
    );
    assert!(
        dir.join("000000000000.jsonl").exists(),
        "a look takes nothing"
    );
    let (done, text) = prune(&["9999-01-01T00:00:00Z", "--yes", "--json"]);
    assert_eq!(done.unwrap(), Done::Yes);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&value["done"], &value["segments"][0]["count"]),
        (&true.into(), &3.into())
    );
    assert!(!dir.join("000000000000.jsonl").exists());
    let (done, text) = ran(&["ledger", "verify", at]);
    assert_eq!(done.unwrap(), Done::Yes);
    assert!(
        text.contains("WHOLE 1 record") && text.contains("3 earlier records were pruned"),
        "{text}"
    );
    for bad in ["2026-13-01", "yesterday", "2026-01-01T00:00:00", ""] {
        let line = ["leafgate", "ledger", "prune", at, "--before", bad];
        assert!(Args::try_parse_from(line).is_err(), "{bad}");
    }
    std::fs::remove_file(dir.join("pruned")).unwrap();
    let (done, text) = ran(&["ledger", "seal", at]);
    assert_eq!(done.unwrap(), Done::No, "not whole: an answer");
    assert!(text.starts_with("WRONG "), "{text}");
}

mod ledger;
mod reads;
