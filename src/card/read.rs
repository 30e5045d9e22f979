//! The strict card reader.
//!
//! serde_json decides what is JSON (RFC 8259: UTF-8, escapes, no lone surrogate, depth); the visitor here decides what is a
//! card. A key is compared after its escapes are read, so a second spelling of a key is the same key.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{Card, MAX_CARD_BYTES};
use crate::terms::Field;

/// What makes a card malformed. `Display` is one safe line; it never quotes the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CardFault {
    /// Longer than 8 KiB.
    #[error("the card is longer than 8 KiB; shorten its note or residue")]
    TooLong,
    /// Not UTF-8, or with a byte order mark.
    #[error("the card is not plain UTF-8; send UTF-8 without a byte order mark")]
    NotUtf8,
    /// Not one JSON value, or something stands after it.
    #[error("the card is not exactly one JSON object; check it with leafgate card lint")]
    NotJson,
    /// JSON, but no object.
    #[error("the card is not a JSON object")]
    NotObject,
    /// A key stands twice.
    #[error("the card has the key {} twice; write each key once", .0.map_or("note", Field::name))]
    KeyTwice(Option<Field>),
    /// A key that no card has.
    #[error(
        "the card has a key that no card has; the keys are fixture_id, fixture_hash, egress_class, residue, host_pin, replay_window, writable_surface, failure_label, note"
    )]
    UnknownKey,
    /// A value of the wrong type.
    #[error("{} has the wrong type; residue is an array of strings, every other field is a string", .0.map_or("note", Field::name))]
    WrongType(Option<Field>),
    /// The header value is neither JSON, nor unpadded base64url, nor `@NAME`.
    #[error("leafgate-card is neither compact JSON, nor unpadded base64url of it, nor @NAME")]
    Encoding,
    /// The card file in the store could not be read.
    #[error(
        "the card file in the store cannot be read, or goes on changing; write it once, as a regular file"
    )]
    Unreadable,
}

impl CardFault {
    /// The field at fault, where there is one.
    pub fn field(self) -> Option<Field> {
        match self {
            CardFault::KeyTwice(field) | CardFault::WrongType(field) => field,
            CardFault::TooLong
            | CardFault::NotUtf8
            | CardFault::NotJson
            | CardFault::NotObject
            | CardFault::UnknownKey
            | CardFault::Encoding
            | CardFault::Unreadable => None,
        }
    }
}

/// A key of the card: a field, or `note`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Field(Field),
    Note,
}

impl Key {
    fn of(name: &str) -> Option<Key> {
        const FIELDS: [Field; 8] = [
            Field::FixtureId,
            Field::FixtureHash,
            Field::EgressClass,
            Field::Residue,
            Field::HostPin,
            Field::ReplayWindow,
            Field::WritableSurface,
            Field::FailureLabel,
        ];
        if name == "note" {
            return Some(Key::Note);
        }
        FIELDS
            .into_iter()
            .find(|field| field.name() == name)
            .map(Key::Field)
    }

    fn field(self) -> Option<Field> {
        match self {
            Key::Field(field) => Some(field),
            Key::Note => None,
        }
    }
}

pub(super) fn parse(json: &[u8]) -> Result<Card, CardFault> {
    if json.len() > MAX_CARD_BYTES {
        return Err(CardFault::TooLong);
    }
    let text = std::str::from_utf8(json).map_err(|_| CardFault::NotUtf8)?;
    if text.starts_with('\u{feff}') {
        return Err(CardFault::NotUtf8);
    }
    // serde's errors are text; the cell carries the typed fault past them.
    let fault = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let card = CardSeed { fault: &fault }.deserialize(&mut reader);
    match card {
        Ok(card) => reader.end().map(|()| card).map_err(|_| CardFault::NotJson),
        Err(_) => Err(fault.get().unwrap_or(CardFault::NotJson)),
    }
}

