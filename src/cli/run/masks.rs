//! What is laid over the file system: sockets of others, run-time folders, processes, and files by which the kernel is told to start something outside.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::stage::{Fault, Step as _};
use super::{mounts, sockets};

/// Folders of sockets and of what services share while they run.
const EMPTY: [(&str, &std::ffi::CStr); 3] = [
    ("/run", c"mode=0755"),
    ("/var/run", c"mode=0755"),
    ("/dev/shm", c"mode=1777"),
];
/// Parts of `/proc` where root, even without capabilities, could name a program that the kernel starts outside, or stop the machine.
const SYSTEM: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// File systems that are a way into the kernel rather than a disk: whoever writes there, root even without capabilities, ends processes outside, names a program
/// that the kernel starts, or changes the machine. Wherever they are mounted.
const KERNEL: [&str; 14] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "efivarfs",
    "fusectl",
    "pstore",
    "resctrl",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];
/// Those of another namespace, in which something outside waits for messages, or whose processes are seen.
const OTHERS: [&str; 4] = ["binder", "mqueue", "proc", "rpc_pipefs"];

/// All but what needs the PID namespace.
pub(super) fn lay(found: &[PathBuf]) -> Result<(), Fault> {
    for socket in found {
        mask_socket(socket).step(format!("masking the socket {}", socket.display()))?;
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for (at, mode) in EMPTY {
        let at = Path::new(at);
        // A link leads to one that is masked itself.
        if !std::fs::symlink_metadata(at).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let links = links_out(at);
        mounts::empty(at, mode).step(format!("masking {}", at.display()))?;
        for (name, target) in links {
            let _ = std::os::unix::fs::symlink(target, at.join(name));
        }
        if let Some(session) = session.as_deref().filter(|own| own.starts_with(at)) {
            let _ = std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(session);
        }
    }
    others()?;
    mounts::read_only(|mount| {
        mount.at.starts_with("/sys") || KERNEL.iter().any(|&kind| mount.kind == kind)
    })
    .step("making the kernel's own file systems read-only (/sys, control groups and their like)")
}

/// By its name again: what a process stands in may have been masked, and would stay open to it.
pub(super) fn stand_in(folder: &Path) -> Result<(), Fault> {
    std::env::set_current_dir(folder).step(format!(
        "the working directory {}, which is masked in there (start from another one)",
        folder.display()
    ))
}

fn mask_socket(socket: &Path) -> io::Result<()> {
    // Masked by another of its paths, or gone.
    if !sockets::is_socket(socket) {
        return Ok(());
    }
    mounts::cover(socket)
}

/// Links that lead out of the folder: some systems keep the way to all their programs there.
fn links_out(at: &Path) -> Vec<(std::ffi::OsString, PathBuf)> {
    let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name(), std::fs::read_link(entry.path()).ok()?)))
        .filter(|(_, target)| {
            target.is_absolute() && !EMPTY.iter().any(|(own, _)| target.starts_with(own))
        })
        .collect()
}

/// Views of the processes outside, as a container's folder has one, single files of it too; queues of the namespace outside. `/proc` itself is made anew.
fn others() -> Result<(), Fault> {
    for mount in mounts::all().step("reading /proc/self/mountinfo")? {
        if OTHERS.iter().any(|&kind| mount.kind == kind) && !mount.at.starts_with("/proc") {
            let step = format!("masking {}", mount.at.display());
            mounts::cover(&mount.at).step(step)?;
        }
    }
    Ok(())
}

/// A `/proc` of this PID namespace; no user namespace below this one, so that no capability is had again; and the machine's settings read-only.
pub(super) fn processes() -> Result<(), Fault> {
    let folder = std::env::current_dir().step("the working directory")?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", safe, None).step("a /proc of its own")?;
    std::fs::write("/proc/sys/user/max_user_namespaces", "0")
        .step("forbidding further user namespaces")?;
    if std::fs::read_link("/proc/self").step("a /proc of its own")? != Path::new("1") {
        return Err(io::Error::other("it shows other processes")).step("a /proc of its own");
    }
    for name in SYSTEM {
        let at = Path::new("/proc").join(name);
        if !at.exists() {
            continue;
        }
        let step = || format!("making {} read-only", at.display());
        rustix::mount::mount_bind(&at, &at).step(step())?;
        let flags = safe | MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(&at, flags, "").step(step())?;
    }
    stand_in(&folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_lead_out_of_a_masked_folder_are_made_again_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        for (name, target) in [
            ("system", "/nix/store/system"),
            ("inner", "/run/other"),
            ("relative", "../run"),
        ] {
            symlink(target, folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(
            links_out(folder.path()),
            [("system".into(), "/nix/store/system".into())]
        );
    }
}
