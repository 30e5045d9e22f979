//! The one door out (contract, section 4): resolve, check, dial, verify, send once, relay.
//!
//! Promises: it opens a [`Cleared`] and nothing else; one call makes at most one connection attempt for each address and sends at most once.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::ledger::Cleared;
use crate::terms::Reason;

/// The proof that the code opening a plan is egress: its field is private, and egress makes one inside `send` alone.
///
/// ```compile_fail
/// let door = leafgate::egress::Door(()); // private field
/// ```
#[derive(Debug)]
pub struct Door(());

/// Kept connections and TLS sessions of every host. Cheap to clone: all clones are one.
#[derive(Debug, Clone)]
pub struct Egress {}

/// The host's answer: status, listed headers, and the body as it arrives.
#[derive(Debug)]
pub struct Answer {
    /// Never 1xx or 3xx.
    pub status: StatusCode,
    /// Only the headers that contract section 4 lists.
    pub headers: HeaderMap,
    /// Streams; an error ends it so that the cut looks cut. Holds the call's outcome.
    pub body: AnswerBody,
}

/// The host's body. Ends in `Err` where the host's ended early.
#[derive(Debug)]
pub struct AnswerBody {}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Failed;
    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Failed>>> {
        todo!()
    }
}

/// Why there is no answer from the host. `Display` is one safe clause of ASCII.
#[derive(Debug, thiserror::Error)]
#[error("{hint}")]
pub struct Failed {
    /// The reason code.
    pub reason: Reason,
    /// What happened and what to do; never the host's bytes.
    pub hint: String,
}

impl Egress {
    /// With no connection kept.
    pub fn new() -> Egress {
        todo!()
    }

    /// Sends a cleared call once. The outcome is recorded whatever happens, also where this future is dropped.
    ///
    /// # Errors
    /// The reason the contract names: `connect_failed`, `address_refused`, `tls_failed`, `redirect_refused`, `host_malformed`, `host_timeout`.
    pub async fn send(&self, _cleared: Cleared) -> Result<Answer, Failed> {
        todo!()
    }

    /// Closes kept connections: a reload does.
    pub fn close_kept(&self) {
        todo!()
    }
}
