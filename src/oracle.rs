//! The oracle: the cases that specify the tree, and whether the tree gives what they say.
//!
//! Promises: a case passes only where leaf, step, reason and field are all what it states; an oracle without a case is an error, not a pass.
//! It does not promise that the cases are enough: `tests/tree.rs` walks the full cross product. Makers: [`Oracle::embedded`] and
//! [`Oracle::load`]. Takers: `serve` at start, the `oracle` command, the ledger's `open` record (the hash).

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::card::{Card, Reading};
use crate::tree::{Ruling, classify};

const EMBEDDED: &str = include_str!("../policies/oracle.json");

/// An oracle holds at most this many bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The cases of one oracle file.
#[derive(Debug)]
pub struct Oracle {
    cases: Vec<Case>,
    hash: String,
}

/// Why an oracle could not be read. It names the file and the place, never a card's text.
#[derive(Debug, thiserror::Error)]
pub enum OracleFault {
    /// The file cannot be read.
    #[error("the oracle {} cannot be read", .path.display())]
    Unreadable {
        /// The file as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no oracle.
    #[error("the oracle {name} is not an array of cases: {what}")]
    Malformed {
        /// The file as given, `policies/oracle.json` for the embedded one.
        name: String,
        /// Line, column and what was expected.
        what: String,
    },
}

/// One case as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    card: Option<Object>,
    text: Option<String>,
    attached: Option<Attached>,
    leaf: String,
    step: u8,
    reason: String,
    field: Option<String>,
}

/// How many cards a case attaches, where it is not one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Attached {
    None,
    Two,
}

/// A card of a case. A key that stands twice is an error of the oracle: such a card is written as `text`.
#[derive(Debug)]
struct Object(serde_json::Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, each key once")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut all = serde_json::Map::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if all.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key stands twice"));
                    }
                }
                Ok(Object(all))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// What one case gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case's id.
    pub id: String,
    /// `leaf step reason field` as the tree gave it.
    pub got: String,
    /// The same as the case states it.
    pub expected: String,
    /// The leaf that the tree gave.
    pub leaf: &'static str,
}

impl Outcome {
    /// Whether the tree gave what the case states.
    pub fn passed(&self) -> bool {
        self.got == self.expected
    }
}

impl Oracle {
    /// The oracle that was built in, `policies/oracle.json`.
    ///
    /// # Errors
    /// Never for a tested build; a fault is still a value, so that `serve` refuses to start instead of panicking.
    pub fn embedded() -> Result<Oracle, OracleFault> {
        Oracle::parse(EMBEDDED.as_bytes(), "policies/oracle.json")
    }

    /// An oracle file.
    ///
    /// # Errors
    /// Where it cannot be read, or is not a non-empty JSON array of cases with distinct ids, each with exactly one of `card`, `text`, `attached`.
    pub fn load(path: &Path) -> Result<Oracle, OracleFault> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| OracleFault::Unreadable {
                path: path.to_path_buf(),
                source,
            })?;
        Oracle::parse(&bytes, &path.display().to_string())
    }

    fn parse(bytes: &[u8], name: &str) -> Result<Oracle, OracleFault> {
        let malformed = |what: String| OracleFault::Malformed {
            name: name.to_owned(),
            what,
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(malformed("it is longer than 16 MiB".to_owned()));
        }
        let cases: Vec<Case> =
            serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
        if cases.is_empty() {
            return Err(malformed("it has no case".to_owned()));
        }
        let mut ids = BTreeSet::new();
        for (place, case) in cases.iter().enumerate() {
            let sources = usize::from(case.card.is_some())
                + usize::from(case.text.is_some())
                + usize::from(case.attached.is_some());
            if sources != 1 {
                return Err(malformed(format!(
                    "case {place} needs exactly one of card, text, attached"
                )));
            }
            if !ids.insert(case.id.as_str()) {
                return Err(malformed(format!(
                    "case {place} has the id of an earlier case"
                )));
            }
        }
        Ok(Oracle {
            hash: hex(&Sha256::digest(bytes)),
            cases,
        })
    }

    /// SHA-256 of the oracle's bytes, lower-case hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// How many cases there are; never zero.
    pub fn count(&self) -> usize {
        self.cases.len()
    }

    /// Runs every case against [`classify`], in the order of the file.
    pub fn run(&self) -> impl Iterator<Item = Outcome> {
        self.cases.iter().map(Case::run)
    }

    /// The cases that differ; `serve` starts only where there is none.
    pub fn differences(&self) -> Vec<Outcome> {
        self.run().filter(|outcome| !outcome.passed()).collect()
    }
}

