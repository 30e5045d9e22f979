//! What `/metrics` counts: lock-free, no allocation on the path of a call.
//!
//! Promises: every counter only grows; a call is counted once, by what was answered. It holds no value of a card, body or header.
//! Makers: `serve` makes one [`Metrics`]; the ledger and egress each have a [`Histogram`] of their own. Takers: they and ingress count, the admin
//! listener renders.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::terms::{Leaf, Reason, Verdict};

const VERDICTS: [Verdict; 3] = [Verdict::Forward, Verdict::Refuse, Verdict::Local];
const LEAVES: [Option<Leaf>; 4] = [
    None,
    Some(Leaf::Hold),
    Some(Leaf::Split),
    Some(Leaf::Release),
];
const REASONS: usize = Reason::ALL.len();

/// Every counter of one process.
#[derive(Debug)]
pub struct Metrics {
    calls: Box<[AtomicU64]>,
    refused_messages: Box<[AtomicU64]>,
    decision: Histogram,
}

/// What other rooms count, at the moment of rendering.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// Whether records can be made durable.
    pub ledger_ok: bool,
    /// Calls in flight.
    pub in_flight: u64,
    /// The ledger's syncs.
    pub sync: Snapshot,
    /// Exchanges with hosts, from the cleared decision to their end.
    pub host: Snapshot,
    /// Body bytes that hosts took.
    pub sent: u64,
    /// Body bytes that hosts answered.
    pub received: u64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All zero.
    pub fn new() -> Metrics {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Metrics {
            calls: zeros(LEAVES.len() * VERDICTS.len() * REASONS),
            refused_messages: zeros(REASONS),
            decision: Histogram::new(&FAST),
        }
    }

    /// Counts one call by what was answered; `leaf` is `None` where the tree was not walked.
    pub fn call(&self, leaf: Option<Leaf>, verdict: Verdict, reason: Reason) {
        self.calls[place(leaf, verdict, reason)].fetch_add(1, Relaxed);
    }

    /// Counts a message that never became a call.
    pub fn refused_message(&self, reason: Reason) {
        self.refused_messages[reason as usize].fetch_add(1, Relaxed);
    }

    /// From the end of the head to the durable decision.
    pub fn decision(&self, took: Duration) {
        self.decision.observe(took);
    }

    /// Prometheus text format 0.0.4. Series that were never counted are left out, so that the text stays short.
    pub fn render(&self, readings: &Readings) -> String {
        let mut text = String::with_capacity(8 * 1024);
        self.render_calls(&mut text);
        let messages = Reason::ALL.iter().map(|reason| {
            let count = self.refused_messages[*reason as usize].load(Relaxed);
            (format!("reason=\"{}\"", reason.code()), count)
        });
        series(
            &mut text,
            "leafgate_refused_messages_total",
            "Messages that never became a call.",
            messages.filter(|(_, count)| *count > 0),
        );
        let bytes = [("to_host", readings.sent), ("from_host", readings.received)];
        series(
            &mut text,
            "leafgate_body_bytes_total",
            "Body bytes, by where they went or came from.",
            bytes
                .into_iter()
                .map(|(flow, count)| (format!("flow=\"{flow}\""), count)),
        );
        for (name, help, histogram) in [
            (
                "leafgate_decision_seconds",
                "From the end of the head to the durable decision.",
                &self.decision.snapshot(),
            ),
            (
                "leafgate_sync_seconds",
                "One sync of the ledger.",
                &readings.sync,
            ),
            (
                "leafgate_host_seconds",
                "From the durable decision to the end of the exchange with the host.",
                &readings.host,
            ),
        ] {
            histogram.render(&mut text, name, help);
        }
        gauge(
            &mut text,
            "leafgate_in_flight",
            "Calls in flight.",
            readings.in_flight,
        );
        gauge(
            &mut text,
            "leafgate_ledger_ok",
            "1 where records can be made durable.",
            u64::from(readings.ledger_ok),
        );
        text
    }

    fn render_calls(&self, text: &mut String) {
        let all = LEAVES.iter().flat_map(|leaf| {
            VERDICTS.iter().flat_map(move |verdict| {
                Reason::ALL
                    .iter()
                    .map(move |reason| (*leaf, *verdict, *reason))
            })
        });
        let counted = all.filter_map(|(leaf, verdict, reason)| {
            let count = self.calls[place(leaf, verdict, reason)].load(Relaxed);
            (count > 0).then(|| {
                let leaf = leaf.map_or("none", Leaf::name);
                let (verdict, reason) = (verdict.name(), reason.code());
                (
                    format!("leaf=\"{leaf}\",verdict=\"{verdict}\",reason=\"{reason}\""),
                    count,
                )
            })
        });
        series(
            text,
            "leafgate_calls_total",
            "Calls, by leaf, by what was answered, and why.",
            counted,
        );
    }
}

fn place(leaf: Option<Leaf>, verdict: Verdict, reason: Reason) -> usize {
    let leaf = match leaf {
        None => 0,
        Some(Leaf::Hold) => 1,
        Some(Leaf::Split) => 2,
        Some(Leaf::Release) => 3,
    };
    let verdict = match verdict {
        Verdict::Forward => 0,
        Verdict::Refuse => 1,
        Verdict::Local => 2,
    };
    (leaf * VERDICTS.len() + verdict) * REASONS + reason as usize
}

fn series(text: &mut String, name: &str, help: &str, rows: impl Iterator<Item = (String, u64)>) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    for (labels, count) in rows {
        let _ = writeln!(text, "{name}{{{labels}}} {count}");
    }
}

