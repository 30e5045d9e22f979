use super::*;
use crate::ledger::{Export, Format, ascii};
use std::fmt::Write as _;
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn ledger_with(segments: &[(u64, u64)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (first, end) in segments {
        let lines = (*first..*end).fold(String::new(), |mut all, seq| {
            let leaf = if seq % 2 == 0 { "hold" } else { "release" };
            let _ = writeln!(all, r#"{{"leaf":"{leaf}","seq":{seq},"t":"decision"}}"#);
            all
        });
        std::fs::write(dir.path().join(format!("{first:012}.jsonl")), lines).unwrap();
    }
    dir
}

fn seqs(dir: &Path, query: &str) -> (Vec<u64>, Option<u64>) {
    let asked = Asked::parse(query).unwrap();
    let page = ledger::page(dir, &asked.filter, asked.limit, MAX_SCANNED).unwrap();
    (
        page.records.iter().map(|record| record.seq).collect(),
        page.next,
    )
}

#[test]
fn records_come_newest_first_across_segments_and_pages_join() {
    let dir = ledger_with(&[(0, 4), (4, 5), (5, 9)]);
    assert_eq!(seqs(dir.path(), ""), ((0..9).rev().collect(), None));
    assert_eq!(seqs(dir.path(), "limit=4"), (vec![8, 7, 6, 5], Some(5)));
    assert_eq!(
        seqs(dir.path(), "limit=4&before=5"),
        (vec![4, 3, 2, 1], Some(1))
    );
    assert_eq!(seqs(dir.path(), "limit=4&before=1"), (vec![0], None));
    assert_eq!(seqs(dir.path(), "leaf=release"), (vec![7, 5, 3, 1], None));
    assert_eq!(seqs(dir.path(), "leaf=split"), (vec![], None));
    assert_eq!(seqs(Path::new("/nowhere/ledger"), ""), (vec![], None));
    for seq in 0..9 {
        assert_eq!(ledger::one(dir.path(), seq).unwrap().unwrap().seq, seq);
    }
    assert!(ledger::one(dir.path(), 9).unwrap().is_none());
}

#[test]
fn lines_across_blocks_and_torn_ends_are_read_right() {
    let dir = tempfile::tempdir().unwrap();
    // Five of these are more than a block.
    let long = "x".repeat(60 * 1024);
    let mut all = String::new();
    for seq in 0..5 {
        let _ = writeln!(all, r#"{{"pad":"{long}","seq":{seq}}}"#);
    }
    all.push_str(r#"{"seq":5"#);
    std::fs::write(dir.path().join("000000000000.jsonl"), &all).unwrap();
    assert_eq!(seqs(dir.path(), ""), (vec![4, 3, 2, 1, 0], None));
    assert!(ledger::one(dir.path(), 5).unwrap().is_none());
    std::fs::write(dir.path().join("000000000000.jsonl"), &long).unwrap();
    assert_eq!(seqs(dir.path(), ""), (vec![], None));
    std::fs::write(dir.path().join("000000000000.jsonl"), "no record\n").unwrap();
    let fault = ledger::page(dir.path(), &Filter::default(), 50, MAX_SCANNED).unwrap_err();
    assert!(matches!(fault, LedgerError::Problem(_)), "{fault}");
    assert!(!fault.to_string().contains("no record\n"));
}

#[test]
fn a_query_is_strict() {
    assert!(Asked::parse("leaf=hold&limit=500&before=0&since=2026-11-30T08%3A00%3A00Z").is_ok());
    for bad in [
        "leaf",
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=+5",
        "leaf=holds",
        "reason=x",
        "verdict=deny",
        "before=+5",
        "since=soon",
        "before=-1",
        "body=x",
        "leaf=%68old",
        "leaf=<b>",
    ] {
        assert!(Asked::parse(bad).is_err(), "{bad}");
    }
}

struct Running {
    addr: SocketAddr,
    policy_error: Arc<arc_swap::ArcSwapOption<String>>,
    _dir: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn running(ledger_ok: bool) -> Running {
    let dir = ledger_with(&[(0, 3)]);
    let policy_error = Arc::new(arc_swap::ArcSwapOption::<String>::empty());
    let error = policy_error.clone();
    let shared = Arc::new(Shared {
        metrics: Arc::default(),
        state: Box::new(move || State {
            ledger: LedgerState {
                ok: ledger_ok,
                why: (!ledger_ok).then(|| "disk full <now>".to_owned()),
                next_seq: 3,
                checkpoint_error: None,
                records: 3,
                batches: 1,
                sync: Default::default(),
            },
            readings: Readings {
                ledger_ok,
                ..Readings::default()
            },
            policy_hash: "ab".repeat(32),
            policy_error: error.load_full(),
        }),
        ledger_dir: dir.path().to_path_buf(),
        base_url: "http://127.0.0.1:8484/v1".to_owned(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(serve(listener, shared));
    Running {
        addr,
        policy_error,
        _dir: dir,
        task,
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the test is the client, on loopback"
)]
async fn raw(running: &Running, head: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(running.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    (all[9..12].parse().unwrap(), all)
}

async fn get(running: &Running, path: &str) -> (u16, String) {
    let addr = running.addr;
    raw(
        running,
        &format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n"),
    )
    .await
}

#[tokio::test]
async fn every_place_answers() {
    let running = running(true).await;
    for (path, status, holds) in [
        ("/healthz", 200, "ok\n"),
        ("/readyz", 200, "ready\n"),
        ("/metrics", 200, "leafgate_ledger_ok 1\n"),
        ("/", 200, "<html"),
        ("/?leaf=hold", 200, "class=\"hold\""),
        ("/api/records", 200, r#""seq":2"#),
        ("/api/records?limit=1", 200, r#""next":2"#),
        (
            "/api/records/1",
            200,
            r#"{"leaf":"release","seq":1,"t":"decision"}"#,
        ),
        ("/api/records/3", 404, "no record"),
        ("/api/records/x", 400, "seq is a number"),
        ("/api/records/+1", 400, "seq is a number"),
        (
            "/?t=decision&limit=1",
            200,
            "href=\"/?t=decision&amp;before=2\"",
        ),
        ("/api/records?leaf=x", 400, "hold, split, release"),
        ("/api/records?x=1", 400, "the query knows"),
        ("/else", 404, "not here"),
    ] {
        let (got, answer) = get(&running, path).await;
        assert_eq!(got, status, "{path}: {answer}");
        assert!(answer.contains(holds), "{path}: {answer}");
        let lower = answer.to_lowercase();
        assert!(!lower.contains("access-control"), "{path}");
        assert!(
            lower.contains("content-security-policy: default-src 'none'"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn readiness_says_why_and_health_stays() {
    let broken = running(false).await;
    let (status, answer) = get(&broken, "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        answer.ends_with("not ready: ledger: disk full <now>\n"),
        "{answer}"
    );
    assert_eq!(get(&broken, "/healthz").await.0, 200);
    assert!(
        get(&broken, "/metrics")
            .await
            .1
            .contains("leafgate_ledger_ok 0\n")
    );
    assert!(get(&broken, "/").await.1.contains("disk full &lt;now&gt;"));

    let running = running(true).await;
    running
        .policy_error
        .store(Some(Arc::new("policy.toml:3: hosts: x".to_owned())));
    let (status, answer) = get(&running, "/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.contains("policy: policy.toml:3"), "{answer}");
    running.policy_error.store(None);
    assert_eq!(get(&running, "/readyz").await.0, 200);
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_shown_and_leaves_the_gate_ready() {
    let why = "the checkpoint's copy cannot be written: entity not found";
    let mut state = State {
        ledger: LedgerState {
            ok: true,
            why: None,
            next_seq: 3,
            checkpoint_error: Some(why.to_owned()),
            records: 3,
            batches: 1,
            sync: Default::default(),
        },
        readings: Readings::default(),
        policy_hash: String::new(),
        policy_error: None,
    };
    assert_eq!(state.not_ready(), None);
    assert_eq!(state.ready(), format!("ready\nledger: {why}\n"));
    state.ledger.checkpoint_error = None;
    assert_eq!(state.ready(), "ready\n");
}

#[tokio::test]
async fn others_get_nothing() {
    let running = running(true).await;
    let addr = running.addr;
    let (status, answer) = raw(
        &running,
        "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(status, 403);
    assert!(answer.contains("Host is not this listener's") && !answer.contains("<html"));
    let cross = format!(
        "GET / HTTP/1.1\r\nhost: {addr}\r\norigin: https://evil.example\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(raw(&running, &cross).await.0, 403);
    let post = format!(
        "POST / HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(raw(&running, &post).await.0, 405);
}

/// The chunks of a chunked answer, joined; whether the last one came.
fn unchunked(answer: &str) -> (String, bool) {
    let mut rest = answer.split_once("\r\n\r\n").unwrap().1;
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    (body, false)
}

#[tokio::test]
async fn an_export_streams_the_bytes_that_the_command_writes() {
    let running = running(true).await;
    for format in Format::NAMES {
        let (status, answer) =
            get(&running, &format!("/api/export?format={format}&leaf=hold")).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains("attachment; filename="), "{answer}");
        let (body, whole) = unchunked(&answer);
        assert!(whole, "{format}");
        let mut filter = Filter::default();
        filter.add("leaf", "hold", Timestamp::now()).unwrap();
        let export = Export::new(running._dir.path(), filter, Format::parse(format).unwrap());
        let mut bytes = Vec::new();
        let manifest = export.unwrap().write(&mut bytes).unwrap();
        assert_eq!(body.as_bytes(), bytes, "{format}");
        let (status, answer) = get(
            &running,
            &format!("/api/export?format={format}&leaf=hold&manifest=1"),
        )
        .await;
        assert_eq!(status, 200, "{answer}");
        assert!(
            answer.ends_with(&format!("{}\n", ascii(&manifest.to_json().to_string()))),
            "{answer}"
        );
    }
    for (query, why) in [
        ("", "format is one of jsonl, csv, ocsf, html"),
        ("format=xml", "format is one of"),
        ("format=csv&leaf=holds", "hold, split, release"),
        ("format=csv&limit=5", "the query knows"),
        ("format=csv&manifest=0", "manifest is 1"),
    ] {
        let (status, answer) = get(&running, &format!("/api/export?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(answer.contains(why), "{query}: {answer}");
    }
}

#[tokio::test]
async fn an_export_that_cannot_go_on_looks_cut_short() {
    let running = running(true).await;
    let torn = running._dir.path().join("000000000000.jsonl");
    let text = std::fs::read_to_string(&torn).unwrap();
    // The end can be found, the middle is no record.
    let middle = text.replacen('\n', "\nno record\n", 1);
    std::fs::write(&torn, middle).unwrap();
    let (status, answer) = get(&running, "/api/export?format=jsonl").await;
    assert_eq!(status, 200);
    assert!(!unchunked(&answer).1, "{answer}");
}

/// Connections that say nothing give their places back soon; twin: without them the answer comes at once.
#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "the test is the client, on loopback"
)]
async fn idle_connections_hold_the_places_for_two_seconds_at_most() {
    let running = running(true).await;
    for (idle, least, most) in [(0, 0, 1), (MAX_CONNECTIONS + 8, 1, 6)] {
        let mut held = Vec::new();
        for _ in 0..idle {
            held.push(tokio::net::TcpStream::connect(running.addr).await.unwrap());
        }
        let begun = std::time::Instant::now();
        assert_eq!(get(&running, "/readyz").await.0, 200);
        let took = begun.elapsed().as_secs();
        assert!((least..=most).contains(&took), "{idle}: {took} s");
    }
}

#[tokio::test]
async fn a_record_that_was_pruned_is_said_to_be() {
    let running = running(true).await;
    let (status, body) = get(&running, "/api/records/3").await;
    assert!(
        status == 404 && body.contains("no record of that seq"),
        "{body}"
    );
    let other = tempfile::tempdir().unwrap();
    let at = other.path().to_owned();
    let made = tokio::task::spawn_blocking(move || ledger::tests::pruned_in(&at));
    let gone = made.await.unwrap();
    std::fs::copy(
        other.path().join("ledger/pruned"),
        running._dir.path().join("pruned"),
    )
    .unwrap();
    let (status, body) = get(&running, &format!("/api/records/{}", gone - 1)).await;
    assert!(status == 404 && body.contains("was pruned"), "{body}");
    let (status, body) = get(&running, &format!("/api/records/{gone}")).await;
    assert!(
        status == 404 && body.contains("no record of that seq"),
        "{body}"
    );
    let (_, body) = get(&running, "/api/records").await;
    assert!(body.contains(r#"{"next":null,"records":[]}"#), "{body}");
}
