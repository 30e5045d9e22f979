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

/// A reader of RFC 8259 that knows nothing of serde: bytes of UTF-8, a place in them.
struct Reader<'a>(&'a [u8], usize);

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.get(self.1).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.1 += 1)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.1 += 1;
        }
    }

    /// UTF-16 units, so that half a pair is a string too.
    fn string(&mut self) -> Option<Vec<u16>> {
        self.eat(b'"')?;
        let mut units = Vec::new();
        loop {
            let rest = std::str::from_utf8(&self.0[self.1..]).ok()?;
            let char = rest.chars().next()?;
            self.1 += char.len_utf8();
            match char {
                '"' => return Some(units),
                '\\' => {
                    let escape = self.peek()?;
                    self.1 += 1;
                    units.push(match escape {
                        b'"' | b'\\' | b'/' => u16::from(escape),
                        b'b' => 8,
                        b't' => 9,
                        b'n' => 10,
                        b'f' => 12,
                        b'r' => 13,
                        b'u' => {
                            let digits = self.0.get(self.1..self.1 + 4)?;
                            self.1 += 4;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
                        }
                        _ => return None,
                    });
                }
                '\0'..='\u{1f}' => return None,
                other => units.extend_from_slice(other.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.1;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.1 += 1;
        }
        (self.1 > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.eat(b'-');
        if self.eat(b'0').is_none() {
            self.digits()?;
        }
        if self.eat(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.1 += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.1 += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// A value with the space around it; its text where it is a string.
    fn value(&mut self) -> Option<Option<Vec<u16>>> {
        self.space();
        let mut text = None;
        match self.peek()? {
            b'"' => text = Some(self.string()?),
            b'{' => drop(self.object()?),
            b'[' => {
                self.1 += 1;
                self.space();
                if self.eat(b']').is_none() {
                    loop {
                        self.value()?;
                        if self.eat(b']').is_some() {
                            break;
                        }
                        self.eat(b',')?;
                    }
                }
            }
            _ => {
                let word = ["true", "false", "null"].into_iter().find(|word| self.0[self.1..].starts_with(word.as_bytes()));
                match word {
                    Some(word) => self.1 += word.len(),
                    None => self.number()?,
                }
            }
        }
        self.space();
        Some(text)
    }

    fn object(&mut self) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        self.eat(b'{')?;
        self.space();
        if self.eat(b'}').is_some() {
            return Some(members);
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.eat(b':')?;
            members.push((name, self.value()?));
            if self.eat(b'}').is_some() {
                return Some(members);
            }
            self.eat(b',')?;
        }
    }
}

/// A member's name, and its text where it is a string.
type Member = (Vec<u16>, Option<Vec<u16>>);

fn members(payload: &[u8]) -> Option<Vec<Member>> {
    std::str::from_utf8(payload).ok()?;
    let mut reader = Reader(payload, 0);
    reader.space();
    let members = reader.object()?;
    reader.space();
    (reader.1 == payload.len()).then_some(members)
}

/// What contract, sections 3 and 4, says of this payload.
fn expected(payload: &[u8], of_card: Option<&str>) -> Result<String, Reason> {
    let members = members(payload).unwrap_or_default();
    let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let said = |name: &str| members.iter().filter(|member| member.0 == units(name)).map(|member| member.1.clone()).collect::<Vec<_>>();
    let of_payload = match &said("failure_label")[..] {
        [Some(label)] => String::from_utf16(label).ok(),
        _ => None,
    };
    let label = of_card.or(of_payload.as_deref()).ok_or(Reason::LabelMissing)?;
    if !["pass", "wrong-answer"].contains(&label) {
        return Err(Reason::LabelUnknown);
    }
    for (name, value) in [("fixture_id", ID), ("fixture_hash", HASH), ("egress_class", "redacted-metadata"), ("failure_label", label)] {
        let said = said(name);
        if !said.is_empty() && said != [Some(units(value))] {
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
        peer_uid: None,
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
