//! How far a long reading is, on standard error.
//!
//! Promises: nothing is shown in the first second; on a terminal one line is written over and taken away at the end, elsewhere (where it was asked for) a line stands for each step.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Nothing is shown before, so that a short reading stays quiet.
const QUIET: Duration = Duration::from_secs(1);
const ON_TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(2);

/// The progress of one reading.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    next: Instant,
    shows: bool,
    terminal: bool,
    written: bool,
}

impl Progress {
    /// Shown on a terminal, and elsewhere where it was `asked` for.
    pub(super) fn new(asked: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let begun = Instant::now();
        Progress {
            begun,
            next: begun + QUIET,
            shows: terminal || asked,
            terminal,
            written: false,
        }
    }

    /// So many bytes of all are read.
    pub(super) fn at(&mut self, read: u64, all: u64) {
        let now = Instant::now();
        if !self.shows || now < self.next {
            return;
        }
        let line = text(read, all, now - self.begun);
        let mut stderr = std::io::stderr().lock();
        // Nobody is helped by an error about what is only shown by the way.
        let _ = if self.terminal {
            write!(stderr, "\r{line}\u{1b}[K")
        } else {
            writeln!(stderr, "leafgate: {line}")
        };
        let _ = stderr.flush();
        self.written = true;
        self.next = now
            + if self.terminal {
                ON_TERMINAL
            } else {
                ELSEWHERE
            };
    }

    /// Takes the line away.
    pub(super) fn end(&mut self) {
        if self.written && self.terminal {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn text(read: u64, all: u64, took: Duration) -> String {
    // A ledger that is being written to grows meanwhile.
    let all = all.max(read).max(1);
    let percent = u128::from(read) * 100 / u128::from(all);
    let rate = read as f64 / 1e6 / took.as_secs_f64().max(1e-3);
    format!(
        "{percent} %, {} of {} MB, {rate:.0} MB/s",
        read / 1_000_000,
        all / 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_never_over_a_hundred() {
        let second = Duration::from_secs(1);
        assert_eq!(
            text(50_000_000, 200_000_000, second),
            "25 %, 50 of 200 MB, 50 MB/s"
        );
        assert_eq!(
            text(3_000_000, 2_000_000, second),
            "100 %, 3 of 3 MB, 3 MB/s"
        );
        assert!(text(0, 0, Duration::ZERO).starts_with("0 %"));
    }

    #[test]
    fn a_short_reading_is_quiet() {
        let mut progress = Progress::new(true);
        progress.at(1, 2);
        assert!(!progress.written);
        progress.next = Instant::now();
        progress.at(1, 2);
        assert!(progress.written && progress.next > Instant::now());
    }
}
