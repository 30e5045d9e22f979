//! `leafgate run`, as the binary: each way out is tried from inside and from outside, and a call through leafgate works; exit status, signals, standard
//! input and the terminal pass through.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that starts the binary and its own servers"
)]

mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Gate, Host, body, entry};

#[path = "run_command/rules.rs"]
mod rules;
#[path = "run_command/ways.rs"]
mod ways_in;

const PROBE: &str = include_str!("run_command/probe.py");
/// What of it changes nothing, and works where nothing confines it.
const OPEN_OUTSIDE: [&str; 19] = [
    "dns_by_udp",
    "tcp_other_port",
    "tcp_six",
    "tcp_own_address",
    "abstract_socket",
    "path_socket",
    "path_socket_with_a_space",
    "path_socket_bound_by_another_name",
    "path_socket_renamed",
    "path_socket_linked",
    "path_socket_with_a_newline",
    "path_socket_in_a_renamed_folder",
    "datagram_socket",
    "pair_of_datagrams",
    "run_folder",
    "shared_memory",
    "see_outside",
    "proc_outside",
    "descriptor_of_the_shell",
];

/// Whether this machine lets a user make namespaces, asked of a program that is not ours; said by name where not.
fn possible(test: &str) -> bool {
    let tried = Command::new("unshare")
        .args(["-Urnmpi", "--fork", "--mount-proc", "true"])
        .output();
    let python = Command::new("python3").args(["-c", ""]).status();
    let why = match (&tried, python) {
        (Err(error), _) => format!("unshare(1) cannot be started: {error}"),
        (Ok(tried), _) if !tried.status.success() => {
            String::from_utf8_lossy(&tried.stderr).trim().to_owned()
        }
        (Ok(_), Ok(status)) if status.success() => return true,
        (Ok(_), _) => "python3 is not here".to_owned(),
    };
    // Said so that nobody takes this for a pass.
    eprintln!("SKIPPED: tests/run_command.rs, {test}: {why}");
    false
}

fn gate(host: &Host) -> Gate {
    Gate::with(&entry(host, ""), "")
}

fn leafgate(gate: &Gate, options: &[&str], command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_leafgate"));
    run.args(["run", "--policy"])
        .arg(gate.path("policy.toml"))
        .args(options)
        .arg("--")
        .args(command)
        // Beside the policy, so that a command can leave something there.
        .current_dir(gate.dir.path())
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("OPENAI_API_KEY", "sk-0123456789abcdef0123");
    run
}

/// A ledger on which a leafgate runs, as far as its lock says.
fn held(ledger: &Path) -> std::fs::File {
    std::fs::create_dir(ledger).unwrap();
    let lock = std::fs::File::create(ledger.join("LOCK")).unwrap();
    lock.lock().unwrap();
    lock
}

