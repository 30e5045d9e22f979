//! The mounts of this process: what they are, and the few changes that masks need.

use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};

/// Laid over a file, it takes all and gives nothing.
pub(super) const NOTHING: &str = "/dev/null";

const LIST: &str = "/proc/self/mountinfo";

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Of the file system: `8:1`.
    pub(super) device: OsString,
    /// What of the file system is mounted.
    pub(super) root: PathBuf,
    pub(super) at: PathBuf,
    pub(super) kind: OsString,
    pub(super) flags: MountFlags,
}

/// Nothing that is mounted here shows outside, nor the other way round.
pub(super) fn private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

pub(super) fn all() -> io::Result<Vec<Mount>> {
    Ok(parsed(&std::fs::read(LIST)?))
}

fn parsed(text: &[u8]) -> Vec<Mount> {
    text.split(|&b| b == b'\n').filter_map(mount).collect()
}

/// The list, opened once: it can be read, and waited on, where `/proc` has become another one.
#[derive(Debug)]
pub(super) struct List(std::fs::File);

impl List {
    pub(super) fn open() -> io::Result<List> {
        Ok(List(std::fs::File::open(LIST)?))
    }

    /// As it is now; what changes after this is told by `changed`.
    pub(super) fn read(&mut self) -> io::Result<Vec<Mount>> {
        let mut text = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut text)?;
        Ok(parsed(&text))
    }

    /// Ready with `PRI` where a mount came or went.
    pub(super) fn changed(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::PRI)
    }
}

/// `36 35 98:0 /root /at rw,noatime shared:1 - ext4 /dev/root rw`
fn mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = words.iter().position(|&word| word == b"-")?;
    let mut flags = MountFlags::empty();
    for word in words.get(5)?.split(|&b| b == b',') {
        flags |= match word {
            b"ro" => MountFlags::RDONLY,
            b"nosuid" => MountFlags::NOSUID,
            b"nodev" => MountFlags::NODEV,
            b"noexec" => MountFlags::NOEXEC,
            b"noatime" => MountFlags::NOATIME,
            b"nodiratime" => MountFlags::NODIRATIME,
            b"relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
    }
    Some(Mount {
        device: unescaped(words.get(2)?),
        root: unescaped(words.get(3)?).into(),
        at: unescaped(words.get(4)?).into(),
        kind: OsStr::from_bytes(words.get(dash + 1)?).to_owned(),
        flags,
    })
}

/// `\040` is a space.
fn unescaped(word: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            out.push(byte);
            rest = after;
        }
    }
    OsString::from_vec(out)
}

/// An empty folder over this one.
pub(super) fn empty(at: &Path, mode: &CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", at, "tmpfs", flags, mode)?)
}

/// These may be read only. In a user namespace a flag that stands may not be dropped, so each keeps its own.
pub(super) fn read_only(which: impl Fn(&Mount) -> bool) -> io::Result<()> {
    for mount in all()?.iter().filter(|mount| which(mount)) {
        let flags = mount.flags | MountFlags::BIND | MountFlags::RDONLY;
        match rustix::mount::mount_remount(&mount.at, flags, "") {
            Err(error) if is_out_of_reach(error) => continue,
            other => other?,
        }
        let now = rustix::fs::statvfs(&mount.at)?.f_flag;
        if !now.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::Error::other("it did not become read-only"));
        }
    }
    Ok(())
}

/// What the kernel says of a mount that no path leads to: another was made over it, or its folder is closed to this user.
fn is_out_of_reach(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::ACCESS
    )
}

/// `/dev/null` over a file, an empty folder over a folder; nothing where no path leads there.
pub(super) fn cover(at: &Path) -> io::Result<()> {
    let found = match std::fs::metadata(at) {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)
            ) =>
        {
            return Ok(());
        }
        other => other?,
    };
    if found.is_dir() {
        return empty(at, c"mode=0555");
    }
    // Covered already, where it was mounted twice at this place.
    if is_null(&found) {
        return Ok(());
    }
    rustix::mount::mount_bind(NOTHING, at)?;
    if is_null(&std::fs::metadata(at)?) {
        return Ok(());
    }
    Err(io::Error::other("it is still there"))
}

fn is_null(found: &std::fs::Metadata) -> bool {
    let device = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    found.file_type().is_char_device() && device == (1, 3)
}

/// The device that takes the place of a file: it has to be there, and to be it.
pub(super) fn nothing() -> io::Result<()> {
    if is_null(&std::fs::metadata(NOTHING)?) {
        return Ok(());
    }
    Err(io::Error::other("it is not the null device"))
}

/// What is mounted at a place, of several the one that is seen.
pub(super) fn top<'a>(mounts: &'a [Mount], at: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.at == at)
}

/// The mount in which a path is seen: the deepest, of several the last.
pub(super) fn showing<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.at))
        .max_by_key(|mount| mount.at.as_os_str().len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_place_kind_and_flags() {
        let line = b"36 35 98:0 /m /a\\040b\\134 rw,nosuid,relatime shared:1 master:2 - ext4 /dev/x rw,errors=continue";
        assert_eq!(
            mount(line).unwrap(),
            Mount {
                device: "98:0".into(),
                root: "/m".into(),
                at: "/a b\\".into(),
                kind: "ext4".into(),
                flags: MountFlags::NOSUID | MountFlags::RELATIME,
            }
        );
        assert!(mount(b"").is_none());
        assert!(mount(b"36 35 98:0 / /x rw").is_none());
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(
            all()
                .unwrap()
                .iter()
                .any(|mount| mount.at == Path::new("/"))
        );
    }
}
