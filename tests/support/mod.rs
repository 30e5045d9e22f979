//! A whole leafgate in the test's own process, a host that records, and raw bytes between them. Loopback only.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses its own part of this"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test's client and host open their own sockets"
)]

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leafgate::ingress::{Live, Running};
use leafgate::ledger::{Ledger, RunFacts};
use leafgate::metrics::Metrics;
use leafgate::policy::Policy;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

pub const CANARY: &str = "CANARY-7f3a91";
pub const HOST: &str = "models.example.org";
pub const FIXTURE: &str = "def clamp(value, low, high):\n    \"\"\"Return value limited to the closed interval from low to high.\"\"\"\n    return max(low, min(value, high))\n";
pub const GLUE: [&str; 2] = ["Explain this function in one sentence:\n\n", "\n\nAnswer:"];
pub const OK_BODY: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}"#;

pub fn fixture_hash() -> String {
    let digest = Sha256::digest(FIXTURE);
    format!(
        "sha256:{}",
        digest
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<String>()
    )
}

/// A card that is released, with changes; a change to null removes the field.
pub fn card(changes: Value) -> Value {
    let mut card = json!({"fixture_id": "seed-04", "fixture_hash": fixture_hash(), "egress_class": "public-fixture", "residue": [],
        "host_pin": HOST, "replay_window": "24h", "writable_surface": "tmpdir"});
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            card.as_object_mut().unwrap().remove(key);
        } else {
            card[key] = value.clone();
        }
    }
    card
}

pub fn split_card(changes: Value) -> Value {
    let mut all = json!({"egress_class": "redacted-metadata", "failure_label": "wrong-answer", "fixture_id": "doc-17"});
    all.as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    card(all)
}

/// A chat completion that is bound to the fixture.
pub fn body() -> Vec<u8> {
    body_with(&format!("{}{FIXTURE}{}", GLUE[0], GLUE[1]))
}

pub fn body_with(content: &str) -> Vec<u8> {
    json!({"model": "tiny", "messages": [{"role": "user", "content": content}], "temperature": 0})
        .to_string()
        .into_bytes()
}

pub fn ok_response() -> Vec<u8> {
    response("200 OK", "", OK_BODY)
}

pub fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

/// What a host does with one request: writes its answer; `false` closes the connection.
pub type Script = dyn Fn(&mut TcpStream, &Seen) -> bool + Send + Sync;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

/// A recording host.
pub struct Host {
    pub address: SocketAddr,
    pub accepts: Arc<AtomicUsize>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Host {
    pub fn start(script: impl Fn(&mut TcpStream, &Seen) -> bool + Send + Sync + 'static) -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = Host {
            address: listener.local_addr().unwrap(),
            accepts: Arc::default(),
            seen: Arc::default(),
        };
        let (accepts, seen, script) = (host.accepts.clone(), host.seen.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepts.fetch_add(1, Ordering::SeqCst);
                let (seen, script) = (seen.clone(), script.clone());
                std::thread::spawn(move || serve(stream, &seen, script.as_ref()));
            }
        });
        host
    }

    pub fn ok() -> Host {
        Host::start(|stream, _| stream.write_all(&ok_response()).is_ok())
    }

    pub fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Seen>>, script: &Script) {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut buf = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buf.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !more(&mut stream, &mut buf) {
                return;
            }
        };
        let head = String::from_utf8_lossy(&buf[..end]).into_owned();
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "))
            .map_or(0, |n| n.parse().unwrap());
        while buf.len() < end + length {
            if !more(&mut stream, &mut buf) {
                return;
            }
        }
        let one = Seen {
            head,
            body: buf[end..end + length].to_vec(),
        };
        buf.drain(..end + length);
        seen.lock().unwrap().push(one.clone());
        if !script(&mut stream, &one) {
            return;
        }
    }
}

fn more(stream: &mut impl Read, buf: &mut Vec<u8>) -> bool {
    let mut piece = [0; 65536];
    match stream.read(&mut piece) {
        Ok(read) if read > 0 => {
            buf.extend_from_slice(&piece[..read]);
            true
        }
        Ok(_) | Err(_) => false,
    }
}

