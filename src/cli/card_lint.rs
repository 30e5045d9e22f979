//! `card lint`: what the tree and admission would say of a card's own values.

use std::path::PathBuf;

use serde_json::json;

use super::card::{facts, read_with_bytes, shown};
use super::out::{Done, Failure, Out, Tone};
use super::{policy, rooms};
use crate::card::{Card, CardFault, Reading};
use crate::fixture::Entry;
use crate::policy::Policy;
use crate::terms::{
    FailureLabel, Field, FixtureId, HostPin, Leaf, did_you_mean, fits_byte_class, fits_hash,
    fits_pin, fits_window,
};
use crate::tree::{Ruling, classify};

/// The placeholders of every policy.
pub(super) const PLACEHOLDERS: [&str; 2] = ["free-server", "local-builder"];

/// Check card files before a call is made with them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate card lint cards/*.json
  leafgate card lint --policy policy.toml cards/seed-04.json

Exits 1 where a card has a problem. A card that holds on purpose has none.")]
pub(super) struct Args {
    /// Card files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Also check pin and label against this policy, and the hash against its lock file
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// One JSON object on a line for each card
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let policy = match &args.policy {
        Some(file) => Some(policy::load_to_look(Some(file))?),
        None => None,
    };
    let entries = match &policy {
        Some(policy) => rooms::registered(policy)?,
        None => Vec::new(),
    };
    let mut clean = true;
    for name in &args.files {
        let (reading, bytes) = read_with_bytes(name)?;
        let ruling = classify(&reading).ruling();
        let mut problems = problems(&reading, &ruling, policy.as_ref());
        if let (Some(policy), Reading::Card(card)) = (&policy, &reading)
            && ruling.leaf != Leaf::Hold
        {
            problems.extend(unregistered(card, policy, &entries));
        }
        let broken = matches!(reading, Reading::Malformed(CardFault::NotJson))
            .then(|| not_json(&bytes))
            .flatten();
        if let (Some(what), Some(problem)) = (&broken, problems.first_mut()) {
            problem.what.clone_from(what);
        }
        clean &= problems.is_empty();
        if args.json {
            let mut facts = facts(name, &reading, &ruling);
            if let Some(what) = broken {
                facts["fault"] = what.into();
            }
            facts["problems"] = problems.iter().map(Problem::json).collect();
            out.json(&facts)?;
            continue;
        }
        let leaf = out.paint(Tone::of(ruling.leaf), ruling.leaf.name(), 0);
        let state = if problems.is_empty() {
            out.paint(Tone::Good, "no problem", 0)
        } else {
            out.paint(Tone::Bad, &format!("{} to correct", problems.len()), 0)
        };
        out.line(format!("{}: {leaf}, {state}", shown(name)))?;
        for problem in &problems {
            let field = problem.field.map_or("card", Field::name);
            out.line(format!("  {field:<16}  {}", problem.what))?;
        }
    }
    Ok(Done::when(clean))
}

/// Where the text stops being JSON, and what was expected there. The words are the JSON reader's: for a fault of syntax they hold none of the text.
fn not_json(bytes: &[u8]) -> Option<String> {
    let fault = serde_json::from_slice::<serde_json::Value>(bytes).err()?;
    let safe = fault.is_syntax() || fault.is_eof();
    safe.then(|| format!("the card is not exactly one JSON object: {fault}"))
}

/// One thing to correct. It never quotes the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) field: Option<Field>,
    pub(super) what: String,
}

impl Problem {
    fn json(&self) -> serde_json::Value {
        json!({ "field": self.field.map(Field::name), "what": self.what })
    }
}

/// What the tree stops on without meaning to, then what admission would refuse, in the order of the card's fields.
pub(super) fn problems(
    reading: &Reading,
    ruling: &Ruling,
    policy: Option<&Policy>,
) -> Vec<Problem> {
    let card = match reading {
        Reading::Malformed(fault) => {
            return vec![Problem {
                field: fault.field(),
                what: fault.to_string(),
            }];
        }
        Reading::Missing | Reading::Ambiguous => return Vec::new(),
        Reading::Card(card) => card,
    };
    Field::REQUIRED
        .into_iter()
        .chain([Field::FailureLabel])
        .filter_map(|field| {
            problem(card, field, ruling.leaf, policy).map(|what| Problem {
                field: Some(field),
                what,
            })
        })
        .collect()
}

