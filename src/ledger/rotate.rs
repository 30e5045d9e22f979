//! A new signing key, recorded under the old one.
//!
//! The order: the new key is stored beside (`.leafgate.key.next`); the `key` record is appended and synced; the checkpoint, `leafgate.key` and `leafgate.pub` are
//! replaced, each whole. Promises: cut at any point, the ledger is under the old key (no record says otherwise: the key beside is thrown away) or under the new one
//! (the record stands: [`complete`] does the rest). The replacement of `leafgate.key` is the end of the old key in this folder.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::checkpoint::replace;
use super::error::LedgerError;
use super::judge::judge_cut;
use super::keeper::write_checkpoint;
use super::kept::small;
use super::keys::{PUBLIC_FILE, SIGNER_FILE, Signer, VerifierKey, fault, write_new};
use super::lineage::sign_rotation;
use super::maintain::Stopped;
use super::record::{Draft, Fields};
use super::scan::SegmentFile;
use super::start::{Read, hold, new_run, read_chain};
use super::writer::Covered;

/// Where the new key waits for its record.
pub(super) const NEXT_FILE: &str = ".leafgate.key.next";

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The name of the key until now.
    pub old: String,
    /// The new verifier key's line, as in `leafgate.pub`.
    pub key: String,
    /// The record that says so.
    pub seq: u64,
}

/// What was done last; after each the files are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Stored,
    Recorded,
    Checkpoint,
    Signer,
    Public,
}

/// Gives the ledger in `dir` a new signing key.
///
/// # Errors
/// Where a leafgate runs on it, the ledger is not whole, or a file cannot be written.
pub fn rotate_key(dir: &Path) -> Result<Rotated, LedgerError> {
    rotate(dir, &mut |_| Ok(()))
}

/// [`rotate_key`], with a place for a test to cut it.
pub(super) fn rotate(
    dir: &Path,
    done: &mut dyn FnMut(Step) -> Result<(), LedgerError>,
) -> Result<Rotated, LedgerError> {
    let mut ledger = Stopped::open(dir)?;
    let old = ledger.keys.signer.public().clone();
    if ledger.scan.keys.current() != Some(&old) {
        return Err(LedgerError::Unfit {
            file: dir.to_owned(),
            what: "no open record holds the key that is to be replaced (an older leafgate wrote them); start leafgate serve once and stop it, then rotate",
        });
    }
    let (next, text) = Signer::make(dir)?;
    write_new(dir, NEXT_FILE, &text, 0o600)?;
    sync(dir)?;
    done(Step::Stored)?;
    let seq = ledger.scan.seq;
    let key = next.public().line();
    let signature = sign_rotation(&ledger.keys.signer, next.public(), seq, &ledger.scan.prev);
    let draft = record(&ledger, &key, &signature, &new_run(dir)?);
    ledger.append(&[draft])?;
    done(Step::Recorded)?;
    let covered = (ledger.scan.seq, ledger.scan.tree.root());
    finish(dir, &next, covered, done)?;
    Ok(Rotated {
        old: old.name().to_owned(),
        key,
        seq,
    })
}

fn record(ledger: &Stopped, key: &str, signature: &str, run: &str) -> Draft {
    let mut f = Fields::new();
    f.text("key", key)
        .text("log", ledger.keys.signer.public().name())
        .prev();
    ledger.recovered().write(&mut f);
    f.text("run", run)
        .seq()
        .text("signature", signature)
        .text("t", "key")
        .time()
        .int("v", 1);
    f.end()
}

/// All that comes after the record.
fn finish(
    dir: &Path,
    next: &Signer,
    covered: Covered,
    done: &mut dyn FnMut(Step) -> Result<(), LedgerError>,
) -> Result<(), LedgerError> {
    write_checkpoint(dir, next, covered)?;
    done(Step::Checkpoint)?;
    let signer = dir.join(SIGNER_FILE);
    fs::rename(dir.join(NEXT_FILE), &signer)
        .map_err(LedgerError::io(&signer, "put the new key in place"))?;
    sync(dir)?;
    done(Step::Signer)?;
    publish(dir, next.public())?;
    done(Step::Public)
}

fn publish(dir: &Path, key: &VerifierKey) -> Result<(), LedgerError> {
    replace(&dir.join(PUBLIC_FILE), &format!("{}\n", key.line())).map_err(LedgerError::io(
        &dir.join(PUBLIC_FILE),
        "put the new verifier key in place",
    ))
}

fn sync(dir: &Path) -> Result<(), LedgerError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(LedgerError::io(dir, "sync the folder"))
}

/// Completes a rotation that a crash cut after its record; whether a key waits that no record names, for [`discard`]. Needs `LOCK`. Reads the ledger only where there are signs of
/// a rotation, and changes nothing in one that is not whole.
pub(super) fn complete(dir: &Path, all: &[SegmentFile]) -> Result<bool, LedgerError> {
    // First: the start after this one would refuse it too.
    let next = Signer::read(dir, NEXT_FILE)?;
    let Some(signer) = Signer::read(dir, SIGNER_FILE)? else {
        // A new ledger, or one that lost its key: the reader of the keys says so.
        return Ok(false);
    };
    let public = small(&dir.join(PUBLIC_FILE)).ok().flatten();
    let public = public.and_then(|text| String::from_utf8(text).ok());
    let published = public.as_deref().and_then(VerifierKey::parse);
    let cut = published.as_ref().is_some_and(|key| key != signer.public());
    if all.is_empty() || next.is_none() && !cut {
        return Ok(false);
    }
    let read = read_chain(dir, all, None)?;
    let Read { scan, note, .. } = &read;
    let in_force = scan.keys.current().unwrap_or(signer.public());
    if let (Some(next), Some(note)) = (&next, note)
        && in_force == next.public()
    {
        // What the new key signs now was whole under the old one.
        judge_cut(dir, &read.files, scan, in_force, note)?;
        tracing::warn!("a key rotation that was cut is completed");
        finish(dir, next, (scan.seq, scan.tree.root()), &mut |_| Ok(()))?;
        return Ok(false);
    }
    if in_force != signer.public() {
        return Err(fault(
            dir,
            SIGNER_FILE,
            "is not the key that the last records put in place; restore it from a copy, or name a new ledger.dir",
        ));
    }
    hold(dir, &read, signer.public())?;
    if let Some(published) = published.filter(|key| cut && scan.keys.knows(key)) {
        tracing::warn!(
            key = published.name(),
            "a key rotation that was cut is completed"
        );
        publish(dir, signer.public())?;
    }
    Ok(next.is_some())
}

/// Takes away the key that waits and that no record names: nothing was signed with it. The ledger was found whole, or it might be the key of a record that is lost.
pub(super) fn discard(dir: &Path) -> Result<(), LedgerError> {
    match fs::remove_file(dir.join(NEXT_FILE)) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(LedgerError::io(
            &dir.join(NEXT_FILE),
            "remove a key that was never used",
        )(cause)),
        Ok(()) | Err(_) => sync(dir),
    }
}
