//! Taking old segments away, so that the chain stays checkable.
//!
//! The order: the records (carried ones first) are signed, appended and synced; the checkpoint covers them; `pruned` is replaced; the segments are deleted, oldest first. Promises: cut
//! at any point, `verify` finds a whole ledger, and the next start or prune goes on from there ([`complete`]). The newest segment is never taken.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::checkpoint::replace;
use super::clock::{Clock, Time};
use super::entry::Recovered;
use super::error::LedgerError;
use super::form::{Line, Type};
use super::keeper::write_checkpoint;
use super::keys::{Signer, VerifierKey};
use super::lineage::SIGNATURE_BYTES;
use super::maintain::Stopped;
use super::past::{self, Gone, as_hex};
use super::record::MAX_DRAFT_BYTES;
use super::scan::{SegmentFile, each_line, line_of};
use super::start::{Read, new_run};
use super::tally::Tally;
use super::tree_hash::MerkleTree;

/// A segment that is old enough.
#[derive(Debug, Clone)]
pub struct Old {
    /// The file.
    pub file: PathBuf,
    /// Its first `seq`.
    pub first: u64,
    /// How many records.
    pub records: u64,
    /// Its length.
    pub bytes: u64,
    /// How many of each kind.
    pub counts: BTreeMap<String, u64>,
    /// The time of its newest record.
    pub newest: String,
}

/// What a prune takes away, or would take away.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// The segments, oldest first.
    pub segments: Vec<Old>,
    /// How many older prune records are written again, since their segments go.
    pub carried: u64,
    /// A segment that would be old enough and cannot be taken, and how many forwarded decisions without an outcome its record would have to name.
    pub stopped: Option<(PathBuf, u64)>,
    /// Whether it was done.
    pub done: bool,
}

/// What was done last; after each the files are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Recorded,
    Checkpoint,
    Pruned,
    Deleted,
}

/// Takes away the sealed segments all of whose records are older than `before`, where `goes` says yes to what it is shown. It is not asked where there is nothing to
/// take.
///
/// # Errors
/// Where a leafgate runs on it, the ledger is not whole, or a file cannot be written.
pub fn prune(
    dir: &Path,
    before: Timestamp,
    goes: &mut dyn FnMut(&Pruning) -> bool,
) -> Result<Pruning, LedgerError> {
    prune_with(dir, before, goes, &mut |_| Ok(()))
}

/// [`prune`], with a place for a test to cut it.
pub(super) fn prune_with(
    dir: &Path,
    before: Timestamp,
    goes: &mut dyn FnMut(&Pruning) -> bool,
    done: &mut dyn FnMut(Step) -> Result<(), LedgerError>,
) -> Result<Pruning, LedgerError> {
    let mut ledger = Stopped::open(dir)?;
    // No record is older than 1970.
    let micros = u64::try_from(before.as_microsecond()).unwrap_or_default();
    let before = Clock::new().text(UNIX_EPOCH + Duration::from_micros(micros));
    let mut plan = plan(&ledger, &before)?;
    let end = plan.gone.last().map(Gone::end);
    if end.is_some() && ledger.scan.keys.current() != Some(ledger.keys.signer.public()) {
        return Err(LedgerError::Unfit {
            file: dir.to_owned(),
            what: "no open record holds the key that would sign the prune records (an older leafgate wrote them); start leafgate serve once and stop it, then prune",
        });
    }
    let Some(end) = end.filter(|_| goes(&plan.says)) else {
        return Ok(plan.says);
    };
    let log = ledger.keys.signer.public().name().to_owned();
    let mut drafts = Vec::new();
    for gone in plan.carried.iter().chain(&plan.gone) {
        let recovered = if drafts.is_empty() {
            ledger.recovered()
        } else {
            Recovered::default()
        };
        drafts.push(gone.draft(&log, &new_run(dir)?, recovered));
    }
    ledger.append(&drafts)?;
    done(Step::Recorded)?;
    ledger.checkpoint(&ledger.keys.signer)?;
    done(Step::Checkpoint)?;
    put(dir, &ledger.files, ledger.scan.seq - 1)?;
    done(Step::Pruned)?;
    delete(dir, &ledger.files, end, done)?;
    plan.says.done = true;
    Ok(plan.says)
}

struct Plan {
    says: Pruning,
    gone: Vec<Gone>,
    carried: Vec<Gone>,
}

fn plan(ledger: &Stopped, before: &Time) -> Result<Plan, LedgerError> {
    let mut walk = Walk::begin(ledger)?;
    let mut says = Pruning::default();
    let mut all = Vec::new();
    let sealed = &ledger.files[..ledger.files.len() - 1];
    for file in sealed {
        let (gone, newest) = walk.segment(file)?;
        if newest >= *before {
            break;
        }
        let log = ledger.keys.signer.public().name();
        // Longer than any run's id: what fits here fits.
        let recovered = Recovered {
            cut: 1 << 52,
            closed: 0,
            unsigned: 1 << 52,
        };
        let draft = gone.draft(log, &"0".repeat(64), recovered);
        if draft.len() + SIGNATURE_BYTES > MAX_DRAFT_BYTES {
            says.stopped = Some((file.path.clone(), gone.open.len() as u64));
            break;
        }
        says.segments.push(Old {
            file: file.path.clone(),
            first: gone.segment,
            records: gone.count,
            bytes: gone.bytes,
            counts: gone.counts.clone(),
            newest: String::from_utf8_lossy(&newest).into_owned(),
        });
        all.push(gone);
    }
    // A prune record whose every copy goes is written again.
    let end = all.last().map_or(0, Gone::end);
    let carried: Vec<Gone> = ledger
        .scan
        .pruned
        .said_before(end)
        .filter_map(|segment| walk.said.remove(&segment))
        .collect();
    says.carried = carried.len() as u64;
    Ok(Plan {
        says,
        gone: all,
        carried,
    })
}

