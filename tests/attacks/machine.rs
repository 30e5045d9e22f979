//! This machine: its listener, its disk, its clock, a fault of our own, and clients that try again.

use std::fs;
use std::path::Path;

use leafgate::policy::Policy;
use serde_json::json;

use crate::Built;
use crate::kit::{Lab, PLAIN, own};
use crate::log::PANICS;
use crate::support::{Gate, Host, Reply, body, card, entry, lay_out};

pub const CASES: &[Built] = &[
    ("BYP-05", a_listener_that_others_can_reach),
    ("RES-07", a_ledger_that_is_not_itself_any_more),
    ("RES-13", a_fault_in_a_task),
    ("RTY-01", |id| tries(id, 1, openai)),
    ("RTY-02", |id| tries(id, 3, lm_eval)),
];

fn a_listener_that_others_can_reach(id: &str) {
    let host = Host::ok();
    for (place, more, why) in [
        ("0.0.0.0", "", Some("listen.proxy")),
        ("[::]", "", Some("listen.proxy")),
        ("0.0.0.0", "token_env = \"PATH\"", None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path(), &entry(&host, ""), "", more);
        let path = dir.path().join("policy.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            text.replacen("proxy = \"127.0.0.1", &format!("proxy = \"{place}"), 1),
        )
        .unwrap();
        let loaded = Policy::load(&path);
        let Some(why) = why else {
            // The twin asks for a token, and the open record names the policy that says so.
            let hash = loaded
                .unwrap_or_else(|faults| panic!("{id}: {faults:?}"))
                .hash;
            let gate = Gate::start(dir);
            assert_eq!(gate.of_kind("open")[0]["policy"], hash, "{id}");
            continue;
        };
        let faults = loaded.expect_err("it does not start");
        assert!(
            faults.iter().any(|fault| fault.to_string().contains(why)),
            "{id}: {faults:?}"
        );
    }
}

fn a_ledger_that_is_not_itself_any_more(id: &str) {
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 6] = [
        ("renamed", |path| {
            fs::rename(path, path.with_extension("away")).unwrap()
        }),
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("truncated", |path| {
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(0)
                .unwrap();
        }),
        ("copied and truncated", |path| {
            fs::copy(path, path.with_extension("1")).unwrap();
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(0)
                .unwrap();
        }),
        ("a link to another file", |path| {
            fs::rename(path, path.with_extension("away")).unwrap();
            std::os::unix::fs::symlink(path.with_extension("away"), path).unwrap();
        }),
        ("another file of the same bytes", |path| {
            fs::copy(path, path.with_extension("new")).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
    ];
    for (name, deed) in deeds {
        let lab = Lab::new();
        lab.good(id);
        lab.gate.wait("outcome", 1);
        deed(&lab.gate.path("ledger/000000000000.jsonl"));
        for changes in [json!({}), json!({"residue": ["x"]}), json!({})] {
            let reply = lab.gate.call(&card(changes), &body());
            own(&format!("{id} {name}"), &reply, 503, "ledger_unavailable");
        }
        let state = lab.gate.ledger.state();
        assert!(!state.ok && state.why.is_some(), "{id} {name}: {state:?}");
        assert_eq!(lab.host.seen().len(), 1, "{id} {name}: nothing left");
    }
    // What is only harder to open for others is still the same file: it is open already.
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let segment = lab.gate.path("ledger/000000000000.jsonl");
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(lab.gate.raw(&lab.bytes(PLAIN)).status, 200, "{id}");
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(lab.gate.of_kind("decision").len(), 1, "{id}");
}

fn a_fault_in_a_task(id: &str) {
    let lab = Lab::with("bind = \"none\"", "");
    for (changes, outcomes) in [(json!({"residue": ["x"]}), 0), (json!({}), 1)] {
        let mut changes = changes;
        changes["fixture_id"] = PANICS.into();
        let known = lab.judged(0).len();
        let reply = lab.gate.call(&card(changes), &body());
        assert_eq!(
            reply.raw, b"",
            "{id}: no answer to a call in whose task a fault struck"
        );
        // Its decision was durable before, and what it had sent has its outcome.
        assert_eq!(lab.judged(known).len(), 1, "{id}");
        assert_eq!(lab.gate.wait("outcome", outcomes).len(), outcomes, "{id}");
        let running = lab.gate.running.as_ref().unwrap();
        assert_eq!(running.shared.in_flight(), 0, "{id}: its place came back");
    }
    // No later call is released without a record.
    lab.good(id);
    assert_eq!(lab.gate.of_kind("decision").len(), 3);
}

/// Whether a client sends again (the openai SDK: `x-should-retry` first, then 408, 409, 429 and 5xx).
fn openai(reply: &Reply) -> bool {
    match reply.header("x-should-retry") {
        Some(word) => word == "true",
        None => matches!(reply.status, 408 | 409 | 429 | 500..),
    }
}

/// lm-eval's `api_models` sends again after whatever is not 200.
fn lm_eval(reply: &Reply) -> bool {
    reply.status != 200
}

/// A client that would send three times, and how often it did.
fn tries(id: &str, want: usize, again: fn(&Reply) -> bool) {
    let lab = Lab::new();
    let held = card(json!({"egress_class": "machine-local"}));
    for _ in 0..3 {
        let reply = lab.gate.call(&held, &body());
        own(id, &reply, 422, "machine_local");
        if !again(&reply) {
            break;
        }
    }
    let records = lab.judged(0);
    assert_eq!((records.len(), lab.host.accepts()), (want, 0), "{id}");
    for pair in records.windows(2) {
        assert!(pair[0]["seq"].as_u64() < pair[1]["seq"].as_u64(), "{id}");
        assert_ne!(pair[0]["call"], pair[1]["call"], "{id}");
        assert_eq!(pair[0]["fixture_hash"], pair[1]["fixture_hash"], "{id}");
    }
    lab.good(id);
}
