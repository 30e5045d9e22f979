//! `fixture learn` and `fixture check`, as the binary, with a client that is not ours: template text is proposed, text of one body is not, and after
//! `--accept` the bodies are bound.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that starts the binary"
)]

use std::path::Path;
use std::process::{Command, Output};

const ITEMS: [&str; 3] = [
    "def clamp(value, low, high):\n    return max(low, min(value, high))",
    "def first(items, otherwise=None):\n    return items[0] if items else otherwise",
    "def chunks(items, size):\n    return [items[i:i + size] for i in range(0, len(items), size)]",
];

const PRIVATE: &str = "The patient is J. M., born in 1961.";

/// An eval as a user has it: it knows the base URL from the environment, and looks at each answer.
const CLIENT: &str = r#"
import json, os, sys, urllib.request
base = os.environ["OPENAI_BASE_URL"]
assert base == os.environ["OPENAI_API_BASE"] == os.environ["ANTHROPIC_BASE_URL"] + "/v1"
assert os.environ["OPENAI_API_KEY"] and "127.0.0.1" in os.environ["NO_PROXY"]
assert base in sys.argv[2], sys.argv
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json", "authorization": "Bearer SECRET-KEY"})
    return urllib.request.urlopen(request).read().decode()
assert json.loads(ask("/models"))["data"][0]["id"] == "tiny"
items, private = json.loads(sys.argv[1])
for number, item in enumerate(items):
    text = "Explain this function in one sentence:\n\n" + item + "\n\nAnswer:" + (" " + private if number == 2 else "")
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "temperature": 0}
    answer = json.loads(ask("/chat/completions", body))
    assert answer["choices"][0]["message"]["content"] == "", answer
    streamed = ask("/chat/completions", {**body, "stream": True})
    assert streamed.endswith("data: [DONE]\n\n"), streamed
"#;

fn python() -> Option<&'static str> {
    let found = Command::new("python3")
        .args(["-c", "import urllib.request"])
        .status();
    let there = found.is_ok_and(|status| status.success());
    if !there {
        // Said so that nobody takes this for a pass.
        eprintln!("SKIPPED: tests/learn.rs needs python3, which is not here");
    }
    there.then_some("python3")
}

fn leafgate(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leafgate"))
        .current_dir(dir)
        .args(args)
        // A proxy that would take every call elsewhere, were it used.
        .env("http_proxy", "http://127.0.0.1:9")
        .env_remove("NO_PROXY")
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder with a policy and a registered fixture.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = ITEMS
        .iter()
        .map(|item| serde_json::json!({"code": item}).to_string() + "\n")
        .collect();
    std::fs::write(dir.path().join("set.jsonl"), lines).unwrap();
    let policy = "version = 1\n[fixtures]\nlock = \"fixtures.lock\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"tiny\"]\n";
    let line = [
        "fixture",
        "add",
        "set.jsonl",
        "--id",
        "set",
        "--format",
        "jsonl",
    ];
    assert!(leafgate(dir.path(), &line).status.success());
    std::fs::write(dir.path().join("policy.toml"), policy).unwrap();
    dir
}

fn learn(dir: &Path, python: &str, options: &[&str]) -> (Option<i32>, String) {
    let told = serde_json::json!([ITEMS, PRIVATE]).to_string();
    let mut line = vec!["fixture", "learn", "--policy", "policy.toml", "--id", "set"];
    line.extend(options);
    line.extend(["--", python, "-c", CLIENT, &told, "url={base_url}"]);
    let output = leafgate(dir, &line);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("the command ended"), "{out}{err}");
    assert!(!out.contains("SECRET-KEY") && !err.contains("SECRET-KEY"));
    (output.status.code(), out)
}

