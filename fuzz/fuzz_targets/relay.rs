//! Any bytes as a host's answer, through the exchange, the relay and the HTTP library to a client. Beside "no panic":
//!
//! - what the client gets is one clean answer with one framing, and nothing behind it;
//! - of the host's headers it sees those that the contract lists, each as the host sent it, and leafgate's own beside them;
//! - its body is the host's, as a plain reader of the host's bytes finds it; where the host's broke off, the client sees it break off, and what it got by then is how the host's began;
//! - a head that is not clean leaves nothing of the host's with the client;
//! - the outcome has the status and the length of what came.
//!
//! The first byte says how long each piece of the host's is, the second whether the host breaks off at the end instead of closing.
#![no_main]

#[path = "kit/pipe.rs"]
mod pipe;
#[path = "kit/plans.rs"]
mod plans;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use leafgate::egress::Egress;
use leafgate::egress::fuzzing::{Pieces, exchanged};
use leafgate::ingress::Names;
use leafgate::ingress::fuzzing::relayed;
use libfuzzer_sys::fuzz_target;
use pipe::{Pipe, RUNTIME, settle};

const LISTED: [&str; 6] = ["content-length", "content-type", "content-encoding", "retry-after", "request-id", "x-request-id"];
const PREFIXES: [&str; 3] = ["openai-", "anthropic-", "x-ratelimit-"];
const ASKED: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8484\r\ncontent-length: 2\r\n\r\n{}";

static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::new(SocketAddr::from(([127, 0, 0, 1], 8484)), false, &[])));
static EGRESS: LazyLock<Egress> = LazyLock::new(Egress::new);

/// What a plain reader finds in a message's bytes.
struct Message {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    whole: bool,
    /// What stands behind it.
    behind: usize,
}

impl Message {
    fn all(&self, name: &str) -> Vec<&[u8]> {
        self.headers.iter().filter(|(own, _)| own == name).map(|(_, value)| &value[..]).collect()
    }
}

/// Size lines, bytes, an empty size, fields up to an empty line. Gives the body, whether it is whole, and what is left.
fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool, &[u8]) {
    let mut body = Vec::new();
    let line = |rest: &[u8]| rest.windows(2).position(|two| two == b"\r\n");
    while let Some(end) = line(rest) {
        let size = rest[..end].split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        let size = std::str::from_utf8(size).ok().filter(|size| size.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else { break };
        rest = &rest[end + 2..];
        if size == 0 {
            while let Some(end) = line(rest) {
                rest = &rest[end + 2..];
                if end == 0 {
                    return (body, true, rest);
                }
            }
            break;
        }
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        if rest.len() < size + 2 || rest[size..size + 2] != *b"\r\n" {
            break;
        }
        rest = &rest[size + 2..];
    }
    (body, false, &[])
}

/// Reads an answer as it says itself how long it is; `cut` where the connection did not end in order.
fn read(mut rest: &[u8], cut: bool) -> Option<Message> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut head = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = head.parse(rest) else { return None };
        rest = &rest[length..];
        let status = head.code?;
        if status < 200 {
            continue;
        }
        let headers = head.headers.iter().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec())).collect();
        let mut message = Message { status, headers, body: Vec::new(), whole: true, behind: 0 };
        let length = message.all("content-length").first().and_then(|length| std::str::from_utf8(length).ok()?.parse::<usize>().ok());
        if status == 204 {
            message.behind = rest.len();
        } else if !message.all("transfer-encoding").is_empty() {
            let (body, whole, behind) = chunks(rest);
            (message.body, message.whole, message.behind) = (body, whole, behind.len());
        } else if let Some(length) = length {
            let taken = length.min(rest.len());
            message.body = rest[..taken].to_vec();
            (message.whole, message.behind) = (taken == length, rest.len() - taken);
        } else {
            (message.body, message.whole) = (rest.to_vec(), !cut);
        }
        return Some(message);
    }
}

