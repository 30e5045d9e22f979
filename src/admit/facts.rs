//! What the record says of a call: values only, no payload.

use std::fmt;
use std::sync::Arc;

use crate::card::{Attach, Card};
use crate::policy::Host;
use crate::terms::FailureLabel;
use crate::tree::Ruling;

/// A call's id: a ULID, 26 characters, as in `leafgate-call` and in the record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId([u8; 26]);

impl CallId {
    /// A new id from 48 bits of milliseconds since 1970 and 80 random bits.
    pub fn new(millis: u64, random: [u8; 10]) -> CallId {
        const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        let random = random
            .iter()
            .fold(0_u128, |all, byte| (all << 8) | u128::from(*byte));
        let value = (u128::from(millis & 0xffff_ffff_ffff) << 80) | random;
        let mut text = [0; 26];
        for (place, digit) in text.iter_mut().enumerate() {
            *digit = CROCKFORD[((value >> (5 * (25 - place))) & 31) as usize];
        }
        CallId(text)
    }

    /// The 26 characters.
    pub fn as_str(&self) -> &str {
        // Always ASCII: every byte came from the alphabet above.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Length and SHA-256 of a body that was read to its end. The record holds an HMAC of the hash, never the hash of a body that did not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyFacts {
    /// Bytes.
    pub len: u64,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
}

/// Client headers that were not sent on: those leafgate knows by name, and how many others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Known names, lower-case, sorted, each once.
    pub names: Vec<&'static str>,
    /// How many header lines had other names.
    pub other: u64,
}

/// Everything a decision record says that is known before the verdict.
#[derive(Debug, Clone)]
pub struct CallFacts {
    /// The call's id.
    pub call: CallId,
    /// Where the card was attached.
    pub attach: Option<Attach>,
    /// The card, where one was read; the ledger shows a value only where it fits its grammar.
    pub card: Option<Arc<Card>>,
    /// What the tree said.
    pub ruling: Ruling,
    /// `METHOD /path` as the policy writes it, where the call's own is on the list.
    pub route: Option<String>,
    /// The host, where the pin names one.
    pub host: Option<Arc<Host>>,
    /// The label that is used: the card's, or the payload's where the card has none.
    pub failure_label: Option<FailureLabel>,
    /// The body, where it was read to its end.
    pub body: Option<BodyFacts>,
    /// The user at the other end of the Unix socket, where the call came by one.
    pub peer_uid: Option<u32>,
}
