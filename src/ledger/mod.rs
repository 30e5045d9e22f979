//! The ledger (contract, section 9): one hash-chained, append-only file of records, durable before anything leaves.
//!
//! Promises: a [`Cleared`] exists only where the decision's record is durable. Makers: [`Ledger::commit`] alone. Takers: egress.

mod cleared;

pub use cleared::{Cleared, Outcome, Sent, Ticket};

use crate::admit::{Plan, Refusal};
use crate::policy::LedgerSettings;
use crate::terms::Reason;

/// The running ledger. Cheap to clone: all clones are one ledger.
#[derive(Debug, Clone)]
pub struct Ledger {}

/// What the `open` record says of the run.
#[derive(Debug, Clone)]
pub struct RunFacts {
    /// leafgate's version.
    pub version: &'static str,
    /// Hash of the effective policy.
    pub policy: String,
    /// Hash of the oracle that passed at start.
    pub oracle: String,
}

/// Why the ledger could not be opened. Names the file and, where a record is at fault, its line.
#[derive(Debug, thiserror::Error)]
#[error("the ledger cannot be opened")]
pub struct LedgerError;

/// The record could not be made durable: `ledger_unavailable` or `overloaded`. Nothing leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecorded {
    /// Which of the two.
    pub reason: Reason,
}

/// For metrics, `/readyz` and the console.
#[derive(Debug, Clone)]
pub struct LedgerState {
    /// Whether records can be made.
    pub ok: bool,
    /// Why not.
    pub why: Option<String>,
    /// The next `seq`.
    pub next_seq: u64,
}

impl Ledger {
    /// Takes `LOCK`, recovers, writes `open`, starts the writer.
    pub fn start(_settings: &LedgerSettings, _run: RunFacts) -> Result<Ledger, LedgerError> {
        todo!()
    }

    /// Makes a forwarding decision durable and reserves its outcome's place.
    pub async fn commit(&self, _plan: Plan) -> Result<Cleared, Unrecorded> {
        todo!()
    }

    /// Makes a decision that forwards nothing durable (`refuse` or `local`); gives its `seq`.
    pub async fn refuse(&self, _refusal: &Refusal) -> Result<u64, Unrecorded> {
        todo!()
    }

    /// Records a message that never became a call: its reason and how many bytes of it were read.
    pub async fn message_refused(&self, _reason: Reason, _bytes: u64) -> Result<u64, Unrecorded> {
        todo!()
    }

    /// Counts a call that ended `overloaded` before it reached the ledger; one `refused` record carries the count when the queue has room.
    pub fn count_unrecorded(&self, _reason: Reason) {
        todo!()
    }

    /// Records a reload, or one that was refused.
    pub fn config(&self, _policy_hash: &str, _error: Option<&str>) {
        todo!()
    }

    /// For metrics and health.
    pub fn state(&self) -> LedgerState {
        todo!()
    }

    /// Drains, writes `stop` and the last checkpoint, ends the writer. Blocks; for the end of `main`.
    pub fn stop(&self) {
        todo!()
    }
}
