//! The store: a folder of `NAME.json`, each file taken by itself once it has settled.
//!
//! Promises: a [`CardStore`] is never changed; a look makes a new one. A change is taken after two equal looks. A card whose file goes on changing
//! is malformed until it settles: what is in force is never older than [`PATIENCE`] looks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Card, CardFault, MAX_CARD_BYTES, Reading};
use crate::files::{self, Stamp};
use crate::terms::CardName;

/// Looks for which a card may go on changing and yet stay as it was.
const PATIENCE: u8 = 2;

/// The named cards of one reading of the folder. Cheap to share.
#[derive(Debug, Default)]
pub struct CardStore {
    cards: BTreeMap<CardName, Held>,
}

#[derive(Debug, Clone)]
struct Held {
    reading: Reading,
    /// Of the file as it was read; `None` where it could not be, or where the card is refused until it settles.
    stamp: Option<Stamp>,
    /// It was so new when it was read that a further edit may bear the same stamp.
    young: bool,
}

/// The folder itself could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the card folder {} cannot be read", .path.display())]
pub struct StoreFault {
    path: PathBuf,
    source: std::io::Error,
}

/// What the looks at a folder have seen so far. The looking thread's own.
#[derive(Debug, Default)]
pub struct CardWatch {
    news: BTreeMap<CardName, (Option<Stamp>, u8)>,
    unlisted: u8,
}

impl CardStore {
    /// Reads every `NAME.json` of `dir`. A file that is no card is kept as malformed: the call that names it is held.
    ///
    /// # Errors
    /// Where the folder cannot be listed.
    pub fn read(dir: &Path) -> Result<CardStore, StoreFault> {
        let names = list(dir)?;
        let cards = names
            .into_keys()
            .map(|name| (name.clone(), Held::read(dir, &name)))
            .collect();
        Ok(CardStore { cards })
    }

    /// The card of this name. A name that is not there is no card.
    pub fn get(&self, name: &str) -> Reading {
        self.cards
            .get(name)
            .map_or(Reading::Missing, |held| held.reading.clone())
    }

    /// The names and what stands under them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&CardName, &Reading)> {
        self.cards.iter().map(|(name, held)| (name, &held.reading))
    }
}

impl CardWatch {
    /// Looks at the folder; a new store where something is to be taken. Called once a second.
    pub fn look(&mut self, dir: &Path, store: &CardStore) -> Option<CardStore> {
        let found = self.found(dir)?;
        self.news
            .retain(|name, _| found.contains_key(name) || store.cards.contains_key(name));
        let mut taken: BTreeMap<CardName, Option<Held>> = BTreeMap::new();
        let names: BTreeSet<&CardName> = found.keys().chain(store.cards.keys()).collect();
        for name in names {
            let now = found.get(name).copied();
            let held = store.cards.get(name);
            if held.is_some_and(|held| held.stamp == now && now.is_some() && !held.young)
                || (held.is_none() && now.is_none())
            {
                self.news.remove(name);
                continue;
            }
            let (seen, looks) = self
                .news
                .get(name)
                .copied()
                .map_or((None, 0), |(seen, looks)| (Some(seen), looks));
            if seen == Some(now) {
                self.news.remove(name);
                taken.insert(name.clone(), now.map(|_| Held::read(dir, name)));
            } else {
                self.news
                    .insert(name.clone(), (now, looks.saturating_add(1)));
                if looks >= PATIENCE {
                    taken.insert(name.clone(), Some(Held::changing()));
                }
            }
        }
        if taken.is_empty() {
            return None;
        }
        let mut cards = store.cards.clone();
        for (name, held) in taken {
            match held {
                Some(held) => cards.insert(name, held),
                None => cards.remove(&name),
            };
        }
        Some(CardStore { cards })
    }

    /// What is in the folder now; a folder that is not there, or cannot be listed for long, holds no cards.
    fn found(&mut self, dir: &Path) -> Option<BTreeMap<CardName, Stamp>> {
        match list(dir) {
            Ok(found) => {
                self.unlisted = 0;
                Some(found)
            }
            Err(fault) if fault.source.kind() == std::io::ErrorKind::NotFound => {
                Some(BTreeMap::new())
            }
            Err(_) => {
                self.unlisted = self.unlisted.saturating_add(1);
                (self.unlisted > PATIENCE).then(BTreeMap::new)
            }
        }
    }
}

