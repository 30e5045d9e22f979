//! `run -- COMMAND…`: a client that can reach nothing but leafgate (contract, section 10; Linux).
//!
//! Promises: the command runs in user, network, mount, PID and IPC namespaces of its own, without capabilities, behind a filter of system calls; the one
//! way out is a listener at leafgate's own address in there, whose connections this process carries to the real one; the files that tell leafgate what may
//! leave cannot be changed from in there (`rules`, `shield`), and its keys not read. Where a step is refused, it says which, and the command does not run. `docs/operating.md` says what is confined and what is not.
//!
//! Three processes of one program: this one stays outside (`bridge`); `inside` makes the namespaces; `first` is PID 1 in there, starts the command, hands
//! signals on and gives its exit status back. Nothing of it is a thread when a namespace is made, and nothing needs `unsafe`.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "elsewhere the arguments are read and refused")
)]

#[cfg(target_os = "linux")]
mod bridge;
#[cfg(target_os = "linux")]
mod environment;
#[cfg(target_os = "linux")]
mod first;
#[cfg(target_os = "linux")]
mod hand;
#[cfg(target_os = "linux")]
mod inside;
#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod masks;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod outside;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(target_os = "linux")]
mod rules;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod shield;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod way;

use std::ffi::OsString;
use std::path::PathBuf;

use super::out::{Done, Failure};

/// Run a client that can reach nothing but leafgate (Linux).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate run --policy gate/leafgate.toml -- python my_eval.py
  leafgate run --policy gate/leafgate.toml --card seed-04 -- python my_eval.py

Start `leafgate serve` first. The base URL stands in OPENAI_BASE_URL, OPENAI_API_BASE and ANTHROPIC_BASE_URL.
The network, other processes and sockets are out of reach, and leafgate's own files read-only; the rest of the disk is
open (docs/operating.md). Python's multiprocessing needs --unix-sockets for a forkserver, a Manager or shared tensors.
Exits as the command does; 128 and the signal's number where a signal ended it; 127 where it is not found,
126 where it cannot be started; 2 where it was not run.")]
pub(super) struct Args {
    /// The policy file; without one, the built-in policy
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// Attach this card of the policy's folder to every call, in the base URL
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// The roots of leafgate's own certificate, where it listens with TLS
    #[arg(long, value_name = "PEM")]
    ca: Option<PathBuf>,
    /// Leave the keys of hosts in the command's environment
    #[arg(long)]
    keep_env: bool,
    /// Allow Unix sockets besides pairs; those of others are masked only where they are found (docs/operating.md)
    #[arg(long)]
    unix_sockets: bool,
    /// Run the command also where it could change leafgate's own files: each is named, and the command is trusted with it
    #[arg(long)]
    trust_command: bool,
    /// The user that `leafgate serve` runs as, where it is not you, root or the owner of the ledger
    #[arg(long, value_name = "UID")]
    served_by: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[cfg(target_os = "linux")]
pub(super) fn run(args: &Args) -> Result<Done, Failure> {
    outside::run(args)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn run(_: &Args) -> Result<Done, Failure> {
    Err(Failure::new(
        "run needs the namespaces of Linux, and this is another system: the command was not run. docs/operating.md has a recipe with containers",
    ))
}

/// Where this process is one of the inner ones: its exit status.
#[cfg(target_os = "linux")]
pub(super) fn stage(args: &[OsString]) -> Option<u8> {
    stage::run(args)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn stage(_: &[OsString]) -> Option<u8> {
    None
}
