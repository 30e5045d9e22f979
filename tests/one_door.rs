//! No second door: what connects, resolves, starts a process or opens a plan stands in `src/egress` alone.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

/// `demo` plays the client of its own listener on loopback: it connects to leafgate, not out of it.
const DEMO: &str = "src/cli/demo/client.rs";
/// `fixture learn` starts the user's own command, which the user wrote on the command line; no call is in hand there.
const LEARN: &str = "src/cli/fixture_learn/command.rs";
/// `run` starts itself again and the user's own command, each inside of what it confines.
const STAGE: &str = "src/cli/run/stage.rs";
/// `run` carries what the command sent to leafgate's own listener: it connects to leafgate, not out of it.
const BRIDGE: &str = "src/cli/run/bridge.rs";
/// A listener asks its own path on this machine whether somebody listens there, and sends no byte.
const LISTENER: &str = "src/ingress/listener.rs";

/// What opens a way out, and the files besides `src/egress/` where it may stand, with the reason.
const DOORS: [(&str, &[&str]); 17] = [
    ("::connect(", &[DEMO, BRIDGE]),
    (".connect(", &[LISTENER]),
    ("connect_timeout", &[BRIDGE]),
    ("TcpStream::connect", &[DEMO, BRIDGE]),
    ("UnixDatagram", &[]),
    ("UdpSocket", &[]),
    ("lookup_host", &[]),
    ("to_socket_addrs", &[]),
    ("ToSocketAddrs", &[]),
    ("getaddrinfo", &[]),
    ("hickory", &[]),
    ("TlsConnector", &[]),
    ("Command::new", &[LEARN, STAGE]),
    ("process::Command", &[LEARN]),
    ("hyper::client", &[]),
    ("Door(", &[]),
    (".open(&Door", &[]),
];

/// `open(door)`, where a door is handed on, stands once.
const OPENERS: [(&str, &str); 3] = [
    ("plan.open(door)", "src/ledger/cleared.rs"),
    ("door: &Door", "src/ledger/cleared.rs"),
    ("_door: &Door", "src/admit/plan.rs"),
];

/// `tests.rs` and `tests/`: their rooms declare them under `#[cfg(test)]`, which `test_files_are_only_for_tests` checks.
fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("its entries can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) {
            found.push(path);
        }
    }
}

/// The code of a file: no lines of comment, no test module (tests are clients of their own listeners), white space and line breaks taken
/// out, so that no formatting hides a door.
fn code(text: &str) -> String {
    let mut testing = false;
    let mut marked = false;
    text.lines()
        .filter(|line| {
            if marked && line.starts_with("mod tests {") {
                testing = true;
            }
            marked = *line == "#[cfg(test)]";
            let skip = testing || line.trim_start().starts_with("//");
            if *line == "}" {
                testing = false;
            }
            !skip
        })
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect()
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Every door in this code that its file may not have.
fn doors(name: &str, text: &str) -> Vec<String> {
    if name.starts_with("src/egress/") {
        return Vec::new();
    }
    let code = code(text);
    let mut found = Vec::new();
    for (door, allowed) in DOORS {
        if code.contains(&squeezed(door)) && !allowed.contains(&name) {
            found.push(format!("{name}: {door}"));
        }
    }
    // A door is handed on nowhere else.
    let mut rest = code.clone();
    for (opener, file) in OPENERS {
        if name == file {
            rest = rest.replace(&squeezed(opener), "");
        }
    }
    for opener in ["door:&Door", "&Door", ".open(door)", ".open(&door)"] {
        if rest.contains(opener) {
            found.push(format!("{name}: {opener}"));
        }
    }
    found
}

#[test]
fn only_egress_has_a_door() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    assert!(files.len() > 20, "the sources were found");
    let mut found = Vec::new();
    for file in files {
        let name = file
            .strip_prefix(root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        found.extend(doors(&name, &std::fs::read_to_string(&file).unwrap()));
    }
    assert!(found.is_empty(), "a second door: {found:#?}");
}

#[test]
fn a_door_elsewhere_is_seen() {
    for (door, _) in DOORS {
        assert!(
            !doors("src/admit/plan.rs", &format!("fn f() {{ {door} }}")).is_empty(),
            "{door}"
        );
        assert!(
            doors("src/egress/dial.rs", &format!("fn f() {{ {door} }}")).is_empty(),
            "{door}"
        );
        assert!(
            doors("src/admit/plan.rs", &format!("// {door}")).is_empty(),
            "{door}"
        );
    }
    assert!(doors(DEMO, "TcpStream::connect(to)").is_empty());
    assert!(!doors(DEMO, "lookup_host(to)").is_empty());
    assert!(!doors("src/admin/mod.rs", "TcpStream\n  ::\n connect(x)").is_empty());
    assert!(
        !doors(
            "src/admin/mod.rs",
            "let u = \"http://x\"; TcpStream::connect(u)"
        )
        .is_empty()
    );
    let tests = "#[cfg(test)]\nmod tests {\n    TcpStream::connect(x)\n}\n";
    assert!(doors("src/admin/mod.rs", tests).is_empty());
    assert!(!doors("src/admin/mod.rs", &tests.replace("#[cfg(test)]", "")).is_empty());
    assert!(
        !doors(
            "src/admin/mod.rs",
            &format!("{tests}fn f() {{ TcpStream::connect(x) }}")
        )
        .is_empty()
    );
    assert!(!doors("src/ledger/mod.rs", "plan.open(door)").is_empty());
    assert!(!doors("src/ingress/mod.rs", "cleared.open(&door)").is_empty());
    assert!(
        doors(
            "src/ledger/cleared.rs",
            "fn open(self, door: &Door) { plan.open(door) }"
        )
        .is_empty()
    );
}

#[test]
fn test_files_are_only_for_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (place, line) in lines.iter().enumerate() {
            let declares = line.strip_prefix("pub ").unwrap_or(line) == "mod tests;";
            if declares {
                let above = place.checked_sub(1).and_then(|above| lines.get(above));
                assert_eq!(above, Some(&"#[cfg(test)]"), "{}", file.display());
            }
        }
    }
}

#[test]
fn the_environment_steers_no_connection() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/egress");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 10, "the sources were found");
    for file in files {
        let code = code(&std::fs::read_to_string(&file).unwrap());
        // `load_native_certs` reads SSL_CERT_FILE and SSL_CERT_DIR; the rest reads or sets what the process was started with.
        for steer in ["load_native_certs", "env::", "var_os", "set_var"] {
            assert!(!code.contains(steer), "{}: {steer}", file.display());
        }
    }
}
