//! What the ledger has seen: another proxy in front of leafgate, and a clock that went back.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Finding;
use crate::ledger::{self, Filter};
use crate::policy::Policy;

/// Headers that a client does not write by itself.
const GATEWAY: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Records that are looked at.
const RECENT: usize = 1000;

pub(super) fn findings(policy: &Policy) -> Vec<Finding> {
    // No ledger yet: nothing was seen.
    let Ok(page) = ledger::page(&policy.ledger.dir, &Filter::default(), RECENT, RECENT) else {
        return Vec::new();
    };
    let records: Vec<Value> = page
        .records
        .into_iter()
        .map(|record| record.value)
        .collect();
    let mut found: Vec<Finding> = in_front(&records).into_iter().collect();
    let newest = records
        .iter()
        .filter_map(|record| record.get("time")?.as_str()?.parse::<Timestamp>().ok());
    found.extend(clock(newest.max(), Timestamp::now(), &policy.flag()));
    found
}

fn in_front(records: &[Value]) -> Option<Finding> {
    let names: BTreeSet<&str> = records
        .iter()
        .filter_map(|record| record.get("dropped")?.get("names")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .filter(|name| GATEWAY.contains(name))
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        Finding::new(
            format!("recent calls carried {}", names.join(", ")),
            "a proxy or router stands between the client and leafgate: it can send a refused call to another host",
            "point the client at leafgate itself; leafgate must be the last hop and the only one",
        )
    })
}

fn clock(newest: Option<Timestamp>, now: Timestamp, flag: &str) -> Option<Finding> {
    let ahead = newest?.duration_since(now);
    (ahead > SignedDuration::from_secs(5)).then(|| {
        Finding::new(
            format!("this machine's clock is {} s behind the newest record of the ledger", ahead.as_secs()),
            "the age of a pin is measured with it: a clock that is far back keeps a stale pin in force",
            format!("set the clock (a time service), then look at `leafgate pin list{flag}`"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_in_front_is_found_by_its_headers() {
        let call = |names: &[&str]| serde_json::json!({"dropped": {"names": names, "other": 0}});
        let found = in_front(&[
            call(&["user-agent"]),
            call(&["via", "x-forwarded-for"]),
            call(&["via"]),
        ]);
        assert!(
            found
                .unwrap()
                .what
                .ends_with("carried via, x-forwarded-for")
        );
        assert_eq!(
            in_front(&[call(&["user-agent", "accept"]), Value::Null]),
            None
        );
    }

    #[test]
    fn a_clock_behind_the_ledger_is_found() {
        let now: Timestamp = "2026-11-30T08:00:00Z".parse().unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert!(clock(at("2026-11-30T08:01:00.000001Z"), now, "").is_some());
        assert_eq!(clock(at("2026-11-30T08:00:04Z"), now, ""), None);
        assert_eq!(clock(None, now, ""), None);
    }
}
