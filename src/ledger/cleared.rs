//! The proof that a decision is durable, and the reserved place of its outcome.
//!
//! Promises: the one place that makes a [`Cleared`] is [`Ledger::commit`], below, after the writer said that the decision's record is durable. Each
//! [`Ticket`] becomes exactly one outcome, whatever happens to who holds it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::queue::{Kind, Shared};
use super::{Ledger, Unrecorded};
use crate::admit::{CallId, Departure, Plan};
use crate::egress::Door;
use crate::terms::Reason;

/// A plan whose decision is durable. Made by the ledger alone; opened by egress alone; one decision, one send.
///
/// ```compile_fail
/// let cleared = leafgate::ledger::Cleared { plan: todo!(), ticket: todo!() }; // private fields
/// ```
///
/// ```compile_fail
/// # fn f(cleared: leafgate::ledger::Cleared) {
/// let again = cleared.clone(); // one decision, one send
/// # }
/// ```
///
/// ```
/// # fn f(cleared: leafgate::ledger::Cleared) {
/// let call = cleared.call(); // what the outside may ask
/// # }
/// ```
#[derive(Debug)]
pub struct Cleared {
    plan: Plan,
    ticket: Ticket,
}

impl Ledger {
    /// Makes a forwarding decision durable and reserves its outcome's place. Where the future is dropped before it is done, nothing leaves; a decision that
    /// was already written gets an outcome that says so.
    ///
    /// # Errors
    /// `overloaded` where the queue has no room, `ledger_unavailable` where the record cannot be made durable; both are counted here.
    pub async fn commit(&self, plan: Plan) -> Result<Cleared, Unrecorded> {
        let shared = self.shared();
        let draft = shared.stamp.forward(&plan);
        let kind = Kind::Forward(plan.facts().call);
        let durable = shared.record(draft, kind).await;
        match durable.map(|durable| durable.ticket) {
            Ok(Some(ticket)) => Ok(Cleared { plan, ticket }),
            // The writer gives each durable forwarding decision its ticket; without one there is no proof.
            Ok(None) => Err(Unrecorded {
                reason: Reason::LedgerUnavailable,
            }),
            Err(reason) => Err(Unrecorded { reason }),
        }
    }
}

impl Cleared {
    /// The call's id.
    pub fn call(&self) -> CallId {
        self.plan.facts().call
    }

    /// Opens it: what to send, and the place of the outcome. The [`Door`] is egress's own.
    pub fn open(mut self, door: &Door) -> (Departure, Ticket) {
        self.ticket.opened = true;
        (self.plan.open(door), self.ticket)
    }
}

/// The reserved place of one outcome. Closing it queues the record; dropping it unclosed queues one with `error: dropped`, and `sent: unknown` where the
/// plan had been opened, else `sent: none`.
#[derive(Debug)]
pub struct Ticket {
    shared: Arc<Shared>,
    call: CallId,
    of: u64,
    /// Whether egress has the plan: something may have left from then on.
    pub(super) opened: bool,
    closed: bool,
}

impl Ticket {
    pub(super) fn new(shared: Arc<Shared>, call: CallId, of: u64) -> Ticket {
        Ticket {
            shared,
            call,
            of,
            opened: false,
            closed: false,
        }
    }

    /// Queues the outcome; nobody waits for it.
    pub fn close(mut self, outcome: Outcome) {
        self.closed = true;
        let draft = self
            .shared
            .stamp
            .outcome(self.call.as_str(), self.of, &outcome);
        self.shared.record_later(draft, Kind::Outcome(self.of));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let sent = if self.opened {
            Sent::Unknown
        } else {
            Sent::None
        };
        let draft = self
            .shared
            .stamp
            .unreported(self.call.as_str(), self.of, sent, "dropped");
        self.shared.record_later(draft, Kind::Outcome(self.of));
    }
}

/// How much of the body the socket or TLS session took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No byte of the request.
    None,
    /// Some.
    Partial,
    /// All.
    All,
    /// Not known (the process ended).
    Unknown,
}

impl Sent {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Sent::None => "none",
            Sent::Partial => "partial",
            Sent::All => "all",
            Sent::Unknown => "unknown",
        }
    }
}

/// What became of a forwarded call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How much left.
    pub sent: Sent,
    /// Body bytes that the socket or TLS session took.
    pub sent_len: u64,
    /// SHA-256 of those, `None` where none left.
    pub sent_sha256: Option<[u8; 32]>,
    /// The address dialled.
    pub peer: Option<SocketAddr>,
    /// The host's status.
    pub status: Option<u16>,
    /// Body bytes received (after transfer coding).
    pub received_len: u64,
    /// SHA-256 of those, `None` where no head came.
    pub received_sha256: Option<[u8; 32]>,
    /// The model the host named. Recorded in clear only where it is one of the host's `models`.
    pub model: Option<(String, bool)>,
    /// A split's answer: `score` is `local`.
    pub split: bool,
    /// From the decision to the end of the exchange.
    pub took: Duration,
    /// A reason code, or `host_cut`, `client_gone`, `shutdown`.
    pub error: Option<&'static str>,
}
