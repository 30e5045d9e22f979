//! The one bounded queue between the calls and the writer, and how a batch wakes its calls.
//!
//! Promises: no lock is taken on the path of a call. The bound is a count of places: a forwarding decision takes two, its own and its outcome's, so an outcome
//! always has a place; who finds none free is `overloaded`. A batch costs one wake-up from the writer's thread: the first call of a batch is woken
//! with the answers of all the others in its hand, and passes them on from within the runtime; where that first call is gone (its client left), dropping the
//! hand passes them on all the same. A future of the ledger must therefore be polled once it is woken, as an awaited one is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::cleared::Ticket;
use super::entry::Stamp;
use super::record::Draft;
use super::state::Meters;
use crate::admit::CallId;
use crate::terms::Reason;

/// Places in the queue: waiting records, and outcomes of calls that are on their way.
pub(super) const PLACES: usize = 8192;

/// What all parts of one ledger share.
#[derive(Debug)]
pub(super) struct Shared {
    queue: mpsc::Sender<Job>,
    free: AtomicUsize,
    latched: AtomicBool,
    why: OnceLock<String>,
    overloaded: AtomicU64,
    unavailable: AtomicU64,
    pub(super) stamp: Stamp,
    pub(super) meters: Meters,
}

/// One thing for the writer.
#[derive(Debug)]
pub(super) enum Job {
    /// A record.
    Record(Entry),
    /// Calls were counted that left no decision.
    Counted,
    /// Drain, write `stop` and the last checkpoint, end, and say so.
    Stop(mpsc::Sender<()>),
    /// The ledger was dropped without a stop: end, as a crash would.
    Abandon,
}

/// A record on its way.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) draft: Draft,
    pub(super) kind: Kind,
    /// Who waits for it.
    pub(super) waits: Option<oneshot::Sender<Done>>,
}

/// What the writer must know of a record besides its text.
#[derive(Debug)]
pub(super) enum Kind {
    /// A forwarding decision: an outcome will follow.
    Forward(CallId),
    /// The outcome of the decision with this `seq`.
    Outcome(u64),
    /// A decision that forwards nothing, or a refused message.
    Plain,
    /// leafgate's own (a reload, a count): it takes no place. The policy's hash, where a new one took over.
    Own(Option<String>),
}

impl Kind {
    /// How many places are free again once the record is written.
    fn frees(&self) -> usize {
        match self {
            Kind::Forward(_) | Kind::Outcome(_) | Kind::Plain => 1,
            Kind::Own(_) => 0,
        }
    }

    /// How many places a record must find free.
    fn takes(&self) -> usize {
        match self {
            Kind::Forward(_) => 2,
            Kind::Plain => 1,
            // The decision reserved the outcome's place. leafgate's own records are rare and nobody waits for them.
            Kind::Outcome(_) | Kind::Own(_) => 0,
        }
    }
}

/// A durable record.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) seq: u64,
    /// For a forwarding decision. Where nobody takes it, its drop records that nothing was sent.
    pub(super) ticket: Option<Ticket>,
}

/// What a call is woken with: its own answer, and the others' that it passes on.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Result<Durable, Reason>,
    pub(super) rest: Rest,
}

/// The answers of a batch that are still to be handed out.
#[derive(Debug, Default)]
pub(super) struct Rest(Vec<(oneshot::Sender<Done>, Result<Durable, Reason>)>);

impl Rest {
    /// Adds one.
    pub(super) fn push(&mut self, waits: oneshot::Sender<Done>, answer: Result<Durable, Reason>) {
        self.0.push((waits, answer));
    }

