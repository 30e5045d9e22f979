//! No second door: what connects, resolves, starts a process or opens a plan stands in `src/egress` alone.

use std::path::{Path, PathBuf};

/// What opens a way out, and the files besides `src/egress/` where it may stand, with the reason.
const DOORS: [(&str, &[&str]); 18] = [
    ("TcpStream::connect", &[]),
    ("TcpSocket::", &[]),
    ("UnixStream::connect", &[]),
    ("UnixDatagram", &[]),
    ("UdpSocket", &[]),
    ("lookup_host", &[]),
    ("to_socket_addrs", &[]),
    ("ToSocketAddrs", &[]),
    ("getaddrinfo", &[]),
    ("hickory", &[]),
    ("TlsConnector", &[]),
    ("ClientConnection", &[]),
    ("socket2", &[]),
    ("Command::new", &[]),
    ("process::Command", &[]),
    ("Door(", &[]),
    ("client::conn", &[]),
    // The two definitions: a cleared opens its plan, a plan gives its departure.
    (".open(&Door", &[]),
];

/// `open(door)`, where a door is handed on, stands once.
const OPENERS: [(&str, &str); 3] = [
    ("plan.open(door)", "src/ledger/cleared.rs"),
    ("door: &Door", "src/ledger/cleared.rs"),
    ("_door: &Door", "src/admit/plan.rs"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file: no comments, white space and line breaks taken out, so that no formatting hides a door.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
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
    assert!(!doors("src/admin/mod.rs", "TcpStream\n  ::\n connect(x)").is_empty());
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
