//! Ways out that stand in what surrounds the command: mounts, its working directory, what it is given, who listens, and a kernel that says yes and does nothing.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

/// A user, mount and IPC namespace of the test's own, set up by a script whose `$1` is a folder.
fn sandbox(set_up: &str, folder: &Path) -> Vec<String> {
    let script = format!("{set_up} && shift && exec \"$@\"");
    let words = ["unshare", "-Urmi", "sh", "-c", &script, "sh"];
    let folder = folder.to_str().unwrap().to_owned();
    words
        .map(str::to_owned)
        .into_iter()
        .chain([folder])
        .collect()
}

/// What the command prints in there, and what it prints without `run`.
fn both(gate: &Gate, set_up: &str, script: &str) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let words = ["python3", "-c", script, folder.path().to_str().unwrap()];
    let mut bare = Command::new(words[0]);
    bare.args(&words[1..]);
    [leafgate(gate, &[], &words), bare].map(|command| {
        let output = through(&sandbox(set_up, folder.path()), &command)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn mounts_by_which_something_outside_is_reached_are_masked_wherever_they_are() {
    if !possible("mounts_by_which_something_outside_is_reached_are_masked_wherever_they_are") {
        return;
    }
    let gate = gate(&Host::ok());
    for (set_up, script, inside, outside) in [
        // A queue in which somebody waits.
        (
            "mount -t mqueue none \"$1\" && : > \"$1/queue\"",
            "import os, sys; print(os.path.exists(sys.argv[1] + '/queue'))",
            "False\n",
            "True\n",
        ),
        // The kernel's own, beside its usual place.
        (
            "mount --rbind /sys/kernel \"$1\"",
            "import os, sys; print(os.statvfs(sys.argv[1]).f_flag & os.ST_RDONLY, len(os.listdir(sys.argv[1])) > 0)",
            "1 True\n",
            "0 True\n",
        ),
        // The processes outside, whole and by a single file.
        (
            "mount --rbind /proc \"$1\"",
            "import os, sys; print(os.path.exists(sys.argv[1] + '/version'))",
            "False\n",
            "True\n",
        ),
        (
            "mount --bind /proc/version \"$1/file\"",
            "import sys; print(len(open(sys.argv[1] + '/file').read()) > 0)",
            "False\n",
            "True\n",
        ),
    ] {
        let seen = both(&gate, set_up, script);
        assert_eq!(seen, [inside, outside], "{set_up}");
    }
}

#[test]
fn a_working_directory_in_proc_is_the_one_in_there() {
    if !possible("a_working_directory_in_proc_is_the_one_in_there") {
        return;
    }
    let gate = gate(&Host::ok());
    let script = "import os\nprint(sum(n.isdigit() for n in os.listdir('.')) > 8, os.statvfs('sys').f_flag & os.ST_RDONLY, os.path.exists(str(PID)))"
        .replace("PID", &std::process::id().to_string());
    let run = |command: &mut Command| command.current_dir("/proc").output().unwrap();
    let output = run(&mut leafgate(&gate, &[], &["python3", "-c", &script]));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "False 1 False\n", "{}", told(&output));
    let output = run(Command::new("python3").args(["-c", &script]));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with(" True\n"), "{}", told(&output));
    // A folder of a process outside is not there inside.
    let output = leafgate(&gate, &[], &["true"])
        .current_dir("/proc/self/task")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("the working directory"));
}

