//! How fast the ledger records, and how fast `verify` reads: `cargo bench --bench ledger`. Prints the tables of `docs/ledger.md`.
//!
//! Three ways for the same records, each with 1, 8, 64 and 256 calls that wait: leafgate's writer (`sync = "record"`), one `fdatasync` for each record behind a
//! lock, and leafgate's writer without the wait (`sync = "interval"`). All on one disk, under `target/tmp`, one after the other in one run: read the ratios. Processor
//! time is of all threads of the process (Linux: /proc/self/task/*/schedstat).

#![allow(clippy::unwrap_used, reason = "a benchmark ends where something fails")]

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use leafgate::admit::{
    BodyFacts, CallFacts, CallHead, CallId, Eligible, Plan, Refusal, SealedBody, Target, check_head,
};
use leafgate::card::{Attach, Card, Reading};
use leafgate::egress::Egress;
use leafgate::fixture::Registry;
use leafgate::ledger::{Ledger, RunFacts, records, verify};
use leafgate::policy::{LedgerSettings, Policy, Sync};
use leafgate::terms::Verdict;
use leafgate::tree::{Decision, classify};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long each cell of the table is measured.
const CELL: Duration = Duration::from_secs(2);
const WAITING: [usize; 4] = [1, 8, 64, 256];
/// Calls of the ledger that is verified: two records each.
const VERIFIED_CALLS: u64 = 400_000;

const CARD: &str = r#"{"fixture_id":"seed-04","fixture_hash":"sha256:9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c","egress_class":"public-fixture","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"scratch"}"#;

fn scratch() -> tempfile::TempDir {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tmp");
    std::fs::create_dir_all(target).unwrap();
    tempfile::tempdir_in(target).unwrap()
}

fn start(dir: &Path, sync: Sync) -> Ledger {
    let settings = LedgerSettings {
        dir: dir.to_owned(),
        segment_bytes: 64 << 20,
        checkpoint_every: Duration::from_secs(10),
        checkpoint_copy: None,
        sync,
    };
    let run = RunFacts {
        version: env!("CARGO_PKG_VERSION"),
        policy: "ab".repeat(32),
        oracle: "cd".repeat(32),
    };
    Ledger::start(&settings, run).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Processor time of all threads, those that ended since the last look left out.
fn on_cpu() -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat"));
        // A thread may end between the two.
        let text = text.unwrap_or_default();
        nanos += text
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
    }
    Duration::from_nanos(nanos)
}

/// This thread's.
fn own_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// What one cell of the table found.
struct Cell {
    waits: Vec<Duration>,
    took: Duration,
    cpu: Duration,
}

impl Cell {
    fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.took.as_secs_f64()
    }

    fn wait(&mut self, part: f64) -> f64 {
        self.waits.sort_unstable();
        let at = ((self.waits.len() - 1) as f64 * part) as usize;
        self.waits[at].as_secs_f64() * 1e6
    }

    fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.waits.len() as f64
    }
}

/// A decision of the size that a release's is, less what only a plan has.
fn refusal(number: u64) -> Refusal {
    let card = Arc::new(Card::parse(CARD.as_bytes()).unwrap());
    let Decision::Release(release) = classify(&Reading::Card(card.clone())) else {
        panic!("the card is a release's");
    };
    let ruling = release.ruling();
    Refusal {
        facts: CallFacts {
            call: CallId::new(number, [7; 10]),
            attach: Some(Attach::Header),
            card: Some(card),
            ruling,
            route: Some("POST /chat/completions".to_owned()),
            host: None,
            failure_label: None,
            peer_uid: None,
            body: Some(BodyFacts {
                len: 2048,
                sha256: [5; 32],
            }),
        },
        verdict: Verdict::Refuse,
        reason: ruling.reason,
        field: None,
        hint: String::new(),
    }
}

/// `waiting` calls, each of which records again as soon as its record is durable.
fn by_the_writer(sync: Sync, waiting: usize) -> Cell {
    let dir = scratch();
    let ledger = start(dir.path(), sync);
    let runtime = runtime();
    let cell = runtime.block_on(async {
        let (cpu, begun) = (on_cpu(), Instant::now());
        let tasks: Vec<_> = (0..waiting)
            .map(|task| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    let refusal = refusal(task as u64);
                    let mut waits = Vec::new();
                    while begun.elapsed() < CELL {
                        let asked = Instant::now();
                        ledger.refuse(&refusal).await.unwrap();
                        waits.push(asked.elapsed());
                    }
                    waits
                })
            })
            .collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await.unwrap());
        }
        Cell {
            waits,
            took: begun.elapsed(),
            cpu: on_cpu().saturating_sub(cpu),
        }
    });
    ledger.stop();
    cell
}

