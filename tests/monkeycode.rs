//! A stand-in for MonkeyCode's proxy, as `docs/hosts.md` describes it, behind the shipped entry: released, split and refused calls.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::io::Write as _;

use ring::hmac;
use serde_json::{Value, json};
use support::{FIXTURE, GLUE, Gate, Host, Reply, Seen, card, split_card};

const PIN: &str = "proxy.monkeycode-ai.com";
const MODEL: &str = "qwen3.5-plus";
/// Tied to one model.
const RUNTIME_KEY: &str = "mc-runtime-0001";
/// Any model, with a signature over the system prompt.
const OHMYAGENT_KEY: &str = "mc-ohmyagent-0002";
const SECRET: &[u8] = b"signing-secret-of-this-key";
const SYSTEM: &str = "Explain this function in one sentence:\n\n";

fn header<'a>(seen: &'a Seen, name: &str) -> Option<&'a str> {
    seen.head
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

fn signature(prompt: &str) -> String {
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, SECRET),
        prompt.as_bytes(),
    );
    let hex: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("v1={hex}")
}

/// Its answer: status line and type, and the text.
fn answer(seen: &Seen) -> (&'static str, &'static str, String) {
    let plain = |status, text: &str| (status, "text/plain; charset=utf-8", text.to_owned());
    let line = seen.head.lines().next().unwrap();
    let known = ["/chat/completions", "/responses", "/messages"]
        .iter()
        .any(|path| line == format!("POST /v1{path} HTTP/1.1"));
    if !known {
        return plain("404 Not Found", "404 page not found\n");
    }
    let bearer = || header(seen, "authorization").and_then(|value| value.strip_prefix("Bearer "));
    let Some(key) = header(seen, "x-api-key").or_else(bearer) else {
        return plain("401 Unauthorized", "Unauthorized");
    };
    let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else {
        return plain("400 Bad Request", "Bad Request");
    };
    let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
    let signed = header(seen, "x-ohmyagent-signature") == Some(signature(prompt).as_str());
    match key {
        RUNTIME_KEY if body["model"] == MODEL => {}
        OHMYAGENT_KEY if signed => {}
        RUNTIME_KEY | OHMYAGENT_KEY => return plain("403 Forbidden", "Forbidden"),
        _ => return plain("401 Unauthorized", "Unauthorized"),
    }
    ("200 OK", "application/json", support::OK_BODY.to_owned())
}

fn stand_in() -> Host {
    Host::start(|stream, seen| {
        let (status, kind, text) = answer(seen);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(format!("{head}{text}").as_bytes()).is_ok()
    })
}

/// The shipped entry, aimed at the stand-in: address, key and day are the test's, all else is the file's.
fn gate(host: &Host, credential: &str, split: &str) -> Gate {
    let dir = tempfile::tempdir().unwrap();
    for (name, key) in [
        ("runtime", RUNTIME_KEY),
        ("ohmyagent", OHMYAGENT_KEY),
        ("wrong", "mc-wrong-0003"),
    ] {
        std::fs::write(dir.path().join(name), key).unwrap();
    }
    let entry = include_str!("../policies/hosts/monkeycode-com.toml")
        .replace(
            &format!("base_url = \"https://{PIN}/v1\""),
            &format!("base_url = \"http://{PIN}:{}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"", host.address.port()),
        )
        .replace(
            "credential = { env = \"MONKEYCODE_API_KEY\", header = \"x-api-key\" }",
            credential,
        );
    assert!(
        entry.contains("addresses") && entry.contains(credential),
        "{entry}"
    );
    Gate::built_in(dir, &format!("{entry}\n{split}"), "", "")
}

fn mc(mut card: Value) -> Value {
    card["host_pin"] = PIN.into();
    card
}

fn body(model: &str) -> Vec<u8> {
    json!({"model": model, "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": format!("{}{FIXTURE}{}", GLUE[0], GLUE[1])}]})
        .to_string()
        .into_bytes()
}

fn by_key(name: &str) -> String {
    format!("credential = {{ file = \"{name}\", header = \"x-api-key\" }}")
}

fn seen_by_client(reply: &Reply) -> (u16, &str, String) {
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    (reply.status, reply.reason(), text)
}

