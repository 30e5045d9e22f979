//! Who listens where, from `/proc`: nothing is connected to.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::Finding;
use crate::policy::{Policy, ProxyAddress};

/// Programs that send on what they get: behind leafgate they reach hosts that no card pins.
const ROUTERS: [&str; 17] = [
    "bifrost",
    "caddy",
    "cloudflared",
    "envoy",
    "haproxy",
    "helicone",
    "kong",
    "litellm",
    "mitmdump",
    "mitmproxy",
    "mitmweb",
    "new-api",
    "nginx",
    "ngrok",
    "one-api",
    "portkey",
    "traefik",
];
/// In `/proc/net/tcp`: the state of a socket that listens, and of one that is connected.
pub(in crate::cli) const LISTEN: &str = "0A";
const ESTABLISHED: &str = "01";

/// In `/proc/net/unix`: the flag of a socket that listens (`__SO_ACCEPTCON`).
const ACCEPTS: u32 = 1 << 16;

/// One TCP socket of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Socket {
    pub(in crate::cli) local: SocketAddr,
    pub(in crate::cli) remote: SocketAddr,
    pub(in crate::cli) state: String,
    /// The user whose it is.
    pub(in crate::cli) uid: u32,
    inode: u64,
}

/// The sockets, and the processes that could be looked at.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    all: Vec<Socket>,
    /// `/proc/net/unix`
    unix: String,
    /// By inode.
    owners: HashMap<u64, Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// The file name of the program, and of what it runs where it is an interpreter.
    names: Vec<String>,
}

impl Sockets {
    /// What can be read; another user's processes cannot.
    pub(super) fn read() -> Sockets {
        let table = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let mut all = parse(&table("/proc/net/tcp"));
        all.extend(parse(&table("/proc/net/tcp6")));
        Sockets {
            all,
            unix: table("/proc/net/unix"),
            owners: owners(),
        }
    }

    /// The inode of the Unix socket that takes connections at this path. The kernel shows a path as it was bound: one that was bound from another working
    /// directory is known by its file name.
    fn unix_listener(&self, path: &Path) -> Option<u64> {
        let whole = std::path::absolute(path).ok()?;
        let resolved = path.canonicalize().unwrap_or_else(|_| whole.clone());
        let same = |bound: &Path| {
            bound == whole
                || bound == resolved
                || (bound.is_relative() && bound.file_name() == path.file_name())
        };
        self.unix.lines().skip(1).find_map(|line| {
            // Num RefCount Protocol Flags Type St Inode Path: the inode is padded, a path may hold blanks.
            let mut fields = line.splitn(7, ' ');
            let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
            let (inode, bound) = fields.nth(2)?.trim_start().split_once(' ')?;
            let inode = inode.parse().ok()?;
            (flags & ACCEPTS != 0 && same(Path::new(bound))).then_some(inode)
        })
    }

    /// The socket that takes connections to this address.
    fn listener(&self, wanted: SocketAddr) -> Option<&Socket> {
        self.all.iter().find(|socket| {
            let ip = socket.local.ip();
            socket.state == LISTEN
                && socket.local.port() == wanted.port()
                && (ip == wanted.ip() || ip.is_unspecified())
        })
    }

    /// Addresses on other machines that the owner of a socket is connected to.
    fn abroad(&self, owner: &Owner) -> usize {
        let outside = |socket: &&Socket| {
            socket.state == ESTABLISHED
                && !socket.remote.ip().to_canonical().is_loopback()
                && self
                    .owners
                    .get(&socket.inode)
                    .is_some_and(|own| own.pid == owner.pid)
        };
        self.all.iter().filter(outside).count()
    }
}

/// `/proc/net/tcp`
pub(in crate::cli) fn parse(table: &str) -> Vec<Socket> {
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let local = address(fields.nth(1)?)?;
            let remote = address(fields.next()?)?;
            let state = fields.next()?.to_owned();
            let uid = fields.nth(3)?.parse().ok()?;
            let inode = fields.nth(1)?.parse().ok()?;
            Some(Socket {
                local,
                remote,
                state,
                uid,
                inode,
            })
        })
        .collect()
}

/// `0100007F:2124`: the address in words of the machine's byte order, the port as it is.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The processes whose sockets may be looked at, by socket inode.
fn owners() -> HashMap<u64, Owner> {
    let mut owners = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let owner = Owner {
            pid,
            names: names(&fs::read(entry.path().join("cmdline")).unwrap_or_default()),
        };
        for file in fs::read_dir(entry.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = fs::read_link(file.path()).ok();
            let inode = target.as_deref().and_then(|target| {
                let inner = target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?;
                inner.parse::<u64>().ok()
            });
            if let Some(inode) = inode {
                owners.insert(inode, owner.clone());
            }
        }
    }
    owners
}

