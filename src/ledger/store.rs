//! The files under the writer: one segment open for appending, and whether it is still the file it was.
//!
//! Promises: [`Disk`] appends whole or reports a failure, and never writes on after one (the writer latches). [`Segment::whole`] sees a segment that was renamed,
//! truncated, deleted or replaced under the process. The traits are the seam for faults in tests; the release build has [`Disk`] alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where segments are made.
pub(super) trait Store: Send + 'static {
    /// An open segment.
    type Open: Segment;
    /// Makes the segment whose first record is `first`; its name is durable when this returns.
    fn create(&mut self, first: u64) -> io::Result<Self::Open>;
    /// Opens the newest segment, which has `len` bytes, to append to it.
    fn reopen(&mut self, file: &Path, len: u64) -> io::Result<Self::Open>;
    /// The machine's clock.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The open segment.
pub(super) trait Segment: Send {
    /// Appends all of `bytes` in one write; a short write is a failure.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// `fdatasync`.
    fn sync(&mut self) -> io::Result<()>;
    /// Whether the path still names this file, once, with the length it must have; else what is wrong.
    fn whole(&self) -> io::Result<Result<(), &'static str>>;
    /// Its length.
    fn len(&self) -> u64;
}

/// The name of the segment whose first record is `first`.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first:012}.jsonl")
}

/// The real files.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
}

/// A real segment.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    path: PathBuf,
    inode: (u64, u64),
    len: u64,
}

impl Disk {
    pub(super) fn new(dir: &Path) -> Disk {
        Disk {
            dir: dir.to_owned(),
        }
    }
}

impl Store for Disk {
    type Open = OpenFile;

    fn create(&mut self, first: u64) -> io::Result<OpenFile> {
        let path = self.dir.join(segment_name(first));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o640)
            .open(&path)?;
        file.sync_all()?;
        // The name itself must outlive a crash, not only the bytes.
        File::open(&self.dir)?.sync_all()?;
        OpenFile::of(file, path, 0)
    }

    fn reopen(&mut self, path: &Path, len: u64) -> io::Result<OpenFile> {
        let file = OpenOptions::new().append(true).open(path)?;
        OpenFile::of(file, path.to_owned(), len)
    }
}

impl OpenFile {
    fn of(file: File, path: PathBuf, len: u64) -> io::Result<OpenFile> {
        let facts = file.metadata()?;
        Ok(OpenFile {
            file,
            path,
            inode: (facts.dev(), facts.ino()),
            len,
        })
    }
}

impl Segment for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = loop {
            match self.file.write(bytes) {
                // Nothing was written yet.
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.len += written as u64;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the write was short",
            ))
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn whole(&self) -> io::Result<Result<(), &'static str>> {
        let open = self.file.metadata()?;
        if open.nlink() != 1 {
            return Ok(Err("was deleted, or has a second name"));
        }
        if open.len() != self.len {
            return Ok(Err("was truncated, or written by another"));
        }
        let named = match std::fs::symlink_metadata(&self.path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Err("was renamed or deleted"));
            }
            other => other?,
        };
        if (named.dev(), named.ino()) != self.inode {
            return Ok(Err("was replaced"));
        }
        Ok(Ok(()))
    }

    fn len(&self) -> u64 {
        self.len
    }
}
