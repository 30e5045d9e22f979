//! The disk under the ledger, and the end of an authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Finding;
use crate::policy::Policy;

/// File systems whose `fdatasync` says little of a disk in this machine, or that another machine can write to.
const REMOTE: [&str; 12] = [
    "9p",
    "afs",
    "ceph",
    "cifs",
    "davfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "nfs",
    "nfs4",
    "smb3",
];
/// Gone with the power.
const VOLATILE: [&str; 2] = ["ramfs", "tmpfs"];

pub(super) fn findings(policy: &Policy) -> Vec<Finding> {
    let dir = existing(&policy.ledger.dir);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    if let Some(kind) = filesystem(&mounts, &dir) {
        found.extend(kind_of_disk(&dir, kind));
    }
    found.extend(room(&dir, policy.ledger.segment_bytes));
    if let Some(intercept) = &policy.intercept {
        found.extend(ends_soon(
            intercept.authority.until(),
            SystemTime::now(),
            &policy.flag(),
        ));
    }
    found
}

/// An authority whose end would stop the next start, and every client's handshake.
fn ends_soon(until: SystemTime, now: SystemTime, flag: &str) -> Option<Finding> {
    const SOON: u64 = 21;
    let left = until.duration_since(now).unwrap_or_default().as_secs() / 86_400;
    (left < SOON).then(|| {
        Finding::new(
            format!("the authority of [intercept] expires in {left} days"),
            "after that no client accepts a tunnel, and serve does not start",
            format!("leafgate certs init NEW-DIR{flag}, name its files in the policy, give its ca.pem to the clients"),
        )
    })
}

/// The folder, or the nearest one above it that is there, without links.
fn existing(dir: &Path) -> PathBuf {
    let there = dir.ancestors().find_map(|folder| {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        folder.canonicalize().ok()
    });
    there.unwrap_or_else(|| PathBuf::from("/"))
}

/// The type of the file system that holds a path: the mount with the longest name that leads to it; of two at one place the later.
fn filesystem<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (front, back) = line.split_once(" - ")?;
        let Some(point) = front.split(' ').nth(4) else {
            continue;
        };
        let point = point.replace("\\040", " ");
        let Some(kind) = back.split(' ').next() else {
            continue;
        };
        if path.starts_with(&point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

fn kind_of_disk(dir: &Path, kind: &str) -> Option<Finding> {
    let what = format!("the ledger ({}) is on {kind}", dir.display());
    if REMOTE.contains(&kind) {
        return Some(Finding::new(
            what,
            "a network disk may acknowledge what it does not have, and another machine may write to it",
            "ledger.dir on a disk of this machine, and ledger copies elsewhere",
        ));
    }
    VOLATILE.contains(&kind).then(|| {
        Finding::new(
            what,
            "it is gone with the power: no decision is durable there",
            "ledger.dir on a disk",
        )
    })
}

/// Room for two segments.
fn room(dir: &Path, segment_bytes: u64) -> Option<Finding> {
    let facts = rustix::fs::statvfs(dir).ok()?;
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    (free < 2 * segment_bytes).then(|| {
        Finding::new(
            format!(
                "the disk of the ledger ({}) has {} MiB left",
                dir.display(),
                free >> 20
            ),
            "when it is full every call is refused, until leafgate is restarted with room",
            "make room, or name another ledger.dir for a new ledger",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 8:1 / / rw - ext4 /dev/sda rw
30 22 0:5 / /mnt/team\\040disk rw shared:1 - nfs4 server:/x rw
31 22 0:6 / /run rw - tmpfs tmpfs rw
32 22 0:7 / /mnt rw - xfs /dev/sdb rw
";

    #[test]
    fn the_disk_of_a_path_is_the_nearest_mount() {
        for (path, kind) in [
            ("/a", "ext4"),
            ("/mnt/team disk/l", "nfs4"),
            ("/mnt/team", "xfs"),
            ("/run/x", "tmpfs"),
        ] {
            assert_eq!(filesystem(MOUNTS, Path::new(path)), Some(kind), "{path}");
        }
        let found = |kind| kind_of_disk(Path::new("/l"), kind).is_some();
        assert!(found("nfs4") && found("tmpfs") && !found("ext4") && !found("overlay"));
    }

    #[test]
    fn an_authority_is_named_in_its_last_three_weeks() {
        let now = SystemTime::now();
        let in_days = |days: u64| now + std::time::Duration::from_secs(days * 86_400);
        assert_eq!(ends_soon(in_days(22), now, ""), None);
        let found = ends_soon(in_days(20), now, " --policy p.toml").unwrap();
        assert!(found.what.contains("in 20 days"), "{found:?}");
        let begins = "leafgate certs init NEW-DIR --policy p.toml, ";
        assert!(found.mend.starts_with(begins), "{found:?}");
        assert!(
            ends_soon(now, in_days(1), "")
                .unwrap()
                .what
                .contains("in 0 days")
        );
    }

    #[test]
    fn a_disk_without_room_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(room(dir.path(), u64::MAX / 2).is_some());
        assert!(room(dir.path(), 0).is_none());
        assert_eq!(
            existing(&dir.path().join("a/b")),
            dir.path().canonicalize().unwrap()
        );
    }
}