fn told(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Servers outside, of each kind, that count whoever comes.
struct Outside {
    facts: Value,
    came: Arc<AtomicUsize>,
    dir: tempfile::TempDir,
    kept: Vec<std::path::PathBuf>,
}

impl Outside {
    fn start() -> Outside {
        let came = Arc::new(AtomicUsize::new(0));
        let dir = tempfile::tempdir().unwrap();
        let tcp = |address: &str| {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let came = came.clone();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                for stream in listener.incoming().flatten() {
                    came.fetch_add(1, Ordering::SeqCst);
                    kept.push(stream);
                }
            });
            port
        };
        let unix = |listener: UnixListener| {
            let came = came.clone();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                for stream in listener.incoming().flatten() {
                    came.fetch_add(1, Ordering::SeqCst);
                    kept.push(stream);
                }
            });
        };
        // Listed by names that they do not have any more; a second name and no first is how `ssh -M` makes its own.
        unix(UnixListener::bind(dir.path().join("old")).unwrap());
        std::fs::rename(dir.path().join("old"), dir.path().join("renamed")).unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        unix(UnixListener::bind(&first).unwrap());
        std::fs::hard_link(&first, second).unwrap();
        std::fs::remove_file(first).unwrap();
        unix(UnixListener::bind(dir.path().join("a\nline")).unwrap());
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        unix(UnixListener::bind(dir.path().join("folder/s")).unwrap());
        std::fs::rename(dir.path().join("folder"), dir.path().join("moved")).unwrap();
        let datagrams = UnixDatagram::bind(dir.path().join("datagrams")).unwrap();
        let counted = came.clone();
        std::thread::spawn(move || {
            while datagrams.recv(&mut [0; 64]).is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp_port = udp.local_addr().unwrap().port();
        let counted = came.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 512];
            while let Ok((read, from)) = udp.recv_from(&mut piece) {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = udp.send_to(&piece[..read], from);
            }
        });
        let name = format!("leafgate-test-{}", std::process::id());
        let abstract_address = UnixAddr::from_abstract_name(&name).unwrap();
        unix(UnixListener::bind_addr(&abstract_address).unwrap());
        let (path, space) = (dir.path().join("server"), dir.path().join("a server"));
        unix(UnixListener::bind(&path).unwrap());
        unix(UnixListener::bind(&space).unwrap());
        // Listed by a name that leads nowhere for anybody else, as a relative one.
        let folder = std::fs::File::open(dir.path()).unwrap();
        let name_here = format!("/proc/self/fd/{}/hidden", folder.as_raw_fd());
        unix(UnixListener::bind(name_here).unwrap());
        // A file of a service's folder, and one of shared memory: seen outside, not inside.
        let shm = Path::new("/dev/shm").join(&name);
        std::fs::write(&shm, "shared").unwrap();
        let run = std::fs::read_dir("/run").unwrap().flatten().next();
        let run = run.map_or_else(|| "/run/none".into(), |entry| entry.path());
        let facts = json!({
            "tcp": tcp("127.0.0.1:0"), "tcp6": tcp("[::1]:0"), "any": tcp("0.0.0.0:0"), "udp": udp_port, "own": own_address(),
            "abstract": name, "path": path, "space": space, "hidden": dir.path().join("hidden"), "folder": dir.path(), "run": run, "shm": shm, "pid": std::process::id(),
        });
        Outside {
            facts,
            came,
            dir,
            kept: vec![shm],
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        for file in &self.kept {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// An address of this machine that is not loopback, where it has one.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: the kernel picks the source.
    match socket.connect("192.0.2.1:9") {
        Ok(()) => socket.local_addr().unwrap().ip().to_string(),
        Err(_) => "127.0.0.2".to_owned(),
    }
}

/// `NAME open|shut DETAIL`.
fn ways(text: &str) -> BTreeMap<String, (bool, String)> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(' ')?;
            let (how, detail) = rest.split_once(' ')?;
            Some((name.to_owned(), (how == "open", detail.to_owned())))
        })
        .collect()
}

#[test]
fn nothing_but_leafgate_is_reached() {
    if !possible("nothing_but_leafgate_is_reached") {
        return;
    }
    let host = Host::ok();
    let gate = gate(&host);
    let outside = Outside::start();
    // A descriptor that the user's shell left open on purpose or by mistake.
    let (left, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    let mut facts = outside.facts.clone();
    facts["fd"] = json!(left.as_raw_fd());

    // From outside these ways are open: the probe can see an open one. Only harmless ones are tried there.
    let mut control = facts.clone();
    control["only"] = json!(OPEN_OUTSIDE);
    let output = Command::new("python3")
        .args(["-c", PROBE, &control.to_string()])
        .output()
        .unwrap();
    let seen = ways(&String::from_utf8_lossy(&output.stdout));
    for name in OPEN_OUTSIDE {
        assert!(seen[name].0, "{name} is shut outside too: {seen:#?}");
    }
    assert_eq!(seen.len(), OPEN_OUTSIDE.len(), "{seen:#?}");
    // A datagram is counted a moment after it was sent.
    let until = Instant::now() + Duration::from_secs(5);
    while outside.came.load(Ordering::SeqCst) < 14 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = outside.came.load(Ordering::SeqCst);
    assert_eq!(before, 14, "{seen:#?}");

    facts["body"] = json!(String::from_utf8(body()).unwrap());
    let mut users = vec![None];
    users.extend(another_user(&gate).map(Some));
    let mut calls = 0;
    for (user, unix) in users.iter().flat_map(|user| [(user, false), (user, true)]) {
        let options = ["--card", "seed-04", "--unix-sockets"];
        let mut command = leafgate(
            &gate,
            &options[..if unix { 3 } else { 2 }],
            &["python3", "-c", PROBE, &facts.to_string()],
        );
        if let Some(user) = user {
            command = through(user, &command);
        }
        let output = command.output().unwrap();
        all_shut(&output, unix);
        calls += 1;
        assert_eq!(outside.came.load(Ordering::SeqCst), before);
        assert_eq!(host.seen().len(), calls);
    }
    assert!(!gate.wait("outcome", calls).is_empty());
    assert!(outside.dir.path().join("server").exists());
}

/// Where the test runs as root: how to be a user without any right. Root keeps what such a user loses, so both are tried.
fn another_user(gate: &Gate) -> Option<Vec<String>> {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    for path in [gate.dir.path().to_owned(), gate.path("cards")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let line = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut probe = Command::new(env!("CARGO_BIN_EXE_leafgate"));
    probe.arg("--version");
    let there = through(&words, &probe).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "SKIPPED: tests/run_command.rs, as a user that is not root: no setpriv, or the binary is out of its reach"
        );
        return None;
    }
    Some(words)
}

