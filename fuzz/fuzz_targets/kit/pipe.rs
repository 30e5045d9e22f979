//! A client in memory, polled by hand, so that no clock plays a part.

#![allow(dead_code, reason = "each target takes a part")]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// For the gate's timers, which never fire here.
pub static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

#[derive(Default)]
pub struct Ends {
    /// What the client has sent and nobody has read.
    pub sent: Vec<u8>,
    /// Whether it closed its side.
    pub closed: bool,
    /// What it got.
    pub got: Vec<u8>,
}

#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<Ends>>);

impl Pipe {
    pub fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().expect("one thread")
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.ends();
        if ends.sent.is_empty() && !ends.closed {
            return Poll::Pending;
        }
        let step = ends.sent.len().min(out.remaining());
        out.put_slice(&ends.sent[..step]);
        ends.sent.drain(..step);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.ends().got.extend_from_slice(bytes);
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
pub fn settle<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
    }
    None
}
