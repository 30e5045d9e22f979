//! The writer: one thread that drains the queue, appends, syncs once, and wakes. No timer stands between a record and its sync.
//!
//! Promises: a call is woken with a durable record only after the write was whole, `fdatasync` returned and the segment was still the file it was. On any
//! failure it latches: everyone in the batch and everyone after it is refused, and nothing is written to the ledger again, no sync is tried again
//! (after a failed `fsync` the kernel may have dropped the pages and say yes the next time). With `sync = "interval"` it wakes without the sync, for tests
//! and benchmarks; the `open` record says so.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::cleared::{Sent, Ticket};
use super::clock::{Clock, Time, set_back};
use super::queue::{Durable, Entry, Job, Kind, Rest, Shared};
use super::store::{Segment, Store};
use super::tree_hash::MerkleTree;
use crate::admit::CallId;
use crate::policy::Sync;
use crate::terms::Reason;

/// Records that share one sync at most.
const BATCH_RECORDS: usize = 1024;
/// Bytes, before stitching, after which a batch takes no further record.
const BATCH_BYTES: usize = 1 << 20;
/// How often calls that left no decision are written down, and how often `sync = "interval"` syncs.
const SECOND: Duration = Duration::from_secs(1);

/// A size and its root, for the checkpoint's thread.
pub(super) type Covered = (u64, [u8; 32]);

/// How the writer keeps its files.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    pub(super) segment_bytes: u64,
    pub(super) checkpoint_every: Duration,
    pub(super) sync: Sync,
}

/// Where the chain stands.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) seq: u64,
    pub(super) prev: [u8; 32],
    pub(super) tree: MerkleTree,
    /// The last record's time.
    pub(super) time: Option<Time>,
}

/// The writer's thread.
pub(super) struct Writer<S: Store> {
    shared: Arc<Shared>,
    store: S,
    segment: S::Open,
    path: PathBuf,
    chain: Chain,
    manner: Manner,
    policy: String,
    clock: Clock,
    /// Whether a record of this run stands.
    begun: bool,
    lines: Vec<u8>,
    ends: Vec<usize>,
    /// Forwarded decisions that have no outcome yet.
    open: HashMap<u64, CallId>,
    checkpoints: mpsc::Sender<Covered>,
    checkpointed: u64,
    checkpoint_at: Instant,
    counts_wait: bool,
    counted_at: Option<Instant>,
    unsynced: bool,
    synced_at: Instant,
}

impl<S: Store> Writer<S> {
    /// With the newest segment open.
    #[allow(clippy::too_many_arguments, reason = "called once, by the start")]
    pub(super) fn new(
        shared: Arc<Shared>,
        store: S,
        segment: S::Open,
        path: PathBuf,
        chain: Chain,
        manner: Manner,
        policy: String,
        checkpoints: mpsc::Sender<Covered>,
    ) -> Writer<S> {
        shared.meters.next_seq.store(chain.seq, Relaxed);
        Writer {
            shared,
            store,
            segment,
            path,
            checkpointed: chain.seq,
            chain,
            manner,
            policy,
            clock: Clock::new(),
            begun: false,
            lines: Vec::new(),
            ends: Vec::new(),
            open: HashMap::new(),
            checkpoints,
            checkpoint_at: Instant::now(),
            counts_wait: false,
            counted_at: None,
            unsynced: false,
            synced_at: Instant::now(),
        }
    }

    /// Works until it is told to stop; gives whom to tell that it did.
    pub(super) fn run(&mut self, queue: &mpsc::Receiver<Job>) -> Option<mpsc::Sender<()>> {
        let mut batch = Vec::new();
        loop {
            let mut next = match self.due() {
                None => queue.recv().ok(),
                Some(at) => {
                    match queue.recv_timeout(at.saturating_duration_since(Instant::now())) {
                        Ok(job) => Some(job),
                        Err(mpsc::RecvTimeoutError::Timeout) => {
                            self.timely();
                            continue;
                        }
                        Err(mpsc::RecvTimeoutError::Disconnected) => None,
                    }
                }
            };
            let mut bytes = 0;
            let mut end = None;
            loop {
                match next {
                    Some(Job::Record(entry)) => {
                        bytes += entry.draft.len();
                        batch.push(entry);
                    }
                    Some(Job::Counted) => self.counts_wait = true,
                    Some(Job::Stop(tell)) => end = Some(Some(tell)),
                    Some(Job::Abandon) | None => end = Some(None),
                }
                if end.is_some() || batch.len() >= BATCH_RECORDS || bytes >= BATCH_BYTES {
                    break;
                }
                next = match queue.try_recv() {
                    Ok(job) => Some(job),
                    Err(_) => break,
                };
            }
            self.write(&mut batch);
            match end {
                None => self.timely(),
                Some(None) => return None,
                Some(tell) => {
                    self.stop(queue);
                    return tell;
                }
            }
        }
    }

