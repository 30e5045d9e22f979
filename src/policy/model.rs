//! The typed policy (contract, section 7). Fields are public to be read; a `Policy` is made by loading one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderName, Method};
use jiff::Timestamp;

use crate::certs::Authority;
use crate::terms::{FailureLabel, HostPin, Secret};
use crate::vocabulary::Vocabularies;

/// A whole policy.
#[derive(Debug)]
pub struct Policy {
    /// The file it came from, `None` for the embedded default.
    pub file: Option<PathBuf>,
    /// SHA-256 of the file's bytes as they were loaded: what tells a changed file.
    pub text_sha256: [u8; 32],
    /// SHA-256, lower-case hex, of the effective policy (every value after defaults, no secret among them).
    pub hash: String,
    /// `[listen]`
    pub listen: Listen,
    /// `cards.dir`
    pub cards_dir: PathBuf,
    /// Whether the policy names `cards.dir` itself (a named folder must be there; a default one may be missing).
    pub cards_named: bool,
    /// `[fixtures]`
    pub fixtures: Fixtures,
    /// `[ledger]`
    pub ledger: LedgerSettings,
    /// `pins.max_age`
    pub pin_max_age: Duration,
    /// `free-server`, `local-builder` and what `pins.placeholders` adds.
    pub placeholders: Vec<String>,
    /// `split.failure_labels`
    pub failure_labels: Vec<FailureLabel>,
    /// `answers.refused`: 422, 403 or 451.
    pub refused_status: u16,
    /// `[limits]`
    pub limits: Limits,
    /// `resolver.servers`; empty: the system's resolver.
    pub resolvers: Vec<SocketAddr>,
    /// `[intercept]`; `None`: a `CONNECT` is refused.
    pub intercept: Option<Intercept>,
    /// `[hosts]`, by pin.
    pub hosts: BTreeMap<HostPin, Arc<Host>>,
    /// Where each secret came from, by dotted key (`listen.token`, `hosts.local.credential`).
    pub secrets: BTreeMap<String, SecretSource>,
}

/// Where a secret came from, never the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSource {
    /// The variable or the file.
    pub origin: Origin,
    /// The scheme before it in its header, where it has one.
    pub scheme: Option<String>,
}

/// The place of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `env`: the name of an environment variable.
    Env(String),
    /// `file`: the path of a file.
    File(PathBuf),
}

/// `[listen]`
#[derive(Debug, Clone)]
pub struct Listen {
    /// Where clients connect.
    pub proxy: ProxyAddress,
    /// Console, metrics, health; loopback.
    pub admin: SocketAddr,
    /// Further `Host` values, as written.
    pub names: Vec<String>,
    /// TLS for clients.
    pub tls: Option<ListenTls>,
    /// The token that clients send as `leafgate-token`.
    pub token: Option<Secret>,
}

/// `listen.proxy`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// `unix:PATH`: a socket that its owner alone can open.
    Unix(PathBuf),
}

impl ProxyAddress {
    /// Address and port, where it is no Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ProxyAddress::Tcp(address) => Some(*address),
            ProxyAddress::Unix(_) => None,
        }
    }

    /// The path of the Unix socket, where it is one.
    pub fn unix(&self) -> Option<&Path> {
        match self {
            ProxyAddress::Tcp(_) => None,
            ProxyAddress::Unix(path) => Some(path),
        }
    }
}

impl From<SocketAddr> for ProxyAddress {
    fn from(address: SocketAddr) -> ProxyAddress {
        ProxyAddress::Tcp(address)
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyAddress::Tcp(address) => address.fmt(f),
            ProxyAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `listen.tls`: paths that were there and could be parsed at load.
#[derive(Debug, Clone)]
pub struct ListenTls {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Roots for client certificates; `None`: no client certificate is asked for.
    pub client_ca: Option<PathBuf>,
}

/// `[intercept]`
#[derive(Debug, Clone)]
pub struct Intercept {
    /// The authority's certificate, PEM.
    pub ca: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Both, as they were read at load.
    pub authority: Arc<Authority>,
}

/// `[fixtures]`
#[derive(Debug, Clone)]
pub struct Fixtures {
    /// The lock file.
    pub lock: PathBuf,
    /// Whether the policy names it (a named file must be there; a default one may be missing: no fixture is registered).
    pub lock_named: bool,
    /// The key for `hmac-sha256` entries.
    pub hmac_key: Option<Secret>,
}

/// `[ledger]`
#[derive(Debug, Clone)]
pub struct LedgerSettings {
    /// The folder.
    pub dir: PathBuf,
    /// A segment is sealed at this many bytes.
    pub segment_bytes: u64,
    /// How often the checkpoint is written.
    pub checkpoint_every: Duration,
    /// A file outside the folder that holds the newest checkpoint too.
    pub checkpoint_copy: Option<PathBuf>,
    /// When a record counts as durable.
    pub sync: Sync,
}

/// `ledger.sync`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Durable before anything leaves.
    Record,
    /// For tests and benchmarks; said in the record.
    Interval,
}

impl Sync {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Sync::Record => "record",
            Sync::Interval => "interval",
        }
    }
}

