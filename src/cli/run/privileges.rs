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

const STATUS: &str = "/proc/self/status";
const COUNT: &str = "Seccomp_filters";

/// Everything, in the order in which one step does not take away what the next one needs.
pub(super) fn drop_all(unix: bool) -> Result<(), Fault> {
    capabilities().step("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    stage::keep_descriptors();
    let before = filters()?;
    let own = [families(unix), pairs(unix), calls()];
    let after = before.map(|number| number + own.len());
    for filter in own {
        let mut program = filter.map_err(io::Error::other).step("a seccomp filter")?;
        other_numbers(&mut program);
        seccompiler::apply_filter(&program)
            .map_err(io::Error::other)
            .step("a seccomp filter")?;
    }
    verify(after).step(
        "looking whether all that was taken away (a filter of somebody else's may say so falsely)",
    )?;
    // PID 1 has the hand: the command must not look into it.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .step("hiding the first process")
}

/// A filter that was there before may answer a call with success and do nothing: what the kernel says of this process is what counts.
fn verify(filters: Option<usize>) -> io::Result<()> {
    let status = std::fs::read_to_string(STATUS)?;
    if let Some(what) = still_there(&status, filters) {
        return Err(io::Error::other(format!("not as it was asked for: {what}")));
    }
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // The one by which this folder is read goes with the loop.
        let Ok(info) = std::fs::read_to_string(entry.path()) else {
            continue;
        };
        if number.is_none_or(|number: u32| number > 2) && !closes_at_start(&info) {
            return Err(io::Error::other("still there: a descriptor of the shell"));
        }
    }
    Ok(())
}

/// How many filters of system calls stand; `None` where the kernel does not say (before Linux 5.9).
fn filters() -> Result<Option<usize>, Fault> {
    let status = std::fs::read_to_string(STATUS).step("reading /proc/self/status")?;
    Ok(field(&status, COUNT).and_then(|number| number.parse().ok()))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// The first line of `/proc/self/status` that is not as it must be.
fn still_there(status: &str, filters: Option<usize>) -> Option<&'static str> {
    let none = |value: &str| value.bytes().all(|b| b == b'0');
    let value = |name| field(status, name);
    let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let held = capabilities
        .into_iter()
        .find(|name| !value(name).is_some_and(none));
    let off = [("NoNewPrivs", "1"), ("Seccomp", "2")]
        .into_iter()
        .find(|(name, wanted)| value(name) != Some(wanted));
    let fewer = filters.filter(|number| value(COUNT) != Some(&*number.to_string()));
    held.or(off.map(|(name, _)| name)).or(fewer.map(|_| COUNT))
}

/// `flags: 02100002` in octal: with close-on-exec.
fn closes_at_start(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    let wanted = u32::try_from(libc::O_CLOEXEC).unwrap_or(u32::MAX);
    flags.is_some_and(|flags| flags & wanted != 0)
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

/// A pair of datagram sockets (`SOCK_RAW` makes one too) sends to any path; one of a stream is connected for good.
fn pairs(unix: bool) -> Filter {
    const KINDS: u64 = 0xf; // SOCK_TYPE_MASK
    let mut rules = vec![SeccompRule::new(vec![argument(
        0,
        SeccompCmpOp::Ne,
        libc::AF_UNIX,
    )?])?];
    for kind in (0..16).filter(|&kind| kind != libc::SOCK_STREAM && kind != libc::SOCK_SEQPACKET) {
        if !unix {
            let of_kind = argument(1, SeccompCmpOp::MaskedEq(KINDS), kind)?;
            rules.push(SeccompRule::new(vec![of_kind])?);
        }
    }
    filter([(libc::SYS_socketpair, rules)].into(), libc::EAFNOSUPPORT)
}

/// `F_SETLEASE`, and `F_SETDELEG`, its like since Linux 6.19.
const LEASES: [i32; 2] = [1024, 1040];

/// System calls and requests that act outside: keystrokes put into the terminal, rings that open sockets past this filter, keys whose look-up the kernel
/// gives to a program outside (it may ask name servers), leases on files, which keep leafgate from reading a policy that was changed.
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
    let leases = LEASES
        .into_iter()
        .map(|request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?]))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        [(libc::SYS_ioctl, terminal), (libc::SYS_fcntl, leases)].into();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_away_is_named() {
        let zero = "0000000000000000";
        let whole = format!(
            "Name:\tx\nCapInh:\t{zero}\nCapPrm:\t{zero}\nCapEff:\t{zero}\nCapBnd:\t{zero}\nCapAmb:\t{zero}\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n"
        );
        assert_eq!(still_there(&whole, Some(3)), None);
        assert_eq!(still_there(&whole, None), None);
        for (from, to, named) in [
            ("CapEff:\t0", "CapEff:\t1", "CapEff"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "NoNewPrivs"),
            ("Seccomp:\t2", "Seccomp:\t0", "Seccomp"),
            ("filters:\t3", "filters:\t1", "Seccomp_filters"),
        ] {
            assert_eq!(still_there(&whole.replace(from, to), Some(3)), Some(named));
        }
        assert_eq!(still_there("", None), Some("CapInh"));
    }

    #[test]
    fn a_descriptor_that_stays_open_is_told_from_one_that_does_not() {
        assert!(closes_at_start("pos:\t0\nflags:\t02100002\nmnt_id:\t9\n"));
        assert!(!closes_at_start("pos:\t0\nflags:\t0100002\nmnt_id:\t9\n"));
        assert!(!closes_at_start(""));
    }
}
