//! What `/metrics` counts: lock-free, no allocation on the path of a call.
//!
//! Promises: every counter only grows; a call is counted once, by what was answered. It holds no value of a card, body or header.
//! Makers: `serve` makes one [`Metrics`]. Takers: ingress and egress count, the admin listener renders.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
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

/// Which way bytes of bodies went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// From clients, bodies read.
    FromClient,
    /// To hosts, body bytes sent.
    ToHost,
    /// From hosts, body bytes received.
    FromHost,
    /// To clients, body bytes of answers.
    ToClient,
}

impl Flow {
    const ALL: [Flow; 4] = [
        Flow::FromClient,
        Flow::ToHost,
        Flow::FromHost,
        Flow::ToClient,
    ];

    fn name(self) -> &'static str {
        match self {
            Flow::FromClient => "from_client",
            Flow::ToHost => "to_host",
            Flow::FromHost => "from_host",
            Flow::ToClient => "to_client",
        }
    }
}

/// Every counter of one process.
#[derive(Debug)]
pub struct Metrics {
    calls: Box<[AtomicU64]>,
    refused_messages: Box<[AtomicU64]>,
    decision: Histogram,
    sync: Histogram,
    host: Histogram,
    bytes: [AtomicU64; 4],
    in_flight: AtomicI64,
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
            sync: Histogram::new(&FAST),
            host: Histogram::new(&SLOW),
            bytes: Default::default(),
            in_flight: AtomicI64::new(0),
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

    /// From the end of the head to the verdict, the record not included.
    pub fn decision(&self, took: Duration) {
        self.decision.observe(took);
    }

    /// One `fdatasync` of the ledger.
    pub fn sync(&self, took: Duration) {
        self.sync.observe(took);
    }

    /// From the record to the end of the host's head.
    pub fn host(&self, took: Duration) {
        self.host.observe(took);
    }

    /// Body bytes, one way.
    pub fn bytes(&self, flow: Flow, count: u64) {
        self.bytes[flow as usize].fetch_add(count, Relaxed);
    }

    /// Counts a call as in flight until the guard is dropped.
    pub fn in_flight(self: &Arc<Metrics>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self.clone())
    }

    /// Prometheus text format 0.0.4. Series that were never counted are left out, so that the text stays short.
    pub fn render(&self, ledger_ok: bool) -> String {
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
        let bytes = Flow::ALL.iter().map(|flow| {
            let count = self.bytes[*flow as usize].load(Relaxed);
            (format!("flow=\"{}\"", flow.name()), count)
        });
        series(
            &mut text,
            "leafgate_body_bytes_total",
            "Body bytes, by where they came from or went.",
            bytes,
        );
        for (name, help, histogram) in [
            (
                "leafgate_decision_seconds",
                "From the end of the head to the verdict.",
                &self.decision,
            ),
            (
                "leafgate_sync_seconds",
                "One sync of the ledger.",
                &self.sync,
            ),
            (
                "leafgate_host_seconds",
                "From the record to the end of the host's head.",
                &self.host,
            ),
        ] {
            histogram.render(&mut text, name, help);
        }
        gauge(
            &mut text,
            "leafgate_in_flight",
            "Calls in flight.",
            self.in_flight.load(Relaxed).max(0),
        );
        gauge(
            &mut text,
            "leafgate_ledger_ok",
            "1 where records can be made durable.",
            i64::from(ledger_ok),
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

/// One call in flight; dropping it ends it, whatever happened.
#[derive(Debug)]
pub struct InFlight(Arc<Metrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
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

fn gauge(text: &mut String, name: &str, help: &str, value: i64) {
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
    );
}

/// Upper bounds in microseconds, with their text in seconds. Decisions and syncs: 5 µs to 1 s.
const FAST: [(u64, &str); 14] = [
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

/// Hosts: 100 µs to 600 s, the default limit.
const SLOW: [(u64, &str); 14] = [
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

#[derive(Debug)]
struct Histogram {
    bounds: &'static [(u64, &'static str); 14],
    /// One for each bound and one above them all; not cumulative.
    buckets: [AtomicU64; 15],
    nanos: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [(u64, &'static str); 14]) -> Histogram {
        Histogram {
            bounds,
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
        }
    }

    fn observe(&self, took: Duration) {
        let bucket = self
            .bounds
            .partition_point(|(bound, _)| Duration::from_micros(*bound) < took);
        self.buckets[bucket].fetch_add(1, Relaxed);
        // 584 years of nanoseconds fit; a longer wait is counted as the longest.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    fn render(&self, text: &mut String, name: &str, help: &str) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        let labels = self.bounds.iter().map(|(_, label)| *label).chain(["+Inf"]);
        for (label, bucket) in labels.zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{label}\"}} {below}");
        }
        let nanos = self.nanos.load(Relaxed);
        let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
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
        for (index, flow) in Flow::ALL.iter().enumerate() {
            assert_eq!(*flow as usize, index);
        }
    }

    #[test]
    fn what_was_counted_is_rendered_and_nothing_else() {
        let metrics = Arc::new(Metrics::new());
        assert!(!metrics.render(true).contains("leaf=\""));
        metrics.call(Some(Leaf::Hold), Verdict::Refuse, Reason::MachineLocal);
        metrics.call(Some(Leaf::Hold), Verdict::Refuse, Reason::MachineLocal);
        metrics.call(None, Verdict::Refuse, Reason::ClientNotAllowed);
        metrics.refused_message(Reason::HttpMalformed);
        metrics.bytes(Flow::ToHost, 7);
        let guard = metrics.in_flight();
        let text = metrics.render(false);
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
        drop(guard);
        assert!(metrics.render(true).contains("leafgate_in_flight 0\n"));
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
        let text = metrics.render(true);
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