fn gauge(text: &mut String, name: &str, help: &str, value: u64) {
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
    );
}

/// Upper bounds of a histogram's buckets: microseconds, and the same in seconds as text.
pub type Bounds = [(u64, &'static str); 14];

/// For decisions and syncs: 5 µs to 1 s.
pub const FAST: Bounds = [
    (5, "0.000005"),
    (10, "0.00001"),
    (25, "0.000025"),
    (50, "0.00005"),
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (50_000, "0.05"),
    (250_000, "0.25"),
    (1_000_000, "1"),
];

/// For hosts: 100 µs to 600 s, the default limit.
pub const SLOW: Bounds = [
    (100, "0.0001"),
    (250, "0.00025"),
    (1_000, "0.001"),
    (5_000, "0.005"),
    (25_000, "0.025"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
    (30_000_000, "30"),
    (60_000_000, "60"),
    (300_000_000, "300"),
    (600_000_000, "600"),
];

/// Durations, counted in buckets. Lock-free.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// One for each bound and one above them all; not cumulative.
    buckets: [AtomicU64; 15],
    nanos: AtomicU64,
}

/// A [`Histogram`] at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    bounds: &'static Bounds,
    buckets: [u64; 15],
    nanos: u64,
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Histogram::new(&FAST).snapshot()
    }
}

impl Histogram {
    /// All zero.
    pub fn new(bounds: &'static Bounds) -> Histogram {
        Histogram {
            bounds,
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
        }
    }

    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let bucket = self
            .bounds
            .partition_point(|(bound, _)| Duration::from_micros(*bound) < took);
        self.buckets[bucket].fetch_add(1, Relaxed);
        // 584 years of nanoseconds fit; a longer wait is counted as the longest.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// What was counted so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            bounds: self.bounds,
            buckets: std::array::from_fn(|at| self.buckets[at].load(Relaxed)),
            nanos: self.nanos.load(Relaxed),
        }
    }
}

impl Snapshot {
    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn render(&self, text: &mut String, name: &str, help: &str) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        let labels = self.bounds.iter().map(|(_, label)| *label).chain(["+Inf"]);
        for (label, bucket) in labels.zip(&self.buckets) {
            below += bucket;
            let _ = writeln!(text, "{name}_bucket{{le=\"{label}\"}} {below}");
        }
        let (whole, rest) = (self.nanos / 1_000_000_000, self.nanos % 1_000_000_000);
        let _ = writeln!(text, "{name}_sum {whole}.{rest:09}\n{name}_count {below}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_a_place_of_its_own() {
        let mut places = std::collections::BTreeSet::new();
        for leaf in LEAVES {
            for verdict in VERDICTS {
                for reason in Reason::ALL {
                    places.insert(place(leaf, verdict, *reason));
                }
            }
        }
        assert_eq!(places.len(), 4 * 3 * REASONS);
        assert_eq!(places.last(), Some(&(4 * 3 * REASONS - 1)));
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }

    #[test]
    fn what_was_counted_is_rendered_and_nothing_else() {
        let metrics = Metrics::new();
        assert!(!metrics.render(&Readings::default()).contains("leaf=\""));
        metrics.call(Some(Leaf::Hold), Verdict::Refuse, Reason::MachineLocal);
        metrics.call(Some(Leaf::Hold), Verdict::Refuse, Reason::MachineLocal);
        metrics.call(None, Verdict::Refuse, Reason::ClientNotAllowed);
        metrics.refused_message(Reason::HttpMalformed);
        let text = metrics.render(&Readings {
            sent: 7,
            in_flight: 1,
            ..Readings::default()
        });
        for line in [
            "leafgate_calls_total{leaf=\"hold\",verdict=\"refuse\",reason=\"machine_local\"} 2\n",
            "leafgate_calls_total{leaf=\"none\",verdict=\"refuse\",reason=\"client_not_allowed\"} 1\n",
            "leafgate_refused_messages_total{reason=\"http_malformed\"} 1\n",
            "leafgate_body_bytes_total{flow=\"to_host\"} 7\n",
            "leafgate_in_flight 1\n",
            "leafgate_ledger_ok 0\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert_eq!(text.matches("leafgate_calls_total{").count(), 2);
        let ok = Readings {
            ledger_ok: true,
            ..Readings::default()
        };
        assert!(metrics.render(&ok).contains("leafgate_ledger_ok 1\n"));
    }

    #[test]
    fn a_histogram_is_cumulative_and_its_bounds_rise() {
        for bounds in [&FAST, &SLOW] {
            assert!(bounds.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for (micros, text) in bounds {
                let seconds: f64 = text.parse().unwrap();
                assert!((seconds * 1e6 - *micros as f64).abs() < 1e-6, "{text}");
            }
        }
        let metrics = Metrics::new();
        for micros in [5, 6, 2_000_000] {
            metrics.decision(Duration::from_micros(micros));
        }
        let text = metrics.render(&Readings::default());
        for line in [
            "leafgate_decision_seconds_bucket{le=\"0.000005\"} 1\n",
            "leafgate_decision_seconds_bucket{le=\"0.00001\"} 2\n",
            "leafgate_decision_seconds_bucket{le=\"1\"} 2\n",
            "leafgate_decision_seconds_bucket{le=\"+Inf\"} 3\n",
            "leafgate_decision_seconds_sum 2.000011000\n",
            "leafgate_decision_seconds_count 3\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
