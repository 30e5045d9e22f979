//! What the metrics say of hosts: counters only, no names and no payload. Made by `Egress::new`, written by `account.rs`, read by admin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the `leafgate_host_seconds` buckets, in seconds; one more bucket, `+Inf`, follows.
pub const HOST_SECONDS_BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
];

/// Counters of everything that went through the door. Only ever grow.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Exchanges by duration, not cumulative; the last one is `+Inf`. Bounds: [`HOST_SECONDS_BOUNDS`].
    pub host_seconds: [AtomicU64; HOST_SECONDS_BOUNDS.len() + 1],
    /// Sum of the durations, microseconds.
    pub host_micros: AtomicU64,
    /// Body bytes that hosts' sockets or TLS sessions took.
    pub bytes_sent: AtomicU64,
    /// Body bytes received from hosts, after transfer coding.
    pub bytes_received: AtomicU64,
}

impl Metrics {
    pub(super) fn note(&self, took: Duration, sent: u64, received: u64) {
        let seconds = took.as_secs_f64();
        let place = HOST_SECONDS_BOUNDS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(HOST_SECONDS_BOUNDS.len());
        if let Some(bucket) = self.host_seconds.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.host_micros.fetch_add(micros, Ordering::Relaxed);
        self.bytes_sent.fetch_add(sent, Ordering::Relaxed);
        self.bytes_received.fetch_add(received, Ordering::Relaxed);
    }
}