/// A second reading of the old segments, which were found whole: what a verifier must know to begin after each.
struct Walk<'a> {
    ledger: &'a Stopped,
    tree: MerkleTree,
    open: BTreeMap<u64, String>,
    /// The prune records that were passed, by their segments.
    said: BTreeMap<u64, Gone>,
}

impl<'a> Walk<'a> {
    fn begin(ledger: &'a Stopped) -> Result<Walk<'a>, LedgerError> {
        let past = past::Past::read(&ledger.dir)?;
        let (tree, open) = past.of.map_or_else(Default::default, |(gone, ..)| {
            let tree = gone
                .subtrees()
                .and_then(|whole| MerkleTree::of(gone.end(), whole));
            (tree.unwrap_or_default(), gone.open.into_iter().collect())
        });
        Ok(Walk {
            ledger,
            tree,
            open,
            said: BTreeMap::new(),
        })
    }

    /// One segment, and its newest time.
    fn segment(&mut self, file: &SegmentFile) -> Result<(Gone, Time), LedgerError> {
        let mut gone = Gone {
            segment: file.first,
            ..Gone::default()
        };
        let (mut whole, mut last, mut key) = (Sha256::new(), [0; 32], None);
        let (mut newest, mut tally) = ([b'0'; 27], Tally::default());
        each_line(&file.path, |line| {
            whole.update(line);
            whole.update(b"\n");
            gone.bytes += line.len() as u64 + 1;
            gone.count += 1;
            last = Sha256::digest(line).into();
            self.tree.push(line);
            // The scan took this line already.
            if let Ok(read) = Line::read(line) {
                tally.count(&read);
                self.line(&read, line, &mut key);
                if let Ok(time) = Time::try_from(read.time.as_bytes()) {
                    newest = newest.max(time);
                }
            }
            Ok(())
        })?;
        gone.counts = tally.named();
        gone.sha256 = as_hex(&whole.finalize().into());
        gone.last = as_hex(&last);
        gone.tree = self.tree.whole().iter().map(as_hex).collect();
        gone.open = self
            .open
            .iter()
            .map(|(seq, call)| (*seq, call.clone()))
            .collect();
        gone.key = key.unwrap_or_default();
        Ok((gone, newest))
    }

    fn line(&mut self, read: &Line<'_>, line: &[u8], key: &mut Option<String>) {
        if read.forwards {
            self.open.insert(read.seq, read.call.to_owned());
        }
        if read.kind == Type::Outcome {
            self.open.remove(&read.of);
        }
        if read.kind == Type::Prune
            && let Ok((_, gone)) = Gone::read(line)
        {
            self.said.insert(gone.segment, gone);
        }
        let public = self.ledger.keys.signer.public();
        *key = match read.kind {
            Type::Key => super::lineage::key_of(line),
            Type::Open
            | Type::Stop
            | Type::Config
            | Type::Decision
            | Type::Outcome
            | Type::Refused
            | Type::Prune => self
                .ledger
                .scan
                .keys
                .named(read.log, public)
                .map(VerifierKey::line),
        };
    }
}

/// Replaces `pruned` with the line of the record `seq`.
fn put(dir: &Path, files: &[SegmentFile], seq: u64) -> Result<(), LedgerError> {
    let line = line_of(files, seq)?.unwrap_or_default();
    // A record is ASCII.
    let text = String::from_utf8_lossy(&line) + "\n";
    replace(&dir.join(past::FILE), &text).map_err(LedgerError::io(
        &dir.join(past::FILE),
        "write what was pruned",
    ))
}

/// Deletes the segments before `end`.
fn delete(
    dir: &Path,
    files: &[SegmentFile],
    end: u64,
    done: &mut dyn FnMut(Step) -> Result<(), LedgerError>,
) -> Result<(), LedgerError> {
    let old = &files[..files.partition_point(|file| file.first < end)];
    for file in old {
        fs::remove_file(&file.path)
            .map_err(LedgerError::io(&file.path, "delete a pruned segment"))?;
        done(Step::Deleted)?;
    }
    if old.is_empty() {
        return Ok(());
    }
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(LedgerError::io(dir, "sync the folder"))
}

/// Completes a prune that a crash cut; gives the segments that are kept, and how many records the checkpoint covers. Needs `LOCK`, and a ledger that was found whole.
pub(super) fn complete(
    dir: &Path,
    all: &[SegmentFile],
    read: &Read,
    signer: &Signer,
) -> Result<(Vec<SegmentFile>, u64), LedgerError> {
    let mut covered = read.note.as_ref().map_or(0, |note| note.size);
    let mut end = read.files.first().map_or(0, |file| file.first);
    if let Some((cut, seq)) = read.scan.pruned.cut() {
        tracing::warn!(before = cut, "a prune that was cut is completed");
        if covered <= seq {
            covered = read.scan.seq;
            write_checkpoint(dir, signer, (read.scan.seq, read.scan.tree.root()))?;
        }
        put(dir, &read.files, seq)?;
        end = cut;
    }
    delete(dir, all, end, &mut |_| Ok(()))?;
    let kept = all[all.partition_point(|file| file.first < end)..].to_vec();
    Ok((kept, covered))
}
