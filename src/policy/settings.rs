//! Every table of the policy but the hosts.
//!
//! Promises: an absent key has the contract's default; a key that is there is read or is a fault. A reader may return a default beside a
//! fault: the policy is not made then.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::model::{
    Fixtures, LedgerSettings, Limits, Listen, ListenTls, ProxyAddress, SecretSource, Sync,
};
use super::read::{Table, Value};
use super::units::{DAY, duration, size};
use super::{secrets, url};
use crate::files;
use crate::terms::{FailureLabel, Secret};

/// Placeholders that no policy can take away.
const PLACEHOLDERS: [&str; 2] = ["free-server", "local-builder"];
const LABELS: [&str; 6] = [
    "pass",
    "wrong-answer",
    "format-error",
    "timeout",
    "refusal",
    "tool-error",
];
/// The longest path of a Unix socket, in bytes: `sun_path` of macOS and the BSDs holds 104 with its NUL, Linux's 108.
const SOCKET_PATH_MOST: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// The shortest token, in bytes: 16 random characters of base64 are 96 bits.
const TOKEN_LEAST: usize = 16;
/// Where each secret came from, by dotted key.
pub(super) type Sources = BTreeMap<String, SecretSource>;

pub(super) fn listen(root: &Table<'_>, sources: &mut Sources) -> Listen {
    let mut listen = Listen {
        proxy: SocketAddr::from(([127, 0, 0, 1], 8484)).into(),
        admin: SocketAddr::from(([127, 0, 0, 1], 8485)),
        names: Vec::new(),
        tls: None,
        token: None,
    };
    let known = [
        "proxy",
        "admin",
        "names",
        "tls",
        "token_env",
        "token_file",
        "token",
    ];
    let Some(table) = root.get("listen").and_then(|value| value.table(&known)) else {
        return listen;
    };
    let (proxy, admin) = (table.get("proxy"), table.get("admin"));
    if let Some(address) = proxy.as_ref().and_then(proxy_address) {
        listen.proxy = address;
    }
    if let Some(address) = admin.as_ref().and_then(admin_address) {
        listen.admin = address;
        if let (Some(value), false) = (&admin, address.ip().is_loopback()) {
            value.fault("must be a loopback address: the admin listener has no authentication");
        }
    }
    if let Some(names) = table.get("names").and_then(|value| value.list(listen_name)) {
        listen.names = names;
    }
    listen.tls = table.get("tls").and_then(|value| tls(&value));
    let token_there = token(&table, sources, &mut listen.token);
    let at = proxy.as_ref().or(admin.as_ref());
    if let (Some(tcp), Some(value)) = (listen.proxy.tcp(), at)
        && collide(tcp, listen.admin)
    {
        value.fault("proxy and admin are the same address and port; give each its own");
    }
    if let (Some(_), Some(value)) = (listen.proxy.unix(), table.get("tls")) {
        value.fault("does not go with a unix: socket, which its owner alone can open; remove tls, or listen on an IP address and a port");
    }
    let client_ca_there = table.get("tls").is_some_and(
        |tls| matches!(tls.raw(), toml::de::DeValue::Table(t) if t.contains_key("client_ca")),
    );
    if let Some(value) = proxy
        && listen
            .proxy
            .tcp()
            .is_some_and(|address| !address.ip().is_loopback())
        && !token_there
        && !client_ca_there
    {
        value.fault("not loopback: others can reach it; add tls with client_ca, or token_env");
    }
    listen
}

/// Whether the two would listen at the same place; port 0 is a free port for each.
fn collide(proxy: SocketAddr, admin: SocketAddr) -> bool {
    proxy.port() != 0
        && proxy.port() == admin.port()
        && (proxy.ip() == admin.ip() || proxy.ip().is_unspecified())
}

/// An IP address and a port, or `unix:PATH`.
fn proxy_address(value: &Value<'_>) -> Option<ProxyAddress> {
    let text = value.string()?;
    match text.strip_prefix("unix:") {
        Some(path) => socket_path(value, path).map(ProxyAddress::Unix),
        None => socket(value, text).map(ProxyAddress::Tcp),
    }
}

