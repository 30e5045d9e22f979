//! Looking into a ledger: the newest records that fit a filter, one record, the records of a call, and every record that fits, in order.
//!
//! Promises: only whole lines are read (a segment's length ends at its last newline); nothing is kept on disk or between two looks, so there is no index that could
//! differ from the segments. What makes it quick: a segment whose first and last record lie outside the filter's span of time is not read, and a line that does not hold
//! the filter's values as bytes is not read as JSON. It does not promise that the chain holds, nor that a line outside the one legal form is found:
//! `verify` does. It takes no lock and never writes. What lies before the records that `pruned` begins from is not read: no checkpoint and no chain speaks for it, and
//! `verify` does not read it either. However long a segment is, it is read in blocks of one size and once, and no further than the first line that is too long.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::error::{Fault, LedgerError, Problem};
use super::past::Past;
use super::query::{Filter, Sieve};
use super::record::MAX_RECORD_BYTES;
use super::scan::{MOST_TORN, SegmentFile, Tail, each_line, segments};

/// How much of a segment is read at once from its end.
const BLOCK: u64 = 256 * 1024;
/// A clock that is set back by at most this much inside a segment hides no record from a span of time.
const SET_BACK: SignedDuration = SignedDuration::from_hours(1);

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its `seq`.
    pub seq: u64,
    /// The line as it stands, without its newline.
    pub line: Vec<u8>,
    /// The line, read.
    pub value: Value,
}

/// Some records, newest first.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    /// The records that fit the filter.
    pub records: Vec<Record>,
    /// Ask again with `before` set to this for older ones; `None` where there are none.
    pub next: Option<u64>,
}

impl Page {
    /// `{"next":N,"records":[…]}`.
    pub fn to_json(&self) -> Value {
        let records: Vec<&Value> = self.records.iter().map(|record| &record.value).collect();
        json!({ "records": records, "next": self.next })
    }
}

impl Record {
    /// Reads a line.
    ///
    /// # Errors
    /// Where it is no JSON object with a `seq`; the line is not quoted.
    pub(super) fn read(line: &[u8], path: &Path) -> Result<Record, LedgerError> {
        serde_json::from_slice::<Value>(line)
            .ok()
            .and_then(|value| {
                let seq = value.get("seq")?.as_u64()?;
                Some(Record {
                    seq,
                    line: line.to_vec(),
                    value,
                })
            })
            .ok_or_else(|| no_record(path))
    }

    /// A string field; `None` where it is absent or sealed.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// An integer field.
    pub fn int(&self, key: &str) -> Option<u64> {
        self.value.get(key).and_then(Value::as_u64)
    }

    /// Whether it is of this type.
    pub fn is(&self, kind: &str) -> bool {
        self.text("t") == Some(kind)
    }

    /// Whether it is a decision that forwarded.
    pub fn forwards(&self) -> bool {
        self.is("decision") && self.text("verdict") == Some("forward")
    }

    /// The line as JSON in ASCII: as it stands where it is in the one legal form.
    pub fn json(&self) -> String {
        let plain = |text: &str| text.bytes().all(|b| (b' '..=b'~').contains(&b));
        match std::str::from_utf8(&self.line) {
            Ok(line) if plain(line) => line.to_owned(),
            Ok(_) | Err(_) => ascii(&self.value.to_string()),
        }
    }
}