/// One answer as the client saw it.
#[derive(Debug)]
pub struct Reply {
    pub raw: Vec<u8>,
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    fn of(raw: Vec<u8>) -> Reply {
        let end = raw
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .map_or(raw.len(), |at| at + 4);
        let head = String::from_utf8_lossy(&raw[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        Reply {
            status,
            head,
            body: raw[end..].to_vec(),
            raw,
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self
            .head
            .lines()
            .find(|l| l.to_ascii_lowercase().starts_with(&format!("{name}: ")))?;
        Some(line.split_once(": ").unwrap().1)
    }

    pub fn reason(&self) -> &str {
        self.header("leafgate-reason").unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A leafgate over a scratch folder.
pub struct Gate {
    pub dir: TempDir,
    pub running: Option<Running>,
    pub ledger: Ledger,
    pub runtime: tokio::runtime::Runtime,
    pub address: SocketAddr,
}

/// A host entry that is named like a public one and resolved to loopback, with every check on.
pub fn entry(host: &Host, more: &str) -> String {
    let bind = if more.contains("bind =") {
        ""
    } else {
        "bind = \"cover\"\n"
    };
    format!(
        "[hosts.\"{HOST}\"]\nbase_url = \"http://{HOST}:{}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"\nmodels = [\"tiny\"]\n{bind}{more}\n",
        host.address.port()
    )
}

/// Writes what a leafgate is started with: cards, a fixture, its lock file and `policy.toml`.
pub fn lay_out(dir: &Path, hosts: &str, more: &str, listen: &str) {
    let [proxy, admin] = free_ports();
    let proxy = format!("127.0.0.1:{proxy}");
    lay_out_at(dir, &proxy, admin, hosts, more, listen);
}

/// As `lay_out`, with `listen.proxy` and the port of `listen.admin`.
fn lay_out_at(dir: &Path, proxy: &str, admin: u16, hosts: &str, more: &str, listen: &str) {
    let at = |name: &str| dir.join(name);
    std::fs::create_dir(at("cards")).unwrap();
    std::fs::write(at("cards/seed-04.json"), card(json!({})).to_string()).unwrap();
    std::fs::write(at("seed-04.txt"), FIXTURE).unwrap();
    std::fs::write(at("glue.json"), json!(GLUE).to_string()).unwrap();
    let fixture = |id: &str| {
        format!(
            "[[fixture]]\nid = \"{id}\"\nhash = \"{}\"\npath = \"seed-04.txt\"\nformat = \"text\"\nglue = \"glue.json\"\n",
            fixture_hash()
        )
    };
    std::fs::write(
        at("fixtures.lock"),
        format!("version = 1\n{}{}", fixture("seed-04"), fixture("doc-17")),
    )
    .unwrap();
    let text = format!(
        "version = 1\n[listen]\nproxy = \"{proxy}\"\nadmin = \"127.0.0.1:{admin}\"\n{listen}\n[cards]\ndir = \"cards\"\n[fixtures]\nlock = \"fixtures.lock\"\n[ledger]\ndir = \"ledger\"\n{more}\n{hosts}"
    );
    std::fs::write(at("policy.toml"), text).unwrap();
}

impl Gate {
    pub fn in_front_of(host: &Host) -> Gate {
        Gate::with(&entry(host, ""), "")
    }

    /// `hosts` and `more` are TOML text.
    pub fn with(hosts: &str, more: &str) -> Gate {
        Gate::built(hosts, more, "")
    }

    /// `listen` is TOML text inside `[listen]`.
    pub fn with_listen(hosts: &str, listen: &str) -> Gate {
        Gate::built(hosts, "", listen)
    }

    fn built(hosts: &str, more: &str, listen: &str) -> Gate {
        Gate::built_in(tempfile::tempdir().unwrap(), hosts, more, listen)
    }

    /// In a folder that holds files the policy names.
    pub fn built_in(dir: TempDir, hosts: &str, more: &str, listen: &str) -> Gate {
        lay_out(dir.path(), hosts, more, listen);
        Gate::start(dir)
    }

    /// As `built_in`, with `listen.proxy`.
    pub fn listening(dir: TempDir, proxy: &str, hosts: &str, more: &str, listen: &str) -> Gate {
        let [admin, _] = free_ports();
        lay_out_at(dir.path(), proxy, admin, hosts, more, listen);
        Gate::start(dir)
    }

    pub fn start(dir: TempDir) -> Gate {
        Gate::start_on(dir, 2)
    }

    /// On so many threads.
    pub fn start_on(dir: TempDir, threads: usize) -> Gate {
        let policy = Policy::load(&dir.path().join("policy.toml"))
            .unwrap_or_else(|faults| panic!("{faults:?}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .unwrap();
        let facts = RunFacts {
            version: "test",
            policy: policy.hash.clone(),
            oracle: "0".repeat(64),
        };
        // The ledger may need the runtime for its wake-ups.
        let ledger = runtime
            .block_on(async { Ledger::start(&policy.ledger, facts) })
            .unwrap();
        let live = Live::load(Arc::new(policy)).unwrap();
        let running = runtime
            .block_on(leafgate::ingress::start(
                live,
                ledger.clone(),
                Arc::new(Metrics::default()),
            ))
            .unwrap();
        // A listener on a Unix socket has no address; its tests connect to its path.
        let address = running
            .bound
            .tcp()
            .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        Gate {
            dir,
            running: Some(running),
            ledger,
            runtime,
            address,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(8)))
            .unwrap();
        stream
    }

    /// Sends bytes as they are, and reads to the end of one answer or of the connection.
    pub fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        read_reply(&mut stream)
    }

    pub fn head(&self, card: &Value, more: &str) -> String {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nleafgate-card: {card}\r\nContent-Type: application/json\r\n{more}",
            self.address
        )
    }

    pub fn call(&self, card: &Value, body: &[u8]) -> Reply {
        self.call_with(card, "", body)
    }

    pub fn call_with(&self, card: &Value, headers: &str, body: &[u8]) -> Reply {
        let mut bytes = self
            .head(
                card,
                &format!("{headers}Content-Length: {}\r\n\r\n", body.len()),
            )
            .into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes)
    }

    pub fn records(&self) -> Vec<Value> {
        records_in(&self.path("ledger"))
    }

    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.records()
            .into_iter()
            .filter(|r| r["t"] == kind)
            .collect()
    }

    /// Waits for so many records of a kind: an outcome is queued, not waited for.
    pub fn wait(&self, kind: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(8);
        loop {
            let found = self.of_kind(kind);
            if found.len() >= count || Instant::now() > end {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn ledger_text(&self) -> String {
        self.records().iter().map(|r| format!("{r}\n")).collect()
    }

    /// Stops, and gives the folder back.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop());
            self.ledger.stop();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn read_reply(stream: &mut impl Read) -> Reply {
    let mut raw = Vec::new();
    while !complete(&raw) && more(stream, &mut raw) {}
    Reply::of(raw)
}

fn complete(raw: &[u8]) -> bool {
    let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&raw[..end]).to_ascii_lowercase();
    if let Some(length) = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "))
    {
        return raw.len() >= end + 4 + length.trim().parse::<usize>().unwrap();
    }
    head.contains("transfer-encoding: chunked") && raw.ends_with(b"0\r\n\r\n")
}

/// Every record of a ledger's folder.
pub fn records_in(ledger: &Path) -> Vec<Value> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(ledger)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.retain(|p| p.extension().is_some_and(|e| e == "jsonl"));
    names.sort();
    names
        .iter()
        .flat_map(|p| {
            std::fs::read_to_string(p)
                .unwrap()
                .lines()
                .map(|l| serde_json::from_str(l).unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Two ports that differ: both are held until both are known.
pub fn free_ports() -> [u16; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

pub fn b64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Every file under a folder, as one text.
pub fn all_text(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &all_text(&path);
        } else {
            text += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
        }
    }
    text
}

/// Whether the file has a function of this name that is marked as a test.
pub fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| {
        (pair[0] == "#[test]" || pair[0] == "#[tokio::test]")
            && pair[1]
                .trim_start_matches("async ")
                .starts_with(&format!("fn {name}()"))
    })
}