#[test]
fn a_template_is_learnt_and_private_text_is_not() {
    let Some(python) = python() else { return };
    let dir = folder();
    let dir = dir.path();
    let lock = std::fs::read(dir.join("fixtures.lock")).unwrap();

    let (status, out) = learn(dir, python, &["--record", "bodies.jsonl"]);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("6 calls, 6 different bodies"), "{out}");
    assert!(
        out.contains("     |Explain this function in one sentence:\\n\\n|\n"),
        "{out}"
    );
    assert!(
        out.contains("in 3 of 3 different texts, 9 characters  short"),
        "{out}"
    );
    assert!(out.contains("     |\\n\\nAnswer:|\n"), "{out}");
    assert!(
        out.contains("never proposed: 1 uncovered string (a terminal shows them)\n"),
        "{out}"
    );
    assert!(out.contains("0 of 6 bodies now, 4 with this glue"), "{out}");
    assert!(out.contains("not bound: /messages/0/content"), "{out}");
    assert!(!out.contains("patient"), "{out}");
    assert!(!dir.join("set.glue.json").exists());
    assert_eq!(std::fs::read(dir.join("fixtures.lock")).unwrap(), lock);

    let (status, out) = learn(dir, python, &["--accept"]);
    assert_eq!(
        status,
        Some(1),
        "the private sentence is still refused: {out}"
    );
    assert!(out.contains("4 of 6 bodies are bound now"), "{out}");
    let glue = std::fs::read(dir.join("set.glue.json")).unwrap();
    let mut glue: Vec<String> = serde_json::from_slice(&glue).unwrap();
    glue.sort();
    assert_eq!(
        glue,
        ["\n\nAnswer:", "Explain this function in one sentence:\n\n"]
    );
    // Nothing is left to propose.
    let (_, out) = learn(dir, python, &[]);
    assert!(out.contains("4 of 6 bodies are bound now"), "{out}");

    check(dir);
    exact(dir, python);
}

/// The recorded bodies, each against the glue that was accepted.
fn check(dir: &Path) {
    let line = |file: &'static str| {
        [
            "fixture",
            "check",
            file,
            "--id",
            "set",
            "--policy",
            "policy.toml",
        ]
    };
    let mut all = line("bodies.jsonl").to_vec();
    all.extend(["--passing", "bound.jsonl"]);
    let output = leafgate(dir, &all);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("4 of 6 bodies are bound"), "{out}");
    // The space behind the template is a gap, which the rule allows.
    let marked = format!(
        "    Answer: {PRIVATE}\n            {}\n",
        "^".repeat(PRIVATE.len())
    );
    assert!(out.contains(&marked), "{marked}{out}");
    let passing = std::fs::read_to_string(dir.join("bound.jsonl")).unwrap();
    assert_eq!(passing.lines().count(), 4);
    assert!(!passing.contains("patient"));
    assert!(leafgate(dir, &line("bound.jsonl")).status.success());

    let bad = std::fs::read_to_string(dir.join("bodies.jsonl")).unwrap();
    let bad = bad.lines().find(|line| line.contains("patient")).unwrap();
    std::fs::write(dir.join("body.json"), bad).unwrap();
    let mut json = line("body.json").to_vec();
    json.push("--json");
    let output = leafgate(dir, &json);
    assert_eq!(output.status.code(), Some(1));
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        facts,
        serde_json::json!({"bound": false, "findings": [
            {"pointer": "/messages/0/content", "reason": "text", "uncovered": PRIVATE.len(), "glue": 0},
        ]})
    );
}

/// `--exact` records hashes only after `--accept`.
fn exact(dir: &Path, python: &str) {
    let lock = || std::fs::read_to_string(dir.join("fixtures.lock")).unwrap();
    let (status, out) = learn(dir, python, &["--exact"]);
    assert_eq!(status, Some(1), "{out}");
    assert!(
        out.contains("6 bodies would be recorded") && out.contains("weak:"),
        "{out}"
    );
    assert!(!lock().contains("bodies"));
    let (status, out) = learn(dir, python, &["--exact", "--accept"]);
    assert_eq!(status, Some(0), "{out}");
    assert_eq!(
        lock().matches("\"sha256:").count(),
        7,
        "the fixture's hash and six bodies"
    );
    leaves_by_hash_alone(dir);
}

