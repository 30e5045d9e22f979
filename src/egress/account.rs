//! What happened to one call, kept true at every moment, so that the outcome can be recorded whenever the exchange stops.
//!
//! Promises: exactly one outcome for each account, when it is closed or dropped. Made by `Egress::send`; carried by the exchange and
//! then by the answer's body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Inner;
use super::model::Sniff;
use super::request::Uplink;
use crate::admit::Departure;
use crate::ledger::{Outcome, Sent, Ticket};
use crate::policy::Host;

/// Where the outcome goes.
pub(super) enum Sink {
    /// The ledger's reserved place.
    Ticket(Ticket),
    /// A test that looks at outcomes.
    #[cfg(any(test, fuzzing))]
    Test(std::sync::mpsc::Sender<Outcome>),
}

impl Sink {
    fn close(self, outcome: Outcome) {
        match self {
            Sink::Ticket(ticket) => ticket.close(outcome),
            #[cfg(any(test, fuzzing))]
            Sink::Test(sender) => {
                let _ = sender.send(outcome);
            }
        }
    }
}

/// The running account of one call.
pub(super) struct Account {
    sink: Option<Sink>,
    inner: Arc<Inner>,
    host: Arc<Host>,
    started: Instant,
    split: bool,
    body: Bytes,
    body_sha256: [u8; 32],
    begun: bool,
    all_sent: bool,
    sent_len: u64,
    /// The address dialled.
    pub(super) peer: Option<SocketAddr>,
    /// The host's final status, where its head came.
    pub(super) status: Option<u16>,
    headed: bool,
    received_len: u64,
    received: Sha256,
    sniff: Sniff,
}

impl Account {
    pub(super) fn open(inner: Arc<Inner>, departure: &Departure, sink: Sink) -> Account {
        Account {
            sink: Some(sink),
            inner,
            host: departure.host.clone(),
            started: Instant::now(),
            split: departure.split,
            body: departure.body.clone(), // a second handle on the same bytes
            body_sha256: departure.sha256,
            begun: false,
            all_sent: false,
            sent_len: 0,
            peer: None,
            status: None,
            headed: false,
            received_len: 0,
            received: Sha256::new(),
            sniff: Sniff::Nothing,
        }
    }

    /// The host's head came: from here on its body counts.
    pub(super) fn begin_answer(&mut self, status: u16, sniff: Sniff) {
        self.status = Some(status);
        self.headed = true;
        self.sniff = sniff;
    }

    /// Takes over how much of the request was taken.
    pub(super) fn sent(&mut self, uplink: &Uplink) {
        self.begun = uplink.begun();
        self.all_sent = uplink.all_taken();
        if self.all_sent {
            // Its hash is known; a long answer need not hold on to it.
            self.body = Bytes::new();
        }
        self.sent_len = uplink.body_taken();
    }

    /// Counts bytes of the answer's body.
    pub(super) fn received(&mut self, bytes: &Bytes) {
        self.received_len += bytes.len() as u64;
        self.received.update(bytes);
        self.sniff.look(bytes);
    }

    /// Records the outcome; later calls and the drop do nothing.
    pub(super) fn close(&mut self, error: Option<&'static str>) {
        let Some(sink) = self.sink.take() else {
            return;
        };
        let took = self.started.elapsed();
        self.inner
            .metrics
            .note(took, self.sent_len, self.received_len);
        let sent = match (self.all_sent, self.begun) {
            (true, _) => Sent::All,
            (false, true) => Sent::Partial,
            (false, false) => Sent::None,
        };
        let model = self.sniff.take_name().map(|name| {
            let known = self.host.models.contains(&name);
            (name, known)
        });
        sink.close(Outcome {
            sent,
            sent_len: self.sent_len,
            sent_sha256: self.sent_sha256(),
            peer: self.peer,
            status: self.status,
            received_len: self.received_len,
            received_sha256: self
                .headed
                .then(|| std::mem::take(&mut self.received).finalize().into()),
            model,
            split: self.split,
            took,
            error,
        });
    }

    fn sent_sha256(&self) -> Option<[u8; 32]> {
        if self.all_sent {
            return Some(self.body_sha256);
        }
        let taken = usize::try_from(self.sent_len).ok()?;
        match self.body.get(..taken) {
            Some([]) | None => None,
            Some(prefix) => Some(Sha256::digest(prefix).into()),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close(Some(self.inner.dropped_by()));
    }
}
