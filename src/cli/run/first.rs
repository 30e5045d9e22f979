//! PID 1 of the namespace: it takes the last privileges away, starts the command, hands signals on, and reaps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags};
use rustix::process::WaitOptions;

use super::stage::{self, Fault, Step as _};
use super::{hand, masks, outside, privileges};

/// What is handed on to the command.
pub(super) const HANDED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// A signal that reached this process too went to the whole process group (Ctrl-C does), the command among it: the same one from outside within this
/// time is not handed on again.
const ECHO: Duration = Duration::from_millis(250);

pub(super) fn handed_on() -> SigSet {
    HANDED_ON.into_iter().collect()
}

pub(super) fn run(unix: bool, command: &[OsString]) -> Result<u8, Fault> {
    if std::process::id() != 1 {
        return Err(io::Error::other("not PID 1")).step("this is a part of `leafgate run`");
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .step("a signal at the parent's end")?;
    let stdin = match hand::receive(io::stdin()).step("standard input")? {
        Some((hand::DESCRIPTORS, mut given)) if given.len() == 1 => given.remove(0),
        Some(_) | None => return Err(io::Error::other("not handed in")).step("standard input"),
    };
    masks::processes()?;
    privileges::drop_all(unix)?;
    // All that may be refused comes before the command. The signals are heard only once it has started, since it has the mask of the user's shell: until
    // then they are ignored, as PID 1 has it, and those from outside wait in the hand.
    let mut heard = handed_on();
    heard.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .step("a descriptor for signals")?;
    if signals.as_fd().as_raw_fd() <= 2 {
        // One of those that are in use: a filter of somebody else's answered.
        return Err(io::Error::other("the kernel made none")).step("a descriptor for signals");
    }
    let mut child = match stage::command(command, stdin) {
        Ok(child) => child,
        Err(error) => return Ok(not_started(command, &error)),
    };
    if let Err(error) = heard.thread_block() {
        let _ = child.kill();
        stage::say(&format!(
            "run: blocking signals: {error}; the command was started, and was ended"
        ));
        return Ok(2);
    }
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    Ok(watch(Pid::from_raw(pid), &signals))
}

/// As shells have it.
fn not_started(command: &[OsString], error: &io::Error) -> u8 {
    let name = command.first().map(|name| name.to_string_lossy());
    stage::say(&format!("{}: {error}", name.unwrap_or_default()));
    if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    }
}

/// Until the command's end. What it left running ends with this process: it is PID 1.
fn watch(command: Pid, signals: &SignalFd) -> u8 {
    let hand = io::stdin();
    let mut direct = BTreeMap::new();
    // It may have ended before its end could be heard.
    if let Some(code) = own(command, signals, &mut direct) {
        return code;
    }
    loop {
        let mut ready = [
            PollFd::new(&hand, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
        ];
        if rustix::event::poll(&mut ready, None).is_err() {
            continue;
        }
        let told = !ready[0].revents().is_empty();
        if let Some(code) = own(command, signals, &mut direct) {
            return code;
        }
        if told {
            match hand::receive(&hand) {
                Ok(Some((number, _))) => {
                    // The group's signal comes to all of it in one go; this one may have been taken in between.
                    if let Some(code) = own(command, signals, &mut direct) {
                        return code;
                    }
                    hand_on(command, number, &mut direct);
                }
                // The process outside has gone, and the way out with it.
                Ok(None) | Err(_) => return 128 + 9,
            }
        }
    }
}

/// Takes this process's own signals in; the command's code where it has ended.
fn own(command: Pid, signals: &SignalFd, direct: &mut BTreeMap<u8, Instant>) -> Option<u8> {
    while let Ok(Some(info)) = signals.read_signal() {
        let number = u8::try_from(info.ssi_signo).unwrap_or_default();
        direct.insert(number, Instant::now());
    }
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get() == command.as_raw() {
            let signal = status.terminating_signal().map(|number| 128 + number);
            // Neither is a stop: the command asked to be traced by its parent, which this process is.
            let Some(code) = status.exit_status().or(signal) else {
                continue;
            };
            return Some(u8::try_from(code).unwrap_or(255));
        }
    }
    None
}

fn hand_on(command: Pid, number: u8, direct: &mut BTreeMap<u8, Instant>) {
    let echo = direct.remove(&number).is_some_and(|at| at.elapsed() < ECHO);
    if !echo && let Some(signal) = outside::signal_of(number) {
        // It may have ended this moment; its end is seen next.
        let _ = kill(command, signal);
    }
}