/// The program's name, and those of the words after it that are no option: `python3 -m litellm` is litellm too.
fn names(cmdline: &[u8]) -> Vec<String> {
    let words = cmdline.split(|byte| *byte == 0).take(4);
    words
        .filter_map(|word| {
            let word = std::str::from_utf8(word).ok()?;
            let name = word.rsplit('/').next()?;
            let plain = name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            (plain && !name.is_empty() && !name.starts_with('-')).then(|| name.to_ascii_lowercase())
        })
        .collect()
}

pub(super) fn findings(policy: &Policy, sockets: &Sockets) -> Vec<Finding> {
    let mut found = Vec::new();
    let listen = &policy.listen.proxy;
    let mine = std::env::current_exe().ok();
    let mine = mine
        .as_deref()
        .and_then(|path| path.file_name()?.to_str())
        .unwrap_or("leafgate");
    let at = match listen {
        ProxyAddress::Tcp(address) => sockets
            .listener(*address)
            .map(|socket| (socket.inode, Some(socket.uid))),
        ProxyAddress::Unix(path) => sockets
            .unix_listener(path)
            .map(|inode| (inode, owner_of(path))),
    };
    match at {
        None => found.push(Finding::new(
            format!("nothing listens on {listen}"),
            "a client pointed there gets no connection; some fall back to their own host",
            "leafgate serve, with this policy",
        )),
        Some((inode, uid)) => {
            let owner = sockets.owners.get(&inode);
            if owner.is_none() {
                // The ledger's folder tells which user leafgate runs as.
                let known = [
                    Some(rustix::process::geteuid().as_raw()),
                    owner_of(&policy.ledger.dir),
                ];
                found.extend(uid.and_then(|uid| of_another_user(listen, uid, &known)));
            }
            if owner.is_some_and(|owner| !owner.names.iter().any(|name| name == mine)) {
                found.push(Finding::new(
                    format!("another program listens on {listen}"),
                    "a client pointed there reaches that program, not leafgate",
                    "end it, or give listen.proxy another place",
                ));
            }
        }
    }
    if let Some(path) = listen.unix()
        && let Some(mode) = open_to_others(path)
    {
        found.push(Finding::new(
            format!("{listen} has mode {mode:04o}: other users of this machine can open it"),
            "whoever opens it can make calls with your pins and keys",
            format!("chmod 0600 {}", path.display()),
        ));
    }
    if listen.tcp().is_some_and(|tcp| !tcp.ip().is_loopback()) {
        found.push(Finding::new(
            format!("listen.proxy {listen} can be reached from other machines"),
            "whoever has the token or a client certificate can make calls with your pins and keys",
            "listen.proxy on 127.0.0.1, unless others are meant to call",
        ));
    }
    for host in policy.hosts.values().filter(|host| host.on_loopback()) {
        let ip = host
            .base
            .host
            .parse()
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let address = SocketAddr::new(ip, host.base.port);
        found.extend(behind(host.pin.as_str(), address, sockets));
    }
    found
}

/// A listener whose program cannot be looked at, of a user who is neither root nor known to run leafgate.
fn of_another_user(listen: &ProxyAddress, uid: u32, known: &[Option<u32>]) -> Option<Finding> {
    (uid != 0 && !known.contains(&Some(uid))).then(|| {
        Finding::new(
            format!("a program of user {uid} listens on {listen}, and the ledger's folder is not that user's"),
            "a client pointed there reaches that program, which is leafgate only where it runs as that user",
            "look at it as root (ss -ltnp, or leafgate doctor); end it, or give listen.proxy another place",
        )
    })
}

fn owner_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path).ok().map(|facts| facts.uid())
}

/// The mode of a socket that others than its owner may open.
fn open_to_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::symlink_metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}

