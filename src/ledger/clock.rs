//! The time of a record: RFC 3339, UTC, microseconds, 27 bytes. The order of records comes from `seq`, never from here: a clock may be set back.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Writes the time; the part down to the second is made once a second.
#[derive(Debug)]
pub(super) struct Clock {
    second: u64,
    text: [u8; 27],
}

/// A record's time.
pub(super) type Time = [u8; 27];

impl Clock {
    /// A clock that has not been read.
    pub(super) fn new() -> Clock {
        Clock {
            second: 0,
            text: *b"1970-01-01T00:00:00.000000Z",
        }
    }

    /// The text of this time.
    pub(super) fn text(&mut self, time: SystemTime) -> Time {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.at(since.as_secs(), since.subsec_micros())
    }

    fn at(&mut self, second: u64, micros: u32) -> Time {
        if second != self.second {
            let whole = i64::try_from(second)
                .ok()
                .and_then(|second| Timestamp::from_second(second).ok())
                .unwrap_or(Timestamp::UNIX_EPOCH);
            // `Timestamp` prints `2026-11-30T06:52:30Z` for a whole second.
            let text = whole.to_string();
            self.text[..19].copy_from_slice(&text.as_bytes()[..19]);
            self.second = second;
        }
        let mut rest = micros;
        for place in self.text[20..26].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.text
    }
}

/// How far `now` is before `last`, as `12.000345 s`; `None` where it is not.
pub(super) fn set_back(last: &Time, now: &Time) -> Option<String> {
    if now >= last {
        return None;
    }
    let read = |time: &Time| -> Option<Timestamp> { std::str::from_utf8(time).ok()?.parse().ok() };
    let micros = read(last)?.as_microsecond() - read(now)?.as_microsecond();
    Some(format!(
        "{}.{:06} s",
        micros / 1_000_000,
        micros % 1_000_000
    ))
}

/// Whether `text` has the form of a record's time.
pub(super) fn is_time(text: &[u8]) -> bool {
    text.len() == 27
        && text
            .iter()
            .zip(b"0000-00-00T00:00:00.000000Z")
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_to_the_microsecond() {
        let mut clock = Clock::new();
        for (second, micros, text) in [
            (1_796_021_550, 7, "2026-11-30T06:52:30.000007Z"),
            (1_796_021_550, 999_999, "2026-11-30T06:52:30.999999Z"),
            (1_796_021_551, 0, "2026-11-30T06:52:31.000000Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000001Z"),
        ] {
            let made = clock.at(second, micros);
            assert_eq!(std::str::from_utf8(&made).unwrap(), text);
            assert!(is_time(&made));
        }
        assert!(is_time(&clock.text(SystemTime::now())));
        let (early, late) = (clock.at(1_796_021_550, 7), clock.at(1_796_021_551, 6));
        assert_eq!(set_back(&late, &early).as_deref(), Some("0.999999 s"));
        assert_eq!(set_back(&early, &late), None);
        assert_eq!(set_back(&late, &late), None);
        assert!(!is_time(b"2026-11-30T06:52:30.0000070"));
        assert!(!is_time(b"2026-11-30T06:52:30.00000Z"));
    }
}
