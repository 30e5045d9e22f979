//! The inner processes: how they are started, and how they say what a kernel refused.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use super::super::out::safe;
use super::environment::Change;
use super::shield::Shield;
use super::way::Way;
use super::{Args, first, inside};

/// The same program, whatever became of its file meanwhile.
const SELF: &str = "/proc/self/exe";
/// First arguments that no command has. A person who writes one gets an error, or a confined command: never a less confined one.
const INSIDE: &str = "run:inside";
const FIRST: &str = "run:first";
const NO_UNIX: &str = "no-unix";
const UNIX: &str = "unix";

/// A step that was refused.
#[derive(Debug)]
pub(super) struct Fault {
    step: String,
    error: io::Error,
}

/// Names the step of an error.
pub(super) trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, Fault> {
        self.map_err(|error| Fault {
            step: step.into(),
            error: error.into(),
        })
    }
}

/// Where this process is an inner one: what it ended with.
pub(super) fn run(args: &[OsString]) -> Option<u8> {
    let stage = args.get(1)?;
    let is_inside = stage == INSIDE;
    if !is_inside && stage != FIRST {
        return None;
    }
    let Some(told) = told(args.get(2..).unwrap_or_default()) else {
        say("this is a part of `leafgate run -- COMMAND…`; run that");
        return Some(2);
    };
    // Before a step of its own changes one.
    let settings = SETTINGS.map(|name| (name, setting(name)));
    let ended = if is_inside {
        inside::run(&told)
    } else {
        first::run(told.unix, told.command)
    };
    Some(ended.unwrap_or_else(|fault| {
        let own = |wanted: &str| {
            let (_, value) = settings.iter().find(|(name, _)| *name == wanted)?;
            value.clone()
        };
        say(&refused(&fault, &own));
        2
    }))
}

/// What an inner process was told on its command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told<'a> {
    /// Whether Unix sockets are allowed.
    pub(super) unix: bool,
    pub(super) address: SocketAddr,
    pub(super) shields: Vec<Shield>,
    pub(super) command: &'a [OsString],
}

/// `unix 127.0.0.1:8484 2 hide:/ledger read:/policy.toml COMMAND ARGS…`
fn told(args: &[OsString]) -> Option<Told<'_>> {
    let [unix, address, count, rest @ ..] = args else {
        return None;
    };
    let address = address.to_str()?.parse().ok()?;
    let (shields, command) = rest.split_at_checked(count.to_str()?.parse().ok()?)?;
    let shields = shields
        .iter()
        .map(|word| Shield::read(word))
        .collect::<Option<_>>()?;
    (!command.is_empty()).then_some(Told {
        // Anything else is the tighter one.
        unix: unix == UNIX,
        address,
        shields,
        command,
    })
}

/// Everything above standard error, what the user's shell left open too, is closed in each process that this one starts.
pub(super) fn keep_descriptors() {
    close_fds::set_fds_cloexec(3, &[]);
}

/// The one that makes the namespaces. Its standard input is the hand.
pub(super) fn inside(
    args: &Args,
    way: &Way,
    changes: &[Change],
    shields: Vec<Shield>,
    hand: OwnedFd,
) -> io::Result<Child> {
    keep_descriptors();
    let told = Told {
        unix: args.unix_sockets,
        address: way.address,
        shields,
        command: &args.command,
    };
    let mut stage = again(INSIDE, &told, hand);
    for (name, value) in changes {
        match value {
            Some(value) => stage.env(name, value),
            None => stage.env_remove(name),
        };
    }
    stage.spawn()
}

/// PID 1 of the namespace that this process made. The shields are laid: the command sees this one's command line, and nothing of them.
pub(super) fn first(told: &Told<'_>, hand: OwnedFd) -> io::Result<Child> {
    let told = Told {
        shields: Vec::new(),
        ..*told
    };
    again(FIRST, &told, hand).spawn()
}

fn again(stage: &str, told: &Told<'_>, hand: OwnedFd) -> Command {
    let mut again = program(OsStr::new(SELF));
    again
        .args([stage, if told.unix { UNIX } else { NO_UNIX }])
        .arg(told.address.to_string())
        .arg(told.shields.len().to_string())
        .args(told.shields.iter().map(Shield::word))
        .args(told.command)
        .stdin(Stdio::from(hand));
    again
}

