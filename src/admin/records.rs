//! Reads the record backwards, newest first, straight from the segments (contract, section 9).
//!
//! Promises: only whole lines are shown (a segment's length ends at its last newline); a request reads at most [`MAX_SCANNED`] lines and says
//! where to go on. It does not promise that the chain holds: `ledger verify` does. It takes no lock and never writes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Lines that one request looks at.
pub(super) const MAX_SCANNED: usize = 20_000;
const MAX_LIMIT: usize = 500;
const BLOCK: u64 = 256 * 1024;

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its `seq`.
    pub seq: u64,
    /// The whole record.
    pub value: Value,
}

/// Some records, newest first.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// The records that fit the filter.
    pub records: Vec<Record>,
    /// Ask again with `before` set to this for older ones; `None` at the beginning of the record.
    pub next: Option<u64>,
}

impl Page {
    /// `{"next":N,"records":[…]}`.
    pub fn to_json(&self) -> Value {
        let records: Vec<&Value> = self.records.iter().map(|record| &record.value).collect();
        json!({ "records": records, "next": self.next })
    }
}

/// Which records are asked for. Every part that is given must be equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Key and value, both as they stand in the record.
    pub equal: Vec<(&'static str, String)>,
    /// Only records with a smaller `seq`.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            equal: Vec::new(),
            before: None,
            limit: 50,
        }
    }
}

/// The keys of the record that a filter may name.
const KEYS: [&str; 9] = [
    "t",
    "call",
    "run",
    "leaf",
    "reason",
    "verdict",
    "fixture_id",
    "host",
    "host_pin",
];

/// Why records could not be read. It names the segment, never a line's text.
#[derive(Debug, thiserror::Error)]
pub enum RecordsFault {
    /// The folder or a segment cannot be read.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no record.
    #[error("{} holds a line that is no record; run leafgate ledger verify", .path.display())]
    NoRecord {
        /// The segment.
        path: PathBuf,
    },
}

impl Filter {
    /// Reads a query string, `leaf=hold&limit=20&before=99`. Values are `[A-Za-z0-9._-]`, so nothing is percent-encoded.
    ///
    /// # Errors
    /// What is wrong with it, without its text.
    pub fn parse(query: &str) -> Result<Filter, &'static str> {
        let mut filter = Filter::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or("the query is key=value&…")?;
            filter.add(key, value)?;
        }
        Ok(filter)
    }

    /// Adds one condition.
    ///
    /// # Errors
    /// Where the key is unknown or the value cannot stand in a record.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        match key {
            "before" => self.before = Some(value.parse().map_err(|_| "before is a seq")?),
            "limit" => {
                let limit = value.parse().map_err(|_| "limit is a number")?;
                if !(1..=MAX_LIMIT).contains(&limit) {
                    return Err("limit is 1 to 500");
                }
                self.limit = limit;
            }
            _ => {
                let key = KEYS.into_iter().find(|known| *known == key).ok_or(
                    "the query knows t, call, run, leaf, reason, verdict, fixture_id, host, host_pin, before, limit",
                )?;
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
                if !value.bytes().all(plain) {
                    return Err("a value of the query is letters, digits, dot, underscore, hyphen");
                }
                self.equal.push((key, value.to_owned()));
            }
        }
        Ok(())
    }

    fn takes(&self, value: &Value) -> bool {
        self.equal
            .iter()
            .all(|(key, wanted)| value[*key].as_str() == Some(wanted))
    }
}