fn admin_address(value: &Value<'_>) -> Option<SocketAddr> {
    let text = value.string()?;
    if text.starts_with("unix:") {
        value.fault("the admin listener is loopback alone; write a loopback address and a port");
        return None;
    }
    socket(value, text)
}

fn socket(value: &Value<'_>, text: &str) -> Option<SocketAddr> {
    let address = text.parse().ok();
    if address.is_none() {
        value.fault("not an address; write an IP address and a port, like \"127.0.0.1:8484\"");
    }
    address
}

/// The path of a Unix socket: in a folder that is there, short enough for the system, and nothing there but a socket.
fn socket_path(value: &Value<'_>, text: &str) -> Option<PathBuf> {
    use std::os::unix::fs::FileTypeExt as _;
    let path = value.beside(text)?;
    let length = path.as_os_str().len();
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("/"),
    };
    let found = std::fs::symlink_metadata(&path);
    if length > SOCKET_PATH_MOST {
        value.fault(format!("the path of the socket is {length} bytes with the policy's folder; the system takes {SOCKET_PATH_MOST}: write a shorter one"));
    } else if text.ends_with('/') || path.file_name().is_none() {
        value.fault("not the path of a socket; write unix: and the path of a file");
    } else if !folder.is_dir() {
        value.fault(
            "the socket's folder is not there; make it, best with mode 0700, or name another",
        );
    } else if files::open_folders(&path)
        .iter()
        .any(|open| open.anyone && !open.sticky)
    {
        value.fault("anyone on this machine may write to the socket's folder, or one above it, and so put a socket of their own in its place and get what clients send; chmod go-w it, or name a folder of mode 0700");
    } else if found.is_ok_and(|found| !found.file_type().is_socket()) {
        value.fault(
            "something that is no socket stands at this path; move it away, or name another path",
        );
    } else {
        return Some(path);
    }
    None
}

fn listen_name(value: &Value<'_>) -> Option<String> {
    let text = value.string()?;
    match url::host_and_port(text) {
        Ok(_) => Some(text.to_owned()),
        Err(why) => {
            value.fault(format!("not a Host value HOST or HOST:PORT: {why}"));
            None
        }
    }
}

fn tls(value: &Value<'_>) -> Option<ListenTls> {
    let table = value.table(&["cert", "key", "client_ca"])?;
    let cert = table
        .need("cert")
        .and_then(|value| secrets::certificates(&value));
    let key = table
        .need("key")
        .and_then(|value| secrets::private_key(&value));
    let client_ca = match table.get("client_ca") {
        None => None,
        Some(value) => Some(secrets::certificates(&value)?),
    };
    Some(ListenTls {
        cert: cert?,
        key: key?,
        client_ca,
    })
}

/// `token_env = "NAME"`, `token_file = "PATH"` or `token = { env | file = … }`: at most one. Returns whether one is written.
fn token(table: &Table<'_>, sources: &mut Sources, token: &mut Option<Secret>) -> bool {
    let written: Vec<_> = ["token_env", "token_file", "token"]
        .into_iter()
        .filter_map(|name| Some((name, table.get(name)?)))
        .collect();
    if let [_, (_, second), ..] = written.as_slice() {
        second.fault("the token is named twice; keep one of token_env, token_file and token");
    }
    let Some((name, value)) = written.first() else {
        return false;
    };
    let found = match *name {
        "token_env" => secrets::from_environment(value),
        "token_file" => secrets::from_file(value),
        _ => secrets::from_value(value),
    };
    if let Some(found) = found {
        *token = secrets::header_value(value, &found, None);
        // Nothing slows down somebody who tries one after the other.
        if token.is_some() && found.bytes.len() < TOKEN_LEAST {
            value.fault(format!("the token has fewer than {TOKEN_LEAST} bytes and can be guessed; take a random one, such as openssl rand -hex 32 prints"));
        }
        let source = SecretSource {
            origin: found.origin,
            scheme: None,
        };
        sources.insert("listen.token".to_owned(), source);
    }
    true
}

