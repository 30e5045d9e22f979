//! Which records somebody wants to see: the filters of `ledger list` and `ledger export`, of `/api/records`, `/api/export` and the console's list.
//!
//! Promises: a word that no record can hold is refused and the legal ones are named, so a typo never reads as "there is none"; a filter written out
//! ([`Filter::query`]) reads back as the same filter. Takes: one `key=value` after the other, from a command line or a query string.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use memchr::memmem::Finder;
use serde_json::{Map, Value};

use crate::terms::{Leaf, Reason, Verdict};

/// The types of record that a filter may name.
const TYPES: [&str; 8] = [
    "open", "stop", "config", "key", "prune", "decision", "outcome", "refused",
];
const LEAVES: [Leaf; 3] = [Leaf::Hold, Leaf::Split, Leaf::Release];
const VERDICTS: [Verdict; 3] = [Verdict::Forward, Verdict::Refuse, Verdict::Local];

/// What a record must be to be listed; a part that is `None` asks nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `t`: `decision`, `outcome`, …
    pub kind: Option<String>,
    /// The call: its decision and its outcome.
    pub call: Option<String>,
    /// The run of leafgate.
    pub run: Option<String>,
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
    /// Only records with a smaller `seq`.
    pub before: Option<u64>,
}

impl Filter {
    /// Adds one condition. `now` is what a duration (`2h`) is counted back from.
    ///
    /// # Errors
    /// What is wrong, and the legal words where there is a list of them; the value is not quoted.
    pub fn add(&mut self, key: &str, value: &str, now: Timestamp) -> Result<(), String> {
        let plain =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'+');
        if value.is_empty() || !value.bytes().all(plain) {
            return Err(format!(
                "{key} is letters, digits, dot, underscore, hyphen, colon, plus"
            ));
        }
        let text = || Some(value.to_owned());
        match key {
            "t" | "type" => self.kind = Some(word(key, value, TYPES.into_iter())?.to_owned()),
            "call" => self.call = text(),
            "run" => self.run = text(),
            "leaf" => {
                word(key, value, LEAVES.into_iter().map(Leaf::name))?;
                self.leaf = LEAVES.into_iter().find(|leaf| leaf.name() == value);
            }
            "verdict" => {
                word(key, value, VERDICTS.into_iter().map(Verdict::name))?;
                self.verdict = VERDICTS.into_iter().find(|own| own.name() == value);
            }
            "reason" => {
                let known = Reason::ALL.iter().map(|reason| reason.code());
                self.reason = Some(word(key, value, known)?.to_owned());
            }
            "fixture" | "fixture_id" | "fixture_hash" => self.fixture = text(),
            "host" | "host_pin" => self.host = text(),
            "since" => self.since = Some(time(key, value, now)?),
            "until" => self.until = Some(time(key, value, now)?),
            "before" => self.before = Some(seq(value).ok_or("before is a seq")?),
            _ => {
                return Err(
                    "the query knows t, call, run, leaf, verdict, reason, fixture, host, since, until, before"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// The conditions as `key` and value, in a fixed order; times are written out.
    pub fn parts(&self) -> Vec<(&'static str, String)> {
        let times = |time: Option<Timestamp>| time.map(|time| time.to_string());
        [
            ("t", self.kind.clone()),
            ("call", self.call.clone()),
            ("run", self.run.clone()),
            ("leaf", self.leaf.map(|leaf| leaf.name().to_owned())),
            ("verdict", self.verdict.map(|own| own.name().to_owned())),
            ("reason", self.reason.clone()),
            ("fixture", self.fixture.clone()),
            ("host", self.host.clone()),
            ("since", times(self.since)),
            ("until", times(self.until)),
            ("before", self.before.map(|seq| seq.to_string())),
        ]
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key, value)))
        .collect()
    }

    /// As a query string without its question mark; empty where everything is taken.
    pub fn query(&self) -> String {
        let parts: Vec<String> = self
            .parts()
            .iter()
            // A plus would read as a space.
            .map(|(key, value)| format!("{key}={}", value.replace('+', "%2B")))
            .collect();
        parts.join("&")
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        let members: Map<String, Value> = self
            .parts()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), Value::String(value)))
            .collect();
        Value::Object(members)
    }

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
            && is(self.run.as_deref(), "run")
            && is(self.leaf.map(Leaf::name), "leaf")
            && is(self.verdict.map(Verdict::name), "verdict")
            && is(self.reason.as_deref(), "reason")
            && either(&self.fixture, "fixture_id", "fixture_hash")
            && either(&self.host, "host", "host_pin")
            && self.before.is_none_or(|before| {
                record
                    .get("seq")
                    .and_then(Value::as_u64)
                    .is_some_and(|seq| seq < before)
            })
            && self.within(text("time"))
    }

    /// Whether a record of this time lies in the filter's span.
    pub(super) fn within(&self, time: Option<&str>) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        // A record without a readable time is in no span of time.
        let Some(time) = time.and_then(|time| time.parse::<Timestamp>().ok()) else {
            return false;
        };
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time < until)
    }

    /// What a line must hold as bytes to be worth reading.
    pub(super) fn sieve(&self) -> Sieve {
        let words = [
            self.kind.as_deref(),
            self.call.as_deref(),
            self.run.as_deref(),
            self.leaf.map(Leaf::name),
            self.verdict.map(Verdict::name),
            self.reason.as_deref(),
            self.fixture.as_deref(),
            self.host.as_deref(),
        ];
        Sieve::of(words.into_iter().flatten())
    }
}

