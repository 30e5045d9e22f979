//! What the kernel sees of held calls: `strace` over the program itself.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::kit::own;
use crate::process::Process;
use crate::support::{Host, body, card, entry, lay_out};

/// Lines of a trace that open a way out: a socket, a connect, a datagram to an address.
fn ways_out(trace: &str) -> Vec<&str> {
    let opens = |line: &&str| {
        let datagram = line.contains("sin_port") || line.contains("sin6_port");
        ["socket(", "connect(", "socketpair("]
            .iter()
            .any(|call| line.contains(call))
            || (datagram
                && ["sendto(", "sendmsg(", "sendmmsg("]
                    .iter()
                    .any(|call| line.contains(call)))
    };
    trace.lines().filter(opens).collect()
}

/// The program under `strace`: `HELD_CALLS` says how many calls (300), `LEAFGATE` which binary.
#[test]
fn the_kernel_sees_no_socket_for_a_held_call() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: the_kernel_sees_no_socket_for_a_held_call: strace is not installed");
        return;
    }
    let calls: usize = std::env::var("HELD_CALLS").map_or(300, |count| count.parse().unwrap());
    let host = Host::ok();
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    // No fixed addresses: a release would ask the name server of the policy, which is the host's port and answers nothing.
    let asks = format!("[resolver]\nservers = [\"{}\"]\n", host.address);
    let hosts = entry(&host, "").replace("resolve = [\"127.0.0.1\"]\n", "");
    lay_out(
        dir.path(),
        &hosts,
        &format!("{asks}[limits]\nconnect = \"500ms\"\n"),
        "",
    );
    let before = format!(
        "set -- \"$1\" {}\n[ -n \"${{LEAFGATE:-}}\" ] && set -- \"$1\" \"$LEAFGATE\"\nexec strace -f -qq -e trace=network -o {} \"$2\" serve --policy \"$1\"",
        env!("CARGO_BIN_EXE_leafgate"),
        trace.display()
    );
    let process = Process::start(dir, &before);
    let warm = process.call(&card(json!({"residue": ["x"]})), &body());
    own("strace", &warm.unwrap(), 422, "residue_present");
    let known = fs::read_to_string(&trace).unwrap().len();
    for n in 0..calls {
        let (changes, reason) = match n % 5 {
            0 => (json!({"egress_class": "machine-local"}), "machine_local"),
            1 => (json!({"residue": ["x"]}), "residue_present"),
            2 => (json!({"host_pin": " "}), "field_blank"),
            3 => (json!({"egress_class": "public"}), "class_unknown"),
            _ => (json!({"host_pin": "free-server"}), "pin_placeholder"),
        };
        own(
            "strace",
            &process.call(&card(changes), &body()).unwrap(),
            422,
            reason,
        );
    }
    let seen = fs::read_to_string(&trace).unwrap();
    assert!(
        seen[known..].matches("accept4(").count() >= calls,
        "the trace was read"
    );
    let ways = ways_out(&seen[known..]);
    assert!(ways.is_empty(), "{ways:?}");
    println!("{calls} held calls under strace: accepts alone");
    // The twin: a release asks, and the trace shows it.
    let known = seen.len();
    own(
        "strace",
        &process.call(&card(json!({})), &body()).unwrap(),
        502,
        "connect_failed",
    );
    let seen = fs::read_to_string(&trace).unwrap();
    assert!(
        !ways_out(&seen[known..]).is_empty(),
        "a release asks a name server"
    );
    assert_eq!(host.seen().len(), 0);
    // strace hands SIGKILL to nobody: the traced program is ended by name of its own.
    let children = format!("/proc/{0}/task/{0}/children", process.child.id());
    for child in fs::read_to_string(children).unwrap().split_whitespace() {
        let _ = Command::new("kill").arg(child).status();
    }
}
