//! The four calls of the demo: the note's cards H, S and R, and the typo.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::hash::Hasher;
use crate::cli::out::Failure;
use crate::terms::Leaf;

/// One call.
#[derive(Debug)]
pub(super) struct Scene {
    /// The name of its card file.
    pub(super) name: &'static str,
    /// The fixture.
    pub(super) fixture: &'static str,
    /// What the fixture is, for somebody who has read nothing.
    pub(super) about: &'static str,
    /// The class as written, a typo included.
    pub(super) class: &'static str,
    pub(super) residue: &'static [&'static str],
    pub(super) label: Option<&'static str>,
    /// The pin and hash of the note, which the demo replaces.
    pub(super) noted_pin: &'static str,
    /// What must come of it.
    pub(super) leaf: Leaf,
}

pub(super) const SCENES: [Scene; 4] = [
    Scene {
        name: "ticket-1842",
        fixture: "ticket-1842",
        about: "a customer's ticket: the host would keep an e-mail address",
        class: "public-fixture",
        residue: &["customer_email"],
        label: None,
        noted_pin: "local",
        leaf: Leaf::Hold,
    },
    Scene {
        name: "doc-17",
        fixture: "doc-17",
        about: "an internal document: only what kind of failure it showed may be told",
        class: "redacted-metadata",
        residue: &[],
        label: Some("wrong-answer"),
        noted_pin: "local-builder",
        leaf: Leaf::Split,
    },
    Scene {
        name: "seed-04",
        fixture: "seed-04",
        about: "a public fixture: its text may leave",
        class: "public-fixture",
        residue: &[],
        label: None,
        noted_pin: "free-server",
        leaf: Leaf::Release,
    },
    Scene {
        name: "seed-04-typo",
        fixture: "seed-04",
        about: "the same fixture, but its class is misspelled: public-fixtre",
        class: "public-fixtre",
        residue: &[],
        label: None,
        noted_pin: "free-server",
        leaf: Leaf::Hold,
    },
];

const FIXTURES: [(&str, &str); 3] = [
    (
        "ticket-1842",
        "From: ann@example.org\nMy invoice of May is wrong, please call me back.\n",
    ),
    (
        "doc-17",
        "Plan for the third quarter: the new tariff starts in September.\n",
    ),
    (
        "seed-04",
        "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
    ),
];

const BEFORE: &str = "Explain this in one sentence:\n\n";

impl Scene {
    /// The body that the client sends: the fixture within a template.
    pub(super) fn body(&self) -> String {
        let text = FIXTURES
            .iter()
            .find(|(id, _)| *id == self.fixture)
            .map_or("", |(_, text)| text);
        json!({ "model": "demo", "messages": [{ "role": "user", "content": format!("{BEFORE}{text}") }] })
            .to_string()
    }

    fn card(&self, hash: &str) -> Value {
        let mut card = json!({
            "fixture_id": self.fixture, "fixture_hash": hash, "egress_class": self.class, "residue": self.residue,
            "host_pin": "local", "replay_window": "24h", "writable_surface": "tmpdir",
        });
        if let Some(label) = self.label {
            card["failure_label"] = label.into();
        }
        card
    }
}

/// Writes fixtures, their lock, the cards, the bodies and the policy; gives the policy's path.
pub(super) fn write(
    dir: &Path,
    host: std::net::SocketAddr,
    ports: (u16, u16),
) -> Result<std::path::PathBuf, Failure> {
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::file(&path, &error))
    };
    let cards = dir.join("cards");
    std::fs::create_dir(&cards).map_err(|error| Failure::file(&cards, &error))?;
    put("glue.json", &json!([BEFORE]).to_string())?;
    let mut lock = "version = 1\n".to_owned();
    for (id, text) in FIXTURES {
        let file = format!("{id}.txt");
        put(&file, text)?;
        let mut hasher = Hasher::new(None);
        hasher.file(&dir.join(&file))?;
        let hash = hasher.end();
        lock.push_str(&format!(
            "\n[[fixture]]\nid = \"{id}\"\nhash = \"{hash}\"\npath = \"{file}\"\nformat = \"text\"\nglue = \"glue.json\"\n"
        ));
        for scene in SCENES.iter().filter(|scene| scene.fixture == id) {
            let card = scene.card(hash.as_str()).to_string();
            put(&format!("cards/{}.json", scene.name), &card)?;
            put(&format!("{}.body.json", scene.name), &scene.body())?;
        }
    }
    put("fixtures.lock", &lock)?;
    let (proxy, admin) = ports;
    let policy = format!(
        "version = 1\n\n[listen]\nproxy = \"127.0.0.1:{proxy}\"\nadmin = \"127.0.0.1:{admin}\"\n\n\
         [cards]\ndir = \"cards\"\n\n[fixtures]\nlock = \"fixtures.lock\"\n\n[ledger]\ndir = \"ledger\"\n\n\
         [hosts.local]\nbase_url = \"http://{host}/v1\"\nmodels = [\"demo\"]\nbind = \"cover\"\n"
    );
    put("policy.toml", &policy)?;
    Ok(dir.join("policy.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Card, CardStore, Reading};
    use crate::terms::{Field, fits_hash};
    use crate::tree::classify;

    #[test]
    fn every_card_has_its_leaf_and_differs_from_the_note_in_pin_and_hash_alone() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "127.0.0.1:1".parse().unwrap(), (2, 3)).unwrap();
        let store = CardStore::read(&dir.path().join("cards")).unwrap();
        for scene in &SCENES {
            let reading = store.get(scene.name);
            assert_eq!(
                classify(&reading).ruling().leaf,
                scene.leaf,
                "{}",
                scene.name
            );
            let Reading::Card(card) = reading else {
                panic!("{}", scene.name)
            };
            assert!(fits_hash(card.text(Field::FixtureHash).unwrap()));
            assert_eq!(card.text(Field::HostPin), Some("local"));
        }
        let card = std::fs::read(dir.path().join("cards/ticket-1842.json")).unwrap();
        assert_eq!(
            Card::parse(&card).unwrap().residue().unwrap(),
            ["customer_email".into()]
        );
    }
}