/// The same command, started by another program.
fn through(before: &[String], command: &Command) -> Command {
    let mut started = Command::new(&before[0]);
    started
        .args(&before[1..])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        started.current_dir(folder);
    }
    started
}

fn all_shut(output: &Output, unix: bool) {
    let seen = ways(&String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", told(output));
    let tries = ["\n@way\n", "\n@harmful\n"].map(|mark| PROBE.matches(mark).count());
    let tries: usize = tries.iter().sum();
    assert!(tries > 30 && seen.len() == tries + 1, "{}", told(output));
    for (name, (open, detail)) in &seen {
        assert_eq!(*open, name == "leafgate", "{name}: {detail}");
        println!("{name}: {detail}");
    }
    assert_eq!(seen["leafgate"].1, "ok");
    for (name, error) in [
        ("udp_far", "[Errno 101]"),
        ("tcp_far", "[Errno 101]"),
        ("vsock", "[Errno 97]"),
        ("netlink_of_another_kind", "[Errno 97]"),
        ("ring", "[Errno 1]"),
        ("key_lookup", "[Errno 1]"),
        ("namespace_below", "[Errno 28]"),
        (
            "path_socket",
            if unix { "[Errno 111]" } else { "[Errno 97]" },
        ),
    ] {
        assert!(seen[name].1.starts_with(error), "{name}: {}", seen[name].1);
    }
}

/// The command's output and its environment's.
#[test]
fn the_environment_leads_to_leafgate_and_holds_no_key() {
    if !possible("the_environment_leads_to_leafgate_and_holds_no_key") {
        return;
    }
    let host = Host::ok();
    let gate = gate(&host);
    let output = leafgate(&gate, &[], &["env"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let base = format!("http://{}", gate.address);
    for line in [
        format!("OPENAI_BASE_URL={base}/v1"),
        format!("ANTHROPIC_BASE_URL={base}"),
        "OPENAI_API_KEY=unused".to_owned(),
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    assert!(
        !text.contains("HTTP_PROXY") && !text.contains("sk-01"),
        "{text}"
    );

    // What the policy names as a secret; the token is the client's as well.
    let policy = std::fs::read_to_string(gate.path("policy.toml")).unwrap();
    let token = "[listen]\ntoken_env = \"TOKEN_7\"\n";
    let credential = "credential = { env = \"SECRET_7\", header = \"x-key\" }\n";
    let named = format!("{}{credential}", policy.replace("[listen]\n", token));
    std::fs::write(gate.path("policy.toml"), named).unwrap();
    for (options, there) in [(&[][..], false), (&["--keep-env"], true)] {
        let mut run = leafgate(&gate, options, &["env"]);
        let output = run
            .env("SECRET_7", "s")
            .env("TOKEN_7", "0123456789abcdef")
            .output();
        let text = told(&output.unwrap());
        assert_eq!(text.contains("SECRET_7=s"), there, "{text}");
        assert!(text.contains("TOKEN_7=0123456789abcdef"), "{text}");
    }
}

#[test]
fn unix_sockets_are_refused_unless_asked_for_and_pairs_are_not() {
    if !possible("unix_sockets_are_refused_unless_asked_for_and_pairs_are_not") {
        return;
    }
    let gate = gate(&Host::ok());
    let script = "import socket\nsocket.socketpair()\ntry:\n    socket.socket(socket.AF_UNIX)\nexcept OSError as e: print(e.errno)\nelse: print('open')\nsocket.socket()";
    for (options, wanted) in [(&[][..], "97\n"), (&["--unix-sockets"], "open\n")] {
        let output = leafgate(&gate, options, &["python3", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", told(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
    }
}

#[test]
fn many_calls_at_once_and_a_half_closed_one_pass() {
    if !possible("many_calls_at_once_and_a_half_closed_one_pass") {
        return;
    }
    let host = Host::ok();
    let gate = gate(&host);
    let script = r#"
import os, socket, sys, threading, urllib.request, urllib.parse
base, body = os.environ["OPENAI_BASE_URL"], sys.argv[1].encode()
failed = []
def one():
    try:
        request = urllib.request.Request(base + "/chat/completions", body, {"content-type": "application/json"})
        assert urllib.request.urlopen(request, timeout=60).status == 200
    except Exception as error:
        failed.append(repr(error))
threads = [threading.Thread(target=one) for _ in range(40)]
for t in threads: t.start()
for t in threads: t.join()
assert not failed, failed
place = urllib.parse.urlparse(base)
s = socket.create_connection((place.hostname, place.port))
s.sendall(b"GET /v1/nothing HTTP/1.1\r\nHost: " + place.netloc.encode() + b"\r\nConnection: close\r\n\r\n")
s.shutdown(socket.SHUT_WR)
s.settimeout(20)
while s.recv(65536): pass
"#;
    let text = String::from_utf8(body()).unwrap();
    let output = leafgate(
        &gate,
        &["--card", "seed-04"],
        &["python3", "-c", script, &text],
    )
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(host.seen().len(), 40);
}

/// Whatever loopback address it has; and a policy whose secrets are not in this shell.
#[test]
fn the_address_inside_is_the_one_outside() {
    if !possible("the_address_inside_is_the_one_outside") {
        return;
    }
    let script = "import os, socket, urllib.parse\nu = urllib.parse.urlparse(os.environ['ANTHROPIC_BASE_URL'])\nprint(u.netloc, socket.create_connection((u.hostname, u.port)).recv(9).decode())";
    for ip in ["127.0.0.1", "127.0.0.5", "[::1]"] {
        let listener = TcpListener::bind(format!("{ip}:0")).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"leafgate");
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let policy = format!(
            "version = 1\n[listen]\nproxy = \"{address}\"\ntoken_env = \"NOT_IN_THIS_SHELL\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"tiny\"]\n"
        );
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, policy).unwrap();
        // What the command could else make.
        std::fs::create_dir(dir.path().join("cards")).unwrap();
        let _leafgate = held(&dir.path().join("ledger"));
        std::fs::write(dir.path().join("fixtures.lock"), "version = 1\n").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_leafgate"))
            .args(["run", "--policy"])
            .arg(file)
            .args(["--", "python3", "-c", script])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, format!("{address} leafgate\n"), "{}", told(&output));
    }
}

#[test]
fn the_exit_status_is_the_commands_own() {
    if !possible("the_exit_status_is_the_commands_own") {
        return;
    }
    let gate = gate(&Host::ok());
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/nowhere/to/be/found"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = leafgate(&gate, &[], command).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
    }
}

/// A command that asks to be traced by its parent stops at a signal: that is no end.
#[test]
fn a_stop_is_no_end() {
    if !possible("a_stop_is_no_end") {
        return;
    }
    let gate = gate(&Host::ok());
    // Who goes on is the one below, by a signal that nothing stops.
    let script = "import ctypes, os, signal, time\nif os.fork() == 0:\n    time.sleep(0.7)\n    os.kill(os.getppid(), signal.SIGKILL)\n    os._exit(0)\nassert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0\nprint('stops', flush=True)\nos.kill(os.getpid(), signal.SIGUSR1)";
    let output = leafgate(&gate, &[], &["python3", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(137), "{}", told(&output));
    assert_eq!(output.stdout, b"stops\n");
}

#[test]
fn standard_input_and_outputs_pass() {
    if !possible("standard_input_and_outputs_pass") {
        return;
    }
    let gate = gate(&Host::ok());
    let mut child = leafgate(&gate, &[], &["sh", "-c", "cat; echo aside >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent = vec![b'x'; 3 << 20];
    let mut stdin = child.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
    assert_eq!(output.stderr, b"aside\n");
}

/// Counts the signals that reach it for a while, says `ready` before, and exits with the count.
const COUNTS: &str = r#"
import signal, sys, time
got = []
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1): signal.signal(s, lambda n, _: got.append(n))
print("ready", flush=True)
end = time.monotonic() + 20
while not got and time.monotonic() < end: time.sleep(0.02)
time.sleep(0.7)
print(*got, flush=True)
sys.exit(len(got))
"#;

fn ready(child: &mut Child) -> std::process::ChildStdout {
    let mut stdout = child.stdout.take().unwrap();
    let mut line = [0; 6];
    stdout.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    stdout
}

#[test]
fn a_signal_reaches_the_command_once() {
    if !possible("a_signal_reaches_the_command_once") {
        return;
    }
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let gate = gate(&Host::ok());
    for (signal, number) in [
        (Signal::TERM, 15),
        (Signal::INT, 2),
        (Signal::HUP, 1),
        (Signal::USR1, 10),
    ] {
        for group in [false, true] {
            let mut child = leafgate(&gate, &[], &["python3", "-c", COUNTS])
                .process_group(0)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdout = ready(&mut child);
            let pid = Pid::from_child(&child);
            if group {
                kill_process_group(pid, signal).unwrap();
            } else {
                kill_process(pid, signal).unwrap();
            }
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("{number}\n"), "group: {group}");
            assert_eq!(child.wait().unwrap().code(), Some(1));
        }
    }
}

#[test]
fn nothing_stays_behind() {
    if !possible("nothing_stays_behind") {
        return;
    }
    let gate = gate(&Host::ok());
    let beat = gate.path("beat");
    let script = "(while :; do echo x >> \"$1\"; sleep 0.05; done) & echo ready; eval \"$2\"";
    // The command ends, and what it left running with it; this process is killed, and all of it ends.
    for (then, kill) in [("sleep 0.3", false), ("wait", true)] {
        let beating = beat.to_str().unwrap();
        let mut child = leafgate(&gate, &[], &["sh", "-c", script, "sh", beating, then])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _stdout = ready(&mut child);
        std::thread::sleep(Duration::from_millis(200));
        if kill {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let length = std::fs::metadata(&beat).unwrap().len();
        assert!(length > 0);
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(std::fs::metadata(&beat).unwrap().len(), length, "{then}");
    }
}

/// A terminal of its own for the command: it is seen as one, its Ctrl-C comes once, and no keystroke can be put into it.
const TERMINAL: &str = r#"
import os, pty, select, sys, time
pid, master = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b""
sent = False
while True:
    if not select.select([master], [], [], 30)[0]: break
    try:
        piece = os.read(master, 4096)
    except OSError:
        break
    if not piece: break
    text += piece
    if b"ready" in text and not sent:
        sent = True
        os.write(master, b"\x03")
sys.stdout.write(text.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

const IN_TERMINAL: &str = r#"
import fcntl, os, termios, ctypes
assert all(os.isatty(n) for n in (0, 1, 2)) and os.get_terminal_size()
os.close(os.open("/dev/tty", os.O_RDWR))
assert os.tcgetpgrp(0) == os.getpgrp()
libc = ctypes.CDLL(None, use_errno=True)
for request in (termios.TIOCSTI, termios.TIOCSTI | 1 << 32, 0x541C):
    got = libc.ioctl(0, ctypes.c_ulong(request), ctypes.c_char_p(b"x"))
    print("request", got, ctypes.get_errno())
"#;

#[test]
fn the_terminal_passes() {
    if !possible("the_terminal_passes") {
        return;
    }
    let gate = gate(&Host::ok());
    let run = leafgate(
        &gate,
        &[],
        &["python3", "-c", &format!("{IN_TERMINAL}{COUNTS}")],
    );
    let terminal = ["python3", "-c", TERMINAL].map(str::to_owned);
    let output = through(&terminal, &run).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.matches("request -1 1\r\n").count(),
        3,
        "{}",
        told(&output)
    );
    assert!(
        text.ends_with("\r\n2\r\n") || text.ends_with("^C2\r\n"),
        "{text:?}"
    );
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
}

#[test]
fn without_leafgate_nothing_runs() {
    let host = Host::ok();
    let mut gate = gate(&host);
    gate.stop();
    let mark = gate.path("ran");
    let started = Instant::now();
    let output = leafgate(&gate, &[], &["touch", mark.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("start `leafgate serve"), "{text}");
    assert!(!mark.exists() && started.elapsed() < Duration::from_secs(20));
}

#[test]
fn where_a_namespace_is_refused_nothing_runs() {
    if !possible("where_a_namespace_is_refused_nothing_runs") {
        return;
    }
    let gate = gate(&Host::ok());
    let mark = gate.path("ran");
    // A user namespace that allows none below it, as some kernels are set up.
    let run = leafgate(&gate, &[], &["touch", mark.to_str().unwrap()]);
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let without = ["unshare", "-Ur", "sh", "-c", script, "sh"].map(str::to_owned);
    let output = through(&without, &run).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("a user namespace") && text.contains("user.max_user_namespaces above 0"),
        "{text}"
    );
    assert!(!mark.exists());
}

#[test]
fn a_card_that_is_not_there_is_said_before_anything_runs() {
    let host = Host::ok();
    let gate = gate(&host);
    let output = leafgate(&gate, &["--card", "none"], &["true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("none.json"), "{}", told(&output));
}