fn problem(card: &Card, field: Field, leaf: Leaf, policy: Option<&Policy>) -> Option<String> {
    if field == Field::FailureLabel {
        return label(card, leaf, policy);
    }
    if !card.has(field) {
        return Some("is missing; every card has it".to_owned());
    }
    if field == Field::Residue {
        let outside = card
            .residue()?
            .iter()
            .filter(|class| !fits_byte_class(class));
        let count = outside.count();
        return (count > 0).then(|| {
            format!("{count} of its byte classes are not 1 to 64 letters, digits, dots, underscores or hyphens, so the record cannot name them")
        });
    }
    let text = card.text(field)?;
    if field != Field::EgressClass && crate::terms::is_blank(text) {
        return Some("is blank; a blank is not a value".to_owned());
    }
    let what = match field {
        Field::FixtureId if FixtureId::parse(text).is_none() => {
            "is not 1 to 64 letters, digits, dots, underscores or hyphens"
        }
        Field::FixtureHash if !fits_hash(text) => {
            "is not sha256: or hmac-sha256: and 64 lower-case hex digits; make it with leafgate hash"
        }
        Field::EgressClass if crate::terms::EgressClass::parse(text).is_none() => {
            "is none of machine-local, redacted-metadata, public-fixture; correct the spelling"
        }
        Field::HostPin => return pin(text, policy),
        Field::ReplayWindow if !fits_window(text) => {
            "is not 1 to 64 letters, digits, spaces or ._:/-, so the record cannot show it"
        }
        Field::FixtureId
        | Field::FixtureHash
        | Field::EgressClass
        | Field::Residue
        | Field::ReplayWindow
        | Field::WritableSurface
        | Field::FailureLabel
        | Field::Route
        | Field::Media
        | Field::Body => return None,
    };
    Some(what.to_owned())
}

/// What the lock file says of a card that would leave, where the host's fixture checks are on.
fn unregistered(card: &Card, policy: &Policy, entries: &[Entry]) -> Option<Problem> {
    let host = policy.hosts.get(card.text(Field::HostPin)?)?;
    let id = FixtureId::parse(card.text(Field::FixtureId)?)?;
    let hash = card
        .text(Field::FixtureHash)
        .filter(|hash| fits_hash(hash))?;
    let (field, what) = match entries.iter().find(|entry| entry.id == id) {
        Some(entry) if entry.hash.as_str() == hash => return None,
        Some(entry) => (
            Field::FixtureHash,
            format!(
                "is not the hash under which the lock file registers this id, {}; make the card anew, or register the files anew",
                entry.hash
            ),
        ),
        None if host.checks_fixture() => (
            Field::FixtureId,
            format!(
                "is not registered in the policy's lock file; run {}{}",
                policy.fixture_add(id.as_str()),
                did_you_mean(id.as_str(), entries.iter().map(|entry| entry.id.as_str()))
            ),
        ),
        None => return None,
    };
    Some(Problem {
        field: Some(field),
        what,
    })
}

fn pin(text: &str, policy: Option<&Policy>) -> Option<String> {
    let more = policy.map_or(&[][..], |policy| &policy.placeholders);
    if PLACEHOLDERS.contains(&text) || more.iter().any(|word| word == text) {
        return Some("is a placeholder and names no host; write the host's name".to_owned());
    }
    if !fits_pin(text) {
        return Some("is no host name in lower-case ASCII".to_owned());
    }
    let policy = policy.filter(|policy| !policy.hosts.contains_key(text))?;
    let near = did_you_mean(text, policy.hosts.keys().map(HostPin::as_str));
    Some(format!(
        "is no host of the policy; leafgate pin list{} shows them{near}",
        policy.flag()
    ))
}

