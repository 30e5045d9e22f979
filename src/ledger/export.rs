//! Exports: the records that fit a filter, as a file for somebody else, and a manifest that says what the file is.
//!
//! Promises: an export holds what the records hold and nothing more, so nothing that contract section 9 keeps out of them; memory does not grow with the ledger (calls on their
//! way are held until their outcome comes); the same ledger and filter give the same bytes. It stops at the record that was the last when it began. It does not check the
//! chain, except for `html`, which says what `verify` found.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::checkpoint::{self, Checkpoint};
use super::error::LedgerError;
use super::hex::hex;
use super::kept::small;
use super::keys::{PUBLIC_FILE, VerifierKey};
use super::look::{Record, Stopped, ascii, each, each_raw, end, gone};
use super::past::Past;
use super::query::Filter;
use super::scan::Scan;
use super::{export_csv, export_html, export_ocsf};

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The lines as they stand.
    Jsonl,
    /// One row for each call or other record, RFC 4180.
    Csv,
    /// OCSF HTTP Activity events, one on a line.
    Ocsf,
    /// One page for a person.
    Html,
}

impl Format {
    /// Their names.
    pub const NAMES: [&str; 4] = ["jsonl", "csv", "ocsf", "html"];

    /// Reads a name.
    ///
    /// # Errors
    /// A line with the legal names.
    pub fn parse(name: &str) -> Result<Format, String> {
        [Format::Jsonl, Format::Csv, Format::Ocsf, Format::Html]
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| format!("format is one of {}", Format::NAMES.join(", ")))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Ocsf => "ocsf",
            Format::Html => "html",
        }
    }

    /// Its media type.
    pub fn media(self) -> &'static str {
        match self {
            Format::Jsonl | Format::Ocsf => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8; header=present",
            Format::Html => "text/html; charset=utf-8",
        }
    }

    /// What a file's name ends in.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Ocsf => "ocsf.jsonl",
            Format::Html => "html",
        }
    }
}

/// A checkpoint as it stands in the folder, and what `leafgate.pub` says of it.
#[derive(Debug, Clone)]
pub struct Note {
    /// The whole note.
    pub text: String,
    /// How many records it covers; `None` where it is no checkpoint.
    pub size: Option<u64>,
    /// Whether it is signed by the key of `leafgate.pub`.
    pub signed: bool,
    root: Option<[u8; 32]>,
}

impl Note {
    /// Reads the folder's checkpoint; `None` where there is none.
    ///
    /// # Errors
    /// Where it is there and cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Note>, LedgerError> {
        let path = dir.join(checkpoint::FILE);
        let Some(text) = small(&path).map_err(LedgerError::io(&path, "read the checkpoint"))?
        else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let note = Checkpoint::parse(&text);
        let key = small(&dir.join(PUBLIC_FILE)).ok().flatten();
        let key = key.and_then(|key| String::from_utf8(key).ok());
        let key = key.as_deref().and_then(VerifierKey::parse);
        Ok(Some(Note {
            size: note.as_ref().map(|note| note.size),
            root: note.as_ref().map(|note| note.root),
            signed: note
                .zip(key)
                .is_some_and(|(note, key)| note.signed_by(&key)),
            text,
        }))
    }

    /// Whether it is signed and its size reaches over the record of this `seq`. Whether the records have its root, `Note::holds` says.
    pub fn covers(&self, seq: u64) -> bool {
        self.signed && self.size.is_some_and(|size| seq < size)
    }

    /// Whether it is signed and the ledger's records have its root. Reads every record that it covers.
    pub(super) fn holds(&self, dir: &Path) -> Result<bool, LedgerError> {
        let (Some(size), Some(root)) = (self.size.filter(|_| self.signed), self.root) else {
            return Ok(false);
        };
        let mut tree = Scan::new(&Past::read(dir)?, None).tree;
        each_raw(dir, |line, _| {
            if tree.size() < size {
                tree.push(line);
            }
            Ok(())
        })?;
        Ok(tree.size() == size && tree.root() == root)
    }
}

