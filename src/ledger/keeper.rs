//! Who writes the checkpoint, and its copy where the policy names one.
//!
//! Promises: each file is replaced whole or not at all; the ledger's own is written first, so the copy never covers more than it. A failure of either does not latch (the records
//! are durable all the same): it is logged, shown in the ledger's state, and both are written anew when the checkpoint is next due. At the start a failure of either refuses the start.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::checkpoint::{self, Checkpoint};
use super::error::LedgerError;
use super::keys::Signer;
use super::queue::Shared;
use super::writer::Covered;

/// Signs and writes.
#[derive(Debug)]
pub(super) struct Keeper {
    /// The ledger's own.
    pub(super) file: PathBuf,
    /// `ledger.checkpoint_copy`
    pub(super) copy: Option<PathBuf>,
    pub(super) signer: Signer,
}

impl Keeper {
    /// Writes both, for the start.
    pub(super) fn write(&self, covered: Covered) -> Result<(), LedgerError> {
        let note = self.note(covered);
        checkpoint::replace(&self.file, &note)
            .map_err(LedgerError::io(&self.file, "write the checkpoint"))?;
        match &self.copy {
            Some(copy) => checkpoint::replace(copy, &note).map_err(LedgerError::io(
                copy,
                "write the checkpoint's copy (ledger.checkpoint_copy)",
            )),
            None => Ok(()),
        }
    }

    /// The checkpoint's own thread: its syncs hold up no batch. It writes the newest size it was handed.
    pub(super) fn run(&self, covered: &mpsc::Receiver<Covered>, shared: &Shared) {
        while let Ok(mut newest) = covered.recv() {
            while let Ok(newer) = covered.try_recv() {
                newest = newer;
            }
            let note = self.note(newest);
            let mut failed = put(&self.file, &note, "the checkpoint").err();
            // Where its own place failed, the copy still says how far the ledger was.
            if let Some(copy) = &self.copy
                && let Err(why) = put(copy, &note, "the checkpoint's copy")
            {
                failed.get_or_insert(why);
            }
            shared.meters.checkpoint(failed);
        }
    }

    fn note(&self, (size, root): Covered) -> String {
        Checkpoint::note(&self.signer, size, &root)
    }
}

/// Writes the ledger's own checkpoint, for maintenance: the copy is written at the next start.
pub(super) fn write_checkpoint(
    dir: &Path,
    signer: &Signer,
    (size, root): Covered,
) -> Result<(), LedgerError> {
    let file = dir.join(checkpoint::FILE);
    checkpoint::replace(&file, &Checkpoint::note(signer, size, &root))
        .map_err(LedgerError::io(&file, "write the checkpoint"))
}

fn put(file: &Path, note: &str, what: &str) -> Result<(), String> {
    checkpoint::replace(file, note).map_err(|cause| {
        tracing::error!(
            %cause,
            file = %file.display(),
            "{what} cannot be written; records are durable all the same, and it is written when it is next due"
        );
        format!("{what} cannot be written: {cause}")
    })
}
