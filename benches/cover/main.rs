//! How long cover takes, and how much memory a fixture. `cargo bench --bench cover`; one part of it: `cargo bench --bench cover -- text 1000` (format and megabytes of
//! the fixture), or `-- hostile`.
//!
//! The bounds: loading at 20 MB/s at least and 10 bytes of memory for each byte of fixture at most; at 10 MB, 15 µs for a 2 KiB body and 0.4 of a call that is only
//! passed on; 300 MB/s for a 1 MiB body; a cost that grows with the body and not faster, whatever the body is. Times are this thread's time on a CPU (Linux:
//! /proc/thread-self/schedstat), so that a busy machine does not look slow; its caches are still shared. Compare figures of one run only.
//! What was measured: `docs/fixtures.md`.

#![allow(clippy::unwrap_used, reason = "a benchmark ends where something fails")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark starts itself again, and speaks to itself on loopback"
)]

mod hostile;
mod pass;
mod texts;

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leafgate::fixture::{Fixture, Format, NewFixture, Registry, add};
use leafgate::policy::{
    Addresses, BaseUrl, Bind, Credential, Envelope, Fixtures, Host, SplitRoute,
};
use leafgate::terms::{FixtureId, HostPin};
use leafgate::vocabulary::Vocabularies;

const GLUE: [&str; 2] = ["Explain this function in one sentence:\n\n", "\n\nAnswer:"];

/// The time that this thread has spent on a CPU.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Bytes of memory in use (`VmRSS`) or at the highest point (`VmHWM`).
fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(line)).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0
}

fn host() -> Host {
    Host {
        pin: HostPin::parse("models.example.org").unwrap(),
        base: BaseUrl {
            tls: true,
            host: "models.example.org".into(),
            port: 443,
            authority: "models.example.org".into(),
            path: "/v1".into(),
        },
        source: None,
        copied_at: None,
        max_age: None,
        credential: Credential::None,
        addresses: Addresses::Public,
        resolve: Vec::new(),
        ca: None,
        spki: Vec::new(),
        routes: Vec::new(),
        headers: Vec::new(),
        split: SplitRoute {
            path: "/chat/completions".into(),
            envelope: Envelope::Bare,
        },
        models: vec!["tiny".into()],
        bind: Bind::Cover,
        bind_written: true,
        vocabularies: Vocabularies::default(),
        clear_text: false,
    }
}

/// Writes and registers a fixture file of this text.
fn make(dir: &Path, text: &str, format: Format, glue: &[&str]) {
    std::fs::write(dir.join("f.txt"), text).unwrap();
    std::fs::write(dir.join("g.json"), serde_json::to_string(glue).unwrap()).unwrap();
    let new = NewFixture {
        id: FixtureId::parse("f").unwrap(),
        paths: vec!["f.txt".into()],
        format,
        glue: Some("g.json".into()),
        bodies: Vec::new(),
    };
    add(&dir.join("fixtures.lock"), &new, None).unwrap();
}

/// Loads the fixture that was registered there, and says what that took.
fn load(dir: &Path) -> Arc<Fixture> {
    let bytes = std::fs::metadata(dir.join("f.txt")).unwrap().len() as f64;
    let lock = dir.join("fixtures.lock");
    let settings = Fixtures {
        lock,
        lock_named: true,
        hmac_key: None,
    };
    let registry = Registry::load(&settings).unwrap();
    let entry = registry.entries().next().unwrap();
    let before = memory("VmRSS");
    // The highest point starts again here (Linux: 5 in clear_refs); where that is not allowed, it says too much, not too little.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let start = on_cpu();
    let fixture = registry.admit_now(&entry.id, &entry.hash).unwrap();
    let took = (on_cpu() - start).as_secs_f64();
    let each = |now: f64| (now - before) / bytes;
    println!(
        "  load: {:.1} MB/s (bound 20); memory for each byte of fixture: {:.2}, {:.2} while loading (bound 10)",
        bytes / took / 1e6,
        each(memory("VmRSS")),
        each(memory("VmHWM")),
    );
    fixture
}

fn body(content: &str) -> Vec<u8> {
    serde_json::json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": format!("{}{content}{}", GLUE[0], GLUE[1])}],
        "temperature": 0,
    })
    .to_string()
    .into_bytes()
}