/// What the client saw, and whether the connection was closed on it.
fn client(wire: &[u8], piece: usize, broken: bool) -> (Vec<u8>, bool, Vec<leafgate::ledger::Outcome>) {
    let entered = RUNTIME.enter();
    let pipe = Pipe::default();
    let (outcome, outcomes) = mpsc::channel();
    let answers = || {
        let plan = plans::plain(1);
        let facts = plan.facts().clone();
        let host = Pieces::new(wire.chunks(piece).map(<[_]>::to_vec), broken);
        (facts, exchanged(&EGRESS, plan, host, outcome.clone()))
    };
    let mut served = Box::pin(relayed(pipe.clone(), NAMES.clone(), Duration::from_secs(3600), answers));
    pipe.ends().sent.extend_from_slice(ASKED);
    let closed = settle(pin!(&mut served)).is_some();
    if !closed {
        pipe.ends().closed = true;
        assert!(settle(pin!(&mut served)).is_some(), "the client closed and is still served");
    }
    drop(served);
    drop(entered);
    let got = std::mem::take(&mut pipe.ends().got);
    (got, closed, outcomes.try_iter().collect())
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, broken, wire @ ..] = bytes else { return };
    let broken = broken % 2 == 1;
    let (got, closed, outcomes) = client(wire, usize::from(*piece).max(1), broken);
    let seen = read(&got, false).expect("the client gets an answer");
    assert_eq!(seen.behind, 0, "something stands behind the answer");
    let (lengths, codings) = (seen.all("content-length").len(), seen.all("transfer-encoding"));
    assert!(lengths + codings.len() == usize::from(seen.status != 204 || lengths == 1));
    assert!(codings.iter().all(|coding| *coding == b"chunked"));
    assert!(seen.whole || closed, "a cut that does not end the connection");
    let [outcome] = &outcomes[..] else { panic!("one outcome: {outcomes:?}") };

    if seen.all("leafgate-verdict") != [&b"forward"[..]] {
        // leafgate's own words.
        assert!(seen.whole && [502, 422].contains(&seen.status), "{}", seen.status);
        let said: serde_json::Value = serde_json::from_slice(&seen.body).expect("JSON");
        let code = said["error"]["code"].as_str().expect("a code");
        assert!(["host_malformed", "redirect_refused"].contains(&code), "{code}");
        assert_eq!(outcome.error, Some(code));
        assert_eq!(outcome.received_len, 0);
        return;
    }
    let host = read(wire, broken).expect("a head that is relayed is clean for another parser");
    assert_eq!(seen.status, host.status);
    assert_eq!(outcome.status, Some(host.status));
    for (name, value) in &seen.headers {
        if name.starts_with("leafgate-") || ["date", "connection", "transfer-encoding"].contains(&name.as_str()) {
            continue;
        }
        assert!(LISTED.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)), "{name} is not on the list");
        if name != "content-length" {
            assert!(host.all(name).contains(&&value[..]), "{name} is not the host's");
        }
    }
    let own = ["leafgate-call", "leafgate-leaf", "leafgate-step", "leafgate-verdict", "leafgate-reason", "leafgate-score"];
    for (name, _) in seen.headers.iter().filter(|(name, _)| name.starts_with("leafgate-")) {
        assert!(own.contains(&name.as_str()) && seen.all(name).len() == 1, "{name}");
    }
    assert!(host.body.starts_with(&seen.body), "another body");
    assert_eq!(outcome.received_len, seen.body.len() as u64);
    if seen.whole {
        assert!(host.whole && host.body == seen.body);
        assert_eq!(outcome.error, None);
    } else {
        assert!(outcome.error.is_some());
    }
    // The reader of the host's answers takes no less than the strict reader of requests, and a length is a length.
    let strict = host.all("transfer-encoding").is_empty();
    assert!(!strict || host.whole == seen.whole, "a whole answer is cut");
    assert!(!strict || host.body == seen.body || !seen.whole && broken);
});