/// An export that is about to be written.
#[derive(Debug)]
pub struct Export {
    pub(super) dir: PathBuf,
    pub(super) asked: Filter,
    format: Format,
    /// What is there: records from this `seq` on came later.
    pub(super) end: u64,
    /// How many records were pruned.
    pub(super) gone: u64,
    pub(super) note: Option<Note>,
}

/// A call, its decision and its outcome, or another record.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) record: Record,
    pub(super) outcome: Option<Record>,
}

/// What was exported.
#[derive(Debug, Clone)]
pub struct Manifest {
    format: Format,
    filter: Value,
    end: u64,
    gone: u64,
    note: Option<Note>,
    /// Whether the checkpoint's root was made again from the records.
    root_checked: bool,
    pub(super) tally: Tally,
    bytes: u64,
    sha256: String,
}

/// Counts over the exported records.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) records: u64,
    pub(super) rows: u64,
    pub(super) first: Option<(u64, String)>,
    pub(super) last: Option<(u64, String)>,
    pub(super) logs: Vec<String>,
    /// Records by type.
    pub(super) types: BTreeMap<String, u64>,
    /// Records for which the format has no place, by type.
    pub(super) left_out: BTreeMap<String, u64>,
    pub(super) records_sha256: String,
}

impl Export {
    /// Prepares an export: what is in the ledger now is what it looks at.
    ///
    /// # Errors
    /// Where the ledger cannot be read.
    pub fn new(dir: &Path, filter: Filter, format: Format) -> Result<Export, LedgerError> {
        // The checkpoint first: records written meanwhile lie beyond it, never short of it.
        let note = Note::read(dir)?;
        Ok(Export {
            dir: dir.to_owned(),
            end: end(dir)?,
            gone: gone(dir)?,
            asked: filter,
            format,
            note,
        })
    }

    /// The filter, bounded by what was there at the start.
    fn filter(&self) -> Filter {
        let end = self
            .asked
            .before
            .map_or(self.end, |before| before.min(self.end));
        Filter {
            before: Some(end),
            ..self.asked.clone()
        }
    }

    /// Writes it. Nothing is written where no record fits.
    ///
    /// # Errors
    /// [`Stopped`]: the ledger could not be read, or `to` took no more.
    pub fn write(&self, to: &mut dyn Write) -> Result<Manifest, Stopped> {
        let mut to = Counted {
            to,
            bytes: 0,
            sha256: Sha256::new(),
        };
        let mut root_checked = false;
        let tally = match self.format {
            Format::Jsonl => self.records(&mut |record| {
                to.write_all(&record.line)?;
                to.write_all(b"\n")
            })?,
            Format::Csv => {
                let mut begun = false;
                self.rows(&mut |row, _| {
                    if !begun {
                        export_csv::head(&mut to)?;
                        begun = true;
                    }
                    export_csv::row(row, &mut to).map(|()| true)
                })?
            }
            Format::Ocsf => self.rows(&mut |row, _| match export_ocsf::event(row) {
                Some(event) => writeln!(to, "{}", ascii(&event.to_string())).map(|()| true),
                None => Ok(false),
            })?,
            Format::Html => {
                let (tally, checked) = export_html::write(self, &mut to)?;
                root_checked = checked;
                tally
            }
        };
        Ok(Manifest {
            format: self.format,
            filter: self.asked.to_json(),
            end: self.end,
            gone: self.gone,
            note: self.note.clone(),
            root_checked,
            tally,
            bytes: to.bytes,
            sha256: hex(&to.sha256.finalize()),
        })
    }

    /// Every record, in order.
    fn records(&self, take: &mut dyn FnMut(&Record) -> io::Result<()>) -> Result<Tally, Stopped> {
        let mut tally = Tally::default();
        let mut hash = Sha256::new();
        each(&self.dir, &self.filter(), self.joins(), |record| {
            tally.note(&record, &mut hash);
            take(&record)
        })?;
        tally.rows = tally.records;
        tally.records_sha256 = hex(&hash.finalize());
        Ok(tally)
    }

