//! What the ledger says of itself: plain atomics, written by the writer, read by metrics, health and the console.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::metrics::{FAST, Histogram, Snapshot};

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
    pub sync: Snapshot,
}

/// The counters behind [`LedgerState`].
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) next_seq: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) batches: AtomicU64,
    sync: Histogram,
    // Not on the path of a call: the checkpoint's thread writes it, health reads it.
    checkpoint_error: Mutex<Option<String>>,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            next_seq: AtomicU64::new(0),
            records: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            sync: Histogram::new(&FAST),
            checkpoint_error: Mutex::new(None),
        }
    }
}

impl Meters {
    /// One sync took this long.
    pub(super) fn synced(&self, took: Duration) {
        self.sync.observe(took);
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
            sync: self.sync.snapshot(),
        }
    }
}
