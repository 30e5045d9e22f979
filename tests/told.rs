//! What a person is told can be done as it is told: the commands of a refusal and of `init` run from any folder, and what `serve` prints and logs is so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test that starts the binary and pastes its commands into a shell"
)]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{CANARY, Gate, HOST, Host, body, body_with, card, entry, free_ports, lay_out};

/// Pastes a line into a shell in this folder, with the built leafgate first on the path.
fn paste(line: &str, folder: &Path) -> Output {
    let built = Path::new(env!("CARGO_BIN_EXE_leafgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    Command::new("sh")
        .args(["-ec", line])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", built.display()))
        .output()
        .unwrap()
}

fn both(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The commands in a message: from `leafgate WORD` to what ends the clause.
fn commands(message: &str) -> Vec<String> {
    let ends = [" shows ", " says ", ", then ", ". Call ", ", and "];
    let begins = message.match_indices("leafgate ");
    begins
        .filter(|(at, _)| {
            let next = &message[at + "leafgate ".len()..];
            ["pin ", "policy ", "fixture "]
                .iter()
                .any(|word| next.starts_with(word))
        })
        .map(|(at, _)| {
            let rest = &message[at..];
            let end = ends.iter().filter_map(|end| rest.find(end)).min();
            rest[..end.unwrap_or(rest.len())].to_owned()
        })
        .collect()
}

#[test]
fn the_commands_of_a_refusal_name_the_policy_in_force_by_a_path_that_works_anywhere() {
    let host = Host::ok();
    // One that would have to be quoted.
    let top = tempfile::Builder::new()
        .prefix("it's a folder")
        .tempdir()
        .unwrap();
    let aged = entry(&host, "max_age = \"1h\"\n").replace(HOST, "aged.example.org");
    let gate = Gate::built_in(top, &(entry(&host, "") + &aged), "", "");
    let elsewhere = tempfile::tempdir().unwrap();
    let good = body();
    let unbound = body_with(CANARY);
    for (reason, change, body, count) in [
        ("body_unbound", json!({}), &unbound, 2),
        (
            "pin_unknown",
            json!({"host_pin": "other.example.org"}),
            &good,
            2,
        ),
        (
            "pin_stale",
            json!({"host_pin": "aged.example.org"}),
            &good,
            1,
        ),
        (
            "fixture_unknown",
            json!({"fixture_id": "another"}),
            &good,
            1,
        ),
        (
            "fixture_mismatch",
            json!({"fixture_hash": format!("sha256:{}", "0a".repeat(32))}),
            &good,
            1,
        ),
    ] {
        let reply = gate.call(&card(change), body);
        assert_eq!(reply.reason(), reason, "{reply:?}");
        let message = reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(!message.contains(CANARY), "{message}");
        let found = commands(&message);
        assert_eq!(found.len(), count, "{message}");
        for command in found {
            let folder = gate.dir.path().to_str().unwrap().replace('\'', "'\\''");
            assert!(command.contains(&folder), "{command}");
            // What only the person knows is filled in; the rest is pasted.
            let eval = "curl -s -o /dev/null -H 'content-type: application/json' -d @good.json {base_url}/chat/completions";
            let line = command
                .replace("FILE --id", "f.txt --id")
                .replace("YOUR EVAL", eval);
            std::fs::write(elsewhere.path().join("f.txt"), "a text that is long enough").unwrap();
            std::fs::write(elsewhere.path().join("good.json"), &good).unwrap();
            let output = paste(&line, elsewhere.path());
            let told = both(&output);
            let wanted: &[i32] = match reason {
                // `aged` was never confirmed.
                "pin_unknown" if line.contains("pin list") => &[1],
                _ => &[0],
            };
            let status = output.status.code().unwrap();
            assert!(wanted.contains(&status), "{line}: {status} {told}");
        }
    }
    let ledger = gate.ledger_text();
    assert!(!ledger.contains("policy.toml") && !ledger.contains("a folder"));
}

#[test]
fn the_commands_that_init_prints_work_as_they_stand() {
    let top = tempfile::tempdir().unwrap();
    let told = paste("leafgate init 'my evals'", top.path());
    assert!(told.status.success());
    let told = String::from_utf8(told.stdout).unwrap();
    let (_, last) = told.split_once("a text of your own").unwrap();
    let (_, lines) = last.split_once('\n').unwrap();
    let done = paste(lines, top.path());
    assert!(done.status.success(), "{lines}\n{}", both(&done));
    let looked = paste(
        "leafgate card lint --policy 'my evals/leafgate.toml' 'my evals/cards/mine.json' && leafgate fixture list --policy 'my evals/leafgate.toml'",
        top.path(),
    );
    assert!(looked.status.success(), "{}", both(&looked));
}

#[test]
fn a_card_that_is_there_is_replaced_only_where_that_was_said() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    std::fs::write(at("f.txt"), "abc").unwrap();
    std::fs::write(at("c.json"), "mine").unwrap();
    std::os::unix::fs::symlink("c.json", at("link.json")).unwrap();
    let line = "leafgate card new --fixture f.txt --id f --class public-fixture --no-residue --pin local --window 24h --surface t --out";
    let refused = paste(&format!("{line} c.json"), top.path());
    let told = both(&refused);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        told.contains("add --replace") && told.lines().count() == 1,
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(at("c.json")).unwrap(), "mine");
    // Through a link, and with the mode that the file had.
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(at("c.json"), mode(0o640)).unwrap();
    let done = paste(&format!("{line} link.json --replace"), top.path());
    assert!(
        done.status.success() && both(&done).starts_with("replaced link.json\n"),
        "{}",
        both(&done)
    );
    assert!(
        std::fs::read_to_string(at("c.json"))
            .unwrap()
            .contains("\"fixture_id\":\"f\"")
    );
    assert_eq!(
        std::fs::metadata(at("c.json")).unwrap().permissions(),
        mode(0o100_640)
    );
    assert!(at("link.json").is_symlink());
    // The twin: a file that is not there is written with the flag too, and nothing lies beside it.
    let done = paste(&format!("{line} new.json --replace"), top.path());
    assert!(
        both(&done).starts_with("written  new.json\n"),
        "{}",
        both(&done)
    );
    assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 4);
    let alone = paste(&line.replace(" --out", " --replace"), top.path());
    assert_eq!(alone.status.code(), Some(2));
    assert!(both(&alone).contains("--out"), "{}", both(&alone));
}