/// Time on a CPU for a body, and the mean length of one.
fn check(fixture: &Fixture, host: &Host, bodies: &[Vec<u8>], rounds: usize) -> (f64, f64) {
    let mut bytes = 0;
    let start = on_cpu();
    for body in bodies.iter().cycle().take(rounds) {
        let verdict = fixture.bind(host, "/chat/completions", body, &[0; 32]);
        assert!(black_box(verdict).is_ok());
        bytes += body.len();
    }
    let took = (on_cpu() - start).as_secs_f64();
    (took / rounds as f64, bytes as f64 / rounds as f64)
}

/// Bodies of about `len` bytes, each from another place of the words, so that the index is not warm.
fn bodies(words: &str, len: usize, many: usize) -> Vec<Vec<u8>> {
    let len = len.saturating_sub(148).min(words.len());
    let room = (words.len() - len).max(1);
    (0..many)
        .map(|n| {
            let at = n * 7_919_993 % room;
            body(&words[at..at + len])
        })
        .collect()
}

/// The file of a fixture of this kind: made by a process of its own, so that what that frees is not room for the fixture.
fn make_kind(kind: &str, megabytes: &str, dir: &Path) {
    let bytes = megabytes.parse::<usize>().unwrap() * 1_000_000;
    let (text, format) = match kind {
        "text" => (texts::text(bytes), Format::Text),
        "json" => (texts::questions(bytes, false), Format::Json),
        "jsonl" => (texts::questions(bytes, true), Format::Jsonl),
        "words" => (texts::words(bytes), Format::Jsonl),
        other => panic!("text, json, jsonl, words or hostile, not {other}"),
    };
    make(dir, &text, format, &GLUE);
}

fn own(arguments: &[&str]) {
    let own = std::env::current_exe().unwrap();
    let status = Command::new(own).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn fixture(kind: &str, megabytes: &str) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let host = host();
    own(&["make", kind, megabytes, dir.path().to_str().unwrap()]);
    println!("{kind}, {megabytes} MB");
    let fixture = load(dir.path());
    if kind != "text" {
        return;
    }
    let megabytes: usize = megabytes.parse().unwrap();
    let bytes = megabytes * 1_000_000;
    let words = texts::text(bytes);
    let small = bodies(&words, 2 << 10, 2000);
    let (each, len) = check(&fixture, &host, &small, 20_000);
    println!(
        "  2 KiB body: {:.2} µs, {:.0} MB/s (bound 15 µs)",
        each * 1e6,
        len / each / 1e6
    );
    if megabytes == 10 {
        for (who, pass) in [
            (
                "hyper's server and client",
                pass::by_hyper(&small[0], 20_000),
            ),
            ("the least code that can", pass::by_hand(&small[0], 20_000)),
        ] {
            let (again, _) = check(&fixture, &host, &small, 20_000);
            let pass = pass.as_secs_f64();
            println!(
                "  a call passed on without a check, by {who}: {:.2} µs; the check is {:.2} of it (bound 0.4)",
                pass * 1e6,
                each.min(again) / pass
            );
        }
    }
    for (name, len, rounds) in [
        ("32 KiB", 32 << 10, 2000),
        ("256 KiB", 256 << 10, 400),
        ("1 MiB", 1 << 20, 100),
        ("16 MiB", 16 << 20, 6),
    ] {
        if len > bytes {
            continue;
        }
        let (each, len) = check(&fixture, &host, &bodies(&words, len, 6), rounds);
        println!(
            "  {name} body: {:.0} µs, {:.0} MB/s, {:.2} ns a byte (bound 300 MB/s)",
            each * 1e6,
            len / each / 1e6,
            each / len * 1e9
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hostile"] => hostile::all(),
        [kind, megabytes] => fixture(kind, megabytes),
        ["make", kind, megabytes, dir] => make_kind(kind, megabytes, Path::new(dir)),
        [] => {
            for case in [
                "text 1",
                "text 10",
                "text 100",
                "json 10",
                "json 100",
                "jsonl 10",
                "jsonl 100",
                "words 10",
                "words 100",
                "hostile",
            ] {
                // A process for each, so that the memory of one is not the room of the next.
                own(&case.split(' ').collect::<Vec<_>>());
            }
        }
        _ => panic!("nothing, or FORMAT MEGABYTES, or hostile"),
    }
}