/// The user's own command.
pub(super) fn command(command: &[OsString], stdin: OwnedFd) -> io::Result<Child> {
    let (name, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    program(name).args(args).stdin(Stdio::from(stdin)).spawn()
}

#[allow(
    clippy::disallowed_methods,
    reason = "this program again, or the user's own command, which the user wrote on the command line; no call is in hand here"
)]
fn program(name: &OsStr) -> Command {
    Command::new(name)
}

/// One line on standard error.
pub(super) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "leafgate: {}", safe(line));
}

/// What a kernel may have set against namespaces.
const SETTINGS: [&str; 3] = [
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
];

/// What a kernel setting holds.
fn setting(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The step, the error and what to change.
fn refused(fault: &Fault, setting: &dyn Fn(&str) -> Option<String>) -> String {
    let Fault { step, error } = fault;
    let is = |name: &str, value: &str| setting(name).is_some_and(|own| own == value);
    let mend = if is("user.max_user_namespaces", "0") {
        "set the sysctl user.max_user_namespaces above 0"
    } else if is("kernel.unprivileged_userns_clone", "0") {
        "set the sysctl kernel.unprivileged_userns_clone to 1"
    } else if is("kernel.apparmor_restrict_unprivileged_userns", "1") {
        "set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or give leafgate an AppArmor profile with `userns,`"
    } else {
        match error.raw_os_error() {
            Some(nix::libc::ENOSPC) => {
                "raise the sysctls user.max_user_namespaces, user.max_net_namespaces, user.max_mnt_namespaces and user.max_pid_namespaces"
            }
            Some(nix::libc::EPERM | nix::libc::EACCES) => {
                "a container's seccomp profile or its masked /proc forbids it: run leafgate outside the container, start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or confine the container itself (docs/operating.md)"
            }
            Some(nix::libc::EINVAL | nix::libc::ENOSYS) => {
                "the kernel was built without it: it needs user, network, PID and IPC namespaces and seccomp filters"
            }
            Some(_) | None => "docs/operating.md says what run needs",
        }
    };
    format!("run: {step}: {error}; {mend}. The command was not run")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn line(errno: i32, setting: &'static str, value: &'static str) -> String {
        let fault = Err::<(), _>(io::Error::from_raw_os_error(errno))
            .step("a user namespace")
            .unwrap_err();
        refused(&fault, &|name: &str| {
            (name == setting).then(|| value.to_owned())
        })
    }

    #[test]
    fn what_was_refused_is_named_with_what_to_change() {
        for (errno, setting, value, told) in [
            (
                nix::libc::ENOSPC,
                "user.max_user_namespaces",
                "0",
                "user.max_user_namespaces above 0",
            ),
            (
                nix::libc::EPERM,
                "kernel.unprivileged_userns_clone",
                "0",
                "kernel.unprivileged_userns_clone to 1",
            ),
            (
                nix::libc::EACCES,
                "kernel.apparmor_restrict_unprivileged_userns",
                "1",
                "apparmor_restrict_unprivileged_userns to 0",
            ),
            (nix::libc::EPERM, "", "", "seccomp=unconfined"),
            (nix::libc::EINVAL, "", "", "the kernel was built without it"),
            (
                nix::libc::ENOSPC,
                "user.max_user_namespaces",
                "5",
                "user.max_net_namespaces",
            ),
        ] {
            let line = line(errno, setting, value);
            assert!(line.starts_with("run: a user namespace: "), "{line}");
            assert!(line.contains(told), "{line}");
            assert!(line.ends_with("The command was not run"), "{line}");
        }
    }

    #[test]
    fn a_stage_without_its_arguments_runs_nothing() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(run(&args(&["leafgate"])), None);
        assert_eq!(run(&args(&["leafgate", "run"])), None);
        for words in [
            &["leafgate", INSIDE][..],
            &["leafgate", FIRST, UNIX, "127.0.0.1:1", "0"],
            &["leafgate", INSIDE, UNIX, "no address", "0", "true"],
            &["leafgate", INSIDE, UNIX, "127.0.0.1:1", "true"],
            &[
                "leafgate",
                INSIDE,
                UNIX,
                "127.0.0.1:1",
                "2",
                "read:/x",
                "true",
            ],
            &["leafgate", INSIDE, UNIX, "127.0.0.1:1", "1", "/x", "true"],
        ] {
            assert_eq!(run(&args(words)), Some(2), "{words:?}");
        }
    }
}
