//! Which key is in force at each record, and who says so.
//!
//! Promises: the first key is the one that the first `open` record holds in `key` (records from before that field name it by `log`, which is made of the key);
//! each later one stands in a `key` record that the key before it signed; a `prune` record is signed by the key in force. It does not say that the last one is `leafgate.pub`'s: [`Lineage::ends_in`] does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde::Deserialize;

use super::error::Fault;
use super::hex::hex;
use super::keys::{Signer, VerifierKey};

/// The keys so far. It grows with the number of rotations alone.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    name: String,
    known: Vec<VerifierKey>,
    /// From which `seq` on which name is in force.
    turns: Vec<(u64, String)>,
}

#[derive(Deserialize)]
struct Opened<'a> {
    #[serde(borrow)]
    key: Option<&'a str>,
}

#[derive(Deserialize)]
struct Rotated<'a> {
    #[serde(borrow)]
    key: &'a str,
    #[serde(borrow)]
    signature: &'a str,
}

#[derive(Deserialize)]
struct Signed<'a> {
    #[serde(borrow)]
    signature: &'a str,
}

/// What [`sign_prune`] adds to a line: 64 bytes take 88 in base64.
pub(super) const SIGNATURE_BYTES: usize = r#","signature":"""#.len() + 88;

/// What stands right after the signature in a `prune` record. A quote within a string is escaped, so this stands nowhere else in one.
const AFTER_SIGNATURE: &[u8] = b",\"t\":\"prune\",\"time\":\"";

impl Lineage {
    /// From a key that a kept prune record holds.
    pub(super) fn from(key: VerifierKey, began: u64) -> Lineage {
        Lineage {
            name: key.name().to_owned(),
            turns: vec![(began, key.name().to_owned())],
            known: vec![key],
        }
    }

    /// The name that the next record must hold in `log`; empty before the first.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the first record's `log`; `false` where another name is in force.
    pub(super) fn first(&mut self, log: &str) -> bool {
        if self.name.is_empty() {
            self.name = log.to_owned();
            self.turns.push((0, self.name.clone()));
        }
        self.name == log
    }

    /// Takes the `key` of an `open` record, where it has one.
    pub(super) fn opened(&mut self, line: &[u8]) -> Result<(), Fault> {
        const FAULT: Fault = Fault::Form("holds a key that is not the one it names in log");
        let Opened { key } = serde_json::from_slice(line).map_err(|_| FAULT)?;
        let Some(key) = key else { return Ok(()) };
        let key = VerifierKey::parse(key).ok_or(FAULT)?;
        match self.current() {
            // A name is 8 bytes of a hash: the key itself must be the same.
            Some(known) if *known == key => Ok(()),
            None if key.name() == self.name => {
                self.known.push(key);
                Ok(())
            }
            Some(_) | None => Err(FAULT),
        }
    }

    /// Takes a `key` record.
    pub(super) fn rotated(&mut self, line: &[u8], seq: u64, prev: &[u8; 32]) -> Result<(), Fault> {
        let Rotated { key, signature } = serde_json::from_slice(line)
            .map_err(|_| Fault::Form("has an escape where only plain text stands"))?;
        let key = VerifierKey::parse(key)
            .ok_or(Fault::Form("holds a key that is not in the verifier form"))?;
        let old = self.current().ok_or(Fault::Form(
            "rotates a key that no open record before it holds",
        ))?;
        let text = rotation_text(old.name(), &key.line(), seq, prev);
        let signature = STANDARD.decode(signature).unwrap_or_default();
        if !old.verifies(text.as_bytes(), &signature) {
            return Err(Fault::KeySignature);
        }
        self.name = key.name().to_owned();
        self.known.push(key);
        self.turns.push((seq + 1, self.name.clone()));
        Ok(())
    }

    /// Takes a `prune` record: nobody without the key in force may say that a segment may go.
    pub(super) fn pruned(&self, line: &[u8]) -> Result<(), Fault> {
        let Signed { signature } = serde_json::from_slice(line)
            .map_err(|_| Fault::Form("has an escape where only plain text stands"))?;
        let key = self.current().ok_or(Fault::Form(
            "prunes under a key that no open record before it holds",
        ))?;
        let text = without_signature(line, signature).map(|line| prune_text(&line));
        let signature = STANDARD.decode(signature).unwrap_or_default();
        if text.is_some_and(|text| key.verifies(&text, &signature)) {
            Ok(())
        } else {
            Err(Fault::PruneSignature)
        }
    }