impl Case {
    fn reading(&self) -> Reading {
        let text = match (&self.card, &self.text, self.attached) {
            (_, _, Some(Attached::Two)) => return Reading::Ambiguous,
            (Some(Object(card)), ..) => Value::Object(card.clone()).to_string(),
            (_, Some(text), _) => text.clone(),
            (_, _, Some(Attached::None) | None) => return Reading::Missing,
        };
        Card::parse(text.as_bytes())
            .map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card)))
    }

    fn run(&self) -> Outcome {
        let ruling = classify(&self.reading()).ruling();
        Outcome {
            id: self.id.clone(),
            got: said(&ruling),
            expected: line(
                &self.leaf,
                self.step,
                &self.reason,
                self.field.as_deref().unwrap_or("-"),
            ),
            leaf: ruling.leaf.name(),
        }
    }
}

/// `leaf step reason field`, with `-` where no field decided.
pub fn said(ruling: &Ruling) -> String {
    line(
        ruling.leaf.name(),
        ruling.step.number(),
        ruling.reason.code(),
        ruling.field.map_or("-", |field| field.name()),
    )
}

fn line(leaf: &str, step: u8, reason: &str, field: &str) -> String {
    format!("{leaf} {step} {reason} {field}")
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> String {
        match Oracle::parse(json.as_bytes(), "x.json") {
            Err(fault) => fault.to_string(),
            Ok(_) => panic!("taken: {json}"),
        }
    }

    const MISSING: &str =
        r#"{"id":"a","attached":"none","leaf":"hold","step":0,"reason":"card_missing"}"#;

    #[test]
    fn the_embedded_oracle_passes_and_its_hash_is_of_its_bytes() {
        let oracle = Oracle::embedded().unwrap();
        assert_eq!(oracle.differences(), []);
        assert!(oracle.count() >= 45, "{}", oracle.count());
        assert_eq!(oracle.hash(), hex(&Sha256::digest(EMBEDDED)));
    }

    #[test]
    fn a_case_that_differs_in_one_value_fails() {
        let run = |json: String| {
            Oracle::parse(format!("[{json}]").as_bytes(), "x.json")
                .unwrap()
                .differences()
        };
        assert_eq!(run(MISSING.to_owned()), []);
        for (from, to) in [
            ("hold", "split"),
            (":0", ":1"),
            ("card_missing", "card_malformed"),
        ] {
            let wrong = run(MISSING.replace(from, to));
            assert_eq!(wrong.len(), 1, "{to}");
            assert_eq!(wrong[0].got, "hold 0 card_missing -");
        }
        let with_field = MISSING.replace('}', r#","field":"residue"}"#);
        assert_eq!(run(with_field)[0].expected, "hold 0 card_missing residue");
    }

    #[test]
    fn what_is_no_oracle_is_refused_and_its_twin_is_taken() {
        assert!(Oracle::parse(format!("[{MISSING}]").as_bytes(), "x").is_ok());
        assert!(fault("[]").contains("no case"));
        assert!(fault("{}").contains("not an array"));
        assert!(fault(&format!("[{MISSING},{MISSING}]")).contains("id of an earlier case"));
        assert!(
            fault(&format!("[{}]", MISSING.replace("attached", "atached")))
                .contains("unknown field")
        );
        let two = MISSING.replace('}', r#","text":"x"}"#);
        assert!(fault(&format!("[{two}]")).contains("exactly one of"));
        let twice = r#"[{"id":"a","card":{"residue":[],"residue":[]},"leaf":"hold","step":0,"reason":"field_missing"}]"#;
        assert!(fault(twice).contains("stands twice"));
        assert!(matches!(
            Oracle::load(Path::new("/nowhere/oracle.json")),
            Err(OracleFault::Unreadable { .. })
        ));
    }
}