fn label(card: &Card, leaf: Leaf, policy: Option<&Policy>) -> Option<String> {
    let Some(text) = card.text(Field::FailureLabel) else {
        // The payload of a split may carry it.
        return None;
    };
    if leaf != Leaf::Split {
        return None;
    }
    let Some(label) = FailureLabel::parse(text) else {
        return Some("is not 1 to 64 letters, digits, dots, underscores or hyphens".to_owned());
    };
    let unknown = policy.is_some_and(|policy| !policy.failure_labels.contains(&label));
    unknown.then(|| "is not on the policy's list of failure labels".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const GOOD: &str = r#"{"fixture_id":"seed-04","fixture_hash":"sha256:HEX","egress_class":"public-fixture","residue":[],"host_pin":"models.example.org","replay_window":"24h","writable_surface":"tmpdir"}"#;

    fn found(changes: &[(&str, &str)]) -> Vec<(Option<Field>, String)> {
        let mut text = GOOD.replace("HEX", &"0a".repeat(32));
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let reading = Card::parse(text.as_bytes())
            .map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card)));
        let ruling = classify(&reading).ruling();
        problems(&reading, &ruling, None)
            .into_iter()
            .map(|problem| (problem.field, problem.what))
            .collect()
    }

    #[test]
    fn a_good_card_and_a_deliberate_hold_have_no_problem() {
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[("public-fixture", "machine-local")]), []);
        assert_eq!(found(&[("[]", "[\"customer_email\"]")]), []);
        assert_eq!(found(&[("public-fixture", "redacted-metadata")]), []);
    }

    #[test]
    fn each_problem_names_its_field_and_no_value() {
        for (from, to, field, says) in [
            ("seed-04", "SECRET value", Field::FixtureId, "64 letters"),
            (
                "sha256:0a",
                "sha256:0A",
                Field::FixtureHash,
                "leafgate hash",
            ),
            ("public-fixture", "SECRET", Field::EgressClass, "spelling"),
            ("[]", "[\"a b\"]", Field::Residue, "1 of its byte classes"),
            (
                "models.example.org",
                "free-server",
                Field::HostPin,
                "placeholder",
            ),
            (
                "models.example.org",
                "local-builder",
                Field::HostPin,
                "placeholder",
            ),
            ("models.example.org", "SECRET", Field::HostPin, "lower-case"),
            ("24h", "SECRET,", Field::ReplayWindow, "ASCII"),
            ("tmpdir", " ", Field::WritableSurface, "blank"),
            (
                "\"replay_window\":\"24h\",",
                "",
                Field::ReplayWindow,
                "missing",
            ),
        ] {
            let all = found(&[(from, to)]);
            assert_eq!(all.len(), 1, "{to}: {all:?}");
            assert_eq!(all[0].0, Some(field), "{to}");
            let says = if says == "ASCII" { "64 letters" } else { says };
            assert!(all[0].1.contains(says), "{to}: {}", all[0].1);
            assert!(!all[0].1.contains("SECRET"), "{}", all[0].1);
        }
        let twice = found(&[("\"residue\":[]", "\"residue\":[],\"residue\":[]")]);
        assert_eq!(twice[0].0, Some(Field::Residue));
    }

    #[test]
    fn the_hash_is_held_against_the_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let policy = "version = 1\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"m\"]\nbind = \"cover\"\n";
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, policy).unwrap();
        let policy = Policy::load(&file).unwrap();
        let text = GOOD
            .replace("HEX", &"0a".repeat(32))
            .replace("models.example.org", "local");
        let card = Card::parse(text.as_bytes()).unwrap();
        let found = || {
            let entries = rooms::registered(&policy).unwrap();
            unregistered(&card, &policy, &entries)
        };
        assert_eq!(found().unwrap().field, Some(Field::FixtureId));
        let lock = |hash: &str| {
            let entry = format!(
                "version = 1\n[[fixture]]\nid = \"seed-04\"\nhash = \"sha256:{hash}\"\npath = \"f\"\nformat = \"text\"\n"
            );
            std::fs::write(dir.path().join("fixtures.lock"), entry).unwrap();
        };
        lock(&"0a".repeat(32));
        assert_eq!(found(), None);
        lock(&"0b".repeat(32));
        let other = found().unwrap();
        assert_eq!(other.field, Some(Field::FixtureHash));
        assert!(other.what.contains(&"0b".repeat(32)), "{}", other.what);
    }

    #[test]
    fn what_is_no_json_is_told_with_line_and_column() {
        for (text, told) in [
            (
                "{\"note\": \"SECRET\"\n  \"b\": 2}",
                "expected `,` or `}` at line 2 column 3",
            ),
            ("{'SECRET': 1}", "key must be a string at line 1 column 2"),
            (
                "{\"note\": \"SECRET\"",
                "EOF while parsing an object at line 1 column 17",
            ),
            ("{} SECRET", "trailing characters at line 1 column 4"),
            ("{\"note\": SECRET}", "expected value at line 1 column 10"),
            ("", "EOF while parsing a value at line 1 column 0"),
        ] {
            assert_eq!(
                Card::parse(text.as_bytes()).unwrap_err(),
                CardFault::NotJson,
                "{text}"
            );
            let what = not_json(text.as_bytes()).unwrap();
            assert_eq!(
                what,
                format!("the card is not exactly one JSON object: {told}")
            );
        }
        assert_eq!(not_json(b"{}"), None);
    }

    #[test]
    fn a_label_matters_on_a_split_alone() {
        let with = |class: &str| {
            found(&[
                ("public-fixture", class),
                ("{", "{\"failure_label\":\"?\","),
            ])
        };
        assert_eq!(with("redacted-metadata")[0].0, Some(Field::FailureLabel));
        assert_eq!(with("public-fixture"), []);
    }
}
