//! What the metrics say of hosts: counters only, no names and no payload. Made by `Egress::new`, written by `account.rs`, read by admin.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::metrics::{Histogram, SLOW};

/// Counters of everything that went through the door. Only ever grow.
#[derive(Debug)]
pub struct Metrics {
    /// Exchanges by duration, from the cleared decision to their end.
    pub host_seconds: Histogram,
    /// Body bytes that hosts' sockets or TLS sessions took.
    pub bytes_sent: AtomicU64,
    /// Body bytes received from hosts, after transfer coding.
    pub bytes_received: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            host_seconds: Histogram::new(&SLOW),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    pub(super) fn note(&self, took: Duration, sent: u64, received: u64) {
        self.host_seconds.observe(took);
        self.bytes_sent.fetch_add(sent, Relaxed);
        self.bytes_received.fetch_add(received, Relaxed);
    }
}
