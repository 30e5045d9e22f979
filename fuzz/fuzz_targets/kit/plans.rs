//! Plans of splits, through admission as a call goes.

#![allow(dead_code, reason = "each target takes a part")]

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method};
use leafgate::admit::{CallHead, CallId, Eligible, Plan, SealedBody, Target, check_head};
use leafgate::card::{Card, Reading};
use leafgate::fixture::Registry;
use leafgate::policy::Policy;
use leafgate::tree::{Decision, classify};

pub const HASH: &str = "sha256:9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c";

/// A policy with two hosts on loopback and one off it, and the fixtures it names: none.
pub struct Room {
    pub policy: Arc<Policy>,
    pub registry: Registry,
}

pub static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("policy.toml");
    let text = r#"version = 1
[split]
failure_labels = ["pass", "wrong-answer"]
[hosts.local]
base_url = "http://127.0.0.1:11434/v1"
[hosts.localhost]
base_url = "http://localhost:8000/v1"
addresses = "loopback"
split = { envelope = "chat", model = "m", max_tokens = 64 }
[hosts."models.example.org"]
base_url = "https://models.example.org/v1"
models = ["m"]
"#;
    std::fs::write(&file, text).expect("a file");
    let policy = Arc::new(Policy::load(&file).unwrap_or_else(|faults| panic!("{faults:?}")));
    let registry = Registry::load(&policy.fixtures).unwrap_or_else(|faults| panic!("{faults:?}"));
    Room { policy, registry }
});

/// What a split with this card, payload and head would send; `None` where it is none, or admission refuses it.
pub fn split(card: &[u8], number: u64, route: &str, headers: &HeaderMap, payload: &[u8]) -> Option<Plan> {
    let card = Arc::new(Card::parse(card).ok()?);
    let Decision::Split(split) = classify(&Reading::Card(card)) else { return None };
    let head = CallHead {
        call: CallId::new(number, [0; 10]),
        attach: None,
        method: &Method::POST,
        target: Target::Origin(route),
        headers,
        peer_uid: None,
    };
    // No host on loopback asks for a fixture, so nothing is waited for.
    let checked = pin!(check_head(Eligible::Split(split), head, &ROOM.policy, &ROOM.registry, jiff::Timestamp::UNIX_EPOCH))
        .poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(admitted) = checked else { panic!("admission waits") };
    admitted.ok()?.finish(SealedBody::seal(Bytes::copy_from_slice(payload))).ok()
}

/// The plan of a plain split.
pub fn plain(number: u64) -> Plan {
    let card = format!(
        r#"{{"fixture_id":"seed-04","fixture_hash":"{HASH}","egress_class":"redacted-metadata","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"tmp","failure_label":"pass"}}"#
    );
    split(card.as_bytes(), number, "/chat/completions", &HeaderMap::new(), b"{}").expect("a split")
}
