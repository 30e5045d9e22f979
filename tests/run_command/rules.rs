//! leafgate's own files: what a command of the same user can do to them from inside, and that it can do it from outside.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;

const TAMPER: &str = include_str!("tamper.py");

/// A leafgate two folders down, whose host has a credential in a file.
fn nested(host: &Host) -> (tempfile::TempDir, Gate) {
    let top = tempfile::tempdir().unwrap();
    std::fs::create_dir(top.path().join("a")).unwrap();
    let dir = tempfile::tempdir_in(top.path().join("a")).unwrap();
    std::fs::write(dir.path().join("credential"), "CREDENTIAL-4a").unwrap();
    let more = "credential = { file = \"credential\", header = \"x-key\" }\n";
    let gate = Gate::built_in(dir, &entry(host, more), "", "");
    (top, gate)
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

/// Without the ledger, which goes on being written.
fn rules(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = files(dir);
    all.retain(|path, _| !path.starts_with(dir.join("ledger")));
    all
}

fn tamper(top: &Path, inner: &Path) -> [String; 5] {
    let inner = inner.strip_prefix(top).unwrap();
    let words = ["python3", "-c", TAMPER].map(str::to_owned);
    let [python, option, script] = words;
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    [python, option, script, path(top), path(inner)]
}

#[test]
fn leafgates_own_files_can_be_neither_changed_nor_its_keys_read() {
    if !possible("leafgates_own_files_can_be_neither_changed_nor_its_keys_read") {
        return;
    }
    let host = Host::ok();
    let (top, gate) = nested(&host);
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-a", "--"])
        .arg(top.path())
        .arg(copy.path().join("top"))
        .status()
        .unwrap();
    assert!(copied.success());
    let before = rules(gate.dir.path());

    let command = tamper(top.path(), gate.dir.path());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    // Where the command works beside the policy, what it leaves there is its own; elsewhere all of the policy's folder is read-only.
    let mut inside = BTreeMap::new();
    for (folder, open) in [(gate.dir.path(), true), (Path::new("/"), false)] {
        let output = leafgate(&gate, &[], &command)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", told(&output));
        inside = ways(&String::from_utf8_lossy(&output.stdout));
        assert!(inside.len() > 35, "{}", told(&output));
        for (name, (shown, detail)) in &inside {
            println!("{name}: {detail}");
            assert_eq!(*shown, open && name == "write_beside", "{name}: {detail}");
        }
        assert_eq!(std::fs::remove_file(gate.path("beside")).is_ok(), open);
        assert_eq!(rules(gate.dir.path()), before);
        let secrets = ["CREDENTIAL-4a", "BEGIN"];
        assert!(secrets.iter().all(|text| !told(&output).contains(text)));
    }

    // Each of them does what it says where nothing confines it.
    let other = copy.path().join("top");
    let inner = other.join(gate.dir.path().strip_prefix(top.path()).unwrap());
    let [python, words @ ..] = tamper(&other, &inner);
    let output = Command::new(python).args(words).output().unwrap();
    let outside = ways(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(outside.len(), inside.len());
    for (name, (open, detail)) in &outside {
        assert!(*open, "{name}: {detail}");
    }
    // leafgate itself is as it was.
    assert_eq!(gate.call(&support::card(json!({})), &body()).status, 200);
}

/// Under a lease `serve` could not read a policy that was changed, and the old one would stay in force.
#[test]
fn no_lease_can_be_taken_on_a_file() {
    if !possible("no_lease_can_be_taken_on_a_file") {
        return;
    }
    let host = Host::ok();
    let (_top, gate) = nested(&host);
    let script = "import fcntl, sys\nfor path in sys.argv[1:]:\n  for request in (fcntl.F_SETLEASE, 1040, fcntl.F_GETFL):\n    f = open(path)\n    try: fcntl.fcntl(f, request, fcntl.F_RDLCK); print('open', end=' ')\n    except OSError as e: print(e.errno, end=' ')\n    f.close()";
    let paths = ["policy.toml", "fixtures.lock", "cards/seed-04.json"].map(|name| gate.path(name));
    let mut words = vec!["python3", "-c", script];
    words.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let output = leafgate(&gate, &[], &words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "1 1 open ".repeat(3), "{}", told(&output));
    let outside = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&outside.stdout);
    assert_eq!(text.matches("open ").count(), 6, "{}", told(&outside));
}

/// Where the folder is mounted at another place as well, it is no other way to the same files.
#[test]
fn another_view_of_the_files_is_no_way_round() {
    if !possible("another_view_of_the_files_is_no_way_round") {
        return;
    }
    let host = Host::ok();
    let (_top, gate) = nested(&host);
    let view = tempfile::tempdir().unwrap();
    let script = "import os, sys\nfor n in ('policy.toml', 'cards/new.json'):\n    try: open(sys.argv[1] + '/' + n, 'a').close(); print('open')\n    except OSError as e: print(e.errno)\nprint(os.path.exists(sys.argv[1] + '/ledger/leafgate.key'), len(open(sys.argv[1] + '/credential').read()))";
    let at = view.path().to_str().unwrap();
    let run = leafgate(&gate, &[], &["python3", "-c", script, at]);
    let bind = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let mut sandbox = ["unshare", "-Urm", "sh", "-c", bind, "sh"]
        .map(str::to_owned)
        .to_vec();
    sandbox.extend([gate.dir.path(), view.path()].map(|path| path.to_str().unwrap().to_owned()));
    let output = through(&sandbox, &run).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "30\n30\nFalse 0\n", "{}", told(&output));
    let mut bare = Command::new("python3");
    bare.args(["-c", script, at]);
    let output = through(&sandbox, &bare).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "open\nopen\nTrue 13\n", "{}", told(&output));
}