/// Under `bind = "exact"` a recorded body would leave, byte for byte, and the same body with one more space would not.
fn leaves_by_hash_alone(dir: &Path) {
    let policy = std::fs::read_to_string(dir.join("policy.toml")).unwrap();
    std::fs::write(dir.join("exact.toml"), policy + "bind = \"exact\"\n").unwrap();
    let card = "card new --fixture set.jsonl --id set --class public-fixture --no-residue --pin local --window 24h --surface tmpdir --out card.json";
    let card: Vec<&str> = card.split(' ').collect();
    assert!(leafgate(dir, &card).status.success());
    let explain = |body: &str| {
        std::fs::write(dir.join("body.json"), body).unwrap();
        let line = "explain card.json --body body.json --policy exact.toml";
        let output = leafgate(dir, &line.split(' ').collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout))
    };
    let bodies = std::fs::read_to_string(dir.join("bodies.jsonl")).unwrap();
    assert_eq!(bodies.lines().count(), 6);
    for body in bodies.lines() {
        let (status, out) = explain(body);
        assert_eq!(status, Some(0), "{out}");
        assert!(out.contains("byte for byte (bind exact)"), "{out}");
        let (status, out) = explain(&format!("{body} "));
        assert_eq!(status, Some(1), "{out}");
        assert!(
            out.contains("body_unbound") && out.contains("fixture learn --exact"),
            "{out}"
        );
    }
}

/// Stop words stand alone in their strings. The commands that `fixture learn` prints are run as they are, and then everything is bound.
#[test]
fn the_commands_for_stop_words_do_what_they_say() {
    let dir = folder();
    let dir = dir.path();
    let bodies: String = ITEMS
        .iter()
        .map(|item| {
            let content = format!("Explain this function in one sentence:\n\n{item}");
            let messages = [serde_json::json!({"role": "user", "content": content})];
            let stop = ["\nit's", "\ndef"];
            serde_json::json!({"model": "tiny", "messages": messages, "stop": stop}).to_string()
                + "\n"
        })
        .collect();
    std::fs::write(dir.join("bodies.jsonl"), bodies).unwrap();
    let line = "fixture learn --policy policy.toml --from bodies.jsonl --accept";
    let learn = || {
        let output = leafgate(dir, &line.split(' ').collect::<Vec<_>>());
        (output.status.code(), text(&output.stdout))
    };
    let (status, out) = learn();
    assert_eq!(status, Some(1), "{out}");
    assert!(
        out.contains("  /stop/*  |\\ndef|  in 3 different texts\n"),
        "{out}"
    );
    let commands: Vec<&str> = out
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("printf ") || line.starts_with("leafgate fixture add "))
        .collect();
    assert_eq!(commands.len(), 2, "{out}");
    for command in commands {
        let program = format!("'{}'", env!("CARGO_BIN_EXE_leafgate"));
        let command = command.replacen("leafgate", &program, 1);
        let shell = Command::new("sh")
            .args(["-c", &command])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(shell.status.success(), "{command}: {shell:?}");
    }
    let (status, out) = learn();
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("every body is covered"), "{out}");
    assert!(out.contains("3 of 3 bodies are bound now"), "{out}");
}

const QUIZ: [(&str, [&str; 3]); 4] = [
    (
        "What is the unit of electrical resistance?",
        ["Volt", "Ohm", "Watt"],
    ),
    (
        "Which river flows through Vienna?",
        ["Rhine", "Elbe", "Danube"],
    ),
    (
        "How many chambers does a human heart have?",
        ["4", "3", "2"],
    ),
    ("What is the chemical symbol of gold?", ["Au", "Ag", "Gd"]),
];