#[test]
fn what_is_given_may_lead_nowhere() {
    if !possible("what_is_given_may_lead_nowhere") {
        return;
    }
    let gate = gate(&Host::ok());
    let folder = || OwnedFd::from(std::fs::File::open(gate.dir.path()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (pair, _other) = UnixStream::pair().unwrap();
    let (datagrams, _another) = UnixDatagram::pair().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut tried = Vec::new();
    for (given, runs) in [
        (folder(), false),
        (tcp.into(), false),
        (datagrams.into(), false),
        (listener.into(), false),
        (pair.into(), true),
        (null.into(), true),
    ] {
        let output = leafgate(&gate, &[], &["true"])
            .stdin(Stdio::from(given))
            .output()
            .unwrap();
        assert_eq!(output.status.success(), runs, "{}", told(&output));
        assert!(runs || told(&output).contains("standard input is a"));
        tried.push(output.status.code());
    }
    assert_eq!(tried, [2, 2, 2, 2, 0, 0].map(Some));
    let output = leafgate(&gate, &[], &["true"])
        .stdout(Stdio::from(folder()))
        .output()
        .unwrap();
    assert!(told(&output).contains("standard output is a folder"));
}

#[test]
fn without_the_null_device_nothing_runs() {
    if !possible("without_the_null_device_nothing_runs") {
        return;
    }
    let gate = gate(&Host::ok());
    let mark = gate.path("ran");
    let run = leafgate(&gate, &[], &["touch", mark.to_str().unwrap()]);
    let empty = tempfile::tempdir().unwrap();
    for set_up in [
        "mount -t tmpfs none /dev",
        "mount -t tmpfs none /dev && : > /dev/null",
    ] {
        let output = through(&sandbox(set_up, empty.path()), &run)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains("/dev/null is what run lays over files"));
        assert!(!mark.exists());
    }
    let output = through(&sandbox("true", empty.path()), &run)
        .output()
        .unwrap();
    assert!(
        output.status.success() && mark.exists(),
        "{}",
        told(&output)
    );
}

/// Says who listens at a port, as another user than the test's own: needs root.
const TAKES: &str = "import socket, sys\ns = socket.socket()\ns.setsockopt(1, 2, 1)\ns.bind(('127.0.0.1', int(sys.argv[1])))\ns.listen(8)\nprint('ready', flush=True)\nwhile True:\n    c, _ = s.accept()\n    c.settimeout(2)\n    try: print('got', c.recv(99), flush=True)\n    except OSError as e: print('nothing', flush=True)";

fn taken_by(user: &[String], port: u16) -> Child {
    // Not one of root's own, which another user may not start.
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", TAKES, &port.to_string()]);
    let mut child = through(user, &python)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout = Some(ready(&mut child));
    child
}

#[test]
fn a_port_that_somebody_else_took_gets_nothing() {
    if !possible("a_port_that_somebody_else_took_gets_nothing") {
        return;
    }
    let host = Host::ok();
    let mut gate = gate(&host);
    let Some(user) = another_user(&gate) else {
        return;
    };
    let port = gate.address.port();
    let script = "import os, socket, sys\nprint('ready', flush=True)\nsys.stdin.readline()\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\ns.sendall(b'PRIVATE')\ntry: print(s.recv(9))\nexcept OSError: print('reset')";
    let mut child = leafgate(&gate, &[], &["python3", "-c", script, &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = ready(&mut child);
    gate.stop();
    let mut stranger = taken_by(&user, port);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text == "b''\n" || text == "reset\n", "{text}");
    assert!(
        told(&output).contains("user 65534 listens"),
        "{}",
        told(&output)
    );

    // At the start it is seen as well; where it is leafgate's own user, it is said.
    let start = |options: &[&str]| leafgate(&gate, options, &["true"]).output().unwrap();
    let output = start(&[]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(
        told(&output).contains("--served-by 65534"),
        "{}",
        told(&output)
    );
    let output = start(&["--served-by", "65534"]);
    assert!(output.status.success(), "{}", told(&output));
    stranger.kill().unwrap();
    let mut seen = String::new();
    stranger
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut seen)
        .unwrap();
    stranger.wait().unwrap();
    assert!(!seen.contains("PRIVATE"), "{seen}");
}

/// A filter of system calls that was there before: it answers these with an error, or with success and does nothing.
const FILTERED: &str = r#"
import ctypes, os, struct, sys
x86 = os.uname().machine == "x86_64"
numbers = {"signalfd4": (289, 74), "mount": (165, 40), "seccomp": (317, 277), "close_range": (436, 436), "unshare": (272, 97), "capset": (126, 91)}
number, error = numbers[sys.argv[1]][0 if x86 else 1], int(sys.argv[2])
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
whole = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.create_string_buffer(whole), 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])
"#;

#[test]
fn a_step_that_was_refused_or_only_pretended_runs_nothing() {
    if !possible("a_step_that_was_refused_or_only_pretended_runs_nothing") {
        return;
    }
    let gate = gate(&Host::ok());
    let mark = gate.path("ran");
    let (left, _other) = UnixStream::pair().unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    let run = leafgate(&gate, &[], &["touch", mark.to_str().unwrap()]);
    for (call, error) in [
        ("signalfd4", "1"),
        ("signalfd4", "0"),
        ("unshare", "0"),
        ("mount", "1"),
        ("mount", "0"),
        ("seccomp", "1"),
        ("seccomp", "0"),
        ("capset", "0"),
        ("close_range", "0"),
    ] {
        let before = ["python3", "-c", FILTERED, call, error].map(str::to_owned);
        let output = through(&before, &run).output().unwrap();
        let text = told(&output);
        assert_eq!(output.status.code(), Some(2), "{call} {error}: {text}");
        assert!(
            text.contains("The command was not run"),
            "{call} {error}: {text}"
        );
        // The setting is what `run` itself wrote in there.
        assert!(!text.contains("max_user_namespaces above"), "{text}");
        assert!(!mark.exists(), "{call} {error}");
        println!("{call} {error}: {text}");
    }
    // Where it is refused and not pretended, there is another way for this one.
    let before = ["python3", "-c", FILTERED, "close_range", "38"].map(str::to_owned);
    let output = through(&before, &run).output().unwrap();
    assert!(
        output.status.success() && mark.exists(),
        "{}",
        told(&output)
    );
}

/// Another policy's leafgate decides by other rules, and another program by none.
#[test]
fn what_listens_must_be_a_leafgate_on_this_policys_ledger() {
    let host = Host::ok();
    let (gate, other) = (gate(&host), gate(&host));
    let policy = std::fs::read_to_string(gate.path("policy.toml")).unwrap();
    let write = |address: String| {
        let own = gate.address.to_string();
        std::fs::write(gate.path("policy.toml"), policy.replace(&own, &address)).unwrap();
    };
    let program = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let marker = gate.path("ran");
    let touch = ["touch", marker.to_str().unwrap()];
    // The ledger of this policy is nobody's while its own leafgate does not run.
    let ledger = gate.path("ledger");
    let away = gate.path("ledger-of-the-running-one");
    std::fs::rename(&ledger, &away).unwrap();
    std::fs::create_dir(&ledger).unwrap();
    for address in [program.local_addr().unwrap(), other.address] {
        write(address.to_string());
        let refused = leafgate(&gate, &[], &touch).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        assert!(
            told(&refused).contains("no leafgate with this policy"),
            "{}",
            told(&refused)
        );
        assert!(!marker.exists());
    }
    // The twin.
    if possible("what_listens_must_be_a_leafgate_on_this_policys_ledger") {
        std::fs::remove_dir(&ledger).unwrap();
        std::fs::rename(&away, &ledger).unwrap();
        write(gate.address.to_string());
        let ran = leafgate(&gate, &[], &touch).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", told(&ran));
        assert!(marker.exists());
    }
}
