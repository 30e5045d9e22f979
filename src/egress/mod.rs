//! The one door out (contract, section 4): resolve, check, dial, verify, send once, relay.
//!
//! Promises: it opens a [`Cleared`] and nothing else; one call makes at most one connection attempt for each address and sends at most
//! once; the address that was checked is the one dialled; no proxy variable, `SSL_CERT_FILE` or redirect steers it; every call that
//! comes in here leaves exactly one outcome, also where its future or its answer is dropped.
//! Does not promise: that the host keeps nothing, or that what listens on loopback sends nothing on.
//! It takes [`Cleared`] from the ledger's commit and makes [`Answer`] for ingress.
//!
//! The exchange is this room's own small HTTP/1.1 client: it has to know how many body bytes the socket took, to cap interim
//! answers, to see a length beside chunked, and to see bytes glued behind an answer, which general clients hide.
//!
//! | file | does |
//! | --- | --- |
//! | `exchange.rs` | one call: kept connection or dial, write and read at the same time, until the host's head |
//! | `resolve.rs`, `ask.rs`, `dial.rs`, `tls.rs`, `staple.rs`, `wire.rs` | from the host's name to a verified connection |
//! | `kept.rs` | connections kept between calls |
//! | `request.rs` | the request, built anew |
//! | `head.rs`, `framing.rs`, `relay.rs` | the host's head, its body's framing, its body on the way back |
//! | `account.rs`, `model.rs`, `metrics.rs` | what the record and the metrics say of it |

mod account;
mod ask;
mod dial;
mod exchange;
mod framing;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod kept;
mod metrics;
mod model;
mod records;
mod relay;
mod request;
mod resolve;
mod staple;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, StatusCode};

use crate::ledger::Cleared;
use crate::terms::Reason;
use account::{Account, Sink};

pub use metrics::Metrics;
pub use relay::AnswerBody;

/// The proof that the code opening a plan is egress: its field is private, and egress makes one inside `send` alone.
///
/// ```compile_fail
/// let door = leafgate::egress::Door(()); // private field
/// ```
#[derive(Debug)]
pub struct Door(());

/// Kept connections and TLS settings of every host. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Egress {
    inner: Arc<Inner>,
}

/// What all clones share.
struct Inner {
    kept: kept::Pool,
    tls: tls::Settings,
    resolver: resolve::Resolver,
    metrics: Metrics,
    shutting_down: AtomicBool,
}

impl Inner {
    /// The outcome's `error` of a call that is dropped now.
    fn dropped_by(&self) -> &'static str {
        if self.shutting_down.load(Ordering::Relaxed) {
            "shutdown"
        } else {
            "client_gone"
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").finish_non_exhaustive()
    }
}

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

/// Why there is no answer from the host. `Display` is one safe clause of ASCII.
#[derive(Debug, thiserror::Error)]
#[error("{hint}")]
pub struct Failed {
    /// The reason code.
    pub reason: Reason,
    /// What happened and what to do; never the host's bytes.
    pub hint: String,
}

impl Failed {
    fn new(reason: Reason, hint: impl Into<String>) -> Failed {
        Failed {
            reason,
            hint: hint.into(),
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Egress::new()
    }
}

impl Egress {
    /// With no connection kept. Reads no file and opens nothing.
    pub fn new() -> Egress {
        Egress {
            inner: Arc::new(Inner {
                kept: kept::Pool::default(),
                tls: tls::Settings::default(),
                resolver: resolve::Resolver::default(),
                metrics: Metrics::default(),
                shutting_down: AtomicBool::new(false),
            }),
        }
    }

    /// Sends a cleared call once. The outcome is recorded whatever happens, also where this future is dropped.
    ///
    /// # Errors
    /// The reason the contract names: `connect_failed`, `address_refused`, `tls_failed`, `redirect_refused`, `host_malformed`, `host_timeout`.
    pub async fn send(&self, cleared: Cleared) -> Result<Answer, Failed> {
        let (departure, ticket) = cleared.open(&Door(()));
        let account = Account::open(self.inner.clone(), &departure, Sink::Ticket(ticket));
        exchange::exchange(&self.inner, departure, account).await
    }

    /// Closes kept connections: a reload does. A connection that carries a call now is closed when that call ends.
    pub fn close_kept(&self) {
        self.inner.kept.close();
        self.inner.tls.forget();
    }

    /// The process is ending: a call that is dropped from now on is recorded as `shutdown`, not as `client_gone`.
    pub fn shutting_down(&self) {
        self.inner.shutting_down.store(true, Ordering::Relaxed);
        self.inner.kept.close();
    }

    /// What the outcome of a call that is dropped now says of its end.
    pub fn dropped_by(&self) -> &'static str {
        self.inner.dropped_by()
    }

    /// Durations and byte counts, for the admin listener.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }
}