/// The policy is named by a read-only mount of a folder that can be written by its own name.
#[test]
fn a_read_only_view_does_not_leave_the_other_one_open() {
    if !possible("a_read_only_view_does_not_leave_the_other_one_open") {
        return;
    }
    let host = Host::ok();
    let (top, gate) = nested(&host);
    let data = top.path().join("a/data");
    std::fs::create_dir(&data).unwrap();
    for name in ["fixtures.lock", "glue.json", "seed-04.txt"] {
        std::fs::copy(gate.path(name), data.join(name)).unwrap();
    }
    let text = std::fs::read_to_string(gate.path("policy.toml")).unwrap();
    let text = text.replace("\"fixtures.lock\"", "\"../data/fixtures.lock\"");
    std::fs::write(gate.path("policy.toml"), text).unwrap();
    let view = tempfile::tempdir().unwrap();
    let inner = gate.dir.path().strip_prefix(top.path()).unwrap();

    let script = "import os, sys\ndef rename(p): os.rename(p, p + '.away'); os.rename(p + '.away', p)\ndef write(p): open(p, 'a').close()\nfor f, p in ((write, 'policy.toml'), (write, 'cards/new.json'), (write, '../data/fixtures.lock'), (write, '../data/glue.json'), (rename, '../data'), (rename, '.')):\n    try: f(os.path.realpath(p)); print('open', end=' ')\n    except OSError as e: print(e.errno, end=' ')\nos.path.exists('cards/new.json') and os.unlink('cards/new.json')";
    let bind =
        "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && shift 2 && exec \"$@\"";
    let mut sandbox = ["unshare", "-Urm", "sh", "-c", bind, "sh"]
        .map(str::to_owned)
        .to_vec();
    sandbox.extend([top.path(), view.path()].map(|path| path.to_str().unwrap().to_owned()));
    let mut run = Command::new(env!("CARGO_BIN_EXE_leafgate"));
    run.args(["run", "--policy"])
        .arg(view.path().join(inner).join("policy.toml"))
        .args(["--", "python3", "-c", script])
        .current_dir(gate.dir.path());
    let output = through(&sandbox, &run).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "30 30 30 30 16 16 ", "{}", told(&output));
    let mut bare = Command::new("python3");
    bare.args(["-c", script]).current_dir(gate.dir.path());
    let output = through(&sandbox, &bare).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "open ".repeat(6), "{}", told(&output));
}