#[test]
fn serve_says_when_edits_are_taken_and_its_log_says_what_the_ledger_says() {
    let top = tempfile::tempdir().unwrap();
    let [gone, _] = free_ports();
    let dead = format!(
        "[hosts.\"{HOST}\"]\nbase_url = \"http://{HOST}:{gone}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"\n"
    );
    lay_out(top.path(), &dead, "", "");
    let (out, err) = (top.path().join("out"), top.path().join("err"));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_leafgate"))
        .args(["serve", "--policy", "policy.toml"])
        .current_dir(top.path())
        .env_remove("LEAFGATE_LOG")
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(std::fs::File::create(&err).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let wait = |file: &Path, text: &str| {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let told = std::fs::read_to_string(file).unwrap();
            if told.contains(text) || Instant::now() > until {
                assert!(told.contains(text), "no {text:?} in {told}");
                return told;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let banner = wait(&out, "  doctor ");
    let edits = banner
        .lines()
        .find(|line| line.starts_with("  edits "))
        .unwrap();
    assert!(
        edits.contains("policy, cards and fixtures are taken within 2.5 s")
            && edits.contains("/readyz"),
        "{edits}"
    );
    // It is so for a card.
    std::fs::write(
        top.path().join("cards/new.json"),
        card(json!({})).to_string(),
    )
    .unwrap();
    wait(&err, "leafgate::cards: reloaded cards=2");
    // Read again while it is young, and not news.
    std::thread::sleep(Duration::from_millis(2500));
    let told = std::fs::read_to_string(&err).unwrap();
    assert_eq!(told.matches("leafgate::cards").count(), 1, "{told}");
    let base = banner
        .lines()
        .find_map(|line| line.trim().strip_prefix("base URL  "))
        .unwrap();
    let call = |card: &str| {
        let line = format!(
            "curl -s '{}/chat/completions' -H 'content-type: application/json' -d '{{}}'",
            base.replace("/v1", &format!("/card/{card}/v1"))
        );
        let answer: Value = serde_json::from_slice(&paste(&line, top.path()).stdout).unwrap();
        answer["error"].clone()
    };
    let failed = call("new");
    // Not the look of a slow host: the port is there and nobody listens.
    let message = failed["message"].as_str().unwrap();
    let address = format!("refused at {HOST}:{gone}");
    assert!(message.contains(&address), "{message}");
    assert!(!message.contains("limits.connect"), "{message}");
    let failed = failed["code"].as_str().unwrap().to_owned();
    let refused = call("not-there")["code"].as_str().unwrap().to_owned();
    let listener = base.trim_start_matches("http://").trim_end_matches("/v1");
    for named in ["example.org:443", "user@red:443"] {
        let mut stream = std::net::TcpStream::connect(listener).unwrap();
        let head = format!("CONNECT {named} HTTP/1.1\r\nHost: {named}\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let told = std::fs::read_to_string(&err).unwrap();
    let why: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("a message that is no call was refused"))
        .collect();
    assert_eq!(why.len(), 2, "{told}");
    assert!(
        why.iter().all(
            |line| line.contains("aim the client's base URL at leafgate")
                && !line.contains("red:443")
        ),
        "{why:?}"
    );
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&serve),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(serve.wait().unwrap().success());
    assert_eq!((&*failed, &*refused), ("connect_failed", "card_missing"));
    let records = support::records_in(&top.path().join("ledger"));
    let find = |kind: &str| {
        records
            .iter()
            .filter(|record| record["t"] == kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    let told = std::fs::read_to_string(&err).unwrap();
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("leafgate::call"))
        .collect();
    let errors = [
        find("outcome")[0]["error"].as_str().unwrap().to_owned(),
        "-".to_owned(),
    ];
    assert_eq!((lines.len(), &*errors[0]), (2, "connect_failed"));
    for ((line, decision), error) in lines.iter().zip(find("decision")).zip(&errors) {
        for (key, value) in [
            ("call", decision["call"].as_str().unwrap()),
            ("verdict", decision["verdict"].as_str().unwrap()),
            ("reason", decision["reason"].as_str().unwrap()),
            ("error", error),
        ] {
            assert!(
                line.contains(&format!("{key}=\"{value}\"")),
                "{key} {value}: {line}"
            );
        }
    }
}