    /// Writes what still waits, the outcomes of calls that are still on their way, `stop`, and hands out the last checkpoint.
    fn stop(&mut self, queue: &mpsc::Receiver<Job>) {
        let mut rest = Vec::new();
        while let Ok(job) = queue.try_recv() {
            if let Job::Record(entry) = job {
                rest.push(entry);
            }
        }
        self.write(&mut rest);
        self.push_counts(&mut rest);
        let mut open: Vec<_> = self.open.iter().map(|(of, call)| (*of, *call)).collect();
        open.sort_unstable_by_key(|(of, _)| *of);
        for (of, call) in open {
            let draft = self
                .shared
                .stamp
                .unreported(call.as_str(), of, Sent::Unknown, "shutdown");
            rest.push(own(draft, Kind::Own(None)));
        }
        rest.push(own(self.shared.stamp.stop(&self.policy), Kind::Own(None)));
        self.write(&mut rest);
        self.checkpoint();
    }

    /// Makes a batch durable and wakes its calls; then what no call waits for.
    pub(super) fn write(&mut self, batch: &mut Vec<Entry>) {
        if batch.is_empty() {
            return;
        }
        if self.shared.is_latched() {
            return self.fail(batch);
        }
        let time = self.clock.text(self.store.now());
        self.say_set_back(batch, &time);
        let (seq, prev) = self.stitch(batch, &time);
        if let Err(why) = self.put() {
            tracing::error!(
                why,
                "the ledger cannot be written; every call is refused until leafgate is restarted"
            );
            self.shared.latch(why);
            return self.fail(batch);
        }
        let first = self.chain.seq;
        self.chain.seq = seq;
        self.chain.prev = prev;
        self.chain.time = Some(time);
        self.begun = true;
        let meters = &self.shared.meters;
        meters.next_seq.store(seq, Relaxed);
        meters.records.fetch_add(batch.len() as u64, Relaxed);
        meters.batches.fetch_add(1, Relaxed);
        let mut rest = Rest::default();
        for (entry, seq) in batch.drain(..).zip(first..) {
            self.shared.release(&entry.kind, true);
            let ticket = match entry.kind {
                Kind::Forward(call) => {
                    self.open.insert(seq, call);
                    Some(Ticket::new(self.shared.clone(), call, seq))
                }
                Kind::Outcome(of) => {
                    self.open.remove(&of);
                    None
                }
                Kind::Own(Some(policy)) => {
                    self.policy = policy;
                    None
                }
                Kind::Own(None) | Kind::Plain => None,
            };
            if let Some(waits) = entry.waits {
                rest.push(waits, Ok(Durable { seq, ticket }));
            }
        }
        rest.wake_first();
        self.after();
    }

    /// Where the clock was set back since the last record, the batch begins with a record that says so. A run begins with `open` all the same.
    fn say_set_back(&self, batch: &mut Vec<Entry>, time: &Time) {
        let back = self.chain.time.and_then(|last| set_back(&last, time));
        if let Some(back) = back {
            let error = format!("clock set back by {back}");
            let draft = self.shared.stamp.config(&self.policy, Some(&error));
            batch.insert(usize::from(!self.begun), own(draft, Kind::Own(None)));
        }
    }

    /// The batch as lines; gives where the chain would stand.
    fn stitch(&mut self, batch: &[Entry], time: &Time) -> (u64, [u8; 32]) {
        let (mut seq, mut prev) = (self.chain.seq, self.chain.prev);
        self.lines.clear();
        self.ends.clear();
        for entry in batch {
            let start = self.lines.len();
            entry.draft.stitch(&prev, seq, time, &mut self.lines);
            prev = Sha256::digest(&self.lines[start..]).into();
            self.ends.push(self.lines.len());
            self.lines.push(b'\n');
            seq += 1;
        }
        (seq, prev)
    }