/// Each case with what mends it.
#[test]
fn where_a_file_cannot_be_kept_the_command_does_not_run_unless_trusted() {
    if !possible("where_a_file_cannot_be_kept_the_command_does_not_run_unless_trusted") {
        return;
    }
    let host = Host::ok();
    let (top, gate) = nested(&host);
    let mark = gate.path("ran");
    let link = top.path().join("link");
    std::os::unix::fs::symlink(gate.dir.path(), &link).unwrap();
    let twice = top.path().join("twice");
    let run = |policy: &Path, options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_leafgate"))
            .args(["run", "--policy"])
            .arg(policy)
            .args(options)
            .args(["--", "touch"])
            .arg(&mark)
            .current_dir(gate.dir.path())
            .output()
            .unwrap();
        let ran = mark.exists();
        let _ = std::fs::remove_file(&mark);
        assert_eq!(ran, output.status.success(), "{}", told(&output));
        (output.status.code(), told(&output))
    };
    let own = gate.path("policy.toml");
    let refused = |policy: &Path, why: &str| {
        let (code, text) = run(policy, &[]);
        assert_eq!(code, Some(2), "{text}");
        assert!(
            text.contains(why) && text.contains("--trust-command"),
            "{text}"
        );
        let (code, text) = run(policy, &["--trust-command"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(why), "{text}");
    };
    assert_eq!(run(&own, &[]).0, Some(0));
    refused(&link.join("policy.toml"), "leads over the link");
    std::fs::hard_link(gate.path("fixtures.lock"), &twice).unwrap();
    refused(&own, "fixtures.lock (");
    std::fs::remove_file(&twice).unwrap();
    std::fs::hard_link(gate.path("cards/seed-04.json"), &twice).unwrap();
    refused(&own, "has another name");
    std::fs::remove_file(&twice).unwrap();
    // As `cp -al` leaves them.
    for name in ["leafgate.key", "000000000000.jsonl"] {
        std::fs::hard_link(gate.path("ledger").join(name), &twice).unwrap();
        refused(&own, "ledger.dir has 1 file with another name");
        std::fs::remove_file(&twice).unwrap();
    }
    assert_eq!(run(&own, &[]).0, Some(0));

    // What is not there the command could make: unless its user may not.
    let text = std::fs::read_to_string(&own).unwrap();
    let text = text.replace("[cards]\ndir = \"cards\"\n", "");
    let other = top.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for name in ["credential", "fixtures.lock", "glue.json", "seed-04.txt"] {
        std::fs::copy(gate.path(name), other.join(name)).unwrap();
    }
    let _leafgate = held(&other.join("ledger"));
    std::fs::write(other.join("policy.toml"), text).unwrap();
    refused(&other.join("policy.toml"), "cards.dir (");
    std::fs::create_dir(other.join("cards")).unwrap();
    assert_eq!(run(&other.join("policy.toml"), &[]).0, Some(0));
}

/// A descriptor leads past every mount to the file behind it.
#[test]
fn a_kept_file_is_not_handed_in() {
    if !possible("a_kept_file_is_not_handed_in") {
        return;
    }
    let host = Host::ok();
    let (_top, gate) = nested(&host);
    std::fs::write(gate.path("other"), "x").unwrap();
    let before = files(&gate.path("cards"));
    let script = "import os\nfor n in (0, 1):\n    try: os.write(os.open(f'/proc/self/fd/{n}', os.O_WRONLY | os.O_APPEND), b' '); os.write(2, b'wrote ')\n    except OSError: pass";
    let run = |name: &str, output: bool, options: &[&str]| {
        let mut run = leafgate(&gate, options, &["python3", "-c", script]);
        let mut open = std::fs::OpenOptions::new();
        open.read(!output).append(output);
        let file = open.open(gate.path(name)).unwrap();
        run.stdin(Stdio::null()).stdout(Stdio::null());
        if output {
            run.stdout(file);
        } else {
            run.stdin(file);
        }
        run.output().unwrap()
    };
    for (name, output) in [
        ("policy.toml", false),
        ("cards/seed-04.json", false),
        ("cards/seed-04.json", true),
        ("credential", false),
        ("ledger/leafgate.key", false),
    ] {
        let ended = run(name, output, &[]);
        assert_eq!(ended.status.code(), Some(2), "{name}: {}", told(&ended));
        let handed = if output { "output" } else { "input" };
        let line = format!("standard {handed} is ");
        assert!(told(&ended).contains(&line), "{}", told(&ended));
    }
    assert_eq!(files(&gate.path("cards")), before);
    // Each does what it says with a file that is nobody's, and where the command is trusted.
    for (name, output) in [("other", false), ("other", true)] {
        let ended = run(name, output, &[]);
        assert!(told(&ended).contains("wrote"), "{}", told(&ended));
    }
    let ended = run("fixtures.lock", false, &["--trust-command"]);
    assert!(told(&ended).contains("wrote"), "{}", told(&ended));
}