/// A JSON text in ASCII alone: every other character, and every control character but the line break between members, as its escape. What it says stays the same.
pub fn ascii(json: &str) -> String {
    use std::fmt::Write as _;
    json.chars()
        .fold(String::with_capacity(json.len()), |mut out, c| {
            if c == '\n' || (' '..='~').contains(&c) {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            out
        })
}

fn no_record(path: &Path) -> LedgerError {
    LedgerError::Problem(Problem {
        file: path.to_owned(),
        line: None,
        seq: None,
        fault: Fault::Form("a line is no record; leafgate ledger verify names it"),
    })
}

/// A line that is longer than a record, with its place: the first such line of the segment.
fn too_long(path: &Path) -> LedgerError {
    let mut before = 0;
    let tail = each_line(path, |_| {
        before += 1;
        Ok(())
    });
    if !tail.is_ok_and(|tail| tail == Tail::Long) {
        return no_record(path);
    }
    let name = path.file_stem().and_then(|name| name.to_str());
    let first: Option<u64> = name.and_then(|name| name.parse().ok());
    LedgerError::Problem(Problem {
        file: path.to_owned(),
        line: Some(before + 1),
        seq: first.and_then(|first| first.checked_add(before)),
        fault: Fault::Long,
    })
}

/// The segments that `verify` reads, oldest first; a folder that is not there is an empty ledger's. A file before them is what a prune that was cut left, or what
/// somebody put there.
pub(super) fn files(dir: &Path) -> Result<Vec<SegmentFile>, LedgerError> {
    let all = match segments(dir) {
        Err(LedgerError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    Ok(Past::read(dir)?.kept(&all).to_vec())
}

/// How many records were pruned: the first `seq` that can be shown.
///
/// # Errors
/// Where `pruned` is there and cannot be read.
pub fn gone(dir: &Path) -> Result<u64, LedgerError> {
    Ok(Past::read(dir)?.base())
}

/// The newest `limit` records that fit the filter; looks at no more than `scanned_most` lines and says where to go on.
///
/// # Errors
/// Where a segment cannot be read or holds a line that is no record.
pub fn page(
    dir: &Path,
    filter: &Filter,
    limit: usize,
    scanned_most: usize,
) -> Result<Page, LedgerError> {
    let files = files(dir)?;
    let oldest = files.first().map_or(0, |segment| segment.first);
    let sieve = filter.sieve();
    let mut page = Page::default();
    let mut scanned = 0;
    for segment in files.iter().rev() {
        if filter.before.is_some_and(|before| segment.first >= before) || outside(segment, filter)?
        {
            continue;
        }
        // Lines that stand at or after `before` are not looked at: a look that goes on must not begin anew.
        let most = filter.before.map(|before| before - segment.first);
        let mut lines = Backward::open(&segment.path, most)?;
        while let Some(line) = lines.next_line()? {
            scanned += 1;
            let full = scanned >= scanned_most;
            if !full && !candidate(&sieve, &line, &segment.path)? {
                continue;
            }
            let record = Record::read(&line, &segment.path)?;
            let seq = record.seq;
            if filter.takes(&record.value) {
                page.records.push(record);
            }
            if page.records.len() == limit || full {
                page.next = (seq > oldest).then_some(seq);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// Whether a line is worth reading as JSON.
fn candidate(sieve: &Sieve, line: &[u8], path: &Path) -> Result<bool, LedgerError> {
    if line.first() != Some(&b'{') || line.last() != Some(&b'}') {
        return Err(no_record(path));
    }
    Ok(sieve.lets(line))
}

/// Whether every record of a segment lies outside the filter's span of time, as its first and its last record say.
fn outside(segment: &SegmentFile, filter: &Filter) -> Result<bool, LedgerError> {
    if filter.since.is_none() && filter.until.is_none() {
        return Ok(false);
    }
    let time = |line: &[u8]| -> Option<Timestamp> {
        serde_json::from_slice::<Value>(line)
            .ok()?
            .get("time")?
            .as_str()?
            .parse()
            .ok()
    };
    let first = first_line(&segment.path)?.as_deref().and_then(time);
    let last = Backward::open(&segment.path, None)?
        .next_line()?
        .as_deref()
        .and_then(time);
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(false);
    };
    let too_old = filter.since.is_some_and(|since| {
        first
            .max(last)
            .checked_add(SET_BACK)
            .is_ok_and(|newest| newest < since)
    });
    let too_new = filter.until.is_some_and(|until| {
        first
            .min(last)
            .checked_sub(SET_BACK)
            .is_ok_and(|oldest| oldest >= until)
    });
    Ok(too_old || too_new)
}

fn first_line(path: &Path) -> Result<Option<Vec<u8>>, LedgerError> {
    let mut bytes = Vec::new();
    crate::files::open(path)
        .and_then(|file| {
            file.take(MAX_RECORD_BYTES as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(LedgerError::io(path, "read the segment"))?;
    Ok(memchr::memchr(b'\n', &bytes).map(|end| bytes[..end].to_vec()))
}

/// The record of this `seq`.
///
/// # Errors
/// As [`page`].
pub fn one(dir: &Path, seq: u64) -> Result<Option<Record>, LedgerError> {
    let files = files(dir)?;
    let Some(segment) = files.iter().rev().find(|segment| segment.first <= seq) else {
        return Ok(None);
    };
    let Some(lines) = (seq - segment.first).checked_add(1) else {
        return Ok(None);
    };
    let (mut backward, found) = Backward::of_first(&segment.path, lines)?;
    if found < lines {
        return Ok(None);
    }
    let Some(line) = backward.next_line()? else {
        return Ok(None);
    };
    let record = Record::read(&line, &segment.path)?;
    // A segment whose lines are not numbered as its name says holds no record of this seq.
    Ok((record.seq == seq).then_some(record))
}

/// The records of a call, oldest first.
///
/// # Errors
/// As [`page`].
pub fn of_call(dir: &Path, call: &str) -> Result<Vec<Record>, LedgerError> {
    let mut filter = Filter {
        call: Some(call.to_owned()),
        ..Filter::default()
    };
    let mut records: Vec<Record> = Vec::new();
    loop {
        let found = page(dir, &filter, 1, usize::MAX)?;
        records.extend(found.records);
        // A decision stands before its outcome: there is nothing older.
        if records.iter().any(|record| record.is("decision")) || found.next.is_none() {
            records.reverse();
            return Ok(records);
        }
        filter.before = found.next;
    }
}

/// The `seq` after the last whole record: what stands there now, for a look that must read the same twice.
///
/// # Errors
/// As [`page`].
pub fn end(dir: &Path) -> Result<u64, LedgerError> {
    let newest = page(dir, &Filter::default(), 1, usize::MAX)?;
    Ok(newest.records.first().map_or(0, |record| record.seq + 1))
}

/// Why [`each`] stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The ledger could not be read.
    Read(LedgerError),
    /// Whoever takes the records could not go on.
    Taker(io::Error),
}

impl From<LedgerError> for Stopped {
    fn from(error: LedgerError) -> Stopped {
        Stopped::Read(error)
    }
}

/// Hands on every record that fits, oldest first. Where `outcomes`, the outcome of each decision that fits comes too, at its own place, also where it lies beyond the
/// span of time.
///
/// # Errors
/// [`Stopped`]
pub fn each(
    dir: &Path,
    filter: &Filter,
    outcomes: bool,
    mut take: impl FnMut(Record) -> io::Result<()>,
) -> Result<(), Stopped> {
    let sieve = filter.sieve();
    let outcome = Sieve::of(["outcome"].into_iter());
    // The decisions that were taken and have no outcome yet.
    let mut open = std::collections::BTreeSet::new();
    let mut stopped = None;
    for segment in files(dir)? {
        if filter.before.is_some_and(|before| segment.first >= before) {
            break;
        }
        if open.is_empty() && outside(&segment, filter)? {
            continue;
        }
        let tail = each_line(&segment.path, |line| {
            let fits = candidate(&sieve, line, &segment.path)?;
            if !fits && (open.is_empty() || !outcome.lets(line)) {
                return Ok(());
            }
            let record = Record::read(line, &segment.path)?;
            let beyond = filter.before.is_some_and(|before| record.seq >= before);
            let of = record.int("of").filter(|_| record.is("outcome"));
            let belongs = !beyond && of.is_some_and(|of| open.remove(&of));
            if !belongs && !filter.takes(&record.value) {
                return Ok(());
            }
            if outcomes && record.forwards() {
                open.insert(record.seq);
            }
            take(record).map_err(|error| {
                stopped = Some(error);
                no_record(&segment.path)
            })
        });
        if let Some(error) = stopped {
            return Err(Stopped::Taker(error));
        }
        if tail? == Tail::Long {
            return Err(Stopped::Read(too_long(&segment.path)));
        }
    }
    Ok(())
}

/// Hands on every line, oldest first, with the path of its segment.
pub(super) fn each_raw(
    dir: &Path,
    mut take: impl FnMut(&[u8], &Path) -> Result<(), LedgerError>,
) -> Result<(), LedgerError> {
    for segment in files(dir)? {
        let tail = each_line(&segment.path, |line| take(line, &segment.path))?;
        if tail == Tail::Long {
            return Err(too_long(&segment.path));
        }
    }
    Ok(())
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
    /// Of the whole file, or of its first so many lines.
    fn open(path: &'a Path, lines: Option<u64>) -> Result<Backward<'a>, LedgerError> {
        match lines {
            Some(lines) => Ok(Backward::of_first(path, lines)?.0),
            None => {
                let file =
                    crate::files::open(path).map_err(LedgerError::io(path, "open the segment"))?;
                let facts = file
                    .metadata()
                    .map_err(LedgerError::io(path, "read the segment"))?;
                Backward::until(path, file, facts.len())
            }
        }
    }

    /// Of its first so many lines; also says how many whole lines of these there are.
    fn of_first(path: &'a Path, lines: u64) -> Result<(Backward<'a>, u64), LedgerError> {
        let mut file =
            crate::files::open(path).map_err(LedgerError::io(path, "open the segment"))?;
        let (end, found) =
            end_of_line(&mut file, lines).map_err(LedgerError::io(path, "read the segment"))?;
        Ok((Backward::until(path, file, end)?, found))
    }

    fn until(path: &'a Path, file: File, start: u64) -> Result<Backward<'a>, LedgerError> {
        let mut lines = Backward {
            path,
            file,
            start,
            held: Vec::new(),
        };
        // What stands after the last newline is not part of the record yet: it is let go of block by block.
        while lines.start > 0 && lines.held.is_empty() {
            if start - lines.start > MOST_TORN {
                return Err(too_long(path));
            }
            lines.read_block()?;
            let end = memchr::memrchr(b'\n', &lines.held).map_or(0, |end| end + 1);
            lines.held.truncate(end);
        }
        Ok(lines)
    }

    fn read_block(&mut self) -> Result<(), LedgerError> {
        let size = self.start.min(BLOCK);
        self.start -= size;
        let mut block = vec![0; size as usize];
        self.file
            .seek(SeekFrom::Start(self.start))
            .and_then(|_| self.file.read_exact(&mut block))
            .map_err(LedgerError::io(self.path, "read the segment"))?;
        block.append(&mut self.held);
        self.held = block;
        Ok(())
    }

    /// The next line, without its newline.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, LedgerError> {
        loop {
            let Some(body) = self.held.len().checked_sub(1) else {
                if self.start == 0 {
                    return Ok(None);
                }
                self.read_block()?;
                continue;
            };
            // The newline before the last line ends the one before it.
            let mut line = match memchr::memrchr(b'\n', &self.held[..body]) {
                Some(end) => self.held.split_off(end + 1),
                None if self.start == 0 => std::mem::take(&mut self.held),
                // A line that is too long for a record is not gathered.
                None if body > MAX_RECORD_BYTES => return Err(too_long(self.path)),
                None => {
                    self.read_block()?;
                    continue;
                }
            };
            line.pop();
            if line.len() > MAX_RECORD_BYTES {
                return Err(too_long(self.path));
            }
            return Ok(Some(line));
        }
    }
}

/// Where the first so many lines of a file end, and how many of them there are; its length where it has fewer, or a place after more bytes without a newline than a
/// torn tail has.
fn end_of_line(file: &mut File, lines: u64) -> io::Result<(u64, u64)> {
    let mut block = vec![0; BLOCK as usize];
    let (mut at, mut left) = (0, lines);
    let mut begun = 0;
    while left > 0 && at - begun <= MOST_TORN + BLOCK {
        let read = match file.read(&mut block) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if read == 0 {
            break;
        }
        let ends = memchr::memchr_iter(b'\n', &block[..read]);
        let place = usize::try_from(left - 1).unwrap_or(usize::MAX);
        if let Some(end) = ends.clone().nth(place) {
            return Ok((at + end as u64 + 1, lines));
        }
        left -= ends.count() as u64;
        if let Some(end) = memchr::memrchr(b'\n', &block[..read]) {
            begun = at + end as u64 + 1;
        }
        at += read as u64;
    }
    Ok((at, lines - left))
}