impl Held {
    fn read(dir: &Path, name: &CardName) -> Held {
        let path = dir.join(format!("{name}.json"));
        // Stamped before it is read: what is written afterwards bears another stamp.
        let stamp = Stamp::of(&path);
        let reading = match files::read(&path, MAX_CARD_BYTES as u64) {
            Ok(bytes) => Card::parse(&bytes)
                .map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card))),
            Err(fault) if fault.kind() == std::io::ErrorKind::FileTooLarge => {
                Reading::Malformed(CardFault::TooLong)
            }
            Err(_) => Reading::Malformed(CardFault::Unreadable),
        };
        let unreadable = reading == Reading::Malformed(CardFault::Unreadable);
        Held {
            reading,
            young: unreadable || stamp.is_none_or(Stamp::young),
            stamp,
        }
    }

    fn changing() -> Held {
        Held {
            reading: Reading::Malformed(CardFault::Unreadable),
            stamp: None,
            young: true,
        }
    }
}

fn list(dir: &Path) -> Result<BTreeMap<CardName, Stamp>, StoreFault> {
    let fault = |source| StoreFault {
        path: dir.to_path_buf(),
        source,
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(CardName::parse);
        if let (Some(name), Some("json"), Some(stamp)) = (
            stem,
            path.extension().and_then(|ext| ext.to_str()),
            Stamp::of(&path),
        ) {
            found.insert(name, stamp);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(class: &str) -> String {
        format!(r#"{{"egress_class":"{class}"}}"#)
    }

    fn class(store: &CardStore, name: &str) -> String {
        match store.get(name) {
            Reading::Card(card) => card
                .text(crate::terms::Field::EgressClass)
                .unwrap_or_default()
                .to_owned(),
            Reading::Missing | Reading::Ambiguous | Reading::Malformed(_) => String::new(),
        }
    }

    /// Looks once; a taken change replaces the store.
    fn look(watch: &mut CardWatch, dir: &Path, store: &mut CardStore) {
        if let Some(new) = watch.look(dir, store) {
            *store = new;
        }
    }

    #[test]
    fn a_change_is_taken_after_two_equal_looks_and_its_neighbour_does_not_hinder_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("x.json"), card("public-fixture")).unwrap();
        let mut store = CardStore::read(dir.path()).unwrap();
        let mut watch = CardWatch::default();
        std::fs::write(at("x.json"), card("machine-local")).unwrap();
        std::fs::write(at("new.json"), card("public-fixture")).unwrap();
        for round in 0..2 {
            std::fs::write(at("junk.txt"), "x".repeat(round + 1)).unwrap();
            std::fs::write(at("other.json"), card(&"x".repeat(round + 1))).unwrap();
            assert_eq!(class(&store, "x"), "public-fixture", "round {round}");
            look(&mut watch, dir.path(), &mut store);
        }
        assert_eq!(
            (class(&store, "x"), class(&store, "new")),
            ("machine-local".into(), "public-fixture".into())
        );
        std::fs::remove_file(at("x.json")).unwrap();
        look(&mut watch, dir.path(), &mut store);
        assert_eq!(class(&store, "x"), "machine-local");
        look(&mut watch, dir.path(), &mut store);
        assert_eq!(store.get("x"), Reading::Missing);
    }

    #[test]
    fn a_card_that_goes_on_changing_is_not_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        std::fs::write(&path, card("public-fixture")).unwrap();
        let mut store = CardStore::read(dir.path()).unwrap();
        let mut watch = CardWatch::default();
        for round in 0..4_usize {
            std::fs::write(&path, card(&"x".repeat(round + 1))).unwrap();
            look(&mut watch, dir.path(), &mut store);
        }
        assert_eq!(store.get("x"), Reading::Malformed(CardFault::Unreadable));
        std::fs::write(&path, card("public-fixture")).unwrap();
        look(&mut watch, dir.path(), &mut store);
        look(&mut watch, dir.path(), &mut store);
        assert_eq!(class(&store, "x"), "public-fixture");
    }
}