/// A user who owns none of it: nothing is refused, since nothing could be made or changed.
#[test]
fn another_users_files_need_no_trust() {
    if !possible("another_users_files_need_no_trust") {
        return;
    }
    let host = Host::ok();
    let (top, gate) = nested(&host);
    let Some(user) = another_user(&gate) else {
        return;
    };
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(top.path(), 0o755);
    // A secret of leafgate's own user: `run` needs none.
    mode(&gate.path("credential"), 0o600);
    std::fs::hard_link(gate.path("policy.toml"), gate.path("again")).unwrap();
    let ledger = std::fs::metadata(gate.path("ledger")).unwrap();
    assert_eq!(ledger.permissions().mode() & 0o077, 0);
    std::fs::hard_link(gate.path("credential"), gate.path("backup")).unwrap();
    let run = leafgate(&gate, &[], &["true"]);
    let output = through(&user, &run).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    // Where it could be read, another name would show it.
    mode(&gate.path("credential"), 0o644);
    let output = through(&user, &run).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("credential ("), "{}", told(&output));
    let output = leafgate(&gate, &[], &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
}

/// An editor saves to another file and renames it: the mount goes with the file that it was over.
#[test]
fn a_file_that_is_replaced_meanwhile_is_no_way_round() {
    if !possible("a_file_that_is_replaced_meanwhile_is_no_way_round") {
        return;
    }
    let host = Host::ok();
    let (_top, gate) = nested(&host);
    let script = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\ntry: open(sys.argv[1], 'a').close(); print('open')\nexcept OSError as e: print(e.errno)";
    let policy = gate.path("policy.toml");
    let words = ["python3", "-c", script, policy.to_str().unwrap()];
    let replaced = |folder: &Path| {
        let mut child = leafgate(&gate, &[], &words)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = ready(&mut child);
        let new = gate.path("policy.toml.new");
        std::fs::copy(&policy, &new).unwrap();
        std::fs::rename(new, &policy).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let _ = child.stdin.take().unwrap().write_all(b"go\n");
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        (text, child.wait_with_output().unwrap())
    };
    // In a folder of its own the new one is read-only as well.
    let (text, output) = replaced(Path::new("/"));
    assert_eq!(text, "30\n", "{}", told(&output));
    // Where the command works in the folder, it ends.
    let (text, output) = replaced(gate.dir.path());
    assert_eq!(
        (&*text, output.status.code()),
        ("", Some(137)),
        "{}",
        told(&output)
    );
    assert!(told(&output).contains("policy.toml was replaced from outside"));
}

/// leafgate replaces its copy of the checkpoint while it runs.
#[test]
fn the_copy_of_the_checkpoint_is_kept_by_its_folder() {
    if !possible("the_copy_of_the_checkpoint_is_kept_by_its_folder") {
        return;
    }
    let host = Host::ok();
    let script = "import os, sys, time\nfirst = os.stat(sys.argv[1]).st_ino\nfor _ in range(200):\n    time.sleep(0.05)\n    if os.stat(sys.argv[1]).st_ino != first: break\nelse: print('not replaced')\ntry: open(sys.argv[1], 'a').close(); print('open')\nexcept OSError as e: print(e.errno)";
    for (place, options, wanted) in [
        ("kept/copy", &[][..], Some("30\n")),
        ("copy", &[], None),
        ("copy", &["--trust-command"], Some("open\n")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("kept")).unwrap();
        let more = format!("checkpoint_copy = \"{place}\"\ncheckpoint_every = \"1s\"\n");
        let gate = Gate::built_in(dir, &entry(&host, ""), &more, "");
        let copy = gate.path(place);
        assert!(copy.exists());
        let words = ["python3", "-c", script, copy.to_str().unwrap()];
        let mut run = leafgate(&gate, options, &words);
        if wanted.is_none() {
            // By a name without a folder, as from the folder itself.
            run = Command::new(env!("CARGO_BIN_EXE_leafgate"));
            run.args(["run", "--policy", "policy.toml", "--", "true"]);
            run.current_dir(gate.dir.path());
        }
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = run.spawn().unwrap();
        // A checkpoint is written where there is something new.
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(gate.call(&support::card(json!({})), &body()).status, 200);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        match wanted {
            Some(wanted) => assert_eq!(text, wanted, "{}", told(&output)),
            None => {
                assert_eq!(output.status.code(), Some(2), "{}", told(&output));
                assert!(told(&output).contains("give it a folder of its own"));
            }
        }
    }
}
