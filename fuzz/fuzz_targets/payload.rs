//! Any bytes as the payload of a split, through admission as a call goes. Beside "no panic": what leaves is one of the bodies that four values make, whatever
//! the payload; the label is on the list; and the ruling is what a plain reader of the payload's top level says.
//!
//! The first byte chooses the card (with a label or without) and the envelope.
#![no_main]

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method};
use leafgate::admit::{CallHead, CallId, Eligible, SealedBody, Target, check_head};
use leafgate::card::{Card, Reading};
use leafgate::fixture::Registry;
use leafgate::policy::Policy;
use leafgate::terms::Reason;
use leafgate::tree::{Decision, classify};
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};

const ID: &str = "seed-04";
const HASH: &str = "sha256:9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c";

struct Room {
    policies: [Arc<Policy>; 2],
    registry: Registry,
    cards: [Arc<Card>; 3],
    /// By policy and label.
    bodies: Vec<[u8; 32]>,
}

static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let policy = |split: &str| {
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, format!("version = 1\n[split]\nfailure_labels = [\"pass\", \"wrong-answer\"]\n[hosts.local]\nbase_url = \"http://127.0.0.1:11434/v1\"\n{split}\n")).expect("a file");
        Arc::new(Policy::load(&file).unwrap_or_else(|faults| panic!("{faults:?}")))
    };
    let policies = [policy(""), policy("split = { envelope = \"chat\", model = \"m\\\"\", max_tokens = 64 }")];
    let registry = Registry::load(&policies[0].fixtures).unwrap_or_else(|faults| panic!("{faults:?}"));
    let card = |label: &str| {
        let text = format!(r#"{{"fixture_id":"{ID}","fixture_hash":"{HASH}","egress_class":"redacted-metadata","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"tmp"{label}}}"#);
        Arc::new(Card::parse(text.as_bytes()).expect("a card"))
    };
    let mut bodies = Vec::new();
    for label in ["pass", "wrong-answer"] {
        let object = format!(r#"{{"fixture_id":"{ID}","fixture_hash":"{HASH}","egress_class":"redacted-metadata","failure_label":"{label}"}}"#);
        let content = Value::from(object.as_str());
        bodies.push(Sha256::digest(&object).into());
        bodies.push(Sha256::digest(format!(r#"{{"model":"m\"","messages":[{{"role":"user","content":{content}}}],"max_tokens":64}}"#)).into());
    }
    Room { policies, registry, cards: [card(""), card(r#","failure_label":"pass""#), card(r#","failure_label":"other""#)], bodies }
});

/// Name and value of every member, twice where they stand twice.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// What contract, sections 3 and 4, says of this payload.
fn expected(payload: &[u8], of_card: Option<&str>) -> Result<String, Reason> {
    let members = serde_json::from_slice(payload).map_or(Vec::new(), |members: Members| members.0);
    let said = |name: &str| members.iter().filter(|member| member.0 == name).map(|member| member.1.as_str()).collect::<Vec<_>>();
    let of_payload = match said("failure_label")[..] {
        [Some(label)] => Some(label),
        _ => None,
    };
    let label = of_card.or(of_payload).ok_or(Reason::LabelMissing)?;
    if !["pass", "wrong-answer"].contains(&label) {
        return Err(Reason::LabelUnknown);
    }
    for (name, value) in [("fixture_id", ID), ("fixture_hash", HASH), ("egress_class", "redacted-metadata"), ("failure_label", label)] {
        if !matches!(said(name)[..], [] ) && said(name) != [Some(value)] {
            return Err(Reason::PayloadContradicts);
        }
    }
    Ok(label.to_owned())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, payload)) = bytes.split_first() else { return };
    let room = &*ROOM;
    let card = usize::from(*choice) % 3;
    let policy = usize::from(*choice / 3) % 2;
    let Decision::Split(split) = classify(&Reading::Card(room.cards[card].clone())) else { panic!("a split") };
    let headers = HeaderMap::new();
    let head = CallHead {
        call: CallId::new(0, [0; 10]),
        attach: None,
        method: &Method::POST,
        target: Target::Origin("/chat/completions"),
        headers: &headers,
    };
    // No host on loopback asks for a fixture, so nothing is waited for.
    let checked = pin!(check_head(Eligible::Split(split), head, &room.policies[policy], &room.registry, jiff::Timestamp::UNIX_EPOCH))
        .poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(admitted)) = checked else { panic!("admitted") };
    let of_card = [None, Some("pass"), Some("other")][card];
    match (admitted.finish(SealedBody::seal(Bytes::copy_from_slice(payload))), expected(payload, of_card)) {
        (Ok(plan), Ok(label)) => {
            assert_eq!(plan.facts().failure_label.as_ref().map(|label| label.as_str()), Some(label.as_str()));
            let which = usize::from(label != "pass") * 2 + policy;
            assert_eq!(plan.sha256(), room.bodies[which]);
        }
        (Err(refusal), Err(reason)) => {
            assert_eq!(refusal.reason, reason);
            assert!(refusal.hint.is_ascii());
        }
        (left, expected) => panic!("{:?} {expected:?}", left.is_ok()),
    }
});
