//! Bodies that a command is given: in a file, by a pipe (`<(…)`, a FIFO), or on standard input.
//!
//! Promises: what a name leads to may have no end (a device, a pipe), and yet no more than the policy's `limits.body` is held of one body.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::out::Failure;

/// Reads one body of at most `most` bytes; `-` is standard input.
pub(super) fn body(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let fault = |error: &io::Error| Failure::file(file, error);
    let from: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|error| fault(&error))?)
    };
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| fault(&error))?;
    if bytes.len() as u64 > most {
        return Err(too_long(&file.display().to_string(), most));
    }
    Ok(bytes)
}

/// A file with one body on each line, read one after another.
pub(super) struct Bodies {
    file: PathBuf,
    input: Box<dyn BufRead>,
    most: u64,
    number: u64,
    line: Vec<u8>,
}

impl Bodies {
    /// Each line holds at most `most` bytes.
    pub(super) fn open(file: &Path, most: u64) -> Result<Bodies, Failure> {
        let input = File::open(file).map_err(|error| Failure::file(file, &error))?;
        Ok(Bodies::of(file, BufReader::new(input), most))
    }

    fn of(file: &Path, input: impl BufRead + 'static, most: u64) -> Bodies {
        Bodies {
            file: file.to_owned(),
            input: Box::new(input),
            most,
            number: 0,
            line: Vec::new(),
        }
    }

    /// The next line that is not blank, with its number, from 1 up.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Failure> {
        loop {
            self.line.clear();
            let read = self
                .input
                .by_ref()
                .take(self.most.saturating_add(1))
                .read_until(b'\n', &mut self.line)
                .map_err(|error| Failure::file(&self.file, &error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            } else if self.line.len() as u64 > self.most {
                let line = format!("{}: line {}", self.file.display(), self.number);
                return Err(too_long(&line, self.most));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some((self.number, &self.line)))
    }
}

fn too_long(what: &str, most: u64) -> Failure {
    Failure::new(format!(
        "{what}: the body is longer than limits.body ({most} bytes), so every call with it is refused; shorten it, or raise limits.body in the policy"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(failure: Failure) -> String {
        match failure {
            Failure::Lines(lines) => lines.join("\n"),
            Failure::ReaderGone => panic!("no reader is asked"),
        }
    }

    #[test]
    fn a_body_is_read_up_to_the_limit_and_not_a_byte_more() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("body");
        std::fs::write(&file, "12345678").unwrap();
        assert_eq!(body(&file, 8).unwrap(), b"12345678");
        let why = said(body(&file, 7).unwrap_err());
        assert!(why.contains("limits.body (7 bytes)"), "{why}");
        assert!(!why.contains("123"), "{why}");
        // What has no end ends too; what is empty is a body.
        let why = said(body(Path::new("/dev/zero"), 1 << 20).unwrap_err());
        assert!(why.contains("limits.body (1048576 bytes)"), "{why}");
        assert_eq!(body(Path::new("/dev/null"), 8).unwrap(), b"");
    }

    #[test]
    fn each_line_has_the_limit_of_a_body() {
        let lines = |text: &'static [u8], most| {
            let mut bodies = Bodies::of(Path::new("b.jsonl"), text, most);
            let mut found = Vec::new();
            loop {
                match bodies.next() {
                    Ok(Some((number, line))) => found.push((number, line.to_vec())),
                    Ok(None) => return Ok(found),
                    Err(failure) => return Err(said(failure)),
                }
            }
        };
        let both = vec![(1, b"1234".to_vec()), (4, b"5678".to_vec())];
        assert_eq!(lines(b"1234\n\n  \n5678", 4).unwrap(), both);
        assert_eq!(lines(b"1234\n\n  \n5678\n", 4).unwrap(), both);
        for text in [&b"1234\n56789"[..], b"1234\n56789\n"] {
            let why = lines(text, 4).unwrap_err();
            assert!(why.starts_with("b.jsonl: line 2: "), "{why}");
            assert!(why.contains("limits.body (4 bytes)"), "{why}");
        }
        let mut zeros = Bodies::open(Path::new("/dev/zero"), 1 << 20).unwrap();
        assert!(said(zeros.next().unwrap_err()).contains("line 1: "));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_by_name_is_a_body_too() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        crate::files::make_fifo(&pipe);
        let into = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(into, "{}"));
        assert_eq!(body(&pipe, 2).unwrap(), b"{}");
        writer.join().unwrap().unwrap();
    }
}
