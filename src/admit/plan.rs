//! What admission ends with: a [`Plan`] or a [`Refusal`].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use super::{CallFacts, CallId, Dropped};
use crate::card::Attach;
use crate::egress::Door;
use crate::policy::{Host, Policy};
use crate::terms::{Field, Reason, Verdict};
use crate::tree::Hold;

/// How a release was bound to its fixture, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindFacts {
    /// `cover`, `exact` or `none`.
    pub mode: &'static str,
    /// SHA-256 (hex) of the glue file, where cover used one.
    pub glue_sha256: Option<String>,
    /// SHA-256 (hex) of the vocabulary, where cover used one.
    pub vocabulary_sha256: Option<String>,
}

/// The exact request that leaves if the ledger can record it. Made by admission alone; opened by egress alone, after the ledger has cleared it.
///
/// ```compile_fail
/// # async fn f(plan: leafgate::admit::Plan, egress: leafgate::egress::Egress) {
/// egress.send(plan).await; // not recorded: it is a plan, not a `Cleared`
/// # }
/// ```
///
/// ```no_run
/// # async fn f(plan: leafgate::admit::Plan, ledger: leafgate::ledger::Ledger, egress: leafgate::egress::Egress) {
/// if let Ok(cleared) = ledger.commit(plan).await {
///     egress.send(cleared).await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Plan {
    facts: CallFacts,
    bind: Option<BindFacts>,
    dropped: Dropped,
    len: u64,
    sha256: [u8; 32],
    departure: Departure,
}

/// What egress needs to send a plan. Handed out by [`Plan::open`] against egress's own [`Door`].
#[derive(Debug)]
pub struct Departure {
    /// The policy the call started with: limits and resolvers are read from it.
    pub policy: Arc<Policy>,
    /// The pinned host.
    pub host: Arc<Host>,
    /// GET or POST.
    pub method: Method,
    /// Path on the host: base path and route.
    pub path: String,
    /// Headers in their order, besides `host`, `content-length` and the constant ones, which egress writes.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
    /// Whether this is a split: its answer does not replace the local score.
    pub split: bool,
}

impl Plan {
    pub(super) fn new(
        facts: CallFacts,
        bind: Option<BindFacts>,
        dropped: Dropped,
        departure: Departure,
    ) -> Plan {
        Plan {
            facts,
            bind,
            dropped,
            len: departure.body.len() as u64,
            sha256: departure.sha256,
            departure,
        }
    }

    /// What the record says of the call.
    pub fn facts(&self) -> &CallFacts {
        &self.facts
    }

    /// How the body was bound, on a release.
    pub fn bind(&self) -> Option<&BindFacts> {
        self.bind.as_ref()
    }

    /// The client headers that stay here.
    pub fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    /// Bytes of the body that would leave.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the body that would leave is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// SHA-256 of the body that would leave.
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// Whether the host is spoken to in clear text off loopback.
    pub fn clear_text(&self) -> bool {
        self.departure.host.clear_text && !self.departure.host.base.tls
    }

    /// Opens the plan. The [`Door`] is egress's own: no other room can make one.
    pub fn open(self, _door: &Door) -> Departure {
        self.departure
    }
}

/// A decision that nothing leaves, or that leafgate answers by itself. It carries no payload.
#[derive(Debug)]
pub struct Refusal {
    /// What the record says of the call.
    pub facts: CallFacts,
    /// `refuse`, or `local` for `GET /models`.
    pub verdict: Verdict,
    /// Why: the tree's reason for a hold and for `local`, else admission's or the limit's.
    pub reason: Reason,
    /// The field that decided, where one did.
    pub field: Option<Field>,
    /// One safe clause of ASCII for the person: which part, and what to do next. Never private bytes.
    pub hint: String,
}

/// Why a check refused, before it becomes a [`Refusal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) reason: Reason,
    pub(super) field: Field,
    pub(super) hint: String,
}

impl Denied {
    pub(super) fn new(reason: Reason, field: Field, hint: String) -> Denied {
        Denied {
            reason,
            field,
            hint,
        }
    }
}

impl Refusal {
    pub(super) fn denied(facts: CallFacts, denied: Denied) -> Refusal {
        Refusal {
            facts,
            verdict: Verdict::Refuse,
            reason: denied.reason,
            field: Some(denied.field),
            hint: denied.hint,
        }
    }

    /// A hold, as the tree ruled it. `tunnel`: whether the call came through one.
    pub fn hold(
        hold: &Hold,
        call: CallId,
        attach: Option<Attach>,
        tunnel: bool,
        host: Option<Arc<Host>>,
    ) -> Refusal {
        let ruling = hold.ruling();
        let facts = CallFacts {
            call,
            attach,
            card: hold.card().cloned(),
            ruling,
            route: None,
            host,
            failure_label: None,
            body: None,
            peer_uid: None,
        };
        Refusal {
            facts,
            verdict: Verdict::Refuse,
            reason: ruling.reason,
            field: ruling.field,
            hint: super::hint::for_hold(hold, attach, tunnel),
        }
    }

    /// A call that ended before admission: its body was too large, too slow or not clean.
    pub fn limit(facts: CallFacts, reason: Reason, hint: &str) -> Refusal {
        Refusal {
            facts,
            verdict: Verdict::Refuse,
            reason,
            field: Some(Field::Body),
            hint: hint.to_owned(),
        }
    }
}