/// The newest records of a ledger that fit the filter.
///
/// # Errors
/// Where a segment cannot be read or holds a line that is no record. A folder that is not there is an empty ledger's.
pub fn last(dir: &Path, filter: &Filter) -> Result<Page, RecordsFault> {
    let mut page = Page::default();
    let mut scanned = 0;
    for segment in segments(dir)?.into_iter().rev() {
        if filter.before.is_some_and(|before| segment.first >= before) {
            continue;
        }
        let mut lines = Backward::open(&segment.path)?;
        while let Some(line) = lines.next_line()? {
            let record = record(&line, &segment.path)?;
            if filter.before.is_some_and(|before| record.seq >= before) {
                continue;
            }
            scanned += 1;
            let seq = record.seq;
            if filter.takes(&record.value) {
                page.records.push(record);
            }
            if page.records.len() == filter.limit || scanned == MAX_SCANNED {
                page.next = (seq > 0).then_some(seq);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// The record of this `seq`.
///
/// # Errors
/// As [`last`].
pub fn one(dir: &Path, seq: u64) -> Result<Option<Record>, RecordsFault> {
    let newest_first = segments(dir)?.into_iter().rev();
    let Some(segment) = newest_first
        .into_iter()
        .find(|segment| segment.first <= seq)
    else {
        return Ok(None);
    };
    let fault = |source| unreadable(&segment.path, source);
    let mut bytes = Vec::new();
    File::open(&segment.path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(fault)?;
    bytes.truncate(memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1));
    let place = usize::try_from(seq - segment.first).unwrap_or(usize::MAX);
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .nth(place)
        .map(|line| record(line, &segment.path))
        .transpose()
        // A segment whose lines are not numbered as its name says holds no record of this seq.
        .map(|found| found.filter(|record| record.seq == seq))
}

struct Segment {
    first: u64,
    path: PathBuf,
}

/// The segments, oldest first.
fn segments(dir: &Path) -> Result<Vec<Segment>, RecordsFault> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(unreadable(dir, source)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| unreadable(dir, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let stem = name.and_then(|name| name.strip_suffix(".jsonl"));
        let digits =
            stem.filter(|stem| stem.len() == 12 && stem.bytes().all(|b| b.is_ascii_digit()));
        if let Some(first) = digits.and_then(|digits| digits.parse().ok()) {
            all.push(Segment { first, path });
        }
    }
    all.sort_by_key(|segment| segment.first);
    Ok(all)
}

fn record(line: &[u8], path: &Path) -> Result<Record, RecordsFault> {
    serde_json::from_slice::<Value>(line)
        .ok()
        .and_then(|value| {
            let seq = value["seq"].as_u64()?;
            Some(Record { seq, value })
        })
        .ok_or_else(|| RecordsFault::NoRecord {
            path: path.to_path_buf(),
        })
}

fn unreadable(path: &Path, source: std::io::Error) -> RecordsFault {
    RecordsFault::Unreadable {
        path: path.to_path_buf(),
        source,
    }
}

/// The lines of a file from its last whole one to its first, read a block at a time.
struct Backward<'a> {
    path: &'a Path,
    file: File,
    /// Where in the file `held` begins.
    start: u64,
    /// Bytes read and not yet given: whole lines, each with its newline, after the tail of one that began earlier.
    held: Vec<u8>,
}

impl<'a> Backward<'a> {
    fn open(path: &'a Path) -> Result<Backward<'a>, RecordsFault> {
        let fault = |source| unreadable(path, source);
        let file = File::open(path).map_err(fault)?;
        let start = file.metadata().map_err(fault)?.len();
        let mut lines = Backward {
            path,
            file,
            start,
            held: Vec::new(),
        };
        // What stands after the last newline is not part of the record yet.
        while lines.start > 0 && memchr::memchr(b'\n', &lines.held).is_none() {
            lines.read_block()?;
        }
        let end = memchr::memrchr(b'\n', &lines.held).map_or(0, |end| end + 1);
        lines.held.truncate(end);
        Ok(lines)
    }

    fn read_block(&mut self) -> Result<(), RecordsFault> {
        let size = self.start.min(BLOCK);
        self.start -= size;
        let mut block = vec![0; size as usize];
        self.file
            .seek(SeekFrom::Start(self.start))
            .and_then(|_| self.file.read_exact(&mut block))
            .map_err(|source| unreadable(self.path, source))?;
        block.append(&mut self.held);
        self.held = block;
        Ok(())
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, RecordsFault> {
        loop {
            let Some(body) = self.held.len().checked_sub(1) else {
                if self.start == 0 {
                    return Ok(None);
                }
                self.read_block()?;
                continue;
            };
            // The newline before the last line ends the one before it.
            match memchr::memrchr(b'\n', &self.held[..body]) {
                Some(end) => return Ok(Some(self.held.split_off(end + 1))),
                None if self.start == 0 => return Ok(Some(std::mem::take(&mut self.held))),
                None => self.read_block()?,
            }
        }
    }
}