/// A path with a default beside the policy, and whether it is written. Written, it must be there.
fn named_path(
    table: Option<&Table<'_>>,
    key: &str,
    default: PathBuf,
    folder: bool,
) -> (PathBuf, bool) {
    let Some(value) = table.and_then(|table| table.get(key)) else {
        return (default, false);
    };
    let Some(path) = value.path() else {
        return (default, true);
    };
    match std::fs::metadata(&path) {
        Err(error) => value.fault(format!(
            "what it names cannot be read ({}); create it, or leave the key out",
            error.kind()
        )),
        Ok(found) if found.is_dir() != folder => value.fault(if folder {
            "names a file; name a folder"
        } else {
            "names a folder; name a file"
        }),
        Ok(_) => {}
    }
    (path, true)
}

pub(super) fn cards(root: &Table<'_>, base: &std::path::Path) -> (PathBuf, bool) {
    let table = root.get("cards").and_then(|value| value.table(&["dir"]));
    named_path(table.as_ref(), "dir", base.join("cards"), true)
}

pub(super) fn fixtures(
    root: &Table<'_>,
    base: &std::path::Path,
    sources: &mut Sources,
) -> Fixtures {
    let table = root
        .get("fixtures")
        .and_then(|value| value.table(&["lock", "hmac_key"]));
    let (lock, lock_named) = named_path(table.as_ref(), "lock", base.join("fixtures.lock"), false);
    let mut hmac_key = None;
    if let Some(found) = table
        .and_then(|table| table.get("hmac_key"))
        .and_then(|value| secrets::from_value(&value))
    {
        hmac_key = Some(Secret::new(found.bytes));
        let source = SecretSource {
            origin: found.origin,
            scheme: None,
        };
        sources.insert("fixtures.hmac_key".to_owned(), source);
    }
    Fixtures {
        lock,
        lock_named,
        hmac_key,
    }
}

pub(super) fn ledger(root: &Table<'_>, base: &std::path::Path) -> LedgerSettings {
    let mut ledger = LedgerSettings {
        dir: base.join("ledger"),
        segment_bytes: 64 << 20,
        checkpoint_every: Duration::from_secs(10),
        checkpoint_copy: None,
        sync: Sync::Record,
    };
    let known = [
        "dir",
        "segment_bytes",
        "checkpoint_every",
        "checkpoint_copy",
        "sync",
    ];
    let Some(table) = root.get("ledger").and_then(|value| value.table(&known)) else {
        return ledger;
    };
    if let Some(dir) = table.get("dir").and_then(|value| value.path()) {
        ledger.dir = dir;
    }
    if let Some(bytes) = table
        .get("segment_bytes")
        .and_then(|v| size(&v, 1 << 10, 1 << 40))
    {
        ledger.segment_bytes = bytes;
    }
    let hour = Duration::from_secs(3_600);
    if let Some(every) = table
        .get("checkpoint_every")
        .and_then(|v| duration(&v, hour))
    {
        ledger.checkpoint_every = every;
    }
    if let Some(value) = table.get("checkpoint_copy")
        && let Some(file) = value.path()
    {
        if file.file_name().is_none() {
            value.fault("not a file; name a file, in a folder that is there");
        }
        ledger.checkpoint_copy = Some(file);
    }
    let words = [("record", Sync::Record), ("interval", Sync::Interval)];
    if let Some(sync) = table.get("sync").and_then(|value| value.choice(&words)) {
        ledger.sync = sync;
    }
    ledger
}

