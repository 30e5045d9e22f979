//! A ledger that nobody runs, opened to be maintained: `seal`, `rotate-key`, `prune`.
//!
//! Promises: `LOCK` is held, the whole ledger was read and held against its checkpoint, a rotation or a prune that a crash cut is complete. A record of maintenance is a
//! run of its own; it is durable when [`Stopped::append`] returns.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::clock::Clock;
use super::entry::Recovered;
use super::error::{Fault, LedgerError};
use super::judge::in_folder;
use super::keeper::write_checkpoint;
use super::keys::{Keys, Signer};
use super::lineage::sign_prune;
use super::record::Draft;
use super::scan::{Scan, SegmentFile, Torn, segments};
use super::start::{Lock, Read, cut_off, read_all, take_lock};
use super::store::{Disk, Segment as _, Store as _};
use super::{prune, rotate};

/// The ledger.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) dir: PathBuf,
    /// The segments that are kept; never empty.
    pub(super) files: Vec<SegmentFile>,
    pub(super) keys: Keys,
    pub(super) scan: Scan,
    torn: Option<Torn>,
    /// Records that the checkpoint did not cover when it was opened.
    unsigned: u64,
    /// How many it covers now.
    covered: u64,
    _lock: Lock,
}

impl Stopped {
    /// Opens it.
    pub(super) fn open(dir: &Path) -> Result<Stopped, LedgerError> {
        if segments(dir)?.is_empty() {
            return Err(in_folder(dir, "", Fault::Nothing));
        }
        let lock = take_lock(dir)?;
        let all = segments(dir)?;
        let unused = rotate::complete(dir, &all)?;
        // Nothing is missing where there are segments.
        let (keys, _) = Keys::open(dir, false)?;
        let read = read_all(dir, &all, keys.signer.public(), None)?;
        if read.scan.seq == 0 {
            return Err(in_folder(dir, "", Fault::Nothing));
        }
        if unused {
            rotate::discard(dir)?;
        }
        let (files, covered) = prune::complete(dir, &all, &read, &keys.signer)?;
        let unsigned = read.unsigned();
        let Read { scan, torn, .. } = read;
        Ok(Stopped {
            dir: dir.to_owned(),
            files,
            keys,
            scan,
            torn,
            unsigned,
            covered,
            _lock: lock,
        })
    }

    /// What the next record must say of a torn last line, which [`Stopped::append`] cuts off.
    pub(super) fn recovered(&self) -> Recovered {
        Recovered {
            cut: self.torn.as_ref().map_or(0, |torn| torn.cut),
            closed: 0,
            unsigned: self.unsigned,
        }
    }

    /// Appends records, all in one write, and makes them durable. What stands before them is under a checkpoint first: no run is ever followed by another while it is
    /// under none.
    pub(super) fn append(&mut self, drafts: &[Draft]) -> Result<(), LedgerError> {
        if self.covered < self.scan.seq {
            self.checkpoint(&self.keys.signer)?;
            self.covered = self.scan.seq;
        }
        if let Some(torn) = self.torn.take() {
            cut_off(&torn)?;
        }
        let Some(SegmentFile { path, .. }) = self.files.last() else {
            return Err(in_folder(&self.dir, "", Fault::Nothing));
        };
        let failed = |doing| LedgerError::io(path, doing);
        let len = path
            .metadata()
            .map_err(failed("look at the segment"))?
            .len();
        let mut segment = Disk::new(&self.dir)
            .reopen(path, len)
            .map_err(failed("open the segment for appending"))?;
        let time = Clock::new().text(SystemTime::now());
        let (mut lines, mut line) = (Vec::new(), Vec::new());
        for draft in drafts {
            line.clear();
            draft.stitch(&self.scan.prev, self.scan.seq, &time, &mut line);
            sign_prune(&self.keys.signer, &mut line);
            self.scan.prev = Sha256::digest(&line).into();
            self.scan.tree.push(&line);
            self.scan.seq += 1;
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
        segment
            .append(&lines)
            .and_then(|()| segment.sync())
            .map_err(failed("write the record"))
    }

    /// Writes the checkpoint over all records, signed by `signer`.
    pub(super) fn checkpoint(&self, signer: &Signer) -> Result<(), LedgerError> {
        write_checkpoint(&self.dir, signer, (self.scan.seq, self.scan.tree.root()))
    }
}

/// Closes the open segment and begins the next one; gives the `seq` that the new one begins with. `None` where the open segment holds no record: there is nothing
/// to close. Writes the checkpoint in either case.
///
/// # Errors
/// Where a leafgate runs on it, the ledger is not whole, or a file cannot be written.
pub fn seal(dir: &Path) -> Result<Option<u64>, LedgerError> {
    let ledger = Stopped::open(dir)?;
    if ledger.torn.is_some() {
        return Err(LedgerError::Unfit {
            file: dir.to_owned(),
            what: "its last line is torn; start leafgate serve once, which cuts that off and records it, then seal again",
        });
    }
    if ledger.covered < ledger.scan.seq {
        return Err(LedgerError::Unfit {
            file: dir.to_owned(),
            what: "its last records are under no checkpoint; start leafgate serve once and stop it, which signs them and records how many they were, then seal again",
        });
    }
    let seq = ledger.scan.seq;
    let empty = ledger.files.last().is_some_and(|file| file.first == seq);
    if !empty {
        Disk::new(dir)
            .create(seq)
            .map_err(LedgerError::io(dir, "make the next segment"))?;
    }
    ledger.checkpoint(&ledger.keys.signer)?;
    Ok((!empty).then_some(seq))
}
