//! The process that stays outside: it starts the inner ones, carries connections, and hands signals on.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::super::out::{Done, Failure};
use super::super::policy;
use super::server::Server;
use super::shield::Shield;
use super::way::Way;
use super::{Args, bridge, environment, first, hand, mounts, rules, stage};
use crate::card::{CardStore, Reading};
use crate::files::shell_word;
use crate::policy::Policy;

pub(super) fn run(args: &Args) -> Result<Done, Failure> {
    let policy = load(args.policy.as_deref())?;
    let way = Way::of(&policy.listen)?;
    let card = args.card.as_deref();
    if let Some(card) = card {
        known(card, &policy)?;
    }
    if args.ca.is_some() && way.tls.is_none() {
        return Err(Failure::new(
            "--ca: leafgate listens without TLS here (listen.tls); leave it out",
        ));
    }
    let ca = args.ca.as_deref().map(absolute).transpose()?;
    let way = Way {
        tls: way.tls.as_deref().map(absolute).transpose()?,
        ..way
    };
    given()?;
    mounts::nothing().map_err(|error| {
        Failure::new(format!(
            "{} is what run lays over files, and {error}; the command was not run",
            mounts::NOTHING
        ))
    })?;
    let server = Server::of(&policy, way.address, args.served_by);
    bridge::reachable(&server, args.policy.as_deref())?;
    let shields = shields(&policy, args.trust_command)?;
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let keys = environment::Keys {
        keep: args.keep_env,
        secret: environment::secret(&policy),
    };
    let changes = environment::changes(&variables, &way, card, ca.as_deref(), &keys);
    let (ours, theirs) = hand::pair().map_err(|error| Failure::of(&error))?;
    let mut inside = stage::inside(args, &way, &changes, shields, theirs)
        .map_err(|error| Failure::new(format!("leafgate could not start itself again: {error}")))?;
    // PID 1 takes it; its own standard input is the hand.
    let stdin = std::io::stdin();
    // Where the inner process has gone already, its exit status says more.
    let _ = hand::send(&ours, hand::DESCRIPTORS, &[stdin.as_fd()]);
    let listeners = match hand::receive(&ours) {
        Ok(Some((hand::DESCRIPTORS, listeners))) if !listeners.is_empty() => listeners,
        // It said why on standard error.
        Ok(_) | Err(_) => {
            return Ok(Done::Status(match inside.wait() {
                Ok(status) if !status.success() => code(status),
                Ok(_) | Err(_) => 2,
            }));
        }
    };
    let waited = carry(listeners, server, ours, move || inside.wait())?;
    waited
        .map(|status| Done::Status(code(status)))
        .map_err(|error| Failure::new(format!("the command's end was not seen: {error}")))
}

/// What is laid over leafgate's own files. Where one cannot be kept from the command, it is not run, unless it is trusted.
fn shields(policy: &Policy, trusted: bool) -> Result<Vec<Shield>, Failure> {
    let rules = rules::of(policy)?;
    if trusted {
        for line in &rules.open {
            stage::say(&format!("run: {line}; the command is trusted with it"));
        }
    } else if !rules.open.is_empty() {
        let mut lines = rules.open;
        lines.push("leafgate reads these, and the command could change or read them: it was not run. Mend each, run the command as another user than the files' own, or trust it with --trust-command".to_owned());
        return Err(Failure::Lines(lines));
    }
    Ok(rules.shields())
}

/// Standard input, output and error go to the command as they are: none may be a way to something else.
fn given() -> Result<(), Failure> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for (given, name) in [
        (stdin.as_fd(), "standard input"),
        (stdout.as_fd(), "standard output"),
        (stderr.as_fd(), "standard error"),
    ] {
        if let Some(what) = a_way_out(given) {
            return Err(Failure::new(format!(
                "{name} is {what}, by which the command could reach what it shall not; give it a file, a pipe, a terminal or /dev/null. The command was not run"
            )));
        }
    }
    Ok(())
}

