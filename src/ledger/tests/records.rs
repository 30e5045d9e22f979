//! What stands on each record, and what never does.

use serde_json::{Value, json};

use super::*;

const CANARY: &str = "c4n4ry \u{e9}";

fn one(dir: &TempDir, kind: &str) -> Value {
    all(dir)
        .into_iter()
        .find(|record| record["t"] == kind)
        .expect("such a record")
}

fn keys(record: &Value) -> Vec<&str> {
    record
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn each_record_has_the_fields_of_the_table() {
    let dir = folder();
    filled(&dir, 1);
    let open = one(&dir, "open");
    assert_eq!(
        keys(&open),
        [
            "key", "log", "oracle", "policy", "prev", "run", "seq", "sync", "t", "time", "v",
            "version"
        ]
    );
    assert_eq!(open["prev"], "0".repeat(64));
    assert_eq!(open["sync"], "record");
    let decision = one(&dir, "decision");
    assert_eq!(
        keys(&decision),
        [
            "attach",
            "body_len",
            "body_mac",
            "call",
            "dropped",
            "egress_class",
            "field",
            "fixture_hash",
            "fixture_id",
            "host_pin",
            "leaf",
            "log",
            "plan_len",
            "plan_sha256",
            "prev",
            "reason",
            "replay_window",
            "residue",
            "route",
            "run",
            "seq",
            "step",
            "surface_named",
            "t",
            "time",
            "v",
            "verdict"
        ]
    );
    assert_eq!(decision["residue"], json!([]));
    assert_eq!(decision["surface_named"], true);
    let outcome = one(&dir, "outcome");
    assert_eq!(
        keys(&outcome),
        [
            "call",
            "log",
            "model",
            "ms",
            "of",
            "peer",
            "prev",
            "received_len",
            "received_sha256",
            "run",
            "sent",
            "sent_len",
            "sent_sha256",
            "seq",
            "status",
            "t",
            "time",
            "v"
        ]
    );
    assert_eq!(outcome["of"], decision["seq"]);
    assert_eq!(outcome["call"], decision["call"]);
    assert_eq!(one(&dir, "stop")["policy"], facts().policy);
    let held = all(&dir)
        .into_iter()
        .find(|record| record["verdict"] == "refuse")
        .expect("the hold");
    for never in ["plan_len", "plan_sha256", "bind", "dropped", "clear_text"] {
        assert!(held.get(never).is_none(), "{never} on a hold");
    }
    assert_eq!((&held["leaf"], &held["step"]), (&json!("hold"), &json!(1)));
    assert_eq!(whole(&dir).records, 5);
}

#[test]
fn a_value_outside_its_grammar_is_sealed_and_its_twin_is_shown() {
    let dir = folder();
    let ledger = start_in(&dir);
    let card = json!({
        "fixture_id": CANARY, "fixture_hash": CANARY, "egress_class": CANARY, "residue": [CANARY, "customer_email", ""], "host_pin": CANARY,
        "replay_window": CANARY, "writable_surface": CANARY, "failure_label": CANARY, "note": CANARY,
    });
    let shown = release_card().replace(r#""residue":[]"#, r#""residue":["customer_email"]"#);
    let huge = json!({ "residue": vec![" "; 2000] }).to_string();
    runtime().block_on(async {
        ledger
            .refuse(&hold(0, &card.to_string()))
            .await
            .expect("recorded");
        ledger.refuse(&hold(1, &shown)).await.expect("recorded");
        ledger.refuse(&hold(2, &huge)).await.expect("recorded");
    });
    ledger.stop();
    whole(&dir);
    let decisions: Vec<_> = all(&dir)
        .into_iter()
        .filter(|record| record["t"] == "decision")
        .collect();
    for key in [
        "fixture_id",
        "fixture_hash",
        "egress_class",
        "host_pin",
        "replay_window",
        "failure_label",
    ] {
        assert_eq!(decisions[0][key]["len"], CANARY.len(), "{key}");
        assert_eq!(decisions[0][key]["mac"].as_str().map(str::len), Some(64));
        if key != "failure_label" {
            assert!(decisions[1][key].is_string(), "{key}");
        }
    }
    assert_eq!(decisions[0]["residue"][1], "customer_email");
    assert_eq!(
        decisions[0]["residue"][0]["mac"], decisions[0]["fixture_id"]["mac"],
        "equal values can be told equal"
    );
    assert_eq!(decisions[0]["residue"][2]["len"], 0);
    assert_eq!(decisions[1]["residue"], json!(["customer_email"]));
    // Too many to seal one by one: one item over the array's JSON, 2000 items of 3 bytes, commas and brackets.
    assert_eq!(decisions[2]["residue"].as_array().map(Vec::len), Some(1));
    assert_eq!(decisions[2]["residue"][0]["len"], 2000 * 3 + 1999 + 2);
    let bytes = std::fs::read(dir.path().join("ledger/000000000000.jsonl")).expect("the segment");
    let text = String::from_utf8(bytes).expect("ASCII");
    assert!(text.is_ascii() && !text.contains("c4n4ry"));
    assert!(
        !text.contains(&"05".repeat(32)),
        "a plain hash of a held body"
    );
}

#[test]
fn the_model_is_shown_only_where_it_is_listed() {
    let dir = folder();
    let ledger = start_in(&dir);
    runtime().block_on(async {
        for (number, model) in [("m-small", true), (CANARY, false)].into_iter().enumerate() {
            let (_, ticket) = forward(&ledger, number as u64).await.expect("recorded");
            ticket.close(Outcome {
                model: Some((model.0.to_owned(), model.1)),
                split: !model.1,
                ..outcome()
            });
        }
    });
    ledger.stop();
    whole(&dir);
    let outcomes: Vec<_> = all(&dir)
        .into_iter()
        .filter(|record| record["t"] == "outcome")
        .collect();
    assert_eq!(outcomes[0]["model"], "m-small");
    assert_eq!(outcomes[0].get("score"), None);
    assert_eq!(outcomes[1]["model"]["len"], CANARY.len());
    assert_eq!(outcomes[1]["score"], "local");
}

#[test]
fn a_reload_is_recorded_and_the_stop_names_the_policy_that_held() {
    let dir = folder();
    let ledger = start_in(&dir);
    let (new, old) = ("12".repeat(32), facts().policy);
    ledger.config(
        &old,
        Some("policy.toml:3: listen.proxy: cannot change while running"),
    );
    ledger.config(&new, None);
    ledger.stop();
    let records = all(&dir);
    assert_eq!(records[1]["policy"], old.as_str());
    assert!(
        records[1]["error"]
            .as_str()
            .is_some_and(|text| text.contains("listen.proxy"))
    );
    assert_eq!(records[2]["policy"], new.as_str());
    assert_eq!(records[2].get("error"), None);
    assert_eq!(records[3]["t"], "stop");
    assert_eq!(records[3]["policy"], new.as_str());
    whole(&dir);
}
