//! Reading a whole ledger once, front to back, in memory that does not grow with it: for the start and for `verify`.
//!
//! Promises: [`Scan`] accepted a record only if it has the one legal form, the fields of its type, its place's `seq`, the hash of the line before
//! it, the ledger's own key name, the run it stands in, and, for an outcome, an open decision of the same call. It stops at the first that has not.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::clock::Time;
use super::error::{Fault, LedgerError, Problem};
use super::form::{Line, Type};
use super::hex::hex32;
use super::keys::VerifierKey;
use super::lineage::Lineage;
use super::past::{Gone, Past, Pruned, as_hex};
use super::record::MAX_RECORD_BYTES;
use super::tally::Tally;
use super::tree_hash::MerkleTree;
use crate::files;

/// Read at once.
const BLOCK: usize = 256 * 1024;
/// What a crash leaves of a batch is shorter (the writer's `BATCH_BYTES`, with room for a file system that leaves zeros): more bytes without a newline are no torn
/// tail, and are not read on. A file can be given any length at once.
pub(super) const MOST_TORN: u64 = 16 << 20;

/// A segment file and its first `seq`, as its name says.
#[derive(Debug, Clone)]
pub(super) struct SegmentFile {
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

/// The segments of a folder, in order.
pub(super) fn segments(dir: &Path) -> Result<Vec<SegmentFile>, LedgerError> {
    let listing = || LedgerError::io(dir, "list the folder");
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(listing())? {
        let path = entry.map_err(listing())?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(stem) = name.strip_suffix(".jsonl") else {
            continue;
        };
        match stem.parse() {
            Ok(first) if stem.len() == 12 && stem.bytes().all(|b| b.is_ascii_digit()) => {
                found.push(SegmentFile { first, path });
            }
            _ => {
                return Err(LedgerError::Problem(Problem {
                    file: path,
                    line: None,
                    seq: None,
                    fault: Fault::Form("is no segment's name: twelve digits and .jsonl"),
                }));
            }
        }
    }
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}

/// A last line without its newline, in the newest segment.
#[derive(Debug, Clone)]
pub(super) struct Torn {
    /// The file.
    pub(super) path: PathBuf,
    /// Its length up to its last newline.
    pub(super) keep: u64,
    /// Bytes after that.
    pub(super) cut: u64,
}

/// How many records of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// `open` records: how many times leafgate was started on this ledger.
    pub runs: u64,
    /// `decision` records.
    pub decisions: u64,
    /// Those of them that forwarded.
    pub forwarded: u64,
    /// `outcome` records with `sent: unknown`: what may have left.
    pub unknown: u64,
    /// `refused` records.
    pub refused: u64,
    /// Records that were pruned; the kept records say how many of which kind. Not counted above.
    pub pruned: u64,
    /// How often a record's time is before the time of the record before it: the clock was set back.
    pub set_back: u64,
    /// The `seq` of the first such record.
    pub set_back_at: Option<u64>,
}

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The keys, one after the other.
    pub(super) keys: Lineage,
    /// What was pruned.
    pub(super) pruned: Pruned,
    /// The size at which the root is kept.
    covers: Option<u64>,
    /// Further sizes at which the root is kept, each with its root once it is known.
    marks: BTreeMap<u64, Option<[u8; 32]>>,
    /// The least of them that was not reached yet.
    next_mark: Option<u64>,
    run: Vec<u8>,
    /// Whether a record that is a run by itself stands before.
    ended: bool,
    /// Whether the last record is a `prune`.
    pruning: bool,
    /// Whether the last record is a `stop`.
    pub(super) stopped: bool,
    /// The last record that begins a run.
    begun: Option<u64>,
    /// How many records the checkpoint must cover: those before the last record that begins a run (of `prune` records in a row the first, since each is signed); that
    /// one too, once a record stands after it that no start writes before its checkpoint.
    pub(super) must_cover: u64,
    /// The last record's time.
    pub(super) time: Option<Time>,
    /// The next `seq`.
    pub(super) seq: u64,
    /// The hash of the last line.
    pub(super) prev: [u8; 32],
    /// The tree of all lines.
    pub(super) tree: MerkleTree,
    /// The root at `covers` records.
    pub(super) root: Option<[u8; 32]>,
    /// Forwarded decisions without an outcome: `seq` and call.
    pub(super) open: BTreeMap<u64, Box<str>>,
    /// Of the segment that is being read: how many records of each type, forwarded decisions, and outcomes `unknown`.
    tally: Tally,
    /// The segment and line of the record before, to name it.
    pub(super) at: Option<(PathBuf, u64)>,
    pub(super) counts: Counts,
    pub(super) bytes: u64,
}