    /// Whether a decision brings its outcome: not where one type alone was asked for.
    fn joins(&self) -> bool {
        self.asked.kind.is_none()
    }

    /// Every call with its outcome, and every other record, each when it is complete. `take` says whether the row has a place in the format.
    pub(super) fn rows(
        &self,
        take: &mut dyn FnMut(&Row, &Tally) -> io::Result<bool>,
    ) -> Result<Tally, Stopped> {
        let mut tally = Tally::default();
        let mut hash = Sha256::new();
        let mut open: BTreeMap<u64, Record> = BTreeMap::new();
        let mut put = |row: Row, tally: &mut Tally| {
            if take(&row, tally)? {
                tally.rows += 1;
            } else {
                *tally.left_out.entry(kind(&row.record)).or_default() += 1;
            }
            Ok::<(), io::Error>(())
        };
        each(&self.dir, &self.filter(), self.joins(), |record| {
            tally.note(&record, &mut hash);
            if self.joins() && record.forwards() {
                open.insert(record.seq, record);
                return Ok(());
            }
            let of = record.int("of").filter(|_| record.is("outcome"));
            match of.and_then(|of| open.remove(&of)) {
                Some(decision) => put(
                    Row {
                        record: decision,
                        outcome: Some(record),
                    },
                    &mut tally,
                ),
                None => put(
                    Row {
                        record,
                        outcome: None,
                    },
                    &mut tally,
                ),
            }
        })?;
        for (_, record) in open {
            put(
                Row {
                    record,
                    outcome: None,
                },
                &mut tally,
            )
            .map_err(Stopped::Taker)?;
        }
        tally.records_sha256 = hex(&hash.finalize());
        Ok(tally)
    }
}

/// The type of a record, as it may be shown: a word that no leafgate writes is shown as it stands, cut.
fn kind(record: &Record) -> String {
    record.text("t").unwrap_or("?").chars().take(32).collect()
}

impl Tally {
    fn note(&mut self, record: &Record, hash: &mut Sha256) {
        let at = || {
            (
                record.seq,
                record.text("time").unwrap_or_default().to_owned(),
            )
        };
        self.records += 1;
        if self.first.is_none() {
            self.first = Some(at());
        }
        self.last = Some(at());
        if let Some(log) = record.text("log")
            && self.logs.last().is_none_or(|last| last != log)
        {
            self.logs.push(log.to_owned());
        }
        *self.types.entry(kind(record)).or_default() += 1;
        hash.update(&record.line);
        hash.update(b"\n");
    }
}

impl Manifest {
    /// How many records were exported.
    pub fn records(&self) -> u64 {
        self.tally.records
    }

    /// How many rows or events they make.
    pub fn rows(&self) -> u64 {
        self.tally.rows
    }

    /// The manifest. Of the checkpoint it says what was looked at: whether its signature is that of `leafgate.pub`, whether its size reaches over the last record, and
    /// whether its root was made again from the records (`html` alone does that).
    pub fn to_json(&self) -> Value {
        let tally = &self.tally;
        let seq = |at: &Option<(u64, String)>| at.as_ref().map(|(seq, _)| *seq);
        let last = seq(&tally.last);
        let checkpoint = self.note.as_ref().map(|note| {
            json!({
                "note": note.text,
                "size": note.size,
                "signed": note.signed,
                "covers_last": last.map(|last| note.covers(last)),
                "root_checked": self.root_checked,
            })
        });
        json!({
            "leafgate": env!("CARGO_PKG_VERSION"),
            "format": self.format.name(),
            "filter": self.filter,
            "ledger_end": self.end,
            "pruned_records": self.gone,
            "records": tally.records,
            "rows": tally.rows,
            "types": tally.types,
            "left_out": tally.left_out,
            "first_seq": seq(&tally.first),
            "last_seq": last,
            "log": tally.logs,
            "checkpoint": checkpoint,
            "records_sha256": tally.records_sha256,
            "bytes": self.bytes,
            "sha256": self.sha256,
        })
    }
}

/// Counts and hashes what is written.
struct Counted<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
    sha256: Sha256,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        self.sha256.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