/// `[limits]`: bytes and durations.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Request head, bytes.
    pub head: usize,
    /// Request body, bytes.
    pub body: u64,
    /// Calls in flight.
    pub in_flight: usize,
    /// Body bytes in flight, all calls together.
    pub in_flight_bytes: u64,
    /// From the first byte of a head to its end.
    pub client_head: Duration,
    /// From the end of the head to the end of the body.
    pub client_body: Duration,
    /// TCP and TLS together.
    pub connect: Duration,
    /// From the last byte sent to the end of the host's head.
    pub first_byte: Duration,
    /// Between two reads of the host's body, and of an idle client connection.
    pub idle: Duration,
    /// Drain at SIGTERM.
    pub shutdown: Duration,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    /// The key: the host pin.
    pub pin: HostPin,
    /// Scheme, authority and base path of `base_url`.
    pub base: BaseUrl,
    /// The page the host string was copied from.
    pub source: Option<String>,
    /// When it was copied.
    pub copied_at: Option<Timestamp>,
    /// `max_age`, where the host sets one.
    pub max_age: Option<Duration>,
    /// The credential that goes to the host.
    pub credential: Credential,
    /// Which addresses the name may have.
    pub addresses: Addresses,
    /// Fixed addresses: no look-up.
    pub resolve: Vec<IpAddr>,
    /// Only these roots (a PEM file that was there and held at least one certificate).
    pub ca: Option<PathBuf>,
    /// One of these keys: SHA-256 of the leaf certificate's SubjectPublicKeyInfo. Empty: not asked.
    pub spki: Vec<[u8; 32]>,
    /// Method and path relative to `base_url`.
    pub routes: Vec<Route>,
    /// Client headers that may pass on a release.
    pub headers: Vec<HeaderRule>,
    /// How a split is sent.
    pub split: SplitRoute,
    /// Model names a release may carry.
    pub models: Vec<String>,
    /// How a body is bound to its fixture.
    pub bind: Bind,
    /// Whether `bind` was written as `cover` or `exact` in the policy, not defaulted.
    pub bind_written: bool,
    /// What a body may name under `cover`: the API's parameters, and those of `vocabulary`.
    pub vocabularies: Vocabularies,
    /// `clear_text = true`
    pub clear_text: bool,
}

/// `base_url`, taken apart. No query, fragment or userinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// `https`
    pub tls: bool,
    /// The host name or address in the URL, lower-case, no brackets for IPv6.
    pub host: String,
    /// The port, 443 or 80 where the URL names none.
    pub port: u16,
    /// As in a `Host` header: with the port where it is not the scheme's own, brackets for IPv6.
    pub authority: String,
    /// `/v1`: no slash at its end; empty for the root.
    pub path: String,
}

/// Method and relative path of a route, `POST /chat/completions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// GET or POST.
    pub method: Method,
    /// Begins with `/`, relative to `base_url`.
    pub path: String,
}

/// The routes of a host that names none.
static DEFAULT_ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let post = [
        "/chat/completions",
        "/completions",
        "/responses",
        "/embeddings",
        "/messages",
    ];
    let mut routes: Vec<Route> = post
        .into_iter()
        .map(|path| Route {
            method: Method::POST,
            path: path.to_owned(),
        })
        .collect();
    routes.push(Route {
        method: Method::GET,
        path: "/models".to_owned(),
    });
    routes
});

impl Route {
    /// The default list (contract, section 7).
    pub fn defaults() -> &'static [Route] {
        &DEFAULT_ROUTES
    }
}

/// A client header that may pass, where its whole value matches.
#[derive(Debug, Clone)]
pub struct HeaderRule {
    /// The name.
    pub name: HeaderName,
    /// Anchored at both ends; a value has at most 128 bytes besides.
    pub pattern: regex::bytes::Regex,
}

/// `credential`
#[derive(Debug, Clone)]
pub enum Credential {
    /// None is sent.
    None,
    /// On a release, the client's own `authorization` and `x-api-key`.
    Client,
    /// From the environment or a file.
    Fixed {
        /// The header it goes in.
        header: HeaderName,
        /// The whole header value, scheme included.
        value: Secret,
        /// Bytes of it before the secret itself: the scheme and its blank.
        scheme: usize,
    },
}

/// `addresses`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// Globally reachable addresses only.
    Public,
    /// 127.0.0.0/8 and ::1.
    Loopback,
    /// RFC 1918 and RFC 4193 addresses.
    Private,
    /// These networks.
    Networks(Vec<Network>),
}

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The first address; bits after the prefix are zero.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// `split`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitRoute {
    /// Path relative to `base_url`.
    pub path: String,
    /// What goes around the four values.
    pub envelope: Envelope,
}

/// `split.envelope`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    /// The object alone.
    Bare,
    /// The object as the only user message of a chat completion.
    Chat {
        /// `model`
        model: String,
        /// `max_tokens`, where given.
        max_tokens: Option<u64>,
    },
}

/// `bind`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// Every string is covered by the fixture, its glue or the vocabulary.
    Cover,
    /// The body's hash is recorded.
    Exact,
    /// Not bound; default on loopback.
    None,
}

impl Bind {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Bind::Cover => "cover",
            Bind::Exact => "exact",
            Bind::None => "none",
        }
    }
}

impl Policy {
    /// The host whose authority a `CONNECT` names, `host:port`, byte for byte: one with TLS.
    pub fn tunnel_to(&self, authority: &str) -> Option<&Arc<Host>> {
        self.hosts
            .values()
            .find(|host| host.base.tls && host.base.with_port() == authority)
    }
}

impl BaseUrl {
    /// `host:port`, brackets for IPv6, the port also where it is the scheme's own.
    pub fn with_port(&self) -> String {
        let port = self.port;
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

impl Host {
    /// Whether the host's addresses are loopback.
    pub fn on_loopback(&self) -> bool {
        self.addresses == Addresses::Loopback
    }

    /// Whether the fixture checks are on (contract, section 3).
    pub fn checks_fixture(&self) -> bool {
        !self.on_loopback() || (self.bind_written && self.bind != Bind::None)
    }
}