/// A registered quiz, and a body for each item, behind what `more` says of its number.
fn quiz(more: impl Fn(usize) -> String) -> tempfile::TempDir {
    let dir = folder();
    let (mut lines, mut bodies) = (String::new(), String::new());
    for (at, (question, [a, b, c])) in QUIZ.iter().enumerate() {
        let item = serde_json::json!({"question": question, "options": [a, b, c]});
        lines += &(item.to_string() + "\n");
        let content = format!(
            "Question: {question}\nA) {a}\nB) {b}\nC) {c}\n{}Reply with one letter.",
            more(at)
        );
        let messages = [
            serde_json::json!({"role": "system", "content": "You are a careful tutor who answers questions."}),
            serde_json::json!({"role": "user", "content": content}),
        ];
        bodies += &(serde_json::json!({"model": "tiny", "messages": messages}).to_string() + "\n");
    }
    std::fs::write(dir.path().join("quiz.jsonl"), lines).unwrap();
    std::fs::write(dir.path().join("bodies.jsonl"), bodies).unwrap();
    let (status, out, _) = run(
        dir.path(),
        "fixture add quiz.jsonl --id quiz --format jsonl",
    );
    assert_eq!(status, Some(0), "{out}");
    dir
}

fn run(dir: &Path, line: &str) -> (Option<i32>, String, String) {
    let output = leafgate(dir, &line.split(' ').collect::<Vec<_>>());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

#[test]
fn what_was_read_is_what_is_accepted() {
    let dir = quiz(|_| String::new());
    let dir = dir.path();
    let learn = "fixture learn --id quiz --policy policy.toml --from bodies.jsonl";
    let (status, out, _) = run(dir, learn);
    assert_eq!(status, Some(1), "{out}");
    let digest = out
        .split("--accept=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    // The eval of a later day proposes something else: its prompts end otherwise.
    let bodies = std::fs::read_to_string(dir.join("bodies.jsonl")).unwrap();
    let other = bodies.replace("with one letter.", "as Jane Roe, born 1971.");
    std::fs::write(dir.join("other.jsonl"), &other).unwrap();
    let (status, _, err) = run(
        dir,
        &format!(
            "fixture learn --id quiz --policy policy.toml --from other.jsonl --accept={digest}"
        ),
    );
    assert_eq!(status, Some(2), "{err}");
    assert!(
        err.contains("something else than what was shown") && !err.contains("Jane"),
        "{err}"
    );
    assert!(!dir.join("quiz.glue.json").exists());
    let (status, _, err) = run(
        dir,
        "fixture learn --id quiz --policy policy.toml --accept --except 2 -- true",
    );
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("--except: its numbers"), "{err}");
    assert_eq!(
        digest.len(),
        32,
        "long enough that no other proposal has it"
    );
    let (status, _, err) = run(dir, &format!("{learn} --accept={}", &digest[..12]));
    assert_eq!(status, Some(2), "{err}");
    let (status, out, _) = run(dir, &format!("{learn} --accept={digest}"));
    assert_eq!(status, Some(0), "{out}");
    assert!(dir.join("quiz.glue.json").exists());
}

#[test]
fn a_quiz_is_learnt_and_a_private_sentence_in_it_is_told_from_the_glue_beside_it() {
    let dir = quiz(|_| String::new());
    let dir = dir.path();
    let learn = "fixture learn --id quiz --policy policy.toml --from bodies.jsonl --accept";
    let (status, out, _) = run(dir, learn);
    assert_eq!(status, Some(0), "{out}");
    for part in [
        "\\nA) ",
        "\\nB) ",
        "\\nC) ",
        "\\nReply with one letter.",
        "Question: ",
    ] {
        assert!(out.contains(&format!("     |{part}|\n")), "{part}: {out}");
    }
    assert!(out.contains("4 of 4 bodies are bound now"), "{out}");

    let bodies = std::fs::read_to_string(dir.join("bodies.jsonl")).unwrap();
    let bad = bodies
        .lines()
        .next()
        .unwrap()
        .replace("Reply", "Jane Doe asks. Reply");
    std::fs::write(dir.join("body.json"), bad).unwrap();
    let check = "fixture check body.json --id quiz --policy policy.toml";
    let (status, out, _) = run(dir, check);
    assert_eq!(status, Some(1), "{out}");
    let marks = format!("    {}{}\n", "^".repeat(15), ".".repeat(22));
    assert!(out.contains(&marks), "{out}");
    assert!(out.contains("of these, 22 are glue (dots)"), "{out}");
    let (_, out, _) = run(dir, &format!("{check} --json"));
    let facts: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(facts["findings"][0]["uncovered"], 37);
    assert_eq!(facts["findings"][0]["glue"], 22);

    // Without a policy no model is judged; with one, it is.
    let other = bodies.lines().next().unwrap().replace("tiny", "other");
    std::fs::write(dir.join("body.json"), other).unwrap();
    let (status, out, err) = run(
        dir,
        "fixture check body.json --id quiz --passing kept.jsonl",
    );
    assert_eq!(status, Some(0), "{out}");
    assert!(err.contains("not judged without --policy"), "{err}");
    assert!(err.contains("1 bound body written to kept.jsonl"), "{err}");
    let (status, out, err) = run(dir, check);
    assert_eq!(status, Some(1), "{out}");
    assert!(
        out.contains("/model") && !err.contains("judged"),
        "{out}{err}"
    );
}

#[test]
fn where_no_body_would_be_bound_what_recurs_is_listed_and_not_written() {
    let dir = quiz(|at| {
        format!(
            "Patient {} asks this on day {}.\n",
            ["Ann", "Bo", "Cy", "Di"][at],
            7919 * at + 17
        )
    });
    let dir = dir.path();
    let learn = "fixture learn --id quiz --policy policy.toml --from bodies.jsonl --accept";
    let (status, out, _) = run(dir, learn);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("would not suffice:"), "{out}");
    for part in ["\\nA) ", "You are a careful tutor who answers questions."] {
        assert!(out.contains(&format!("     |{part}|\n")), "{part}: {out}");
    }
    assert!(
        out.contains("(a terminal shows them)") && !out.contains("Ann"),
        "{out}"
    );
    assert!(!dir.join("quiz.glue.json").exists());
    // The command it prints runs once the file is there.
    let add = "fixture add quiz.jsonl --id quiz --format jsonl --glue quiz.glue.json";
    assert!(out.contains(&format!("  leafgate {add}\n")), "{out}");
    std::fs::write(dir.join("quiz.glue.json"), "[\"Question: \"]").unwrap();
    let (status, out, _) = run(dir, add);
    assert_eq!(status, Some(0), "{out}");
    assert!(
        out.contains("entry changed: glue none → quiz.glue.json"),
        "{out}"
    );
    let (_, out, _) = run(dir, learn);
    assert!(
        out.contains("by hand, a JSON array of strings, and run learn again"),
        "{out}"
    );
}

