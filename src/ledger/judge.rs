//! What is held against a chain once it was read to its end: its last key, its checkpoint, and what was pruned. The start, `verify` and maintenance ask alike.

use std::path::{Path, PathBuf};

use super::checkpoint::{self, Checkpoint};
use super::error::{Fault, LedgerError, Problem};
use super::keys::{PUBLIC_FILE, VerifierKey};
use super::past;
use super::scan::{Scan, SegmentFile, place_of};

/// A problem of a file of the folder, not of a record.
pub(super) fn in_folder(dir: &Path, name: &str, fault: Fault) -> LedgerError {
    LedgerError::Problem(Problem {
        file: dir.join(name),
        line: None,
        seq: None,
        fault,
    })
}

/// Whether the last key in force is `public`, `note` is signed by it and has the root of its records, `note` covers the record that put the key in place and all but the last
/// run, of which it covers the first record, and every pruned segment has its record.
///
/// A checkpoint that was signed by an older key, or that was put back from an earlier run, says nothing of what was written since: who holds that key, or no key at all,
/// could have forged it. A ledger that leafgate wrote always has the newer one, since it is written before the next run begins.
pub(super) fn judge(
    dir: &Path,
    files: &[SegmentFile],
    scan: &Scan,
    public: &VerifierKey,
    note: &Checkpoint,
) -> Result<(), LedgerError> {
    held(dir, files, scan, public, note, false)
}

/// [`judge`], of a rotation that a crash may have cut right after its record: the checkpoint may be the one that the old key signed before.
pub(super) fn judge_cut(
    dir: &Path,
    files: &[SegmentFile],
    scan: &Scan,
    public: &VerifierKey,
    note: &Checkpoint,
) -> Result<(), LedgerError> {
    let cut = scan.keys.turned() == scan.seq;
    held(dir, files, scan, public, note, cut)
}

fn held(
    dir: &Path,
    files: &[SegmentFile],
    scan: &Scan,
    public: &VerifierKey,
    note: &Checkpoint,
    cut: bool,
) -> Result<(), LedgerError> {
    last_key(dir, files, scan, public)?;
    // A checkpoint from before a prune can no longer be judged: that is said first.
    scan.pruned
        .settle(note.size)
        .map_err(|fault| in_folder(dir, past::FILE, fault))?;
    let turned = scan.keys.turned();
    if note.size < turned && !cut {
        return Err(at_record(dir, files, turned - 1, Fault::CheckpointKey));
    }
    if !scan
        .keys
        .signs(note.size, public)
        .is_some_and(|key| note.signed_by(key))
    {
        return Err(in_folder(dir, checkpoint::FILE, Fault::CheckpointSignature));
    }
    if note.size < scan.must_cover {
        return Err(at_record(dir, files, note.size, Fault::Uncovered));
    }
    against_checkpoint(dir, scan, note)
}

/// A problem of the checkpoint, at the record with this `seq`.
fn at_record(dir: &Path, files: &[SegmentFile], seq: u64, fault: Fault) -> LedgerError {
    let place = place_of(files, seq).map(|(file, line)| (file, Some(line)));
    let (file, line) = place.unwrap_or_else(|| (dir.join(checkpoint::FILE), None));
    LedgerError::Problem(Problem {
        file,
        line,
        seq: Some(seq),
        fault,
    })
}

/// Whether the last key in force is `public`.
pub(super) fn last_key(
    dir: &Path,
    files: &[SegmentFile],
    scan: &Scan,
    public: &VerifierKey,
) -> Result<(), LedgerError> {
    let Err((seq, fault)) = scan.keys.ends_in(public) else {
        return Ok(());
    };
    let place = seq.filter(|seq| *seq < scan.seq);
    let place = place.and_then(|seq| place_of(files, seq));
    let (file, line) = place.map_or((dir.join(PUBLIC_FILE), None), |(file, line)| {
        (file, Some(line))
    });
    Err(LedgerError::Problem(Problem {
        file,
        line,
        seq: line.and(seq),
        fault,
    }))
}

/// Whether what was read is at least what the checkpoint covers, and has its root.
fn against_checkpoint(dir: &Path, scan: &Scan, note: &Checkpoint) -> Result<(), LedgerError> {
    let file = dir.join(checkpoint::FILE);
    if note.size > scan.seq {
        let (covers, here) = (note.size, scan.seq);
        return Err(LedgerError::Problem(Problem {
            file,
            line: None,
            seq: None,
            fault: Fault::Short { covers, here },
        }));
    }
    let root = scan.root.unwrap_or_else(|| scan.tree.root());
    if root != note.root {
        let last: Option<(PathBuf, Option<u64>)> = scan
            .at
            .clone()
            .filter(|_| note.size == scan.seq)
            .map(|(path, line)| (path, Some(line)));
        let (file, line) = last.unwrap_or((file, None));
        return Err(LedgerError::Problem(Problem {
            file,
            line,
            seq: Some(note.size.saturating_sub(1)),
            fault: Fault::Root,
        }));
    }
    Ok(())
}
