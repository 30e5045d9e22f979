//! What is taken away before the command starts: capabilities, new privileges, descriptors, and system calls by which a way out could be had.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::stage::{self, Fault, Step as _};

/// Everything, in the order in which one step does not take away what the next one needs.
pub(super) fn drop_all(unix: bool) -> Result<(), Fault> {
    capabilities().step("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    stage::keep_descriptors();
    for filter in [families(unix), calls()] {
        let mut program = filter.map_err(io::Error::other).step("a seccomp filter")?;
        other_numbers(&mut program);
        seccompiler::apply_filter(&program)
            .map_err(io::Error::other)
            .step("a seccomp filter")?;
    }
    // PID 1 has the hand: the command must not look into it.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .step("hiding the first process")
}

/// What PID 1 needs, past its start: a user other than root keeps nothing else when a program is started. It drops them before the command.
pub(super) fn for_the_first() -> Result<(), Errno> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE | CapabilitySet::SETPCAP;
    let mut own = rustix::thread::capabilities(None)?;
    own.inheritable |= needed;
    rustix::thread::set_capabilities(None, own)?;
    for one in needed.iter() {
        rustix::thread::configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

/// None in hand, and none to be had: a program with capabilities on its file gets none, and root is a user like any other.
fn capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // Past the last that this kernel knows.
            Err(Errno::INVAL) if bit > 0 => break,
            other => other?,
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}

type Filter = Result<BpfProgram, seccompiler::BackendError>;

/// Kinds of sockets that no network namespace confines (a virtual machine's own, Bluetooth), and those that nobody here needs.
fn families(unix: bool) -> Filter {
    let known = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut others = known
        .iter()
        .map(|&family| argument(0, SeccompCmpOp::Ne, family))
        .collect::<Result<Vec<_>, _>>()?;
    if unix {
        others.push(argument(0, SeccompCmpOp::Ne, libc::AF_UNIX)?);
    }
    let netlink = vec![
        argument(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?,
        argument(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?,
    ];
    let rules = vec![SeccompRule::new(others)?, SeccompRule::new(netlink)?];
    filter([(libc::SYS_socket, rules)].into(), libc::EAFNOSUPPORT)
}

/// System calls and requests that act outside: keystrokes put into the terminal, rings that open sockets past this filter, keys whose look-up the kernel
/// gives to a program outside (it may ask name servers).
fn calls() -> Filter {
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|request| {
            // The kernel takes the lower half alone.
            let request = u32::try_from(request).unwrap_or_default();
            let request = i32::try_from(request).unwrap_or_default();
            SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?])
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [(libc::SYS_ioctl, terminal)].into();
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
    ] {
        rules.insert(call, Vec::new());
    }
    filter(rules, libc::EPERM)
}

fn argument(
    place: u8,
    how: SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let value = u64::try_from(value).unwrap_or_default();
    SeccompCondition::new(place, SeccompCmpArgLen::Dword, how, value)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Filter {
    let architecture = std::env::consts::ARCH.try_into()?;
    let error = SeccompAction::Errno(u32::try_from(error).unwrap_or_default());
    SeccompFilter::new(rules, SeccompAction::Allow, error, architecture)?.try_into()
}

/// The x32 numbers of x86-64: the same calls by other names, which the rules would not see. Another architecture's calls kill by themselves.
fn other_numbers(program: &mut BpfProgram) {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let step = |code, jf, k| seccompiler::sock_filter { code, jt: 0, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS).unwrap_or_default();
    // BPF_LD|BPF_W|BPF_ABS the number; BPF_JMP|BPF_JGE|BPF_K; BPF_RET|BPF_K.
    let before = [
        step(0x20, 0, 0),
        step(0x35, 1, 0x4000_0000),
        step(0x06, 0, refuse),
    ];
    program.splice(0..0, before);
}
