//! Files that others may write too: cards, fixtures, locks, policies, secrets; and their names in a command.
//!
//! Promises: only a regular file is opened, and the opening never waits (a FIFO would, for ever); a [`Stamp`] tells one version of a file from
//! another without reading it; a file that is replaced is at each moment whole, the old or the new; [`open_folders`] names each folder where others could swap one. It does not promise that two writes within the clock's grain bear different stamps: see [`Stamp::young`].

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
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

/// Reads a whole file of at most `most` bytes where the machine has the memory for it at once; a lack of it is an error and not the end of the process.
pub(crate) fn read_large(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let len = file.metadata()?.len();
    if len > most {
        return Err(ErrorKind::FileTooLarge.into());
    }
    at_most(file, len)
}

/// A file's bytes, one more than `len` at most.
pub(crate) fn at_most(file: File, len: u64) -> Result<Vec<u8>> {
    let lacks = |_| Error::from(ErrorKind::OutOfMemory);
    let mut bytes = Vec::new();
    let room = usize::try_from(len.saturating_add(1)).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.try_reserve_exact(room).map_err(lacks)?;
    file.take(room as u64).read_to_end(&mut bytes)?;
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

/// A folder in which others than its owner may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFolder {
    pub(crate) path: PathBuf,
    /// Every user of this machine may, not a group alone.
    pub(crate) anyone: bool,
    /// They may make files in it, and not take away or rename those of others.
    pub(crate) sticky: bool,
}

/// The folders on the way to a path in which others may write, and so put something else in its place: as its text goes, and as its links do. Of a sticky
/// folder only the nearest counts: what stands in it already stays.
pub(crate) fn open_folders(path: &Path) -> Vec<OpenFolder> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = whole.parent().and_then(|parent| parent.canonicalize().ok());
    let linked = whole.canonicalize().ok();
    let linked = linked.as_deref().and_then(Path::parent);
    let mut open: Vec<(OpenFolder, (u64, u64))> = Vec::new();
    for nearest in [whole.parent(), parent.as_deref(), linked]
        .into_iter()
        .flatten()
    {
        for folder in nearest.ancestors() {
            let Ok(facts) = fs::metadata(folder) else {
                continue;
            };
            let (mode, place) = (facts.mode(), (facts.dev(), facts.ino()));
            let sticky = mode & 0o1000 != 0;
            let kept = sticky && folder != nearest;
            if mode & 0o022 == 0 || kept || open.iter().any(|(_, known)| *known == place) {
                continue;
            }
            let found = OpenFolder {
                path: folder.to_owned(),
                anyone: mode & 0o002 != 0,
                sticky,
            };
            open.push((found, place));
        }
    }
    open.into_iter().map(|(found, _)| found).collect()
}

/// Replaces a file whole (written beside it, synced, renamed), with the mode it had. A symbolic link is followed: what it names is replaced, the link stays.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let file = fs::canonicalize(file)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mode = fs::metadata(&file)?.permissions().mode() & 0o7777;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}.new", std::process::id()));
    let write = || {
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        new.write_all(bytes)?;
        new.set_permissions(fs::Permissions::from_mode(mode))?;
        new.sync_all()?;
        fs::rename(&beside, &file)?;
        File::open(folder)?.sync_all()
    };
    let done = write();
    if done
        .as_ref()
        .is_err_and(|error| error.kind() != ErrorKind::AlreadyExists)
    {
        // Nothing to add to the error where this fails too.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// A path as one word of a POSIX shell.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text;
    }
    let text = text.replace('\'', "'\\''");
    if text.starts_with('-') {
        format!("'./{text}'")
    } else {
        format!("'{text}'")
    }
}

/// Makes a FIFO, for tests; `rustix` has the call on Linux.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode};
    let mode = Mode::RUSR | Mode::WUSR;
    let made = rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0);
    assert!(made.is_ok(), "no FIFO: {made:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_folder_on_the_way_is_found_by_text_and_by_link() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("a/b"));
        std::fs::create_dir_all(&b).unwrap();
        std::fs::write(b.join("file"), "").unwrap();
        let mode = |folder: &Path, mode| {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let found = |path: &Path| -> Vec<(PathBuf, bool, bool)> {
            let open = open_folders(path).into_iter();
            open.map(|open| (open.path, open.anyone, open.sticky))
                .collect()
        };
        for (of_a, of_b, wanted) in [
            (0o755, 0o755, vec![]),
            (0o755, 0o777, vec![(b.clone(), true, false)]),
            (0o755, 0o775, vec![(b.clone(), false, false)]),
            (0o755, 0o1777, vec![(b.clone(), true, true)]),
            (0o777, 0o755, vec![(a.clone(), true, false)]),
            (0o1777, 0o755, vec![]),
        ] {
            mode(&a, of_a);
            mode(&b, of_b);
            assert_eq!(found(&b.join("file")), wanted, "{of_a:o} {of_b:o}");
            assert_eq!(found(&b.join("not-there")), wanted);
        }
        mode(&a, 0o755);
        mode(&b, 0o777);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(b.join("file"), &link).unwrap();
        assert_eq!(found(&link), [(b.canonicalize().unwrap(), true, false)]);
        let through = dir.path().join("through");
        std::os::unix::fs::symlink(&b, &through).unwrap();
        assert_eq!(
            found(&through.join("file")).len(),
            1,
            "one folder, two names"
        );
    }

    #[test]
    fn a_file_that_does_not_fit_into_memory_is_an_error_and_not_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        for len in [u64::MAX, u64::MAX / 4] {
            let why = at_most(open(&path).unwrap(), len).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::OutOfMemory);
        }
        assert_eq!(at_most(open(&path).unwrap(), 2).unwrap(), b"tex");
        assert_eq!(read_large(&path, 4).unwrap(), b"text");
        assert_eq!(
            read_large(&path, 3).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        assert!(read_large(Path::new("/dev/zero"), 4).is_err());
    }

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"text");
        assert_eq!(read(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(open(dir.path()).is_err());
        assert!(open(Path::new("/dev/zero")).is_err());
        #[cfg(target_os = "linux")]
        {
            let fifo = dir.path().join("fifo");
            make_fifo(&fifo);
            assert!(open(&fifo).is_err());
        }
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(open(&socket).is_err());
    }
}
