//! The words of the contract, one small type for each.
//!
//! Promises: a value of a checked type ([`FixtureId`], [`FixtureHash`], [`FailureLabel`], [`HostPin`]) fits its grammar,
//! so it may be shown, recorded and, where the tree allows it, sent. Makers: `parse` alone. Everybody reads this room; it
//! reads nobody.

mod blank;
mod field;
mod grammar;
mod leaf;
mod nearest;
mod reason;
mod safe;
mod secret;

pub use blank::is_blank;
pub use field::Field;
pub use grammar::{
    CardName, FailureLabel, FixtureHash, FixtureId, HashKind, HostPin, fits_byte_class, fits_class,
    fits_hash, fits_pin, fits_window,
};
pub use leaf::{EgressClass, Leaf, Step, Verdict};
pub use nearest::{HIDDEN_NAME, did_you_mean, is_plain_word, nearest, shown_name};
pub use reason::{Reason, Side, reads_as_refusal};
pub use safe::{hides, safe};
pub use secret::Secret;
