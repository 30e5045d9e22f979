//! Opening files that others may write: cards, fixtures, locks, policies, secrets.
//!
//! Promises: only a regular file is opened, and the opening never waits (a FIFO would, for ever); a [`Stamp`] tells one version of a file from
//! another without reading it. It does not promise that two writes within the clock's grain bear different stamps: see [`Stamp::young`].

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::SystemTime;

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Reads a whole regular file of at most `most` bytes; a longer one is an error and is not cut.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, "longer than it may be"));
    }
    Ok(bytes)
}

/// What tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: (u64, u64),
    pub(crate) len: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file; `None` where it is not there or cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        std::fs::metadata(path)
            .ok()
            .as_ref()
            .map(Stamp::from_metadata)
    }

    /// The stamp in a file's metadata.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Stamp {
        Stamp {
            place: (metadata.dev(), metadata.ino()),
            len: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file changed within the last second: the clock that stamps files is coarse, so that a further edit may bear the same stamp.
    pub(crate) fn young(self) -> bool {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(i64::MAX, |since| {
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
            });
        self.changed.0 >= now.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"text");
        assert_eq!(read(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(open(dir.path()).is_err());
        assert!(open(Path::new("/dev/zero")).is_err());
        // A socket stands for what has no bytes to read; a FIFO needs a call that the standard library has not.
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(&socket).is_err());
    }
}