#[test]
fn json_that_is_taken_as_text_and_a_lock_file_that_is_not_there_are_said() {
    let dir = quiz(|_| String::new());
    let (_, out, _) = run(dir.path(), "fixture add quiz.jsonl --id quiz");
    assert!(out.contains("entry changed: format jsonl → text"), "{out}");
    assert!(
        out.contains("named like JSON Lines and is taken as text"),
        "{out}"
    );
    let (_, out, _) = run(dir.path(), "fixture add quiz.jsonl --id quiz --format text");
    assert!(!out.contains("named like"), "{out}");

    let empty = tempfile::tempdir().unwrap();
    let check = "fixture check body.json";
    let (status, _, err) = run(empty.path(), check);
    assert_eq!(status, Some(2));
    assert!(
        err.contains("no fixtures.lock in this folder; name the policy: --policy FILE"),
        "{err}"
    );
    std::fs::write(empty.path().join("leafgate.toml"), "version = 1\n").unwrap();
    let (_, _, err) = run(empty.path(), check);
    assert!(err.contains("--policy leafgate.toml"), "{err}");
}

#[test]
fn a_command_that_calls_nobody_is_said_to_be_so() {
    let dir = folder();
    let output = leafgate(dir.path(), &["fixture", "learn", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no call with a body came"));
    let output = leafgate(dir.path(), &["fixture", "learn", "--", "./no-such-command"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("./no-such-command: No such file"));
    let output = leafgate(
        dir.path(),
        &["fixture", "learn", "--id", "other", "--", "true"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it has set"));
}
