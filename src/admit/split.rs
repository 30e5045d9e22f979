//! The split (contract, sections 3 and 4): what the payload may say, and the four values that leave.

use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Denied;
use crate::card::Card;
use crate::policy::Envelope;
use crate::terms::{EgressClass, FailureLabel, Field, FixtureHash, FixtureId, Reason};

/// The fields of a payload that can contradict the card.
const WATCHED: [Field; 4] = [
    Field::FixtureId,
    Field::FixtureHash,
    Field::EgressClass,
    Field::FailureLabel,
];

/// What a payload says at its top level of the four fields.
#[derive(Debug, Default, PartialEq, Eq)]
struct Says {
    values: [Option<Said>; 4],
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Text(String),
    /// It stands twice, or is no string.
    Unfit,
}

/// The label of a split: the card's, or the payload's where the card has none; on the policy's list; and no contradiction.
///
/// # Errors
/// `label_missing`, `label_unknown`, `payload_contradicts`.
pub(super) fn label(
    card: &Card,
    payload: &[u8],
    listed: &[FailureLabel],
) -> Result<FailureLabel, Denied> {
    let says = Says::of(payload);
    let from_payload = match &says.values[3] {
        Some(Said::Text(text)) => Some(text.as_str()),
        Some(Said::Unfit) | None => None,
    };
    let label = card
        .text(Field::FailureLabel)
        .or(from_payload)
        .ok_or_else(|| {
            Denied::new(
                Reason::LabelMissing,
                Field::FailureLabel,
                format!(
                    "a split needs a failure_label; compute it on this machine and put it in the card, one of {}",
                    names(listed)
                ),
            )
        })?;
    let label = listed
        .iter()
        .find(|known| known.as_str() == label)
        .cloned()
        .ok_or_else(|| {
            Denied::new(
                Reason::LabelUnknown,
                Field::FailureLabel,
                format!(
                    "failure_label is not on the policy's list; use one of {}",
                    names(listed)
                ),
            )
        })?;
    for (field, said) in WATCHED.into_iter().zip(&says.values) {
        let agrees = match said {
            None => true,
            Some(Said::Unfit) => false,
            Some(Said::Text(text)) => card.text(field).is_none_or(|value| value == text),
        };
        if !agrees {
            return Err(Denied::new(
                Reason::PayloadContradicts,
                field,
                format!(
                    "the payload's {} differs from the card's, stands twice or is no string; make the two agree",
                    field.name()
                ),
            ));
        }
    }
    Ok(label)
}

/// The first labels of the policy's list.
fn names(listed: &[FailureLabel]) -> String {
    let names: Vec<&str> = listed.iter().map(FailureLabel::as_str).take(8).collect();
    names.join(", ")
}

impl Says {
    /// A body that is not one JSON object says nothing. What is one is RFC 8259's to say, not a reader's: numbers of any size, any depth,
    /// half a surrogate pair in a string; but UTF-8 throughout (section 8.1).
    fn of(payload: &[u8]) -> Says {
        let Ok(text) = std::str::from_utf8(payload) else {
            return Says::default();
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let says = reader.deserialize_map(SaysVisitor);
        match says {
            Ok(says) if reader.end().is_ok() => says,
            Ok(_) | Err(_) => Says::default(),
        }
    }
}

struct SaysVisitor;

impl<'de> Visitor<'de> for SaysVisitor {
    type Value = Says;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Says, A::Error> {
        let mut says = Says::default();
        // Raw: a name or value that Rust's types cannot hold does not end the reading, so it hides nothing that stands beside it.
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let name = decoded(name);
            let Some(place) = WATCHED
                .iter()
                .position(|field| Some(field.name()) == name.as_deref())
            else {
                continue;
            };
            let twice = says.values[place].is_some();
            let said = decoded(value).filter(|_| !twice);
            says.values[place] = Some(said.map_or(Said::Unfit, Said::Text));
        }
        Ok(says)
    }
}

