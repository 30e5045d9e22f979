//! Any bytes as what a client sends on one connection: the gate with the HTTP library behind it, over a pipe in memory, polled
//! by hand after each piece, so that no clock plays a part. Beside "no panic": the library sees exactly the requests that pass the strict head check, one after another, with the bodies that a plain reader finds;
//! and it refuses none that the gate let through.
//!
//! The first byte says how long each piece is.
#![no_main]

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::Uri;
use leafgate::ingress::fuzzing::gated;
use leafgate::ingress::{Chunked, Framing, Names, check, scan};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a head, at most.
const HEAD: usize = 1024;

static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::new(SocketAddr::from(([127, 0, 0, 1], 8484)), false, &[])));

/// For the gate's timers, which never fire here.
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

/// What the client has sent and nobody has read, and whether it closed.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<(Vec<u8>, bool)>>);

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut sent = self.0.lock().expect("one thread");
        if sent.0.is_empty() && !sent.1 {
            return Poll::Pending;
        }
        let step = sent.0.len().min(out.remaining());
        out.put_slice(&sent.0[..step]);
        sent.0.drain(..step);
        Poll::Ready(Ok(()))
    }
}

/// The answers go nowhere.
impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until nobody has anything to do.
fn settle<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
    }
    None
}

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

fn expected<'a>(mut rest: &'a [u8]) -> Vec<Expected<'a>> {
    let mut all = Vec::new();
    while let Ok(Some(length)) = scan(rest, 0) {
        let head = &rest[..length];
        let Some(Ok(facts)) = (length <= HEAD).then(|| check(head, &NAMES)) else { break };
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
    all
}

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, wire)) = bytes.split_first() else { return };
    let piece = usize::from(*piece).max(1);
    let entered = RUNTIME.enter();
    let pipe = Pipe::default();
    let mut served = pin!(gated(pipe.clone(), NAMES.clone(), HEAD, Duration::from_secs(3600)));
    let mut parts = wire.chunks(piece);
    let ended = loop {
        match parts.next() {
            Some(part) => pipe.0.lock().expect("one thread").0.extend_from_slice(part),
            None => pipe.0.lock().expect("one thread").1 = true,
        }
        let closed = pipe.0.lock().expect("one thread").1;
        match settle(served.as_mut()) {
            Some(ended) => break ended,
            None => assert!(!closed, "the client closed and is still served"),
        }
    };
    drop(entered);
    assert!(!ended.unparsed, "the library refused what the gate let through");
    let expected = expected(wire);
    // A `Connection` line may end it early; nothing may be seen beyond the strict check.
    let stays = |head: &[u8]| !head.to_ascii_lowercase().windows(13).any(|name| name == b"\r\nconnection:");
    assert!(ended.seen.len() <= expected.len(), "{:?}", ended.seen);
    let last = expected.iter().position(|request| !stays(request.head)).map_or(expected.len(), |at| at + 1);
    assert!(ended.seen.len() >= last, "{ended:?}");
    for (seen, expected) in ended.seen.iter().zip(&expected) {
        let line = expected.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        assert_eq!(words.next(), Some(seen.method.as_str().as_bytes()));
        assert_eq!(Uri::try_from(words.next().unwrap_or_default()).ok().as_ref(), Some(&seen.uri));
        assert_eq!(expected.head.iter().filter(|byte| **byte == b'\n').count(), seen.headers + 2);
        assert_eq!(seen.whole, expected.whole);
        if seen.whole {
            assert_eq!(seen.body, expected.body);
        }
    }
});
