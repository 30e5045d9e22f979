//! Sizes and durations as the policy writes them.
//!
//! Promises: a zero is never read (a zero limit must not come to mean "no limit"), nothing overflows, and a range is always given.

use std::time::Duration;

use toml::de::DeValue;

use super::read::Value;

const SIZES: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
// "ms" stands before "s" and "m": the longer suffix is tried first.
const DURATIONS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// One day.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// `"64KiB"` or an integer: bytes, from `least` to `most`.
pub(super) fn size(value: &Value<'_>, least: u64, most: u64) -> Option<u64> {
    if matches!(value.raw(), DeValue::Integer(_)) {
        return value.integer(least, most);
    }
    let text = value.string()?;
    let Some(bytes) = amount(text, &SIZES) else {
        value.fault("not a size; write bytes as an integer, or a string like \"64KiB\", \"16MiB\" or \"1GiB\"");
        return None;
    };
    if !(least..=most).contains(&bytes) {
        value.fault(format!("out of range; write {least} to {most} bytes"));
        return None;
    }
    Some(bytes)
}

/// `"30s"`: from one millisecond to `most`.
pub(super) fn duration(value: &Value<'_>, most: Duration) -> Option<Duration> {
    let text = value.string()?;
    let Some(millis) = amount(text, &DURATIONS) else {
        value.fault(
            "not a duration; write a string like \"10ms\", \"30s\", \"5m\", \"24h\" or \"7d\"",
        );
        return None;
    };
    let duration = Duration::from_millis(millis);
    if duration.is_zero() || duration > most {
        value.fault(format!(
            "out of range; write more than zero and at most {}",
            duration_text(most)
        ));
        return None;
    }
    Some(duration)
}

/// The duration as the policy would write it, in the largest unit that is exact.
pub(super) fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut largest = ("ms", 1);
    for (suffix, factor) in DURATIONS {
        if millis % factor == 0 && factor > largest.1 {
            largest = (suffix, factor);
        }
    }
    format!("{}{}", millis / largest.1, largest.0)
}

fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, factor) = units
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    whole
        .then(|| digits.parse::<u64>().ok()?.checked_mul(factor))
        .flatten()
}