pub(super) fn pins(root: &Table<'_>) -> (Duration, Vec<String>) {
    let mut placeholders: Vec<String> = PLACEHOLDERS.map(str::to_owned).into();
    let table = root
        .get("pins")
        .and_then(|value| value.table(&["max_age", "placeholders"]));
    let Some(table) = table else {
        return (DAY, placeholders);
    };
    let added = table.get("placeholders").and_then(|value| {
        value.list(|item| {
            let text = item.string()?;
            if crate::terms::is_blank(text) || text.len() > 253 {
                item.fault("not a placeholder; write 1 to 253 bytes that show something");
                return None;
            }
            Some(text.to_owned())
        })
    });
    for word in added.unwrap_or_default() {
        if !placeholders.contains(&word) {
            placeholders.push(word);
        }
    }
    let max_age = table
        .get("max_age")
        .and_then(|value| duration(&value, DAY * 366));
    (max_age.unwrap_or(DAY), placeholders)
}

pub(super) fn failure_labels(root: &Table<'_>) -> Vec<FailureLabel> {
    let default = || {
        LABELS
            .iter()
            .filter_map(|label| FailureLabel::parse(label))
            .collect()
    };
    let labels = root
        .get("split")
        .and_then(|value| value.table(&["failure_labels"]))
        .and_then(|table| table.get("failure_labels"))
        .map(|value| {
            value.full_list(|item| {
                let label = FailureLabel::parse(item.string()?);
                if label.is_none() {
                    item.fault("not a failure label; write [A-Za-z0-9][A-Za-z0-9._-]{0,63}");
                }
                label
            })
        });
    labels.flatten().unwrap_or_else(default)
}

pub(super) fn refused_status(root: &Table<'_>) -> u16 {
    let value = root
        .get("answers")
        .and_then(|value| value.table(&["refused"]))
        .and_then(|table| table.get("refused"));
    let Some(value) = value else { return 422 };
    match value.integer(0, 999) {
        Some(403) => 403,
        Some(451) => 451,
        Some(422) | None => 422,
        Some(_) => {
            value.fault("not a status a refusal may have; write 422, 403 or 451");
            422
        }
    }
}

pub(super) fn limits(root: &Table<'_>) -> Limits {
    let known = [
        "head",
        "body",
        "in_flight",
        "in_flight_bytes",
        "client_head",
        "client_body",
        "connect",
        "first_byte",
        "idle",
        "shutdown",
    ];
    let table = root.get("limits").and_then(|value| value.table(&known));
    let get = |name: &str| table.as_ref().and_then(|table| table.get(name));
    let bytes = |name: &str, default: u64, least: u64, most: u64| {
        get(name)
            .and_then(|value| size(&value, least, most))
            .unwrap_or(default)
    };
    let time = |name: &str, seconds: u64| {
        get(name)
            .and_then(|value| duration(&value, DAY))
            .unwrap_or(Duration::from_secs(seconds))
    };
    let limits = Limits {
        head: bytes("head", 64 << 10, 256, 1 << 20) as usize,
        body: bytes("body", 16 << 20, 1, 1 << 30),
        in_flight: get("in_flight")
            .and_then(|v| v.integer(1, 1_000_000))
            .unwrap_or(1024) as usize,
        in_flight_bytes: bytes("in_flight_bytes", 512 << 20, 1, 1 << 40),
        client_head: time("client_head", 30),
        client_body: time("client_body", 60),
        connect: time("connect", 10),
        first_byte: time("first_byte", 600),
        idle: time("idle", 300),
        shutdown: time("shutdown", 30),
    };
    if limits.in_flight_bytes < limits.body
        && let Some(value) = get("in_flight_bytes").or_else(|| get("body"))
    {
        value.fault("in_flight_bytes is smaller than body: no body of that size could ever pass");
    }
    limits
}

pub(super) fn resolvers(root: &Table<'_>) -> Vec<SocketAddr> {
    root.get("resolver")
        .and_then(|value| value.table(&["servers"]))
        .and_then(|table| table.need("servers"))
        .and_then(|value| {
            value.full_list(|item| {
                let address: Option<SocketAddr> = item.string()?.parse().ok();
                let address = address.filter(|address| address.port() != 0);
                if address.is_none() {
                    item.fault(
                        "not a resolver; write an IP address and a port, like \"127.0.0.1:5353\"",
                    );
                }
                address
            })
        })
        .unwrap_or_default()
}
