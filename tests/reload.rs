//! Reload, drain and latch: what a running leafgate does when its files, its ledger or its life change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use support::{Gate, HOST, Host, body, card, read_reply};

fn edit(gate: &Gate, change: impl Fn(String) -> String) {
    let path = gate.path("policy.toml");
    std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
}

fn reload(gate: &Gate, configs: usize) -> serde_json::Value {
    gate.running.as_ref().unwrap().reload();
    let records = gate.wait("config", configs);
    assert_eq!(records.len(), configs);
    records[configs - 1].clone()
}

/// A connection on which a call was sent and no answer read.
fn sent(gate: &Gate) -> TcpStream {
    let mut stream = gate.connect();
    let payload = body();
    let head = gate.head(
        &card(json!({})),
        &format!("Content-Length: {}\r\n\r\n", payload.len()),
    );
    stream
        .write_all(&[head.as_bytes(), &payload].concat())
        .unwrap();
    stream
}

#[test]
fn a_policy_is_taken_whole_or_not_at_all() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let good = std::fs::read_to_string(gate.path("policy.toml")).unwrap();
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    // A broken file, a missing one, and a change that needs a restart: the old policy stays.
    for (n, text) in [
        format!("{good}\n[broken\n"),
        good.replace("proxy = \"127.0.0.1:", "proxy = \"127.0.0.2:"),
        good.replace("dir = \"ledger\"", "dir = \"other\""),
        good.replace("lock = \"fixtures.lock\"", "lock = \"no-such.lock\""),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(gate.path("policy.toml"), text).unwrap();
        let config = reload(&gate, n + 1);
        assert!(config["error"].is_string(), "{config}");
        assert!(
            gate.running
                .as_ref()
                .unwrap()
                .shared
                .reload_errors
                .first()
                .is_some()
        );
        assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    }
    std::fs::write(
        gate.path("policy.toml"),
        good.replace(HOST, "renamed.example.org"),
    )
    .unwrap();
    let config = reload(&gate, 5);
    assert!(config.get("error").is_none(), "{config}");
    assert!(
        gate.running
            .as_ref()
            .unwrap()
            .shared
            .reload_errors
            .first()
            .is_none()
    );
    assert_eq!(gate.call(&card(json!({})), &body()).reason(), "pin_unknown");
    assert_eq!(
        gate.call(&card(json!({"host_pin": "renamed.example.org"})), &body())
            .status,
        200
    );
}

#[test]
fn a_changed_policy_file_is_taken_without_a_signal() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    edit(&gate, |text| text.replace(HOST, "renamed.example.org"));
    let began = Instant::now();
    while gate.call(&card(json!({})), &body()).reason() != "pin_unknown" {
        assert!(
            began.elapsed() < Duration::from_millis(2500),
            "not taken in time"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_call_in_flight_keeps_its_policy_and_a_reload_closes_what_is_kept() {
    let host = Host::start(|stream, _| {
        std::thread::sleep(Duration::from_millis(400));
        stream.write_all(&support::ok_response()).is_ok()
    });
    let gate = Gate::in_front_of(&host);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    assert_eq!(host.accepts(), 1, "the connection is kept");
    let mut slow = sent(&gate);
    gate.wait("decision", 3);
    edit(&gate, |text| {
        text.replace("models = [\"tiny\"]", "models = [\"tiny\", \"small\"]")
    });
    reload(&gate, 1);
    assert_eq!(read_reply(&mut slow).status, 200);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    assert_eq!(host.accepts(), 2, "a new policy dials anew");
}

fn in_doubt(gate: &Gate) -> bool {
    let running = gate.running.as_ref().unwrap();
    running.shared.reload_errors.first().is_some()
}

/// Waits for so many `config` records; whether the last is a refusal.
fn refused(gate: &Gate, configs: usize) -> bool {
    let records = gate.wait("config", configs);
    assert_eq!(records.len(), configs, "{records:?}");
    records[configs - 1]["error"].is_string()
}

#[test]
fn a_policy_that_was_refused_for_its_lock_file_is_taken_when_that_is_mended() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let lock = std::fs::read_to_string(gate.path("fixtures.lock")).unwrap();
    std::fs::write(gate.path("fixtures.lock"), "bad").unwrap();
    assert!(refused(&gate, 1));
    edit(&gate, |text| text.replace(HOST, "renamed.example.org"));
    assert!(refused(&gate, 2));
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    std::fs::write(gate.path("fixtures.lock"), format!("{lock}# mended\n")).unwrap();
    assert!(!refused(&gate, 3) || !refused(&gate, 4));
    let began = Instant::now();
    while gate.call(&card(json!({})), &body()).reason() != "pin_unknown" {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "the new policy is in force"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!in_doubt(&gate));
}

#[test]
fn a_file_that_is_again_what_is_in_force_is_no_fault() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let mut configs = 0;
    for name in ["policy.toml", "fixtures.lock"] {
        let good = std::fs::read_to_string(gate.path(name)).unwrap();
        std::fs::write(gate.path(name), "bad").unwrap();
        configs += 1;
        assert!(refused(&gate, configs), "{name}");
        assert!(in_doubt(&gate), "{name}");
        std::fs::write(gate.path(name), good).unwrap();
        configs += 1;
        assert!(!refused(&gate, configs), "{name}");
        assert!(!in_doubt(&gate), "{name}");
        assert_eq!(gate.call(&card(json!({})), &body()).status, 200, "{name}");
    }
}

#[test]
fn a_stop_drains_what_is_in_flight_and_cuts_what_is_late() {
    for (wait, limit, status) in [(300, "5s", 200), (5000, "200ms", 0)] {
        let host = Host::start(move |stream, _| {
            std::thread::sleep(Duration::from_millis(wait));
            stream.write_all(&support::ok_response()).is_ok()
        });
        let mut gate = Gate::with(
            &support::entry(&host, ""),
            &format!("[limits]\nshutdown = \"{limit}\"\n"),
        );
        let mut slow = sent(&gate);
        gate.wait("decision", 1);
        gate.stop();
        assert_eq!(read_reply(&mut slow).status, status);
        let records = gate.records();
        let outcome = records
            .iter()
            .find(|r| r["t"] == "outcome")
            .expect("an outcome");
        assert_eq!(outcome.get("error").is_some(), status == 0, "{outcome}");
        assert_eq!(
            (
                outcome["sent"].as_str(),
                records.last().unwrap()["t"].as_str()
            ),
            (Some("all"), Some("stop"))
        );
    }
}

#[test]
fn a_ledger_that_was_moved_refuses_everything_until_a_restart() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    let segment = gate.path("ledger/000000000000.jsonl");
    std::fs::rename(&segment, gate.path("moved.jsonl")).unwrap();
    for card in [
        card(json!({})),
        card(json!({"residue": ["x"]})),
        card(json!({"host_pin": "free-server"})),
    ] {
        let reply = gate.call(&card, &body());
        assert_eq!(
            (reply.status, reply.reason(), reply.header("x-should-retry")),
            (503, "ledger_unavailable", Some("false"))
        );
    }
    std::fs::rename(gate.path("moved.jsonl"), &segment).unwrap();
    assert_eq!(gate.call(&card(json!({})), &body()).status, 503, "latched");
    assert_eq!(host.seen().len(), 1);
    assert!(!gate.ledger.state().ok);
}