/// A folder leads to whatever is in it, unmasked; a socket, but for a connected Unix one, can be connected to another place; what has no type is an object
/// of the kernel's (a ring, a process).
fn a_way_out(given: BorrowedFd<'_>) -> Option<&'static str> {
    use rustix::fs::FileType;
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let Ok(facts) = rustix::fs::fstat(given) else {
        // Closed: it becomes /dev/null.
        return None;
    };
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile | FileType::CharacterDevice | FileType::Fifo => None,
        FileType::Socket => {
            let unix = sockopt::socket_domain(given) == Ok(AddressFamily::UNIX);
            let kind = sockopt::socket_type(given);
            let stream = [SocketType::STREAM, SocketType::SEQPACKET]
                .map(Ok)
                .contains(&kind);
            let connected = rustix::net::getpeername(given).is_ok();
            (!(unix && stream && connected))
                .then_some("a socket other than a connected Unix stream")
        }
        FileType::Directory => Some("a folder"),
        FileType::BlockDevice => Some("a disk"),
        FileType::Symlink | FileType::Unknown => Some("no file, pipe or terminal"),
    }
}

/// The policy, where the client's shell has none of its secrets: none is used here.
fn load(file: Option<&Path>) -> Result<Policy, Failure> {
    let Some(file) = file else {
        return policy::load(None);
    };
    Policy::load_as_client(file)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))
}

fn known(card: &str, policy: &Policy) -> Result<(), Failure> {
    let store = CardStore::read(&policy.cards_dir).map_err(|fault| Failure::of(&fault))?;
    if matches!(store.get(card), Reading::Missing) {
        let place = policy.cards_dir.display();
        return Err(Failure::new(format!(
            "--card: {card}.json is not in {place}; `leafgate card new --out {}` writes one",
            shell_word(&policy.cards_dir.join(format!("{card}.json")))
        )));
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<std::path::PathBuf, Failure> {
    let found = std::fs::canonicalize(path);
    found.map_err(|error| Failure::file(path, &error))
}

/// Carries connections and signals until the command's end.
fn carry(
    listeners: Vec<OwnedFd>,
    server: Server,
    hand: OwnedFd,
    wait: impl FnOnce() -> std::io::Result<ExitStatus> + Send + 'static,
) -> Result<std::io::Result<ExitStatus>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let server = Arc::new(server);
        for listener in listeners {
            bridge::carry(listener, server.clone())
                .map_err(|error| Failure::new(format!("the listener inside: {error}")))?;
        }
        let mut waited = tokio::task::spawn_blocking(wait);
        let mut signals =
            heard().map_err(|error| Failure::new(format!("signals cannot be heard: {error}")))?;
        loop {
            tokio::select! {
                status = &mut waited => {
                    return Ok(status.map_err(std::io::Error::other).and_then(|status| status));
                }
                Some(number) = signals.recv() => {
                    // Where PID 1 has gone, so has the command.
                    let _ = hand::send(&hand, number, &[]);
                }
            }
        }
    })
}

/// The signals that PID 1 hands on, as their numbers. Heard only now: what the user's shell had set to be ignored is ignored by the command.
fn heard() -> std::io::Result<mpsc::Receiver<u8>> {
    let (to, from) = mpsc::channel(16);
    for kind in first::HANDED_ON {
        let number = kind as i32;
        let mut signal = signal(SignalKind::from_raw(number))?;
        let to = to.clone();
        tokio::spawn(async move {
            while signal.recv().await.is_some() {
                let _ = to.send(u8::try_from(number).unwrap_or_default()).await;
            }
        });
    }
    Ok(from)
}

/// What a shell says of such an end.
pub(super) fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|number| 128 + number);
    let code = status.code().or(signal).unwrap_or(255);
    u8::try_from(code).unwrap_or(255)
}

/// The signal of a number that came over the hand.
pub(super) fn signal_of(number: u8) -> Option<Signal> {
    Signal::try_from(i32::from(number)).ok()
}