impl Scan {
    /// Of a ledger with this past, whose checkpoint covers so many records.
    pub(super) fn new(past: &Past, covers: Option<u64>) -> Scan {
        let mut scan = Scan {
            covers,
            pruned: Pruned::from(past),
            ..Scan::default()
        };
        if let Some((gone, ..)) = &past.of {
            // `Past` was read: each of these parts is in its form.
            scan.seq = gone.end();
            scan.prev = gone.last().unwrap_or_default();
            scan.tree = gone
                .subtrees()
                .and_then(|whole| MerkleTree::of(scan.seq, whole))
                .unwrap_or_default();
            scan.open = gone
                .open
                .iter()
                .map(|(seq, call)| (*seq, call.as_str().into()))
                .collect();
            if let Some(key) = VerifierKey::parse(&gone.key) {
                scan.keys = Lineage::from(key, scan.seq);
            }
            scan.counts.pruned = scan.seq;
        }
        scan
    }

    /// Keeps the root at this size too, from 1 up. To be said before the reading.
    pub(super) fn mark(&mut self, size: u64) {
        if size > 0 {
            // What was pruned is known by its root alone.
            let root = (size == self.seq).then(|| self.tree.root());
            self.marks.insert(size, root);
        }
        let mut open = self.marks.iter().filter(|(_, root)| root.is_none());
        self.next_mark = open.next().map(|(size, _)| *size);
    }

    /// The root at a size that was marked and reached.
    pub(super) fn root_at(&self, size: u64) -> Option<[u8; 32]> {
        self.marks.get(&size).copied().flatten()
    }

