//! The proof that a decision is durable, and the reserved place of its outcome.

use std::net::SocketAddr;
use std::time::Duration;

use crate::admit::{CallId, Departure, Plan};
use crate::egress::Door;

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

impl Cleared {
    /// The call's id.
    pub fn call(&self) -> CallId {
        self.plan.facts().call
    }

    /// Opens it: what to send, and the place of the outcome. The [`Door`] is egress's own.
    pub fn open(self, door: &Door) -> (Departure, Ticket) {
        (self.plan.open(door), self.ticket)
    }
}

/// The reserved place of one outcome. Closing it queues the record; dropping it unclosed queues `sent: unknown`.
#[derive(Debug)]
pub struct Ticket {}

impl Ticket {
    /// Queues the outcome; nobody waits for it.
    pub fn close(self, _outcome: Outcome) {
        todo!()
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
