//! The fuzzers' way to the readers of this room. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: what the readers say, as they say it; nothing that could be sent is made here.

use super::checkpoint::Checkpoint;
use super::form::Line;
use super::keys::VerifierKey;

/// Reads one record's line.
///
/// # Errors
/// What is wrong with its form.
pub fn line(bytes: &[u8]) -> Result<(), &'static str> {
    Line::read(bytes).map(|_| ())
}

/// Reads a checkpoint: its size and root, and whether the key in `key` signed it.
pub fn checkpoint(note: &str, key: &str) -> Option<(u64, [u8; 32], bool)> {
    let note = Checkpoint::parse(note)?;
    let signed = VerifierKey::parse(key).is_some_and(|key| note.signed_by(&key));
    Some((note.size, note.root, signed))
}

/// Reads a verifier key and writes it again.
pub fn verifier_key(text: &str) -> Option<String> {
    VerifierKey::parse(text).map(|key| key.line())
}
