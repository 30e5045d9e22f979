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
    let kept = Kept::default();
    let mut out = Out::to(kept.clone(), false);
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
    assert!(
        matches!(ran(&line).0, Err(Failure::Lines(_))),
        "written over"
    );
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
    assert!(failed(check(&["--id", "h"]).0).contains("it has f, g"));
    assert!(failed(check(&["--id", "f", "--host", "x"]).0).contains("no such host"));
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
        text.contains("never proposed: 1 uncovered string\n") && !text.contains("PRIVATE"),
        "{text}"
    );
    let facts: serde_json::Value =
        serde_json::from_str(&ran(&[&line[..], &["--json"]].concat()).1).unwrap();
    assert_eq!(
        (&facts["then"]["bound"], &facts["single"]),
        (&1.into(), &1.into())
    );
    std::fs::write(&file, "another text").unwrap();
    assert!(failed(check(&["--id", "f"]).0).contains("no longer have the recorded hash"));
}

mod ledger;
