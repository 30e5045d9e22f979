//! The store: a folder of `NAME.json`, read as a whole, taken as a whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Card, CardFault, MAX_CARD_BYTES, Reading};
use crate::terms::CardName;

/// The named cards of one reading of the folder. Cheap to share, never changed: a new reading makes a new store.
#[derive(Debug, Default)]
pub struct CardStore {
    cards: BTreeMap<CardName, Reading>,
}

/// The folder itself could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the card folder {} cannot be read", .path.display())]
pub struct StoreFault {
    path: PathBuf,
    source: std::io::Error,
}

impl CardStore {
    /// Reads every `NAME.json` of `dir`. A file that is no card is kept as malformed: the call that names it is held.
    ///
    /// # Errors
    /// Where the folder cannot be listed.
    pub fn read(dir: &Path) -> Result<CardStore, StoreFault> {
        let fault = |source| StoreFault {
            path: dir.to_path_buf(),
            source,
        };
        let mut cards = BTreeMap::new();
        for entry in std::fs::read_dir(dir).map_err(fault)? {
            let path = entry.map_err(fault)?.path();
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .and_then(CardName::parse);
            if let (Some(name), Some("json")) =
                (stem, path.extension().and_then(|ext| ext.to_str()))
            {
                cards.insert(name, read_file(&path));
            }
        }
        Ok(CardStore { cards })
    }

    /// The card of this name. A name that is not there is no card.
    pub fn get(&self, name: &str) -> Reading {
        self.cards.get(name).cloned().unwrap_or(Reading::Missing)
    }

    /// The names and what stands under them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&CardName, &Reading)> {
        self.cards.iter()
    }
}

fn read_file(path: &Path) -> Reading {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    // One byte more than a card may have is enough to know that it is too long.
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_CARD_BYTES as u64 + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => Card::parse(&bytes)
            .map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card))),
        Err(_) => Reading::Malformed(CardFault::Unreadable),
    }
}