/// A string's text; `None` for anything else and for half a surrogate pair, which no text has.
fn decoded(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// The body of a split: a function of four closed types and of the policy's envelope, and of nothing else. None of the values
/// needs an escape: their grammars leave no character that JSON escapes.
pub(super) fn body(
    id: &FixtureId,
    hash: &FixtureHash,
    label: &FailureLabel,
    envelope: &Envelope,
) -> Bytes {
    let object = format!(
        r#"{{"fixture_id":"{id}","fixture_hash":"{hash}","egress_class":"{}","failure_label":"{label}"}}"#,
        EgressClass::RedactedMetadata.name()
    );
    let text = match envelope {
        Envelope::Bare => object,
        Envelope::Chat { model, max_tokens } => {
            let model = serde_json::Value::from(model.as_str());
            let content = serde_json::Value::from(object);
            let most =
                max_tokens.map_or_else(String::new, |most| format!(r#","max_tokens":{most}"#));
            format!(
                r#"{{"model":{model},"messages":[{{"role":"user","content":{content}}}]{most}}}"#
            )
        }
    };
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(label: Option<&str>) -> Card {
        let label = label.map_or_else(String::new, |label| {
            format!(r#","failure_label":"{label}""#)
        });
        Card::parse(
            format!(
                r#"{{"fixture_id":"doc-17","fixture_hash":"h","egress_class":"redacted-metadata","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"tmp"{label}}}"#
            )
            .as_bytes(),
        )
        .unwrap()
    }

    fn listed() -> Vec<FailureLabel> {
        ["pass", "timeout"]
            .into_iter()
            .filter_map(FailureLabel::parse)
            .collect()
    }

    #[test]
    fn a_label_that_is_missing_or_unknown_is_told_with_the_list() {
        for (label, reason) in [
            (None, Reason::LabelMissing),
            (Some("other"), Reason::LabelUnknown),
        ] {
            let denied = super::label(&card(label), b"{}", &listed()).unwrap_err();
            assert_eq!(denied.reason, reason);
            assert!(
                denied.hint.ends_with("one of pass, timeout"),
                "{}",
                denied.hint
            );
        }
    }

    #[test]
    fn a_payload_that_agrees_or_says_nothing_passes() {
        for payload in [
            "{}",
            "",
            "[]",
            "not json",
            r#"{"failure_label":"pass"}"#,
            r#"{"fixture_id":"doc-17","owner":"x"}"#,
            r#"{"a":{"fixture_id":"other"}}"#,
            r#"{"fixture_id":"other"} trailing"#,
            r#"[{"fixture_id":"other"}]"#,
            r#"{"fixture_id":"doc-17","x":1e999}"#,
            r#"{"fixture_id":"doc-17","x":"\ud800","\ud800":1}"#,
            // Raw control characters and a number's leading zero: no JSON.
            "{\"fixture_id\":\"other\",\"\u{1}\":0}",
            r#"{"fixture_id":"other","x":01}"#,
        ] {
            assert_eq!(
                label(&card(Some("pass")), payload.as_bytes(), &listed())
                    .map(|l| l.to_string())
                    .map_err(|d| d.reason),
                Ok("pass".into()),
                "{payload}"
            );
        }
        assert_eq!(
            label(&card(None), br#"{"failure_label":"timeout"}"#, &listed())
                .unwrap()
                .as_str(),
            "timeout"
        );
    }

    /// Found by the fuzzer: what Rust's types cannot hold ended the reading, and the payload passed as if it said nothing.
    #[test]
    fn what_no_type_can_hold_hides_no_contradiction() {
        let deep = format!(
            r#"{{"fixture_id":{}{}}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        );
        for payload in [
            r#"{"fixture_id":1e999}"#,
            r#"{"fixture_id":"\ud800"}"#,
            r#"{"\ud800":1,"fixture_id":"other"}"#,
            &deep,
        ] {
            assert_eq!(
                label(&card(Some("pass")), payload.as_bytes(), &listed()).map_err(|d| d.reason),
                Err(Reason::PayloadContradicts),
                "{payload}"
            );
        }
    }

    #[test]
    fn a_payload_that_is_not_utf_8_says_nothing() {
        let said = br#"{"x":"?","failure_label":"timeout"}"#.to_vec();
        assert!(label(&card(None), &said, &listed()).is_ok());
        let broken: Vec<u8> = said
            .iter()
            .map(|byte| if *byte == b'?' { 0xff } else { *byte })
            .collect();
        assert_eq!(
            label(&card(None), &broken, &listed()).map_err(|d| d.reason),
            Err(Reason::LabelMissing)
        );
    }

    #[test]
    fn each_refusal_has_its_reason() {
        for (of_card, payload, reason) in [
            (None, "{}", Reason::LabelMissing),
            (None, r#"{"failure_label":7}"#, Reason::LabelMissing),
            (
                None,
                r#"{"failure_label":"free text"}"#,
                Reason::LabelUnknown,
            ),
            (Some("other"), "{}", Reason::LabelUnknown),
            (
                Some("pass"),
                r#"{"failure_label":"timeout"}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"failure_label":"pass","failure_label":"pass"}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"failure_label":"pass","failure_l\u0061bel":"pass"}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"fixture_id":{"x":1}}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"fixture_id":null}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"egress_class":"public-fixture"}"#,
                Reason::PayloadContradicts,
            ),
            (
                Some("pass"),
                r#"{"fixture_hash":"other"}"#,
                Reason::PayloadContradicts,
            ),
        ] {
            assert_eq!(
                label(&card(of_card), payload.as_bytes(), &listed()).map_err(|d| d.reason),
                Err(reason),
                "{payload}"
            );
        }
    }
}