/// What stands behind leafgate on this machine and may send on.
fn behind(pin: &str, address: SocketAddr, sockets: &Sockets) -> Option<Finding> {
    let socket = sockets.listener(address)?;
    let owner = sockets.owners.get(&socket.inode)?;
    let router = owner.names.iter().find(|name| {
        let stem = name.strip_suffix(".py").unwrap_or(name);
        ROUTERS.contains(&stem)
    });
    let mend = format!(
        "let hosts.{pin} name the model server itself, and pin other hosts by their own names"
    );
    if let Some(router) = router {
        return Some(Finding::new(
            format!("{router} listens on {address}, where host {pin} is"),
            "a router behind leafgate sends a release on to hosts that no card pins, with its own retries and fallbacks",
            mend,
        ));
    }
    let abroad = sockets.abroad(owner);
    (abroad > 0).then(|| {
        let name = owner.names.first().map_or("a program", String::as_str);
        Finding::new(
            format!("{name} on {address}, where host {pin} is, has {abroad} connections to other machines"),
            "what leafgate releases to this machine may be sent on (a model in a cloud, telemetry)",
            mend,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:2CAA 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 112 1 0 100 0 0 10 0
   2: 0500000A:2CAA 08080808:01BB 01 00000000:00000000 00:00000000 00000000  1001        0 113 1 0 100 0 0 10 0
   x: rubbish
";

    fn sockets(names: &[&str], inodes: &[u64]) -> Sockets {
        let owner = Owner {
            pid: 7,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        Sockets {
            all: parse(TABLE),
            unix: String::new(),
            owners: inodes.iter().map(|inode| (*inode, owner.clone())).collect(),
        }
    }

    #[test]
    fn the_table_is_read() {
        let all = parse(TABLE);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].local, "127.0.0.1:11434".parse().unwrap());
        assert_eq!(
            (all[2].remote, all[2].uid, all[2].inode),
            ("8.8.8.8:443".parse().unwrap(), 1001, 113)
        );
        assert_eq!((all[0].uid, all[0].inode), (0, 111));
        assert_eq!(
            address("0000000000000000FFFF00000100007F:0050"),
            Some("127.0.0.1:80".parse().unwrap())
        );
        assert_eq!(
            address("00000000000000000000000001000000:0050"),
            Some("[::1]:80".parse().unwrap())
        );
        assert_eq!(address("7F:1"), None);
        assert_eq!(
            names(b"/usr/bin/python3\0-m\0litellm\0--key=sk-1\0"),
            ["python3", "litellm"]
        );
    }

    #[test]
    fn a_program_that_cannot_be_looked_at_is_found_unless_its_user_runs_leafgate() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mut policy = Policy::embedded();
        policy.ledger.dir = dir.path().to_owned();
        let me = dir.path().metadata().unwrap().uid();
        let whats = |uid: u32, inodes: &[u64], policy: &Policy| -> Vec<String> {
            let mut all = sockets(&["leafgate"], inodes);
            all.all[0].local = policy.listen.proxy.tcp().unwrap();
            all.all[0].uid = uid;
            let found = findings(policy, &all).into_iter();
            found.map(|finding| finding.what).collect()
        };
        let strange = whats(me + 1, &[], &policy);
        assert!(
            strange.len() == 1 && strange[0].contains(&format!("of user {} ", me + 1)),
            "{strange:?}"
        );
        for known in [me, 0] {
            assert_eq!(whats(known, &[], &policy), [""; 0], "{known}");
        }
        if me == 0 {
            std::os::unix::fs::chown(dir.path(), Some(1), None).unwrap();
            assert_eq!(whats(1, &[], &policy), [""; 0], "the ledger's owner");
            assert_eq!(whats(2, &[], &policy).len(), 1);
        }
        policy.ledger.dir = dir.path().join("not-there");
        assert_eq!(whats(me + 1, &[], &policy).len(), 1);
    }

    #[test]
    fn a_router_or_a_connection_abroad_behind_a_host_is_found() {
        let address = "127.0.0.1:11434".parse().unwrap();
        let what =
            |sockets: &Sockets| behind("local", address, sockets).map(|finding| finding.what);
        assert!(
            what(&sockets(&["python3", "litellm"], &[111]))
                .unwrap()
                .starts_with("litellm listens")
        );
        assert!(
            what(&sockets(&["ollama"], &[111, 113]))
                .unwrap()
                .contains("1 connections")
        );
        assert_eq!(what(&sockets(&["ollama"], &[111, 112])), None);
        assert_eq!(what(&sockets(&["litellm"], &[])), None, "another user's");
    }

    #[test]
    fn a_unix_socket_is_found_where_somebody_listens_and_by_its_mode_where_others_may() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate.sock");
        assert_eq!(open_to_others(&path), None);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let inode = Sockets::read().unix_listener(&path).unwrap();
        assert_eq!(Sockets::read().owners[&inode].pid, std::process::id());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(open_to_others(&path), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert_eq!(open_to_others(&path), Some(0o660));
        drop(listener);
        assert_eq!(Sockets::read().unix_listener(&path), None);
    }

    #[test]
    fn this_test_finds_its_own_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let read = Sockets::read();
        let socket = read.listener(listener.local_addr().unwrap()).unwrap();
        assert_eq!(read.owners[&socket.inode].pid, std::process::id());
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(Sockets::read().listener(address).is_none());
    }
}
