//! `verify`: whether a ledger's files are whole, read by somebody who has no secret of it.
//!
//! Promises: reads only, in memory that does not grow with the ledger; the first thing that is wrong is named with its file, line and record. It may run beside the
//! process that writes (it sees by `LOCK` whether one does): then a begun last line and calls that are on their way are no fault.

use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint;
use super::error::{Fault, LedgerError, Problem};
use super::judge::{in_folder, judge, last_key};
use super::kept::{Kept, small};
use super::keys::{PUBLIC_FILE, VerifierKey};
use super::past::Past;
use super::scan::{Counts, Scan, segments};
use super::start::{LOCK_FILE, read_checkpoint};
use crate::files;

/// What `verify` found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The name of the verifier key, where `leafgate.pub` holds one.
    pub log: Option<String>,
    /// Whether a leafgate is writing to it.
    pub running: bool,
    /// Segments in the folder.
    pub segments: u64,
    /// Whole records read before the end or the first problem; pruned ones are not among them (see [`Counts::pruned`]).
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of each kind.
    pub counts: Counts,
    /// Forwarded decisions that have no outcome yet (of a running ledger).
    pub in_flight: u64,
    /// How many records the checkpoint covers.
    pub covered: Option<u64>,
    /// How many whole records stand after those: they are under no signature yet.
    pub unsigned: u64,
    /// Whether the last record is a `stop`.
    pub stopped: bool,
    /// Bytes of a begun last line (of a running ledger); they were not judged.
    pub torn: u64,
    /// The first thing that is wrong; `None`: the ledger is whole.
    pub problem: Option<Problem>,
}

/// Reads the whole ledger. `progress` is called now and then with the bytes read and the bytes there are.
///
/// # Errors
/// Where the files cannot be read; what is wrong *with* them is [`Report::problem`].
pub fn verify(dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, LedgerError> {
    verify_against(dir, &[], progress)
}

/// [`verify()`], and also against checkpoints that were kept elsewhere: the files that hold them.
///
/// # Errors
/// Where the files cannot be read; what is wrong *with* them is [`Report::problem`].
pub fn verify_against(
    dir: &Path,
    kept: &[PathBuf],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, LedgerError> {
    let mut tries = 0;
    loop {
        let (report, note) = look(dir, kept, progress)?;
        let old = matches!(
            report.problem,
            Some(Problem {
                fault: Fault::Uncovered | Fault::CheckpointKey,
                ..
            })
        );
        tries += 1;
        // A start or a rotation that came between writes its checkpoint before its record: with the newer one there is something else to say.
        if !old
            || tries > 3
            || read_checkpoint(dir)
                .ok()
                .flatten()
                .is_none_or(|now| now.size == note)
        {
            return Ok(report);
        }
    }
}

/// One look, and how many records the checkpoint covered that it began with.
fn look(
    dir: &Path,
    kept: &[PathBuf],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Report, u64), LedgerError> {
    let mut report = Report {
        log: None,
        running: is_running(dir),
        segments: 0,
        records: 0,
        bytes: 0,
        counts: Counts::default(),
        in_flight: 0,
        covered: None,
        unsigned: 0,
        stopped: false,
        torn: 0,
        problem: None,
    };
    match check(dir, kept, &mut report, progress) {
        Err(LedgerError::Problem(problem)) => report.problem = Some(problem),
        other => other?,
    }
    let covered = report.covered.unwrap_or(0);
    Ok((report, covered))
}

fn check(
    dir: &Path,
    kept: &[PathBuf],
    report: &mut Report,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LedgerError> {
    // The checkpoints are read first: records written meanwhile then lie beyond them, never short of them.
    let kept: Vec<Kept> = kept
        .iter()
        .map(|file| Kept::need(file))
        .collect::<Result<_, _>>()?;
    let note = read_checkpoint(dir);
    let all = segments(dir)?;
    if all.is_empty() {
        return Err(in_folder(dir, "", Fault::Nothing));
    }
    let past = Past::read(dir)?;
    let files = past.kept(&all);
    report.segments = files.len() as u64;
    let key = verifier_key(dir)?;
    report.log = Some(key.name().to_owned());
    let covers = note
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .map(|note| note.size);
    report.covered = covers;

    let total = files
        .iter()
        .filter_map(|file| file.path.metadata().ok())
        .map(|facts| facts.len())
        .sum();
    let mut scan = Scan::new(&past, covers);
    for kept in &kept {
        scan.mark(kept.note.size);
    }
    let read = scan.read(files, &mut |bytes| progress(bytes, total));
    report.records = scan.seq - past.base();
    report.bytes = scan.bytes;
    report.counts = scan.counts;
    report.in_flight = scan.open.len() as u64;
    report.unsigned = scan.seq.saturating_sub(covers.unwrap_or(0));
    report.stopped = scan.stopped;
    // A record at fault is named before the checkpoint is: it says more. So is a torn last line, which a checkpoint may have covered.
    let torn = read?;
    if report.running {
        report.torn = torn.map_or(0, |torn| torn.cut);
    } else if let Some(torn) = torn {
        return Err(LedgerError::Problem(Problem {
            file: torn.path,
            line: None,
            seq: Some(scan.seq),
            fault: Fault::Torn { bytes: torn.cut },
        }));
    }
    if scan.seq == 0 {
        return Err(in_folder(dir, "", Fault::Nothing));
    }
    last_key(dir, files, &scan, &key)?;
    let note = note?.ok_or_else(|| in_folder(dir, checkpoint::FILE, Fault::NoCheckpoint))?;
    judge(dir, files, &scan, &key, &note)?;
    for kept in &kept {
        kept.holds(&scan, &key)?;
    }
    if report.running {
        return Ok(());
    }
    if let Some(open) = scan.open.keys().next() {
        return Err(LedgerError::Problem(Problem {
            file: dir.to_owned(),
            line: None,
            seq: Some(*open),
            fault: Fault::Unclosed,
        }));
    }
    Ok(())
}

/// The key in `leafgate.pub`.
pub(super) fn verifier_key(dir: &Path) -> Result<VerifierKey, LedgerError> {
    let path = dir.join(PUBLIC_FILE);
    let text = small(&path)
        .map_err(LedgerError::io(&path, "read the verifier key"))?
        .unwrap_or_default();
    std::str::from_utf8(&text)
        .ok()
        .and_then(VerifierKey::parse)
        .ok_or(LedgerError::Problem(Problem {
            file: path,
            line: None,
            seq: None,
            fault: Fault::VerifierKey,
        }))
}

/// Whether somebody holds `LOCK`. Looks for an instant; a start waits that long. Where it cannot be looked at, as in a copy that somebody else reads, the ledger
/// counts as at rest, which is the stricter reading.
fn is_running(dir: &Path) -> bool {
    in_use(dir).unwrap_or(false)
}

/// Whether a leafgate runs on the ledger in this folder, or maintains it: whether somebody holds its `LOCK`.
///
/// # Errors
/// Where that cannot be looked at; `NotFound` where nothing is there.
pub fn in_use(dir: &Path) -> io::Result<bool> {
    let lock = files::open(&dir.join(LOCK_FILE))?;
    Ok(matches!(
        lock.try_lock_shared(),
        Err(TryLockError::WouldBlock)
    ))
}