    /// The first `seq` under the last key: a checkpoint that covers so many records is that key's.
    pub(super) fn turned(&self) -> u64 {
        self.turns.last().map_or(0, |(from, _)| *from)
    }

    /// The key in force, where a record holds it.
    pub(super) fn current(&self) -> Option<&VerifierKey> {
        self.of(&self.name)
    }

    fn of(&self, name: &str) -> Option<&VerifierKey> {
        self.known.iter().rev().find(|key| key.name() == name)
    }

    /// Whether a record holds this key.
    pub(super) fn knows(&self, key: &VerifierKey) -> bool {
        self.known.contains(key)
    }

    /// The key of this name: one that a record holds, or `public`.
    pub(super) fn named<'a>(
        &'a self,
        name: &str,
        public: &'a VerifierKey,
    ) -> Option<&'a VerifierKey> {
        self.of(name)
            .or_else(|| Some(public).filter(|key| key.name() == name))
    }

    /// The key that must have signed a checkpoint of this size: the one in force for the record after those it covers. `None` where that was pruned, or is not known.
    pub(super) fn signs<'a>(
        &'a self,
        size: u64,
        public: &'a VerifierKey,
    ) -> Option<&'a VerifierKey> {
        let (_, name) = self.turns.iter().rev().find(|(from, _)| *from <= size)?;
        self.named(name, public)
    }

    /// Whether the last key is this one.
    ///
    /// # Errors
    /// What it is else, and the first record under the last key, where records are at fault.
    pub(super) fn ends_in(&self, public: &VerifierKey) -> Result<(), (Option<u64>, Fault)> {
        match self.current() {
            Some(last) if last == public => Ok(()),
            None if self.name == public.name() => Ok(()),
            Some(_) | None if self.knows(public) => Err((None, Fault::Rotation)),
            // The record that put the last key in place; after a prune the first that is kept.
            Some(_) | None => {
                let from = self.turns.last().map_or(0, |(from, _)| *from);
                let turned = self.turns.len() > 1;
                Err((Some(from - u64::from(turned)), Fault::Log))
            }
        }
    }
}

/// What the old key signs.
fn rotation_text(old: &str, key: &str, seq: u64, prev: &[u8; 32]) -> String {
    let prev = hex(prev);
    format!("leafgate key rotation v1\n{old}\n{key}\n{seq}\n{prev}\n")
}

/// The old key's signature over the rotation, as it stands in the record.
pub(super) fn sign_rotation(old: &Signer, key: &VerifierKey, seq: u64, prev: &[u8; 32]) -> String {
    let text = rotation_text(old.public().name(), &key.line(), seq, prev);
    STANDARD.encode(old.sign(text.as_bytes()))
}

/// What the key in force signs: the whole record but for the signature, so that place, time and everything before it are bound too.
fn prune_text(line: &[u8]) -> Vec<u8> {
    [b"leafgate prune v1\n", line, b"\n"].concat()
}

/// A `prune` record's line without the member `signature`.
fn without_signature(line: &[u8], signature: &str) -> Option<Vec<u8>> {
    let member = format!(",\"signature\":\"{signature}\"");
    let end = memmem::rfind(line, AFTER_SIGNATURE)?;
    let head = line[..end].strip_suffix(member.as_bytes())?;
    Some([head, &line[end..]].concat())
}

/// Puts the signature into a stitched `prune` record; any other record stays as it is.
pub(super) fn sign_prune(signer: &Signer, line: &mut Vec<u8>) {
    if let Some(at) = memmem::rfind(line, AFTER_SIGNATURE) {
        let signature = STANDARD.encode(signer.sign(&prune_text(line)));
        let member = format!(",\"signature\":\"{signature}\"");
        line.splice(at..at, member.into_bytes());
    }
}

/// The new key of a `key` record.
pub(super) fn key_of(line: &[u8]) -> Option<String> {
    let Rotated { key, .. } = serde_json::from_slice(line).ok()?;
    Some(key.to_owned())
}