/// `waiting` threads; each writes its record and syncs it, one after the other.
fn one_sync_each(waiting: usize, line: &[u8]) -> Cell {
    let dir = scratch();
    let path = dir.path().join("lines");
    let file = OpenOptions::new().append(true).create_new(true).open(path);
    let file = Mutex::new(file.unwrap());
    let (begun, mut waits) = (Instant::now(), Vec::new());
    let mut cpu = Duration::ZERO;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..waiting)
            .map(|_| {
                scope.spawn(|| {
                    let (mut waits, cpu) = (Vec::new(), own_cpu());
                    while begun.elapsed() < CELL {
                        let asked = Instant::now();
                        {
                            let mut file = file.lock().unwrap();
                            file.write_all(line).unwrap();
                            file.sync_data().unwrap();
                        }
                        waits.push(asked.elapsed());
                    }
                    (waits, own_cpu() - cpu)
                })
            })
            .collect();
        for thread in threads {
            let (more, spent) = thread.join().unwrap();
            waits.extend(more);
            cpu += spent;
        }
    });
    Cell {
        waits,
        took: begun.elapsed(),
        cpu,
    }
}

fn recording() {
    let dir = scratch();
    let ledger = start(dir.path(), Sync::Record);
    runtime().block_on(ledger.refuse(&refusal(0))).unwrap();
    ledger.stop();
    let text = std::fs::read_to_string(dir.path().join("000000000000.jsonl")).unwrap();
    let line = format!("{}\n", text.lines().nth(1).unwrap());
    println!("records of {} bytes\n", line.len());
    println!(
        "| waiting | way | records/s | p50 µs | p99 µs | CPU µs a record | against one sync each |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for waiting in WAITING {
        let mut each = one_sync_each(waiting, line.as_bytes());
        let base = each.rate();
        let mut record = by_the_writer(Sync::Record, waiting);
        let mut interval = by_the_writer(Sync::Interval, waiting);
        for (way, cell) in [
            ("one sync each", &mut each),
            ("leafgate", &mut record),
            ("leafgate, no sync", &mut interval),
        ] {
            println!(
                "| {waiting} | {way} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} × |",
                cell.rate(),
                cell.wait(0.5),
                cell.wait(0.99),
                cell.cpu_each(),
                cell.rate() / base
            );
        }
    }
}

/// A release through admission, as a call makes it.
async fn plan(policy: &Arc<Policy>, fixtures: &Registry, number: u64) -> Plan {
    let card = Arc::new(Card::parse(CARD.as_bytes()).unwrap());
    let Decision::Release(release) = classify(&Reading::Card(card)) else {
        panic!("the card is a release's");
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let head = CallHead {
        peer_uid: None,
        call: CallId::new(number, [7; 10]),
        attach: Some(Attach::Header),
        method: &Method::POST,
        target: Target::Origin("/chat/completions"),
        headers: &headers,
    };
    let now = jiff::Timestamp::now();
    let release = Eligible::Release(release);
    let admitted = check_head(release, head, policy, fixtures, now)
        .await
        .unwrap();
    let body = r#"{"model":"m-small","messages":[{"role":"user","content":"hello"}]}"#;
    admitted
        .finish(SealedBody::seal(Bytes::from_static(body.as_bytes())))
        .unwrap()
}

/// A host on loopback that answers one call.
async fn host(listener: tokio::net::TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = [0; 8192];
    let _ = stream.read(&mut request).await.unwrap();
    let body = r#"{"model":"m-small","choices":[{"message":{"content":"hi"}}]}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

async fn to(port: u16, dir: &Path) -> (Arc<Policy>, Registry) {
    let file = dir.join("policy.toml");
    let text = format!(
        "version = 1\n[hosts.local]\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodels = [\"m-small\"]\n"
    );
    std::fs::write(&file, text).unwrap();
    let policy = Arc::new(Policy::load(&file).unwrap());
    let fixtures = Registry::load(&policy.fixtures).unwrap();
    (policy, fixtures)
}

/// Decision and outcome of a release that left and was answered.
fn bytes_for_each_call() {
    let dir = scratch();
    let folder = dir.path().join("ledger");
    let ledger = start(&folder, Sync::Record);
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (policy, fixtures) = to(listener.local_addr().unwrap().port(), dir.path()).await;
        let answers = tokio::spawn(host(listener));
        let cleared = ledger
            .commit(plan(&policy, &fixtures, 1).await)
            .await
            .unwrap();
        let answer = Egress::new().send(cleared).await.unwrap();
        answer.body.collect().await.unwrap();
        answers.await.unwrap();
    });
    ledger.stop();
    let mut sum = 0;
    for record in records(&folder).unwrap() {
        let (_, record) = record.unwrap();
        let kind = record["t"].as_str().unwrap().to_owned();
        if kind == "decision" || kind == "outcome" {
            // A record's values are all ASCII here: its text is what stands on disk.
            let len = record.to_string().len() + 1;
            println!("{kind} of a release: {len} bytes");
            sum += len;
        }
    }
    println!("bytes for each call: {sum}");
}

