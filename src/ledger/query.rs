//! The filters of `ledger list` and the console's list: which records somebody wants to see.

use jiff::Timestamp;
use serde_json::Value;

use crate::terms::{Leaf, Verdict};

/// What a record must be to be listed; a part that is `None` asks nothing.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// `t`: `decision`, `outcome`, …
    pub kind: Option<String>,
    /// The call: its decision and its outcome.
    pub call: Option<String>,
    /// The leaf of a decision.
    pub leaf: Option<Leaf>,
    /// The verdict of a decision.
    pub verdict: Option<Verdict>,
    /// The reason code of a decision or a refused message.
    pub reason: Option<String>,
    /// `fixture_id` or `fixture_hash` of a decision.
    pub fixture: Option<String>,
    /// The host, or the pin where it names none.
    pub host: Option<String>,
    /// Not before this.
    pub since: Option<Timestamp>,
    /// Before this.
    pub until: Option<Timestamp>,
}

impl Filter {
    /// Whether a record passes.
    pub fn takes(&self, record: &Value) -> bool {
        let text = |key: &str| record.get(key).and_then(Value::as_str);
        let is = |wanted: Option<&str>, key: &str| wanted.is_none() || wanted == text(key);
        let either = |wanted: &Option<String>, first: &str, second: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| text(first) == Some(wanted) || text(second) == Some(wanted))
        };
        is(self.kind.as_deref(), "t")
            && is(self.call.as_deref(), "call")
            && is(self.leaf.map(Leaf::name), "leaf")
            && is(self.verdict.map(Verdict::name), "verdict")
            && is(self.reason.as_deref(), "reason")
            && either(&self.fixture, "fixture_id", "fixture_hash")
            && either(&self.host, "host", "host_pin")
            && self.within(text("time"))
    }

    fn within(&self, time: Option<&str>) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        // A record without a readable time is in no span of time.
        let Some(time) = time.and_then(|time| time.parse::<Timestamp>().ok()) else {
            return false;
        };
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_filter_takes_its_own_and_refuses_its_twin() {
        let record = serde_json::json!({
            "t": "decision", "call": "01A", "leaf": "split", "verdict": "forward", "reason": "redacted_metadata", "fixture_id": "doc-17",
            "fixture_hash": "sha256:aa", "host_pin": "local", "time": "2026-11-30T06:52:30.000007Z",
        });
        let text = |text: &str| Some(text.to_owned());
        let time = |text: &str| Some(text.parse().unwrap());
        let none = Filter::default;
        assert!(none().takes(&record));
        for (good, bad) in [
            (
                Filter {
                    kind: text("decision"),
                    ..none()
                },
                Filter {
                    kind: text("outcome"),
                    ..none()
                },
            ),
            (
                Filter {
                    call: text("01A"),
                    ..none()
                },
                Filter {
                    call: text("01B"),
                    ..none()
                },
            ),
            (
                Filter {
                    leaf: Some(Leaf::Split),
                    ..none()
                },
                Filter {
                    leaf: Some(Leaf::Hold),
                    ..none()
                },
            ),
            (
                Filter {
                    verdict: Some(Verdict::Forward),
                    ..none()
                },
                Filter {
                    verdict: Some(Verdict::Refuse),
                    ..none()
                },
            ),
            (
                Filter {
                    reason: text("redacted_metadata"),
                    ..none()
                },
                Filter {
                    reason: text("public_fixture"),
                    ..none()
                },
            ),
            (
                Filter {
                    fixture: text("doc-17"),
                    ..none()
                },
                Filter {
                    fixture: text("doc-18"),
                    ..none()
                },
            ),
            (
                Filter {
                    fixture: text("sha256:aa"),
                    ..none()
                },
                Filter {
                    fixture: text("sha256:ab"),
                    ..none()
                },
            ),
            (
                Filter {
                    host: text("local"),
                    ..none()
                },
                Filter {
                    host: text("other"),
                    ..none()
                },
            ),
            (
                Filter {
                    since: time("2026-11-30T06:52:30.000007Z"),
                    ..none()
                },
                Filter {
                    since: time("2026-11-30T06:52:30.000008Z"),
                    ..none()
                },
            ),
            (
                Filter {
                    until: time("2026-11-30T06:52:30.000008Z"),
                    ..none()
                },
                Filter {
                    until: time("2026-11-30T06:52:30.000007Z"),
                    ..none()
                },
            ),
        ] {
            assert!(good.takes(&record), "{good:?}");
            assert!(!bad.takes(&record), "{bad:?}");
        }
    }
}
