//! How long cover takes: a 2 KiB body against fixtures of 1, 10 and 100 MB, and a 1 MiB body. `cargo bench --bench cover`
//!
//! The bound (the issue's): 15 µs for the 2 KiB body at 10 MB, 300 MB/s for the 1 MiB body, 20 MB/s for loading.

#![allow(clippy::unwrap_used, reason = "a benchmark ends where something fails")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use leafgate::fixture::{Fixture, Format, NewFixture, Registry, add};
use leafgate::policy::{
    Addresses, BaseUrl, Bind, Credential, Envelope, Fixtures, Host, SplitRoute,
};
use leafgate::terms::{FixtureId, HostPin};

const GLUE: [&str; 2] = ["Explain this function in one sentence:\n\n", "\n\nAnswer:"];

/// Words drawn by a fixed generator: text that does not repeat and is not random bytes.
fn text(bytes: usize) -> String {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for at in 0..(2 + state % 7) {
            out.push(char::from(b'a' + ((state >> (8 + 5 * at)) % 26) as u8));
        }
        out.push(if state.is_multiple_of(11) { '\n' } else { ' ' });
    }
    out
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
        clear_text: false,
    }
}

fn load(dir: &Path, text: &str) -> std::sync::Arc<Fixture> {
    std::fs::write(dir.join("f.txt"), text).unwrap();
    std::fs::write(dir.join("g.json"), serde_json::to_string(&GLUE).unwrap()).unwrap();
    let new = NewFixture {
        id: FixtureId::parse("f").unwrap(),
        paths: vec!["f.txt".into()],
        format: Format::Text,
        glue: Some("g.json".into()),
        bodies: Vec::new(),
    };
    let lock = dir.join("fixtures.lock");
    let hash = add(&lock, &new, None).unwrap();
    let settings = Fixtures {
        lock,
        lock_named: true,
        hmac_key: None,
    };
    let registry = Registry::load(&settings).unwrap();
    let start = Instant::now();
    let fixture = registry.admit_now(&new.id, &hash).unwrap();
    let took = start.elapsed().as_secs_f64();
    println!(
        "load: {:.0} MB/s (hash and index)",
        text.len() as f64 / took / 1e6
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

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let host = host();
    let all = text(100_000_000);
    for megabytes in [1, 10, 100] {
        let part = &all[..megabytes * 1_000_000];
        println!("fixture of {megabytes} MB");
        let fixture = load(dir.path(), part);
        for (name, len, rounds) in [
            ("2 KiB", 1900, 20_000_usize),
            ("1 MiB", (1 << 20) - 300, 200),
        ] {
            // Another place each time, so that the index is not warm.
            let room = part.len().saturating_sub(len);
            let bodies: Vec<Vec<u8>> = (0..rounds.min(2000))
                .map(|n| {
                    let at = if room == 0 { 0 } else { n * 7_919_993 % room };
                    body(&part[at..(at + len).min(part.len())])
                })
                .take(if len > 100_000 { 8 } else { 2000 })
                .collect();
            let start = Instant::now();
            let mut bytes = 0;
            for body in bodies.iter().cycle().take(rounds) {
                let bound = fixture.bind(&host, "/chat/completions", body, &[0; 32]);
                assert!(black_box(bound).is_ok());
                bytes += body.len();
            }
            let took = start.elapsed().as_secs_f64();
            println!(
                "  {name} body: {:.2} µs, {:.0} MB/s",
                took / rounds as f64 * 1e6,
                bytes as f64 / took / 1e6
            );
        }
    }
}