#[test]
fn a_runtime_key_releases_both_ways_and_splits() {
    let host = stand_in();
    let bearer = "credential = { file = \"runtime\", scheme = \"Bearer\" }".to_owned();
    let chat = format!("split = {{ envelope = \"chat\", model = \"{MODEL}\" }}");
    for credential in [by_key("runtime"), bearer] {
        let gate = gate(&host, &credential, &chat);
        let reply = gate.call(&mc(card(json!({}))), &body(MODEL));
        assert_eq!(
            (reply.status, reply.reason()),
            (200, "public_fixture"),
            "{reply:?}"
        );
        assert_eq!(host.seen().last().unwrap().body, body(MODEL));
        let reply = gate.call(&mc(split_card(json!({}))), b"{\"private\":\"words\"}");
        assert_eq!(
            (reply.status, reply.header("leafgate-score")),
            (200, Some("local")),
            "{reply:?}"
        );
        assert!(!String::from_utf8_lossy(&host.seen().last().unwrap().body).contains("words"));
        assert!(!gate.ledger_text().contains("mc-runtime"));
    }
}

#[test]
fn the_signature_of_an_ohmyagent_key_passes_on_a_release_and_in_its_form_only() {
    let host = stand_in();
    let gate = gate(&host, &by_key("ohmyagent"), "");
    let card = mc(card(json!({})));
    let signed = format!("X-OhMyAgent-Signature: {}\r\n", signature(SYSTEM));
    let reply = gate.call_with(&card, &signed, &body("minimax-m2.7"));
    assert_eq!(reply.status, 200, "{reply:?}");
    for wrong in [
        String::new(),
        "X-OhMyAgent-Signature: v1=private words\r\n".to_owned(),
        format!("X-OhMyAgent-Signature: {}\r\n", signature("another prompt")),
    ] {
        let reply = gate.call_with(&card, &wrong, &body(MODEL));
        assert_eq!(
            seen_by_client(&reply),
            (403, "public_fixture", "Forbidden".to_owned()),
            "{wrong}"
        );
        let head = host.seen().pop().unwrap().head;
        assert!(!head.contains("private"), "{head}");
    }
}

#[test]
fn plain_text_errors_pass_as_they_came() {
    let host = stand_in();
    let card = mc(card(json!({})));
    let wrong = gate(&host, &by_key("wrong"), "");
    let reply = wrong.call(&card, &body(MODEL));
    assert_eq!(
        seen_by_client(&reply),
        (401, "public_fixture", "Unauthorized".to_owned())
    );
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let other_model = gate(&host, &by_key("runtime"), "");
    let reply = other_model.call(&card, &body("minimax-m2.7"));
    assert_eq!(
        seen_by_client(&reply),
        (403, "public_fixture", "Forbidden".to_owned())
    );
}

#[test]
fn what_the_entry_does_not_name_reaches_nobody() {
    let host = stand_in();
    let gate = gate(&host, &by_key("runtime"), "");
    let refused = |card: &Value, path: &str, body: &[u8]| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nleafgate-card: {card}\r\nContent-Length: {}\r\n\r\n",
            gate.address,
            body.len()
        );
        let reply = gate.raw(&[head.as_bytes(), body].concat());
        assert_eq!(reply.status, 422, "{reply:?}");
        reply.reason().to_owned()
    };
    let release = mc(card(json!({})));
    for path in ["/v1/completions", "/v1/embeddings"] {
        assert_eq!(refused(&release, path, &body(MODEL)), "route_not_allowed");
    }
    let chat = "/v1/chat/completions";
    assert_eq!(refused(&release, chat, &body("gpt-9")), "body_unbound");
    assert_eq!(
        refused(&mc(card(json!({"residue": ["x"]}))), chat, &body(MODEL)),
        "residue_present"
    );
    let net = card(json!({"host_pin": "proxy.monkeycode-ai.net"}));
    assert_eq!(refused(&net, chat, &body(MODEL)), "pin_unknown");
    let models = gate.raw(
        format!(
            "GET /v1/models HTTP/1.1\r\nHost: {}\r\nleafgate-card: {release}\r\n\r\n",
            gate.address
        )
        .as_bytes(),
    );
    assert_eq!(
        (models.status, models.header("leafgate-verdict")),
        (200, Some("local"))
    );
    assert_eq!(models.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(host.accepts(), 0);
}

#[test]
fn the_retired_host_refuses_also_where_its_pin_is_confirmed() {
    let host = Host::ok();
    let entry = include_str!("../policies/hosts/github-models.toml").replace(
        "base_url = \"https://models.github.ai/inference\"",
        &format!("base_url = \"http://models.github.ai:{}/inference\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"", host.address.port()),
    );
    let gate = Gate::with(&entry, "");
    for mut card in [card(json!({})), split_card(json!({}))] {
        card["host_pin"] = "models.github.ai".into();
        let reply = gate.call(&card, &body(MODEL));
        assert_eq!(
            (reply.status, reply.reason()),
            (422, "route_not_allowed"),
            "{reply:?}"
        );
    }
    assert_eq!(host.accepts(), 0);
}
