//! Standard output and the way a command fails.
//!
//! Promises: colour only on a terminal that wants it (`NO_COLOR`, `CLICOLOR` and `TERM=dumb` are honoured); text from outside is shown without
//! control characters; a reader that went away ends the command quietly, with exit status 0.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};

use crate::terms::Leaf;
pub(super) use crate::terms::safe;

/// How a command ended, where it did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Exit status 0.
    Yes,
    /// The answer is no: exit status 1.
    No,
    /// Of a command that was run: its own.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Status(u8),
}

impl Done {
    pub(super) fn when(yes: bool) -> Done {
        if yes { Done::Yes } else { Done::No }
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Usage or configuration, exit status 2: one line on standard error for each.
    Lines(Vec<String>),
    /// Whoever read standard output went away: not an error.
    ReaderGone,
}

impl Failure {
    pub(super) fn new(line: impl Into<String>) -> Failure {
        Failure::Lines(vec![line.into()])
    }

    /// The error and its causes on one line.
    pub(super) fn of(error: &dyn std::error::Error) -> Failure {
        Failure::new(chain(error))
    }

    /// A file that could not be read or written.
    pub(super) fn file(path: &std::path::Path, error: &io::Error) -> Failure {
        Failure::new(format!("{}: {error}", path.display()))
    }
}

/// `error: cause: cause`.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Some errors already say their cause.
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}

/// What a piece of text means, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Dim,
    Good,
    Half,
    Bad,
    /// Characters picked out of a text; white space among them is seen too.
    Mark,
}

impl Tone {
    pub(super) fn of(leaf: Leaf) -> Tone {
        match leaf {
            Leaf::Hold => Tone::Bad,
            Leaf::Split => Tone::Half,
            Leaf::Release => Tone::Good,
        }
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
        match self {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().bold(),
            Tone::Dim => Style::new().dimmed(),
            Tone::Good => colour(AnsiColor::Green),
            Tone::Half => colour(AnsiColor::Yellow),
            Tone::Bad => colour(AnsiColor::Red),
            Tone::Mark => colour(AnsiColor::Red).invert(),
        }
    }
}

/// Standard output.
pub(super) struct Out {
    to: Box<dyn Write>,
    colour: bool,
    terminal: bool,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Out(colour: {})", self.colour)
    }
}

impl Out {
    /// The process's own.
    pub(super) fn stdout() -> Out {
        let stdout = io::stdout();
        let colour = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        Out {
            terminal: stdout.is_terminal(),
            to: Box::new(io::BufWriter::new(stdout)),
            colour,
        }
    }

    #[cfg(test)]
    pub(super) fn to(to: impl Write + 'static, colour: bool) -> Out {
        Out {
            to: Box::new(to),
            colour,
            terminal: false,
        }
    }

    /// The same, as if a person read it.
    #[cfg(test)]
    pub(super) fn read_by_a_person(mut self) -> Out {
        self.terminal = true;
        self
    }

    /// Whether it is in colour.
    pub(super) fn coloured(&self) -> bool {
        self.colour
    }

    /// Whether a person reads it where it comes out: no file and no log keeps it.
    pub(super) fn on_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes one line.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        gone(writeln!(self.to, "{line}"))
    }

    /// Writes bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        gone(self.to.write_all(bytes))
    }

    /// Writes one JSON value on a line of its own, in ASCII: what it holds cannot steer a terminal.
    pub(super) fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.line(crate::ledger::ascii(&value.to_string()))
    }

    /// What was written so far goes out.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        gone(self.to.flush())
    }

    /// The text in its tone, at least `width` columns wide (the colour does not count).
    pub(super) fn paint(&self, tone: Tone, text: &str, width: usize) -> String {
        let fill = " ".repeat(width.saturating_sub(text.chars().count()));
        if self.colour && tone != Tone::Plain {
            let style = tone.style();
            format!("{style}{text}{style:#}{fill}")
        } else {
            format!("{text}{fill}")
        }
    }
}

fn gone(done: io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::ReaderGone
        } else {
            Failure::new(format!("standard output: {error}"))
        }
    })
}

/// `1 record`, `2 records`.
pub(super) fn count(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is_one() {
        let mut out = Out::to(Broken(io::ErrorKind::BrokenPipe), false);
        assert!(matches!(out.line("x"), Err(Failure::ReaderGone)));
        let mut out = Out::to(Broken(io::ErrorKind::StorageFull), false);
        assert!(matches!(out.line("x"), Err(Failure::Lines(_))));
    }

    #[test]
    fn colour_is_there_only_where_it_is_wanted_and_does_not_move_columns() {
        let plain = Out::to(io::sink(), false);
        let coloured = Out::to(io::sink(), true);
        assert_eq!(plain.paint(Tone::of(Leaf::Hold), "hold", 7), "hold   ");
        assert_eq!(
            coloured.paint(Tone::of(Leaf::Hold), "hold", 7),
            "\u{1b}[1m\u{1b}[31mhold\u{1b}[0m   "
        );
        assert_eq!(coloured.paint(Tone::Plain, "hold", 0), "hold");
    }
}
