//! `prove`: the inclusion proof of one record against the ledger's checkpoint, or against one that was kept elsewhere.
//!
//! Promises: reads only, each byte once, in memory that does not grow with the ledger; a proof is given only where the records up to the checkpoint have its root. The record's
//! form and the chain are not looked at for that: records with the signed root are the records that were signed. Where they have another, [`verify`](super::verify())
//! says which one is at fault.

use std::path::Path;

use super::audit_path::{self, AuditPath};
use super::checkpoint::FILE;
use super::error::{Fault, LedgerError, Problem};
use super::kept::Kept;
use super::past::Past;
use super::proof::Proof;
use super::scan::{Scan, each_line, segments};
use super::tree_hash::{MerkleTree, leaf};
use super::verify::{verifier_key, verify_against};

/// What [`prove`] found.
#[derive(Debug)]
pub enum Proved {
    /// The proof, and the record's line without its newline.
    Yes(Box<Proof>, Vec<u8>),
    /// The checkpoint covers `size` records, and the one that was asked for is not among them.
    NotCovered {
        /// The checkpoint's size.
        size: u64,
    },
    /// The record was pruned; the archive of its segment can prove it, put together with the ledger.
    Pruned {
        /// How many records were pruned.
        gone: u64,
    },
}

/// Proves that the record `seq` stands in the ledger in `dir`, against the checkpoint in the file `kept`, or the ledger's own where that is `None`.
///
/// # Errors
/// Where a file cannot be read, or the records and the checkpoint do not agree; then the first record at fault is named, where one can be.
pub fn prove(dir: &Path, seq: u64, kept: Option<&Path>) -> Result<Proved, LedgerError> {
    let own = dir.join(FILE);
    let file = kept.unwrap_or(&own);
    let problem = |fault| {
        LedgerError::Problem(Problem {
            file: file.to_owned(),
            line: None,
            seq: None,
            fault,
        })
    };
    let read = match kept {
        Some(_) => Kept::need(file)?,
        None => Kept::read(file)?.ok_or_else(|| problem(Fault::NoCheckpoint))?,
    };
    let note = read.note;
    if !note.signed_by(&verifier_key(dir)?) {
        // One from before a rotation is signed by the key of its time: the whole chain says which that was.
        match (kept, named(dir, kept)?) {
            (Some(_), None) => {}
            (Some(_), Some(problem)) => return Err(LedgerError::Problem(problem)),
            (None, _) => return Err(problem(Fault::CheckpointSignature)),
        }
    }
    if seq >= note.size {
        return Ok(Proved::NotCovered { size: note.size });
    }
    let past = Scan::new(&Past::read(dir)?, None);
    let gone = past.tree.size();
    if seq < gone {
        return Ok(Proved::Pruned { gone });
    }
    let (path, line) = walk(dir, &past.tree, seq, note.size)?;
    if let Some((leaf, path)) = path
        && audit_path::root(seq, note.size, leaf, &path) == Some(note.root)
    {
        let proof = Proof::new(seq, path, note);
        return Ok(Proved::Yes(Box::new(proof), line));
    }
    Err(LedgerError::Problem(named(dir, kept)?.unwrap_or(Problem {
        file: file.to_owned(),
        line: None,
        seq: None,
        fault: Fault::KeptRoot { covers: note.size },
    })))
}

/// A record's leaf hash and audit path, where the ledger has the records for it, and its line.
type Walked = (Option<([u8; 32], Vec<[u8; 32]>)>, Vec<u8>);

fn walk(dir: &Path, past: &MerkleTree, seq: u64, size: u64) -> Result<Walked, LedgerError> {
    let mut path = AuditPath::after(past, seq, size);
    let (mut at, mut found) = (past.size(), Vec::new());
    for segment in segments(dir)? {
        if segment.first < at {
            // Left by a prune that was cut.
            continue;
        }
        if at >= size || segment.first != at {
            break;
        }
        each_line(&segment.path, |line| {
            if at == seq {
                found = line.to_vec();
            }
            if at < size {
                path.push(leaf(line));
            }
            at += 1;
            Ok(())
        })?;
    }
    Ok((path.end(), found))
}

/// What `verify` says is wrong.
fn named(dir: &Path, kept: Option<&Path>) -> Result<Option<Problem>, LedgerError> {
    let kept: Vec<_> = kept.iter().map(|file| (*file).to_owned()).collect();
    Ok(verify_against(dir, &kept, &mut |_, _| {})?.problem)
}
