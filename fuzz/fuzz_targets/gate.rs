//! Any bytes as what a client sends on one connection: the gate with the HTTP library behind it, over a pipe in memory, polled
//! by hand after each piece, so that no clock plays a part. Beside "no panic": the library sees exactly the requests that pass the strict head check, one after another, with the bodies that a plain reader finds;
//! and it refuses none that the gate let through.
//!
//! The first byte says how long each piece is (six bits), whether the connection is one through a tunnel (64), and whether a `CONNECT` may pass (128): then it
//! names what httparse finds it to name, `Host` too, has no body, no card and no key, and what stands behind it is all there, unread. In a tunnel no request
//! names another host than the tunnel's.
#![no_main]

#[path = "kit/pipe.rs"]
mod pipe;
#[path = "kit/plans.rs"]
mod plans;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::Uri;
use leafgate::ingress::fuzzing::{connect_length, connect_to, names_of_tunnel, through};
use leafgate::ingress::{Chunked, Framing, Names, check, scan};
use libfuzzer_sys::fuzz_target;
use pipe::{Pipe, RUNTIME, settle};

/// Bytes of a head, at most.
const HEAD: usize = 1024;

static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::new(SocketAddr::from(([127, 0, 0, 1], 8484)), false, &[])));
static TUNNEL: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(names_of_tunnel(&plans::ROOM.policy.hosts["models.example.org"])));

/// A request as the strict check and a plain reader of bodies find it.
struct Expected<'a> {
    head: &'a [u8],
    body: Vec<u8>,
    whole: bool,
}

fn chunks(mut coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = coded.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&coded[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok()).expect("a size");
        coded = &coded[end + 2..];
        if size == 0 {
            break;
        }
        body.extend_from_slice(&coded[..size]);
        coded = &coded[size + 2..];
    }
    body
}

/// The requests, and what a `CONNECT` behind them names, with what stands behind that.
fn expected<'a>(mut rest: &'a [u8], names: &Names, connects: bool) -> (Vec<Expected<'a>>, Option<(String, &'a [u8])>) {
    let mut all = Vec::new();
    loop {
        if connects && rest.starts_with(b"CONNECT ") {
            let length = connect_length(rest).filter(|length| *length <= HEAD);
            let tunnel = length.and_then(|length| Some((connect_to(&rest[..length])?, length)));
            return (all, tunnel.map(|(to, length)| (second(&rest[..length], to), &rest[length..])));
        }
        let Ok(Some(length)) = scan(rest, 0) else { break };
        let head = &rest[..length];
        let Some(Ok(facts)) = (length <= HEAD).then(|| check(head, names)) else { break };
        rest = &rest[length..];
        let (body, taken) = match facts.framing {
            Framing::Length(length) => match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
                Some(body) => (Some(body.to_vec()), body.len()),
                None => (None, 0),
            },
            Framing::Chunked => {
                let mut coding = Chunked::default();
                match coding.take(rest) {
                    Ok(taken) if coding.is_over() => (Some(chunks(&rest[..taken])), taken),
                    _ => (None, 0),
                }
            }
        };
        let whole = body.is_some();
        all.push(Expected { head, body: body.unwrap_or_default(), whole });
        if !whole {
            break;
        }
        rest = &rest[taken..];
    }
    (all, None)
}

/// The same head of a `CONNECT` by another parser.
fn second(head: &[u8], to: String) -> String {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut read = httparse::Request::new(&mut fields);
    assert_eq!(read.parse(head), Ok(httparse::Status::Complete(head.len())));
    assert_eq!((read.method, read.path, read.version), (Some("CONNECT"), Some(&to[..]), Some(1)));
    let all = |name: &str| read.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value).collect::<Vec<_>>();
    let [host] = all("host")[..] else { panic!("one Host") };
    let host = std::str::from_utf8(host).expect("ASCII").trim_ascii().to_ascii_lowercase();
    let named = to.to_ascii_lowercase();
    assert!(host == named || named.strip_suffix(":443") == Some(&host));
    for name in ["content-length", "transfer-encoding", "expect", "leafgate-card", "authorization", "x-api-key", "origin", "upgrade", "trailer"] {
        assert!(all(name).is_empty(), "{name}");
    }
    to
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, wire)) = bytes.split_first() else { return };
    let piece = usize::from(*choice & 63).max(1);
    let (in_tunnel, connects) = (choice & 64 != 0, choice & 128 != 0);
    let names = if in_tunnel { &*TUNNEL } else { &*NAMES };
    let entered = RUNTIME.enter();
    let pipe = Pipe::default();
    let mut served = pin!(through(pipe.clone(), names.clone(), HEAD, Duration::from_secs(3600), connects));
    let mut parts = wire.chunks(piece);
    let (ended, tunnel) = loop {
        match parts.next() {
            Some(part) => pipe.ends().sent.extend_from_slice(part),
            None => pipe.ends().closed = true,
        }
        let closed = pipe.ends().closed;
        match settle(served.as_mut()) {
            Some(ended) => break ended,
            None => assert!(!closed, "the client closed and is still served"),
        }
    };
    drop(entered);
    assert!(!ended.unparsed, "the library refused what the gate let through");
    let (expected, way) = expected(wire, names, connects);
    if let Some((to, rest)) = tunnel {
        let left = parts.fold([rest, std::mem::take(&mut pipe.ends().sent)].concat(), |left, part| [&left, part].concat());
        let (named, behind) = way.as_ref().expect("a CONNECT that passes is clean");
        assert_eq!((&to, &left[..]), (named, *behind));
    }
    // A `Connection` line may end it early; nothing may be seen beyond the strict check.
    let stays = |head: &[u8]| !head.to_ascii_lowercase().windows(13).any(|name| name == b"\r\nconnection:");
    assert!(ended.seen.len() <= expected.len(), "{:?}", ended.seen);
    let last = expected.iter().position(|request| !stays(request.head)).map_or(expected.len(), |at| at + 1);
    assert!(ended.seen.len() >= last, "{ended:?}");
    let all_stay = expected.iter().all(|request| request.whole && stays(request.head));
    assert!(ended.refused.is_none() || way.is_none() || !all_stay, "a clean CONNECT is refused: {ended:?}");
    for (seen, expected) in ended.seen.iter().zip(&expected) {
        let line = expected.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        assert_eq!(words.next(), Some(seen.method.as_str().as_bytes()));
        assert_eq!(Uri::try_from(words.next().unwrap_or_default()).ok().as_ref(), Some(&seen.uri));
        assert_eq!(expected.head.iter().filter(|byte| **byte == b'\n').count(), seen.headers + 2);
        assert!(!in_tunnel || seen.uri.authority().is_none(), "another host in the tunnel");
        assert_eq!(seen.whole, expected.whole);
        if seen.whole {
            assert_eq!(seen.body, expected.body);
        }
    }
});