    /// Reads all segments. Gives the torn last line, where there is one.
    pub(super) fn read(
        &mut self,
        segments: &[SegmentFile],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Torn>, LedgerError> {
        let mut torn = None;
        for (place, segment) in segments.iter().enumerate() {
            let newest = place + 1 == segments.len();
            let problem = |line, seq, fault| {
                LedgerError::Problem(Problem {
                    file: segment.path.clone(),
                    line,
                    seq,
                    fault,
                })
            };
            if segment.first != self.seq {
                let (named, here) = (segment.first, self.seq);
                return Err(problem(None, None, Fault::Name { named, here }));
            }
            let (mut number, bytes) = (0, self.bytes);
            self.tally = Tally::default();
            let tail = each_line(&segment.path, |line| {
                number += 1;
                self.line(line).map_err(|(seq, fault)| {
                    problem((seq == self.seq).then_some(number), Some(seq), fault)
                })?;
                if number % 4096 == 0 {
                    progress(self.bytes);
                }
                Ok(())
            })?;
            progress(self.bytes);
            if number > 0 {
                let here = self.ended(segment.first, self.bytes - bytes);
                self.pruned.ended(&here);
                self.at = Some((segment.path.clone(), number));
            }
            match tail {
                Tail::Torn { keep, cut } if newest => {
                    torn = Some(Torn {
                        path: segment.path.clone(),
                        keep,
                        cut,
                    });
                }
                Tail::Torn { cut, .. } => {
                    return Err(problem(
                        Some(number + 1),
                        Some(self.seq),
                        Fault::Torn { bytes: cut },
                    ));
                }
                Tail::Long => return Err(problem(Some(number + 1), Some(self.seq), Fault::Long)),
                Tail::Whole if number == 0 && !newest => {
                    return Err(problem(None, None, Fault::Empty));
                }
                Tail::Whole => {}
            }
        }
        Ok(torn)
    }

    /// What is known of the segment that ends here; not its hash, and of the key the name.
    fn ended(&self, first: u64, bytes: u64) -> Gone {
        Gone {
            segment: first,
            count: self.seq - first,
            bytes,
            counts: self.tally.named(),
            last: as_hex(&self.prev),
            tree: self.tree.whole().iter().map(as_hex).collect(),
            open: self
                .open
                .iter()
                .map(|(seq, call)| (*seq, call.to_string()))
                .collect(),
            key: self.keys.name().to_owned(),
            ..Gone::default()
        }
    }

    /// Takes one line. A fault comes with the `seq` of the record it is about.
    fn line(&mut self, line: &[u8]) -> Result<(), (u64, Fault)> {
        let seq = self.seq;
        let here = |fault| (seq, fault);
        let read = Line::read(line).map_err(|what| here(Fault::Form(what)))?;
        if read.seq != seq {
            return Err(here(Fault::Seq { found: read.seq }));
        }
        if read.prev.as_bytes() != hex32(&self.prev) {
            return Err(here(Fault::Prev));
        }
        if read.log != self.keys.name() && !self.keys.first(read.log) {
            return Err(here(Fault::Log));
        }
        if self.pruned.differs(seq, line) {
            return Err(here(Fault::PrunedLine));
        }
        self.stands_in_run(&read).map_err(here)?;
        self.keep_time(&read);
        match read.kind {
            Type::Open => self.keys.opened(line).map_err(here)?,
            Type::Key => self.keys.rotated(line, seq, &self.prev).map_err(here)?,
            Type::Prune => {
                self.keys.pruned(line).map_err(here)?;
                self.pruned.record(line).map_err(here)?;
            }
            Type::Stop | Type::Config | Type::Decision | Type::Outcome | Type::Refused => {}
        }
        self.pair(&read)?;
        self.tally.count(&read);
        self.prev = Sha256::digest(line).into();
        self.tree.push(line);
        self.seq += 1;
        self.bytes += line.len() as u64 + 1;
        if self.covers == Some(self.seq) {
            self.root = Some(self.tree.root());
        }
        if self.next_mark == Some(self.seq) {
            self.marks.insert(self.seq, Some(self.tree.root()));
            let after = (Bound::Excluded(self.seq), Bound::Unbounded);
            self.next_mark = self.marks.range(after).next().map(|(size, _)| *size);
        }
        Ok(())
    }

    /// Runs: `open` begins one; `key` and `prune` are each a run of their own.
    fn stands_in_run(&mut self, read: &Line<'_>) -> Result<(), Fault> {
        let run = read.run.as_bytes();
        // The first kept record of a pruned ledger may stand amid its run.
        let unknown = self.run.is_empty() && self.counts.pruned > 0;
        let same = run == self.run;
        if read.kind.alone() && same || !read.kind.begins() && !unknown && (self.ended || !same) {
            return Err(Fault::Form("stands in another run than it names"));
        }
        if !same {
            self.run = run.to_vec();
        }
        match read.kind {
            Type::Prune if self.pruning => {}
            Type::Open | Type::Key | Type::Prune => {
                self.begun = Some(read.seq);
                self.must_cover = read.seq;
            }
            Type::Decision | Type::Refused | Type::Stop => {
                self.must_cover = self.begun.map_or(0, |begun| begun + 1);
            }
            // A start writes both right after its `open`: of a crash, of a clock that was set back.
            Type::Outcome | Type::Config => {}
        }
        self.pruning = read.kind == Type::Prune;
        self.stopped = read.kind == Type::Stop;
        self.ended = read.kind.alone();
        Ok(())
    }

    /// Times: nothing depends on them, but a clock that was set back is told.
    fn keep_time(&mut self, read: &Line<'_>) {
        let Ok(time) = read.time.as_bytes().try_into() else {
            return;
        };
        if self.time.is_some_and(|before| time < before) {
            self.counts.set_back += 1;
            self.counts.set_back_at.get_or_insert(read.seq);
        }
        self.time = Some(time);
    }

    /// Decisions and their outcomes.
    fn pair(&mut self, read: &Line<'_>) -> Result<(), (u64, Fault)> {
        match read.kind {
            Type::Open => self.counts.runs += 1,
            Type::Decision => {
                self.counts.decisions += 1;
                if read.forwards {
                    self.counts.forwarded += 1;
                    self.open.insert(read.seq, read.call.into());
                }
            }
            Type::Outcome => {
                let decided = self.open.remove(&read.of);
                if decided.as_deref() != Some(read.call) {
                    return Err((read.seq, Fault::OutcomeOfNothing));
                }
                self.counts.unknown += u64::from(read.sent_unknown);
            }
            Type::Stop => {
                if let Some(open) = self.open.keys().next() {
                    return Err((*open, Fault::Unclosed));
                }
            }
            Type::Refused => self.counts.refused += 1,
            Type::Config | Type::Key | Type::Prune => {}
        }
        Ok(())
    }
}

/// The line of the record with this `seq`.
pub(super) fn line_of(segments: &[SegmentFile], seq: u64) -> Result<Option<Vec<u8>>, LedgerError> {
    let place = segments.partition_point(|segment| segment.first <= seq);
    let Some(segment) = place.checked_sub(1).map(|place| &segments[place]) else {
        return Ok(None);
    };
    let (mut at, mut found) = (segment.first, None);
    each_line(&segment.path, |line| {
        if at == seq {
            found = Some(line.to_vec());
        }
        at += 1;
        Ok(())
    })?;
    Ok(found)
}

/// Where the record with this `seq` stands: its segment and line.
pub(super) fn place_of(segments: &[SegmentFile], seq: u64) -> Option<(PathBuf, u64)> {
    let place = segments.partition_point(|segment| segment.first <= seq);
    let segment = &segments[place.checked_sub(1)?];
    Some((segment.path.clone(), seq - segment.first + 1))
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// With a newline, or it is empty.
    Whole,
    /// With bytes after its last newline.
    Torn {
        /// Bytes up to the last newline.
        keep: u64,
        /// Bytes after it.
        cut: u64,
    },
    /// It was not read to its end: a line is over the limit.
    Long,
}

/// Calls `take` with each whole line of a file, without its newline.
pub(super) fn each_line(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), LedgerError>,
) -> Result<Tail, LedgerError> {
    let mut file = files::open(path).map_err(LedgerError::io(path, "open the segment"))?;
    let mut block = vec![0; BLOCK];
    // Bytes of a begun line at the front of the block, and bytes of whole lines before it in the file.
    let (mut held, mut keep, mut dropped) = (0, 0_u64, 0_u64);
    loop {
        let read = match file.read(&mut block[held..]) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            other => other.map_err(LedgerError::io(path, "read the segment"))?,
        };
        if read == 0 {
            let cut = dropped + held as u64;
            return Ok(if cut == 0 {
                Tail::Whole
            } else {
                Tail::Torn { keep, cut }
            });
        }
        let filled = held + read;
        let mut start = 0;
        // What was held has no newline: look in the new bytes only.
        let mut from = held;
        while let Some(at) = memchr::memchr(b'\n', &block[from..filled]) {
            let end = from + at;
            if dropped > 0 || end - start > MAX_RECORD_BYTES {
                return Ok(Tail::Long);
            }
            take(&block[start..end])?;
            keep += (end - start) as u64 + 1;
            start = end + 1;
            from = start;
        }
        block.copy_within(start..filled, 0);
        held = filled - start;
        if dropped > 0 || held > MAX_RECORD_BYTES {
            // Too long for a record. It may still be a torn tail: only its length counts.
            dropped += held as u64;
            held = 0;
            if dropped > MOST_TORN {
                return Ok(Tail::Long);
            }
        }
    }
}
