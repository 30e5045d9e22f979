//! Reading records for people: `ledger list`, `show`, the console. It checks nothing (that is [`verify`](super::verify())) and trusts nothing: a line that is no record is an error
//! with its file and line, a begun last line is no record yet.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{Fault, LedgerError, Problem};
use super::look::files;
use super::record::MAX_RECORD_BYTES;
use super::scan::SegmentFile;

/// Read at once.
const BLOCK: usize = 64 * 1024;

/// The records of a ledger, in order.
#[derive(Debug)]
pub struct Records {
    files: std::vec::IntoIter<SegmentFile>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    lines: BufReader<File>,
    number: u64,
}

/// All records of the ledger in `dir`, each with its `seq`; those that were pruned are not among them, also where their file is still there.
///
/// # Errors
/// Where the folder cannot be listed.
pub fn records(dir: &Path) -> Result<Records, LedgerError> {
    Ok(Records {
        files: files(dir)?.into_iter(),
        open: None,
    })
}

impl Records {
    fn step(&mut self) -> Result<Option<(u64, Value)>, LedgerError> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(next) = self.files.next() else {
                    return Ok(None);
                };
                let file = crate::files::open(&next.path)
                    .map_err(LedgerError::io(&next.path, "open the segment"))?;
                self.open = Some(Open {
                    path: next.path,
                    lines: BufReader::with_capacity(BLOCK, file),
                    number: 0,
                });
                continue;
            };
            let mut line = Vec::new();
            // One byte more than a record and its newline: a longer line shows, and no line fills the memory.
            open.lines
                .by_ref()
                .take(MAX_RECORD_BYTES as u64 + 2)
                .read_until(b'\n', &mut line)
                .map_err(LedgerError::io(&open.path, "read the segment"))?;
            open.number += 1;
            if line.last() != Some(&b'\n') {
                if line.len() > MAX_RECORD_BYTES {
                    return Err(problem(&open.path, open.number, Fault::Long));
                }
                // The end, or a line that is just being written.
                self.open = None;
                continue;
            }
            return parse(&line[..line.len() - 1])
                .ok_or_else(|| {
                    problem(
                        &open.path,
                        open.number,
                        Fault::Form("is no JSON object with a seq"),
                    )
                })
                .map(Some);
        }
    }
}

impl Iterator for Records {
    type Item = Result<(u64, Value), LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(_))) {
            // Nothing after a fault is shown as if it were whole.
            self.open = None;
            self.files = Vec::new().into_iter();
        }
        step
    }
}

fn parse(line: &[u8]) -> Option<(u64, Value)> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let seq = value.get("seq")?.as_u64()?;
    Some((seq, value))
}

fn problem(path: &Path, number: u64, fault: Fault) -> LedgerError {
    LedgerError::Problem(Problem {
        file: path.to_owned(),
        line: Some(number),
        seq: None,
        fault,
    })
}
