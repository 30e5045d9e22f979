//! The ledger (contract, section 9): one hash-chained, append-only file of records, durable before anything leaves.
//!
//! Promises: a [`Cleared`] exists only where the decision's record is durable; each forwarded decision gets exactly one outcome; once a write or a sync
//! failed, nothing is forwarded until leafgate is restarted. It does not promise anything against root on this machine beyond the last checkpoint kept elsewhere.
//! Makers: [`Ledger::commit`] alone. Takers: egress (a [`Cleared`]), ingress (a `seq`), the admin listener and the commands (reading).
//!
//! The way of a record: `entry` says which fields it has and `record` writes them, in the call's own task; `queue` hands it over and wakes the call;
//! `writer` chains it, appends it to the segment of `store` and syncs; `checkpoint` signs the root that `tree_hash` grows, and `keeper` writes it, with its copy. Reading: `canon` is
//! the one legal form, `form` the fields, `scan` the chain, `lineage` the keys, `past` what was pruned, `tally` what a segment held, `judge` what is held against all of it; `start` and
//! [`verify()`](verify()) stand on those, `kept` holds a ledger against checkpoints from elsewhere, and [`prove()`](prove()) gives a [`Proof`] of one record along its `audit_path`.
//! Reading for people: `query` says which records, `look` finds them, `story` and `explain` tell them, `export` hands them on. A ledger that nobody runs is kept
//! by `maintain`, `rotate` and `prune`.

mod audit_path;
mod canon;
mod checkpoint;
mod cleared;
mod clock;
mod entry;
mod error;
mod explain;
mod explain_replay;
mod export;
mod export_csv;
mod export_html;
mod export_ocsf;
mod form;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod hex;
mod judge;
mod keeper;
mod kept;
mod keys;
mod lineage;
mod look;
mod maintain;
mod past;
mod proof;
mod prove;
mod prune;
mod query;
mod queue;
mod read;
mod record;
mod rotate;
mod scan;
mod start;
mod state;
mod store;
mod story;
mod story_checks;
mod story_tree;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod tree_hash;
mod verify;
mod writer;

use std::fmt;
use std::sync::{Arc, mpsc};

pub use cleared::{Cleared, Outcome, Sent, Ticket};
pub use error::{Fault, LedgerError, Problem};
pub use explain::{Changes, Explained, Run, explain};
pub use export::{Export, Format, Manifest, Note};
pub use export_html::policy as page_policy;
pub use look::{Page, Record, Stopped, ascii, each, end, gone, of_call, one, page};
pub use maintain::seal;
pub use proof::{Proof, ProofFault};
pub use prove::{Proved, prove};
pub use prune::{Old, Pruning, prune};
pub use query::{Filter, seq};
pub use read::{Records, records};
pub use record::MAX_RECORD_BYTES;
pub use rotate::{Rotated, rotate_key};
pub use scan::Counts;
pub use state::LedgerState;
pub use story::{
    Line as StoryLine, Mark, Part, Proof as StoryProof, of_call as story_of_call,
    of_record as story_of_record,
};
pub use verify::{Report, in_use, verify, verify_against};

use crate::admit::Refusal;
use crate::policy::LedgerSettings;
use crate::terms::Reason;
use queue::{Job, Kind, Shared};

/// The running ledger. Cheap to clone: all clones are one ledger. End it with [`Ledger::stop`]; where the last clone is dropped without, the files are left as a
/// crash would leave them, and the next start closes what is open.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No flush here: what was acknowledged is durable already.
        self.shared.send(Job::Abandon);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ledger({})", self.inner.shared.stamp.log)
    }
}

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

/// The record could not be made durable: `ledger_unavailable` or `overloaded`. Nothing leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecorded {
    /// Which of the two.
    pub reason: Reason,
}

impl Ledger {
    /// Takes `LOCK`, recovers, writes `open` and the checkpoint, starts the writer. Blocks; for the start of `main`.
    ///
    /// # Errors
    /// A [`LedgerError`] that names the file and, where a record is at fault, its line. Nothing was changed then, but that a torn last line may have been cut off, or a rotation that was cut
    /// after its record completed.
    pub fn start(settings: &LedgerSettings, run: RunFacts) -> Result<Ledger, LedgerError> {
        start::start(settings, &run, store::Disk::new(&settings.dir))
    }

    fn of(shared: Arc<Shared>) -> Ledger {
        Ledger {
            inner: Arc::new(Inner { shared }),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Makes a decision that forwards nothing durable (`refuse` or `local`); gives its `seq`.
    ///
    /// # Errors
    /// `overloaded` or `ledger_unavailable`; both are counted here.
    pub async fn refuse(&self, refusal: &Refusal) -> Result<u64, Unrecorded> {
        let draft = self.shared().stamp.refusal(refusal);
        self.plain(draft).await
    }

    /// Records a message that never became a call: its reason and how many bytes of it were read.
    ///
    /// # Errors
    /// `overloaded` or `ledger_unavailable`; both are counted here.
    pub async fn message_refused(&self, reason: Reason, bytes: u64) -> Result<u64, Unrecorded> {
        self.message_refused_from(reason, bytes, None).await
    }

    /// As [`Ledger::message_refused`], with the user at the other end of the Unix socket, where the message came by one.
    ///
    /// # Errors
    /// `overloaded` or `ledger_unavailable`; both are counted here.
    pub async fn message_refused_from(
        &self,
        reason: Reason,
        bytes: u64,
        peer_uid: Option<u32>,
    ) -> Result<u64, Unrecorded> {
        let stamp = &self.shared().stamp;
        let draft = stamp.refused(reason, Some(bytes), None, peer_uid);
        self.plain(draft).await
    }

    async fn plain(&self, draft: record::Draft) -> Result<u64, Unrecorded> {
        match self.shared().record(draft, Kind::Plain).await {
            Ok(durable) => Ok(durable.seq),
            Err(reason) => Err(Unrecorded { reason }),
        }
    }

    /// Counts a call that ended `overloaded` (or `ledger_unavailable`) before it reached the ledger; one `refused` record carries the count when the queue has
    /// room, at most one a second. What [`Ledger::commit`], [`Ledger::refuse`] and [`Ledger::message_refused`] refuse themselves is counted already.
    pub fn count_unrecorded(&self, reason: Reason) {
        self.shared().count(reason);
    }

    /// Records a reload, or one that was refused. Nobody waits for it. `policy_hash` is of the policy that holds from now on.
    pub fn config(&self, policy_hash: &str, error: Option<&str>) {
        let shared = self.shared();
        let draft = shared.stamp.config(policy_hash, error);
        let taken = error.is_none().then(|| policy_hash.to_owned());
        shared.record_later(draft, Kind::Own(taken));
    }

    /// The name of the verifier key: `log` in every record.
    pub fn log(&self) -> &str {
        &self.shared().stamp.log
    }

    /// For metrics and health.
    pub fn state(&self) -> LedgerState {
        let shared = self.shared();
        shared.meters.state(!shared.is_latched(), shared.why())
    }

    /// Drains, gives calls that are still on their way an outcome `sent: unknown`, writes `stop` and the last checkpoint, ends the writer and frees `LOCK`. Blocks; for the
    /// end of `main`, after the calls have ended. Every later call is refused. A second stop does nothing.
    pub fn stop(&self) {
        let (tell, told) = mpsc::channel();
        if self.shared().send(Job::Stop(tell)) {
            // An error here means that the writer had ended before.
            let _ = told.recv();
        }
    }
}
