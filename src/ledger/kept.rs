//! Checkpoints that were kept elsewhere than in the ledger's folder: by an auditor (`ledger verify --checkpoint`), or as `ledger.checkpoint_copy`.
//!
//! Promises: a ledger that [`Kept::holds`] passed still has the records that the checkpoint covers, and no other ones. That is what the ledger's own checkpoint cannot say
//! against who may write to the folder: both can be cut together.

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::Checkpoint;
use super::error::{Fault, LedgerError, Problem};
use super::keys::VerifierKey;
use super::scan::Scan;
use super::tree_hash::MerkleTree;
use crate::files;

/// A checkpoint and where it was read.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) file: PathBuf,
    pub(super) note: Checkpoint,
}

impl Kept {
    /// Reads it; `None` where it is not there.
    pub(super) fn read(file: &Path) -> Result<Option<Kept>, LedgerError> {
        let Some(text) = small(file).map_err(LedgerError::io(file, "read the checkpoint"))? else {
            return Ok(None);
        };
        match std::str::from_utf8(&text).ok().and_then(Checkpoint::parse) {
            Some(note) => Ok(Some(Kept {
                file: file.to_owned(),
                note,
            })),
            None => Err(problem(file, Fault::CheckpointForm)),
        }
    }

    /// Reads it, and it must be there.
    pub(super) fn need(file: &Path) -> Result<Kept, LedgerError> {
        Kept::read(file)?.ok_or_else(|| {
            LedgerError::io(file, "read the checkpoint")(io::ErrorKind::NotFound.into())
        })
    }

    /// Whether the key that was in force at its size signed it, and whether what was read has its records. The scan must have been told its size ([`Scan::mark`]);
    /// `public` is the ledger's last key.
    pub(super) fn holds(&self, scan: &Scan, public: &VerifierKey) -> Result<(), LedgerError> {
        let (covers, here) = (self.note.size, scan.seq);
        let gone = scan.counts.pruned;
        if covers < gone {
            return Err(problem(&self.file, Fault::KeptPruned { covers, gone }));
        }
        let key = scan.keys.signs(covers, public);
        if !key.is_some_and(|key| self.note.signed_by(key)) {
            return Err(problem(&self.file, Fault::KeptSignature));
        }
        if covers > here {
            return Err(problem(&self.file, Fault::KeptShort { covers, here }));
        }
        let root = match covers {
            0 => Some(MerkleTree::default().root()),
            _ => scan.root_at(covers),
        };
        if root == Some(self.note.root) {
            Ok(())
        } else {
            Err(problem(&self.file, Fault::KeptRoot { covers }))
        }
    }
}

/// Longer than any checkpoint, key or line in `pruned`.
const MOST: u64 = 64 * 1024;

/// Reads one of the ledger's small files, `None` where it is not there. What is no regular file, or is longer than any of them, is read as nothing, which is no
/// form of any of them: whoever may write to the folder could put a FIFO or a device in place, and the reading would never end.
pub(super) fn small(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match files::read(file, MOST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge
            ) =>
        {
            Ok(Some(Vec::new()))
        }
        Err(cause) => Err(cause),
    }
}

/// Reads the checkpoint's copy, `None` where it is to be made; its folder must be there, and elsewhere than in the ledger's.
pub(super) fn read_copy(file: &Path, dir: &Path) -> Result<Option<Kept>, LedgerError> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let look = || {
        LedgerError::io(
            file,
            "find the folder of the checkpoint's copy (ledger.checkpoint_copy); make it",
        )
    };
    let folder = folder.canonicalize().map_err(look())?;
    if folder.starts_with(dir.canonicalize().map_err(look())?) {
        return Err(LedgerError::Key {
            file: file.to_owned(),
            what: "the checkpoint's copy lies in the ledger's folder, where it would be cut with the ledger; name a file elsewhere in ledger.checkpoint_copy",
        });
    }
    Kept::read(file)
}

fn problem(file: &Path, fault: Fault) -> LedgerError {
    LedgerError::Problem(Problem {
        file: file.to_owned(),
        line: None,
        seq: None,
        fault,
    })
}
