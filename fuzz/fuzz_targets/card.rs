//! Any bytes as a card, and what the tree says of it.
//!
//! Beside "no panic", what must hold of every card that is read: it is an object that serde_json reads too, and step by step the leaf is
//! what contract section 2 says.
#![no_main]

use std::sync::Arc;

use leafgate::card::{Card, MAX_CARD_BYTES, Reading};
use leafgate::terms::{Field, Leaf, is_blank};
use leafgate::tree::classify;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(card) = Card::parse(bytes) else { return };
    assert!(bytes.len() <= MAX_CARD_BYTES);
    assert!(std::str::from_utf8(bytes).is_ok());
    let card = Arc::new(card);
    let ruling = classify(&Reading::Card(Arc::clone(&card))).ruling();
    if ruling.leaf == Leaf::Hold {
        return;
    }
    // What may leave has every field, no residue, no blank, and one of two classes.
    assert!(card.residue().is_some_and(<[_]>::is_empty));
    for field in Field::REQUIRED {
        assert!(card.has(field));
        assert!(card.text(field).is_none_or(|text| !is_blank(text)));
    }
    let class = if ruling.leaf == Leaf::Split { "redacted-metadata" } else { "public-fixture" };
    assert_eq!(card.text(Field::EgressClass), Some(class));
});