/// A ledger of decisions and outcomes, and its bytes.
fn long_ledger(dir: &Path) -> PathBuf {
    let folder = dir.join("ledger");
    let ledger = start(&folder, Sync::Interval);
    runtime().block_on(async {
        let (policy, fixtures) = to(9, dir).await;
        let fixtures = Arc::new(fixtures);
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (ledger, policy, fixtures) = (ledger.clone(), policy.clone(), fixtures.clone());
                tokio::spawn(async move {
                    for number in (task..VERIFIED_CALLS).step_by(64) {
                        // Nothing is sent: the outcome says so.
                        let plan = plan(&policy, &fixtures, number).await;
                        drop(ledger.commit(plan).await.unwrap());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    ledger.stop();
    folder
}

/// Both hashes of each line and nothing else: the least that `verify` must do. Gives the bytes.
fn hashes_only(folder: &Path) -> u64 {
    let mut all = 0;
    let mut last = [0; 32];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        let (mut file, mut block, mut held) = (File::open(path).unwrap(), vec![0; 256 << 10], 0);
        loop {
            let read = file.read(&mut block[held..]).unwrap();
            if read == 0 {
                break;
            }
            let (filled, mut start) = (held + read, 0);
            for end in memchr::memchr_iter(b'\n', &block[..filled]) {
                let line = &block[start..end];
                last = Sha256::digest(line).into();
                let leaf: [u8; 32] = Sha256::new()
                    .chain_update([0])
                    .chain_update(line)
                    .finalize()
                    .into();
                last[0] ^= leaf[0];
                all += line.len() as u64 + 1;
                start = end + 1;
            }
            block.copy_within(start..filled, 0);
            held = filled - start;
        }
    }
    std::hint::black_box(last);
    all
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn verifying() {
    let dir = scratch();
    let folder = long_ledger(dir.path());
    // The highest point starts again here (Linux: 5 in clear_refs).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..3 {
        let (before, begun) = (memory(), own_cpu());
        let report = verify(&folder, &mut |_, _| {}).unwrap();
        let took = (own_cpu() - begun).as_secs_f64();
        assert!(report.problem.is_none(), "{report:?}");
        let rate = report.bytes as f64 / took / 1e6;
        println!(
            "verify: {} records, {:.0} MB in {took:.2} s: {rate:.0} MB/s, {:.0} records/s, {} KiB of memory more",
            report.records,
            report.bytes as f64 / 1e6,
            report.records as f64 / took,
            memory() - before
        );
        let begun = own_cpu();
        let bytes = hashes_only(&folder);
        let hashes = bytes as f64 / (own_cpu() - begun).as_secs_f64() / 1e6;
        println!("both hashes of each line alone: {hashes:.0} MB/s");
        if best.is_none_or(|(best, _)| rate > best) {
            best = Some((rate, hashes));
        }
    }
    let (rate, hashes) = best.unwrap();
    println!(
        "verify at its best: {rate:.0} MB/s, {:.2} of the two hashes alone",
        rate / hashes
    );
}

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |name: &str| asked.is_empty() || asked.iter().any(|arg| arg == name);
    if wants("bytes") {
        bytes_for_each_call();
    }
    if wants("recording") {
        recording();
    }
    if wants("verify") {
        verifying();
    }
}