    /// Appends the lines; durable when it returns, unless `sync = "interval"`.
    fn put(&mut self) -> Result<(), String> {
        let name = self.path.display();
        self.segment
            .append(&self.lines)
            .map_err(|cause| format!("{name}: the write failed: {cause}"))?;
        match self.manner.sync {
            Sync::Record => self.sync()?,
            Sync::Interval => self.unsynced = true,
        }
        let name = self.path.display();
        match self.segment.whole() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(what)) => Err(format!("{name}: the segment {what}")),
            Err(cause) => Err(format!(
                "{name}: the segment cannot be looked at: {}",
                cause
            )),
        }
    }

    fn sync(&mut self) -> Result<(), String> {
        let start = Instant::now();
        self.segment
            .sync()
            .map_err(|cause| format!("{}: the sync failed: {}", self.path.display(), cause))?;
        self.synced_at = Instant::now();
        self.shared.meters.synced(self.synced_at - start);
        self.unsynced = false;
        Ok(())
    }

    /// Everyone in the batch is refused.
    fn fail(&mut self, batch: &mut Vec<Entry>) {
        let mut rest = Rest::default();
        for entry in batch.drain(..) {
            self.shared.release(&entry.kind, false);
            if let Some(waits) = entry.waits {
                rest.push(waits, Err(Reason::LedgerUnavailable));
            }
        }
        rest.wake_first();
    }

    /// What no call of the batch waits for: the tree, and a new segment where this one is full.
    fn after(&mut self) {
        let mut start = 0;
        for end in &self.ends {
            self.chain.tree.push(&self.lines[start..*end]);
            start = end + 1;
        }
        // A batch of long records must not keep its memory for ever.
        if self.lines.capacity() > 2 * BATCH_BYTES {
            self.lines = Vec::new();
        }
        if self.segment.len() >= self.manner.segment_bytes {
            self.rotate();
        }
    }

    /// Seals this segment and begins the next.
    fn rotate(&mut self) {
        let sealed = if self.unsynced { self.sync() } else { Ok(()) };
        let made = sealed.and_then(|()| {
            self.store.create(self.chain.seq).map_err(|cause| {
                format!(
                    "{}: the next segment cannot be made: {}",
                    self.path.display(),
                    cause
                )
            })
        });
        match made {
            Ok(segment) => {
                self.segment = segment;
                self.path
                    .set_file_name(super::store::segment_name(self.chain.seq));
                self.checkpoint();
            }
            Err(why) => {
                tracing::error!(
                    why,
                    "the ledger cannot go on; every call is refused until leafgate is restarted"
                );
                self.shared.latch(why);
            }
        }
    }

    /// When something is to be done that no job asks for.
    fn due(&self) -> Option<Instant> {
        if self.shared.is_latched() {
            return None;
        }
        let counts = self
            .counts_wait
            .then(|| self.counted_at.map_or(self.synced_at, |at| at + SECOND));
        let sync = self.unsynced.then(|| self.synced_at + SECOND);
        let checkpoint = (self.chain.seq > self.checkpointed)
            .then(|| self.checkpoint_at + self.manner.checkpoint_every);
        [counts, sync, checkpoint].into_iter().flatten().min()
    }

    /// Does what is due.
    fn timely(&mut self) {
        if self.shared.is_latched() {
            return;
        }
        let now = Instant::now();
        if self.counts_wait && self.counted_at.is_none_or(|at| now >= at + SECOND) {
            self.counted_at = Some(now);
            self.counts_wait = false;
            let mut counts = Vec::new();
            self.push_counts(&mut counts);
            self.write(&mut counts);
        }
        if self.unsynced
            && now >= self.synced_at + SECOND
            && let Err(why) = self.sync()
        {
            tracing::error!(
                why,
                "the ledger cannot be synced; every call is refused until leafgate is restarted"
            );
            self.shared.latch(why);
        }
        if self.chain.seq > self.checkpointed
            && now >= self.checkpoint_at + self.manner.checkpoint_every
        {
            self.checkpoint();
        }
    }

    fn push_counts(&self, batch: &mut Vec<Entry>) {
        for (reason, count) in self.shared.take_counts() {
            if count > 0 {
                let draft = self.shared.stamp.refused(reason, None, Some(count), None);
                batch.push(own(draft, Kind::Own(None)));
            }
        }
    }

    /// Hands the size and root to the checkpoint's thread; only of what is durable, and never once latched.
    fn checkpoint(&mut self) {
        if self.unsynced
            && let Err(why) = self.sync()
        {
            tracing::error!(
                why,
                "the ledger cannot be synced; every call is refused until leafgate is restarted"
            );
            self.shared.latch(why);
        }
        if self.shared.is_latched() {
            return;
        }
        self.checkpoint_at = Instant::now();
        self.checkpointed = self.chain.seq;
        // Where that thread has ended, `state` says why; the records are durable all the same.
        let _ = self
            .checkpoints
            .send((self.chain.tree.size(), self.chain.tree.root()));
    }

    /// Size and root of what is written.
    pub(super) fn covered(&self) -> Covered {
        (self.chain.tree.size(), self.chain.tree.root())
    }

    /// The start wrote the checkpoint by itself.
    pub(super) fn checkpoint_written(&mut self) {
        self.checkpointed = self.chain.seq;
        self.checkpoint_at = Instant::now();
    }
}

/// A record that nobody waits for.
pub(super) fn own(draft: super::record::Draft, kind: Kind) -> Entry {
    Entry {
        draft,
        kind,
        waits: None,
    }
}