    /// Wakes the first, who wakes the others.
    pub(super) fn wake_first(mut self) {
        while let Some((first, answer)) = self.0.pop() {
            let rest = Rest(std::mem::take(&mut self.0));
            match first.send(Done { answer, rest }) {
                Ok(()) => return,
                // The first is gone: the next one leads.
                Err(mut back) => self.0 = std::mem::take(&mut back.rest.0),
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        for (waits, answer) in self.0.drain(..) {
            let rest = Rest::default();
            // Where nobody waits any more, the answer is dropped, and its ticket with it.
            let _ = waits.send(Done { answer, rest });
        }
    }
}

impl Shared {
    pub(super) fn new(queue: mpsc::Sender<Job>, stamp: Stamp, meters: Meters) -> Shared {
        Shared {
            queue,
            free: AtomicUsize::new(PLACES),
            latched: AtomicBool::new(false),
            why: OnceLock::new(),
            overloaded: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            stamp,
            meters,
        }
    }

    /// Whether no record can be made any more.
    pub(super) fn is_latched(&self) -> bool {
        self.latched.load(Ordering::Acquire)
    }

    /// From here on every call is refused, until the process is restarted. The first cause stands.
    pub(super) fn latch(&self, why: String) {
        let _ = self.why.set(why);
        self.latched.store(true, Ordering::Release);
    }

    /// Why it is latched.
    pub(super) fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// Queues a record and waits until it is durable.
    pub(super) async fn record(&self, draft: Draft, kind: Kind) -> Result<Durable, Reason> {
        if self.is_latched() || !draft.fits() {
            // A record over the limit cannot be made durable; no call comes near it (see `entry`).
            return Err(self.count(Reason::LedgerUnavailable));
        }
        let places = kind.takes();
        if !self.reserve(places) {
            return Err(self.count(Reason::Overloaded));
        }
        let (waits, answer) = oneshot::channel();
        let entry = Entry {
            draft,
            kind,
            waits: Some(waits),
        };
        if self.queue.send(Job::Record(entry)).is_err() {
            return Err(self.count(Reason::LedgerUnavailable));
        }
        match answer.await {
            Ok(Done { answer, rest }) => {
                drop(rest);
                answer.map_err(|reason| self.count(reason))
            }
            // The writer ended with the record in the queue.
            Err(_) => Err(self.count(Reason::LedgerUnavailable)),
        }
    }

    /// Queues a record that nobody waits for.
    pub(super) fn record_later(&self, draft: Draft, kind: Kind) {
        let entry = Entry {
            draft,
            kind,
            waits: None,
        };
        // Where the writer has ended, the next start closes what stays open.
        let _ = self.queue.send(Job::Record(entry));
    }

    /// Hands the writer another job; `false` where it has ended.
    pub(super) fn send(&self, job: Job) -> bool {
        self.queue.send(job).is_ok()
    }

    fn reserve(&self, places: usize) -> bool {
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |free| {
                free.checked_sub(places)
            })
            .is_ok()
    }

    /// The writer is through with a record of this kind.
    pub(super) fn release(&self, kind: &Kind, durable: bool) {
        let outcome_too = !durable && matches!(kind, Kind::Forward(_));
        self.free
            .fetch_add(kind.frees() + usize::from(outcome_too), Ordering::AcqRel);
    }

    /// Counts a call that leaves no decision; gives the reason back.
    pub(super) fn count(&self, reason: Reason) -> Reason {
        let counter = if reason == Reason::LedgerUnavailable {
            &self.unavailable
        } else {
            &self.overloaded
        };
        if counter.fetch_add(1, Ordering::Relaxed) == 0 && !self.is_latched() {
            // The first since the last count: the writer may be asleep.
            self.send(Job::Counted);
        }
        reason
    }

    /// Takes the counts, for their records.
    pub(super) fn take_counts(&self) -> [(Reason, u64); 2] {
        [
            (
                Reason::Overloaded,
                self.overloaded.swap(0, Ordering::Relaxed),
            ),
            (
                Reason::LedgerUnavailable,
                self.unavailable.swap(0, Ordering::Relaxed),
            ),
        ]
    }

    /// Free places.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::Acquire)
    }
}
