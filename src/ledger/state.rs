//! What the ledger says of itself: plain atomics, written by the writer, read by metrics, health and the console.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the sync histogram's buckets, in microseconds; one more bucket holds what is longer.
pub const SYNC_BUCKETS_MICROS: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000,
];

/// For metrics, `/readyz` and the console.
#[derive(Debug, Clone)]
pub struct LedgerState {
    /// Whether records can be made.
    pub ok: bool,
    /// Why not. No private data: what was tried, on which file, and the kind of error.
    pub why: Option<String>,
    /// Why the last checkpoint could not be written, where it could not. Records are durable all the same; it is written anew when it is next due.
    pub checkpoint_error: Option<String>,
    /// The next `seq`.
    pub next_seq: u64,
    /// Records of this run.
    pub records: u64,
    /// Batches of this run: each is one write and, with `sync = "record"`, one sync.
    pub batches: u64,
    /// How long syncs took.
    pub sync: SyncHistogram,
}

/// How long syncs took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncHistogram {
    /// Syncs in each bucket (not cumulative): bounds are [`SYNC_BUCKETS_MICROS`], the last has none.
    pub counts: [u64; SYNC_BUCKETS_MICROS.len() + 1],
    /// All syncs together, nanoseconds.
    pub sum_nanos: u64,
}

/// The counters behind [`LedgerState`].
#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) next_seq: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) batches: AtomicU64,
    sync: [AtomicU64; SYNC_BUCKETS_MICROS.len() + 1],
    sync_nanos: AtomicU64,
    // Not on the path of a call: the checkpoint's thread writes it, health reads it.
    checkpoint_error: Mutex<Option<String>>,
}

impl Meters {
    /// One sync took this long.
    pub(super) fn synced(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = SYNC_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        self.sync[bucket].fetch_add(1, Relaxed);
        self.sync_nanos
            .fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How the last checkpoint went.
    pub(super) fn checkpoint(&self, error: Option<String>) {
        *self
            .checkpoint_error
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = error;
    }

    /// All of it, with why the ledger is latched.
    pub(super) fn state(&self, ok: bool, why: Option<&str>) -> LedgerState {
        let mut sync = SyncHistogram {
            sum_nanos: self.sync_nanos.load(Relaxed),
            ..SyncHistogram::default()
        };
        for (count, meter) in sync.counts.iter_mut().zip(&self.sync) {
            *count = meter.load(Relaxed);
        }
        LedgerState {
            ok,
            why: why.map(str::to_owned),
            checkpoint_error: self
                .checkpoint_error
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone(),
            next_seq: self.next_seq.load(Relaxed),
            records: self.records.load(Relaxed),
            batches: self.batches.load(Relaxed),
            sync,
        }
    }
}
