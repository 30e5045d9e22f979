//! The card: the strict reader, where a card is attached, and the store of named cards.
//!
//! Promises: a [`Card`] came from exactly one JSON object with known keys, each once, each of its one type; its strings are
//! as sent, nothing trimmed, folded or normalised. It does not promise that a field is there or sensible: the tree judges that.
//! Makers: [`Card::parse`]. Takers: the tree, admission, the ledger (which shows a value only where it fits its grammar).

mod attach;
mod read;
mod store;

pub use attach::{Attach, Attached, CARD_HEADER, attach, is_card_key};
pub use read::CardFault;
pub use store::{CardStore, CardWatch, StoreFault};

use std::sync::Arc;

use crate::terms::Field;

/// The longest card, in bytes of its JSON.
pub const MAX_CARD_BYTES: usize = 8 * 1024;

/// One card as it was sent. A field that was absent is `None`; `note` is read and forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Card {
    fixture_id: Option<Box<str>>,
    fixture_hash: Option<Box<str>>,
    egress_class: Option<Box<str>>,
    residue: Option<Box<[Box<str>]>>,
    host_pin: Option<Box<str>>,
    replay_window: Option<Box<str>>,
    writable_surface: Option<Box<str>>,
    failure_label: Option<Box<str>>,
}

impl Card {
    /// Reads one card strictly. No error quotes the card.
    ///
    /// ```
    /// use leafgate::card::{Card, CardFault};
    /// assert!(Card::parse(br#"{"residue":[],"host_pin":"local"}"#).is_ok());
    /// assert_eq!(Card::parse(br#"{"residue":null}"#), Err(CardFault::WrongType(Some(leafgate::terms::Field::Residue))));
    /// ```
    ///
    /// # Errors
    /// A [`CardFault`] that names what is wrong and, where there is one, the field.
    pub fn parse(json: &[u8]) -> Result<Card, CardFault> {
        read::parse(json)
    }

    /// The text of a field, `None` where it is absent or is `residue` or no card field.
    pub fn text(&self, field: Field) -> Option<&str> {
        match field {
            Field::FixtureId => self.fixture_id.as_deref(),
            Field::FixtureHash => self.fixture_hash.as_deref(),
            Field::EgressClass => self.egress_class.as_deref(),
            Field::HostPin => self.host_pin.as_deref(),
            Field::ReplayWindow => self.replay_window.as_deref(),
            Field::WritableSurface => self.writable_surface.as_deref(),
            Field::FailureLabel => self.failure_label.as_deref(),
            Field::Residue | Field::Route | Field::Media | Field::Body => None,
        }
    }

    /// The byte classes of `residue`, `None` where it is absent.
    pub fn residue(&self) -> Option<&[Box<str>]> {
        self.residue.as_deref()
    }

    /// Whether a field stands in the card at all.
    pub fn has(&self, field: Field) -> bool {
        self.text(field).is_some() || (field == Field::Residue && self.residue.is_some())
    }
}

/// What was found where a card is looked for: the tree takes this and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// No card.
    Missing,
    /// More than one card, even equal ones.
    Ambiguous,
    /// One, but it is malformed.
    Malformed(CardFault),
    /// One card.
    Card(Arc<Card>),
}
