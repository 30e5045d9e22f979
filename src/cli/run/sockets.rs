//! Unix sockets of others that could be connected to by a path: a network namespace does not confine these.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::mounts::{self, Mount};

/// Folders that everybody writes to; sockets in there may be of another network namespace. The list names a socket as it was bound: one that was renamed, linked
/// to another name or bound by a relative path is found only where it is looked for.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];
/// How far these are looked through, the home and the working directory as well: `/tmp/tmux-1000/default` and a level more.
const DEPTH: usize = 3;
/// Entries looked at in each; a build's scratch folder may hold millions.
const ENTRIES: usize = 100_000;

/// Every path of one that can be found from here, before anything is masked.
pub(super) fn all() -> io::Result<Vec<PathBuf>> {
    let mounts = mounts::all()?;
    let listed = std::fs::read("/proc/net/unix")?;
    let mut found: BTreeSet<PathBuf> = listed
        .split(|&b| b == b'\n')
        .filter_map(path)
        .map(|path| OsStr::from_bytes(path).into())
        .collect();
    found.extend(std::env::vars_os().filter_map(|(_, value)| named(&value)));
    // A container is given the socket of its host this way.
    found.extend(mounts.iter().map(|mount| mount.at.clone()));
    // Where one was, it may be by another name.
    let beside: BTreeSet<PathBuf> = found
        .iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home.into_iter().chain(std::env::current_dir().ok());
    let deep = own
        .chain(SHARED.map(PathBuf::from))
        .map(|folder| (folder, DEPTH));
    for (folder, depth) in deep.chain(beside.into_iter().map(|folder| (folder, 1))) {
        walk(&folder, depth, &mut ENTRIES.clone(), &mut found);
    }
    let others: Vec<PathBuf> = found
        .iter()
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .flat_map(|path| views(&path, &mounts))
        .collect();
    found.extend(others);
    Ok(found.into_iter().filter(|path| is_socket(path)).collect())
}

/// Where a link leads counts, as it does for a mount. One that this user cannot see the command cannot reach.
pub(super) fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// `Num RefCount Protocol Flags Type St Inode Path`; the path may hold spaces, an abstract name begins with `@`.
fn path(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..7 {
        let start = rest.iter().position(|b| !b.is_ascii_whitespace())?;
        let word = rest.get(start..)?;
        let end = word.iter().position(u8::is_ascii_whitespace)?;
        rest = word.get(end..)?;
    }
    rest.strip_prefix(b" ")
        .filter(|path| path.starts_with(b"/"))
}

/// `/tmp/agent.1`, `unix:///var/docker.sock`, `unix:path=/tmp/bus,guid=…`: where an agent's variable points.
fn named(value: &OsStr) -> Option<PathBuf> {
    let bytes = value.as_bytes();
    let bytes = [&b"unix://"[..], b"unix:path=", b"unix:"]
        .iter()
        .find_map(|prefix| bytes.strip_prefix(*prefix))
        .unwrap_or(bytes);
    let end = bytes.iter().position(|&b| matches!(b, b',' | b';'));
    let path = bytes.get(..end.unwrap_or(bytes.len()))?;
    path.starts_with(b"/")
        .then(|| OsString::from_vec(path.to_vec()).into())
}

fn walk(folder: &Path, depth: usize, left: &mut usize, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some(less) = left.checked_sub(1) else {
            return;
        };
        *left = less;
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_socket() {
            found.insert(entry.path());
        } else if kind.is_dir() && depth > 1 {
            walk(&entry.path(), depth - 1, left, found);
        }
    }
}

/// The same file where its file system is mounted at another place too.
pub(super) fn views(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(own) = mounts::showing(mounts, path) else {
        return Vec::new();
    };
    let Ok(rest) = path.strip_prefix(&own.at) else {
        return Vec::new();
    };
    let inner = joined(&own.root, rest);
    mounts
        .iter()
        .filter(|mount| mount.device == own.device)
        .filter_map(|mount| Some(joined(&mount.at, inner.strip_prefix(&mount.root).ok()?)))
        .filter(|other| other != path)
        .collect()
}

/// Without the slash that joining nothing would leave.
fn joined(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(rest)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_socket_is_found_and_no_other_name() {
        let line = |path: &str| {
            let line = format!("0000000033b43035: 00000002 00000000 00010000 0001 01  1541{path}");
            super::path(line.as_bytes()).map(|path| String::from_utf8_lossy(path).into_owned())
        };
        assert_eq!(line(" /tmp/a b"), Some("/tmp/a b".to_owned()));
        assert_eq!(line(" @/tmp/abstract"), None);
        assert_eq!(line(" relative"), None);
        assert_eq!(line(""), None);
        let head = b"Num       RefCount Protocol Flags    Type St Inode Path";
        assert_eq!(super::path(head), None);
        assert_eq!(super::path(b""), None);
    }

    #[test]
    fn a_variable_may_name_one() {
        let named = |value: &str| named(value.as_ref()).map(|path| path.display().to_string());
        for value in [
            "/tmp/a.1",
            "unix:///tmp/a.1",
            "unix:path=/tmp/a.1,guid=ab",
            "/tmp/a.1,4711,0",
        ] {
            assert_eq!(named(value).as_deref(), Some("/tmp/a.1"), "{value}");
        }
        for value in ["", "tcp://h:1", "relative", "unix:abstract=/tmp/a"] {
            assert_eq!(named(value), None, "{value}");
        }
    }

    #[test]
    fn a_bound_folder_shows_the_same_socket() {
        let mount = |device: &str, root: &str, at: &str| Mount {
            device: device.into(),
            root: root.into(),
            at: at.into(),
            kind: "ext4".into(),
            flags: rustix::mount::MountFlags::empty(),
        };
        let mounts = [
            mount("8:1", "/", "/"),
            mount("8:1", "/data/home", "/home"),
            mount("8:2", "/", "/data/other"),
            mount("8:1", "/data/home/u/s", "/given"),
        ];
        assert_eq!(
            views(Path::new("/home/u/s"), &mounts),
            [PathBuf::from("/data/home/u/s"), "/given".into()]
        );
        assert_eq!(
            views(Path::new("/data/other/s"), &mounts),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn those_of_shared_folders_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        let mut found = BTreeSet::new();
        walk(folder.path(), 3, &mut 100, &mut found);
        assert_eq!(found, [socket.clone()].into());
        for (depth, mut most) in [(2, 100), (3, 2)] {
            let mut found = BTreeSet::new();
            walk(folder.path(), depth, &mut most, &mut found);
            assert!(found.is_empty());
        }
        assert!(is_socket(&socket) && !is_socket(&deep));
    }
}