/// The visits of JSON's types that are no string, array or object: each is this error.
macro_rules! refuse_other_types {
    ($value:ty, $refuse:expr) => {
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<$value, E> {
            Err($refuse(&self))
        }

        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<$value, E> {
            Err($refuse(&self))
        }

        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<$value, E> {
            Err($refuse(&self))
        }

        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<$value, E> {
            Err($refuse(&self))
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<$value, E> {
            Err($refuse(&self))
        }
    };
}

struct CardSeed<'a> {
    fault: &'a Cell<Option<CardFault>>,
}

impl CardSeed<'_> {
    fn fail<E: serde::de::Error>(&self, fault: CardFault) -> E {
        self.fault.set(Some(fault));
        E::custom("malformed card")
    }
}

impl<'de> DeserializeSeed<'de> for CardSeed<'_> {
    type Value = Card;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Card, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CardSeed<'_> {
    refuse_other_types!(Card, |this: &Self| this.fail(CardFault::NotObject));

    type Value = Card;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a card")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Card, A::Error> {
        let mut card = Card::default();
        let mut note = false;
        while let Some(name) = map.next_key_seed(Text {
            fault: self.fault,
            key: None,
        })? {
            let key = Key::of(&name).ok_or_else(|| self.fail::<A::Error>(CardFault::UnknownKey))?;
            let seen = key.field().map_or(note, |field| card.has(field));
            if seen {
                return Err(self.fail(CardFault::KeyTwice(key.field())));
            }
            if key == Key::Field(Field::Residue) {
                card.residue = Some(map.next_value_seed(Texts { fault: self.fault })?);
                continue;
            }
            let text = map.next_value_seed(Text {
                fault: self.fault,
                key: Some(key),
            })?;
            match key {
                Key::Note => note = true,
                Key::Field(field) => {
                    *slot(&mut card, field).ok_or_else(|| A::Error::custom("no text field"))? =
                        Some(text)
                }
            }
        }
        Ok(card)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Card, A::Error> {
        // Read to its end, so that broken JSON is called that and not a wrong shape.
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Err(self.fail(CardFault::NotObject))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Card, E> {
        Err(self.fail(CardFault::NotObject))
    }
}

fn slot(card: &mut Card, field: Field) -> Option<&mut Option<Box<str>>> {
    match field {
        Field::FixtureId => Some(&mut card.fixture_id),
        Field::FixtureHash => Some(&mut card.fixture_hash),
        Field::EgressClass => Some(&mut card.egress_class),
        Field::HostPin => Some(&mut card.host_pin),
        Field::ReplayWindow => Some(&mut card.replay_window),
        Field::WritableSurface => Some(&mut card.writable_surface),
        Field::FailureLabel => Some(&mut card.failure_label),
        Field::Residue | Field::Route | Field::Media | Field::Body => None,
    }
}

/// One string: a key (`key` is `None`) or the value of a key.
struct Text<'a> {
    fault: &'a Cell<Option<CardFault>>,
    key: Option<Key>,
}

impl Text<'_> {
    fn wrong<E: serde::de::Error>(&self) -> E {
        if let Some(key) = self.key {
            self.fault.set(Some(CardFault::WrongType(key.field())));
        }
        E::custom("not a string")
    }
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = Box<str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<str>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    refuse_other_types!(Box<str>, Text::wrong);

    type Value = Box<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Box<str>, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Box<str>, A::Error> {
        Err(self.wrong())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Box<str>, A::Error> {
        Err(self.wrong())
    }
}

/// The array of `residue`.
struct Texts<'a> {
    fault: &'a Cell<Option<CardFault>>,
}

impl Texts<'_> {
    fn wrong<E: serde::de::Error>(&self) -> E {
        self.fault
            .set(Some(CardFault::WrongType(Some(Field::Residue))));
        E::custom("not an array of strings")
    }
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = Box<[Box<str>]>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    refuse_other_types!(Box<[Box<str>]>, Texts::wrong);

    type Value = Box<[Box<str>]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = seq.next_element_seed(Text {
            fault: self.fault,
            key: Some(Key::Field(Field::Residue)),
        })? {
            all.push(text);
        }
        Ok(all.into())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(self.wrong())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(self.wrong())
    }
}