/// Throws away lines that cannot pass, without reading them as JSON: a value stands in a record's one legal form as it is, between quotes.
#[derive(Debug)]
pub(super) struct Sieve(Vec<Finder<'static>>);

impl Sieve {
    /// Of values that must all stand in the line.
    pub(super) fn of<'a>(words: impl Iterator<Item = &'a str>) -> Sieve {
        Sieve(
            words
                .map(|word| Finder::new(format!("\"{word}\"").as_bytes()).into_owned())
                .collect(),
        )
    }

    /// Whether the line may pass.
    pub(super) fn lets(&self, line: &[u8]) -> bool {
        self.0.iter().all(|finder| finder.find(line).is_some())
    }
}

fn word(
    key: &str,
    value: &str,
    known: impl Iterator<Item = &'static str> + Clone,
) -> Result<&'static str, String> {
    known.clone().find(|word| *word == value).ok_or_else(|| {
        let known: Vec<&str> = known.collect();
        format!("{key} is one of {}", known.join(", "))
    })
}

/// Digits alone: no sign, no space.
pub fn seq(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// RFC 3339, a date (its first instant, UTC), or how long ago.
fn time(key: &str, text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{key} is a time (2026-11-30T08:00:00Z), a date (2026-11-30, its first instant in UTC) or how long ago (2h, 30m, 7d)"
        )
    };
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let date = text.len() == 10 && text.as_bytes()[4] == b'-';
    if date {
        return format!("{text}T00:00:00Z").parse().map_err(|_| wrong());
    }
    let ago = duration(text).ok_or_else(wrong)?;
    now.checked_sub(ago).map_err(|_| wrong())
}

/// `24h`, `7d`, `PT24H`: a length of time; a day is 24 hours. `None` for every other text.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let span: Span = text.parse().ok()?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    (!length.is_negative() && !length.is_zero()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-30T10:00:00Z".parse().unwrap()
    }

    fn filter(parts: &[(&str, &str)]) -> Filter {
        let mut filter = Filter::default();
        for (key, value) in parts {
            filter.add(key, value, now()).unwrap();
        }
        filter
    }

    #[test]
    fn each_part_of_a_filter_takes_its_own_and_refuses_its_twin() {
        let record = serde_json::json!({
            "t": "decision", "call": "01A", "leaf": "split", "verdict": "forward", "reason": "redacted_metadata", "fixture_id": "doc-17",
            "fixture_hash": "sha256:aa", "host_pin": "local", "time": "2026-11-30T06:52:30.000007Z", "run": "01R", "seq": 7,
        });
        let line = record.to_string();
        assert!(Filter::default().takes(&record));
        for (key, good, bad) in [
            ("t", "decision", "outcome"),
            ("call", "01A", "01B"),
            ("run", "01R", "01S"),
            ("leaf", "split", "hold"),
            ("verdict", "forward", "refuse"),
            ("reason", "redacted_metadata", "public_fixture"),
            ("fixture", "doc-17", "doc-18"),
            ("fixture", "sha256:aa", "sha256:ab"),
            ("host", "local", "other"),
            (
                "since",
                "2026-11-30T06:52:30.000007Z",
                "2026-11-30T06:52:30.000008Z",
            ),
            (
                "until",
                "2026-11-30T06:52:30.000008Z",
                "2026-11-30T06:52:30.000007Z",
            ),
            ("since", "2026-11-30", "2026-12-01"),
            ("since", "4h", "3h"),
            ("until", "3h", "4h"),
            ("since", "1d", "30m"),
            ("before", "8", "7"),
        ] {
            let (yes, no) = (filter(&[(key, good)]), filter(&[(key, bad)]));
            assert!(yes.takes(&record), "{key}={good}");
            assert!(yes.sieve().lets(line.as_bytes()), "{key}={good}");
            assert!(!no.takes(&record), "{key}={bad}");
        }
    }

    #[test]
    fn unknown_words_are_refused_and_the_legal_ones_named() {
        for (key, value, names) in [
            ("leaf", "holds", "hold, split, release"),
            ("verdict", "blocked", "forward, refuse, local"),
            ("reason", "residue", "card_missing, card_ambiguous"),
            ("t", "decisions", "decision, outcome"),
            ("since", "yesterday", "2h, 30m, 7d"),
            ("since", "-2h", "2h, 30m, 7d"),
            ("until", "2026-13-01", "a date"),
            ("before", "+5", "before is a seq"),
            ("body", "x", "the query knows"),
            ("host", "<b>", "letters"),
            ("host", "", "letters"),
        ] {
            let why = Filter::default().add(key, value, now()).unwrap_err();
            assert!(why.contains(names), "{key}={value}: {why}");
            assert!(
                value.len() < 4 || key == "reason" || !why.contains(value),
                "{why}"
            );
        }
    }

    #[test]
    fn a_filter_written_out_reads_back() {
        let whole = filter(&[
            ("t", "decision"),
            ("call", "01A"),
            ("run", "01R"),
            ("leaf", "hold"),
            ("verdict", "refuse"),
            ("reason", "residue_present"),
            ("fixture", "sha256:aa"),
            ("host", "local"),
            ("since", "2h"),
            ("until", "2026-12-01"),
            ("before", "9"),
        ]);
        let mut back = Filter::default();
        for part in whole.query().split('&') {
            let (key, value) = part.split_once('=').unwrap();
            back.add(key, value, "2030-01-01T00:00:00Z".parse().unwrap())
                .unwrap();
        }
        assert_eq!(whole, back);
        assert_eq!(Filter::default().query(), "");
    }
}
