//! How many records of which kind a segment holds, as a `prune` record says it.

use std::collections::BTreeMap;

use super::form::{Line, Type};

/// The names, at the places of [`Tally`].
const NAMES: [&str; 10] = [
    "open",
    "stop",
    "config",
    "decision",
    "outcome",
    "refused",
    "key",
    "prune",
    "forwarded",
    "unknown",
];

/// The counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally([u64; NAMES.len()]);

impl Tally {
    /// Takes a record.
    pub(super) fn count(&mut self, read: &Line<'_>) {
        let place = match read.kind {
            Type::Open => 0,
            Type::Stop => 1,
            Type::Config => 2,
            Type::Decision => 3,
            Type::Outcome => 4,
            Type::Refused => 5,
            Type::Key => 6,
            Type::Prune => 7,
        };
        self.0[place] += 1;
        self.0[8] += u64::from(read.forwards);
        self.0[9] += u64::from(read.sent_unknown);
    }

    /// By name; what there was none of is absent.
    pub(super) fn named(&self) -> BTreeMap<String, u64> {
        let all = NAMES.iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
            .map(|(name, count)| ((*name).to_owned(), count))
            .collect()
    }
}
