//! The process that makes the namespaces. It has one thread and has read nothing of a client.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::sched::CloneFlags;
use rustix::process::Signal;

use super::stage::{self, Fault, Step as _, Told};
use super::{first, hand, loopback, masks, mounts, outside, privileges, shield, sockets};

pub(super) fn run(told: &Told<'_>) -> Result<u8, Fault> {
    // Of the outer namespace: what could be connected to by its path, were there a socket to connect with.
    let found = if told.unix {
        sockets::all().step("reading /proc/net/unix")?
    } else {
        Vec::new()
    };
    namespaces()?;
    // Where the process outside is killed, nothing stays behind.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step("a signal at the parent's end")?;
    mounts::private().step("making the mounts private")?;
    let folder = std::env::current_dir().step("the working directory")?;
    shield::lay(&told.shields)?;
    masks::lay(&found)?;
    masks::stand_in(&folder)?;
    let hand = io::stdin();
    let listener = listen(told.address)?;
    hand::send(&hand, hand::DESCRIPTORS, &[listener.as_fd()])
        .step("handing the listener out (this is a part of `leafgate run`; run that)")?;
    drop(listener);
    privileges::for_the_first().step("capabilities for the first process")?;
    let given = hand.as_fd().try_clone_to_owned().step("standard input")?;
    // By now: the first process makes another /proc.
    let list = mounts::List::open().step("reading /proc/self/mountinfo")?;
    let mut child = stage::first(told, given).step("the first process of a PID namespace")?;
    // After the start, since the command inherits the mask: from here on PID 1 hears the terminal, and this process only waits.
    if let Err(error) = first::handed_on().thread_block() {
        let _ = child.kill();
        stage::say(&format!(
            "run: blocking signals: {error}; the command was started, and was ended"
        ));
        return Ok(2);
    }
    match shield::watch(&told.shields, list, &mut child) {
        Ok(ended) => Ok(outside::code(ended)),
        Err(error) => {
            let _ = child.kill();
            stage::say(&format!(
                "run: waiting for the command: {error}; it was started, and was ended"
            ));
            Ok(2)
        }
    }
}

/// The user's own ids, and nobody else's, stand for themselves in there.
fn namespaces() -> Result<(), Fault> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    apart(CloneFlags::CLONE_NEWUSER, "user").step("a user namespace")?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        let file = format!("/proc/self/{file}");
        std::fs::write(&file, text).step(format!("writing {file}"))?;
    }
    for (flag, file, name) in [
        (CloneFlags::CLONE_NEWNET, "net", "a network namespace"),
        (CloneFlags::CLONE_NEWNS, "mnt", "a mount namespace"),
        (CloneFlags::CLONE_NEWIPC, "ipc", "an IPC namespace"),
        (
            CloneFlags::CLONE_NEWPID,
            "pid_for_children",
            "a PID namespace",
        ),
    ] {
        apart(flag, file).step(name)?;
    }
    Ok(())
}

/// A filter of somebody else's may say that all went well: what is looked at is whether anything changed.
fn apart(flag: CloneFlags, file: &str) -> io::Result<()> {
    let link = Path::new("/proc/self/ns").join(file);
    let before = std::fs::read_link(&link)?;
    nix::sched::unshare(flag)?;
    // A PID namespace without a process has no name yet.
    match std::fs::read_link(&link) {
        Ok(after) if after == before => Err(io::Error::other("the kernel made none")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The listener that the command finds at leafgate's own address.
fn listen(address: SocketAddr) -> Result<TcpListener, Fault> {
    loopback::up().step("bringing the loopback interface up")?;
    let ip = address.ip();
    if !ip.is_loopback() {
        loopback::add(ip).step(format!("the address {ip} in the network namespace"))?;
    }
    // IPv6 may be off, or its address not there yet; the first is said, the second waited for.
    let mut tries = 0;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && tries < 50 => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return other.step(format!("listening at {address} in there")),
        }
    }
}
