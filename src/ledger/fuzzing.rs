//! The fuzzers' way to the readers of this room. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: what the readers say, as they say it; nothing that could be sent is made here. And maintenance, cut
//! at each of its steps.

use std::io;
use std::path::Path;

use jiff::Timestamp;

use super::checkpoint::Checkpoint;
use super::error::LedgerError;
use super::form::Line;
use super::keys::VerifierKey;
use super::prune::prune_with;
use super::rotate::rotate;

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

/// Rotates the key of the ledger in `dir` and is cut after so many steps.
pub fn rotate_to(dir: &Path, steps: usize) {
    let mut done = 0;
    let cut = rotate(dir, &mut |_| stop_after(&mut done, steps));
    assert!(cut.is_err());
}

/// Prunes what is older than `before` from the ledger in `dir` and is cut after so many steps.
pub fn prune_to(dir: &Path, before: Timestamp, steps: usize) {
    let mut done = 0;
    let cut = prune_with(dir, before, &mut |_| true, &mut |_| {
        stop_after(&mut done, steps)
    });
    assert!(cut.is_err());
}

fn stop_after(done: &mut usize, steps: usize) -> Result<(), LedgerError> {
    let stop = *done == steps;
    *done += 1;
    match stop {
        true => Err(LedgerError::io(Path::new("cut"), "go on")(
            io::Error::other("cut by the fuzzer"),
        )),
        false => Ok(()),
    }
}
