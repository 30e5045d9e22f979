//! The strict gate: it stands between the client's socket and hyper, and lets through one clean message at a time.
//!
//! Promises: hyper sees a head only after [`head::check`](super::head::check) passed it, a chunked body only as far as it is clean, and the next head only
//! after the answer to the last one was flushed. After a fault hyper sees the end of the stream and nothing more, so that what follows a
//! refused message is never read as a request. It answers nothing: the connection does, with the [`Wire`] telling why.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::chunked::Chunked;
use super::connect;
use super::head::{self, Framing, HeadFault, Names};
use super::wire::{Connect, Fault, Wire};
use crate::terms::Reason;

#[derive(Debug, Clone, Copy)]
enum State {
    /// Waiting for a head, of which so many bytes were scanned.
    Head {
        scanned: usize,
    },
    /// In a body of so many bytes.
    Length(u64),
    Chunked(Chunked),
    /// The request is over; its answer is not.
    Answer,
    /// Nothing passes any more.
    Shut,
}

/// Time and size limits of the gate.
#[derive(Debug, Clone)]
pub(super) struct GateLimits {
    pub(super) head: usize,
    pub(super) client_head: Duration,
    pub(super) idle: Duration,
    /// Whether a `CONNECT` may pass to the connection.
    pub(super) connects: bool,
}

/// The client's stream behind the gate.
#[derive(Debug)]
pub(super) struct Gate<S> {
    io: S,
    wire: Arc<Wire>,
    names: Arc<Names>,
    limits: GateLimits,
    state: State,
    /// Bytes read and not yet let through.
    buf: BytesMut,
    /// How many bytes at the front of `buf` may pass.
    cleared: usize,
    /// One timer for each connection, moved only when it fires early.
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
    /// Set while the client takes nothing of its answer; made only then.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gate<S> {
    pub(super) fn new(io: S, wire: Arc<Wire>, names: Arc<Names>, limits: GateLimits) -> Gate<S> {
        let deadline = Instant::now() + limits.client_head;
        Gate {
            io,
            wire,
            names,
            limits,
            state: State::Head { scanned: 0 },
            buf: BytesMut::new(),
            cleared: 0,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            stuck: None,
        }
    }

    /// The stream, and what was read of it and not let through.
    pub(super) fn into_parts(self) -> (S, BytesMut) {
        (self.io, self.buf)
    }

    fn shut(&mut self, reason: Reason, hint: &'static str, in_body: bool, gone: bool) {
        let bytes = self.buf.len() as u64;
        // Only the first fault counts.
        let _ = self.wire.fault.set(Fault {
            reason,
            hint,
            in_body,
            gone,
            bytes,
        });
        self.state = State::Shut;
    }

    fn shut_head(&mut self, fault: HeadFault) {
        self.shut(fault.reason, fault.hint, false, false);
    }

    /// Reads more into `buf`; 0 is the end of the stream, and a stream that broke has ended.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.buf.reserve(4096);
        let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buf)).unwrap_or(0);
        Poll::Ready(read)
    }

    /// Whether the deadline has passed. The timer is moved here alone: a head that comes whole never touches it.
    fn expired(&mut self, cx: &mut Context<'_>) -> bool {
        if self.deadline < self.timer.deadline() {
            let deadline = self.deadline;
            self.timer.as_mut().reset(deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return true;
            }
            let deadline = self.deadline;
            self.timer.as_mut().reset(deadline);
        }
        false
    }

    /// Waits for a whole head. Ready where something changed: bytes may pass, or the gate is shut.
    fn poll_head(&mut self, cx: &mut Context<'_>, scanned: usize) -> Poll<()> {
        if scanned < self.buf.len() {
            if scanned == 0 {
                self.deadline = Instant::now() + self.limits.client_head;
            }
            match head::scan_for(&self.buf, scanned, self.limits.connects) {
                Err(fault) => self.shut_head(fault),
                Ok(Some(length)) if length <= self.limits.head => self.take_head(length),
                Ok(None) if self.buf.len() <= self.limits.head => {
                    self.state = State::Head {
                        scanned: self.buf.len(),
                    }
                }
                Ok(Some(_) | None) => {
                    self.shut(
                        Reason::HeadTooLarge,
                        "the head is over limits.head; send fewer or shorter headers",
                        false,
                        false,
                    );
                }
            }
            return Poll::Ready(());
        }
        match self.fill(cx) {
            Poll::Ready(0) if self.buf.is_empty() => self.state = State::Shut,
            Poll::Ready(0) => self.shut(
                Reason::ClientTimeout,
                "the client closed in the head",
                false,
                true,
            ),
            Poll::Ready(_) => {}
            Poll::Pending if !self.expired(cx) => return Poll::Pending,
            Poll::Pending if self.buf.is_empty() => self.state = State::Shut,
            Poll::Pending => self.shut(
                Reason::ClientTimeout,
                "the head did not end in time; send it faster",
                false,
                false,
            ),
        }
        Poll::Ready(())
    }

    fn take_head(&mut self, length: usize) {
        if self.limits.connects && connect::is_connect(&self.buf) {
            return self.take_connect(length);
        }
        match head::check(&self.buf[..length], &self.names) {
            Err(fault) => self.shut_head(fault),
            Ok(facts) => {
                self.wire.begin(facts.fragment);
                self.cleared = length;
                self.state = match facts.framing {
                    Framing::Length(0) => State::Answer,
                    Framing::Length(bytes) => State::Length(bytes),
                    Framing::Chunked => State::Chunked(Chunked::default()),
                };
            }
        }
    }

    /// hyper never sees a `CONNECT`: its stream ends here, and the connection goes on with what the client sends behind the head.
    fn take_connect(&mut self, length: usize) {
        match connect::check_connect(&self.buf[..length]) {
            Err(fault) => self.shut_head(fault),
            Ok(authority) => {
                let bytes = length as u64;
                let _ = self.wire.connect.set(Connect { authority, bytes });
                self.buf.advance(length);
                self.state = State::Shut;
            }
        }
    }

    /// A body of a known length: what is buffered first, then straight from the socket into hyper's buffer.
    fn poll_length(
        &mut self,
        cx: &mut Context<'_>,
        left: u64,
        out: &mut ReadBuf<'_>,
    ) -> Poll<bool> {
        let after = |left: u64| {
            if left == 0 {
                State::Answer
            } else {
                State::Length(left)
            }
        };
        if !self.buf.is_empty() {
            self.cleared = left.min(self.buf.len() as u64) as usize;
            self.state = after(left - self.cleared as u64);
            return Poll::Ready(false);
        }
        let room = left.min(out.remaining() as u64) as usize;
        let mut part = ReadBuf::new(out.initialize_unfilled_to(room));
        let end = ready!(Pin::new(&mut self.io).poll_read(cx, &mut part)).is_err();
        let read = if end { 0 } else { part.filled().len() };
        out.advance(read);
        if read == 0 {
            self.shut(
                Reason::ClientTimeout,
                "the client closed in the body",
                true,
                true,
            );
            return Poll::Ready(false);
        }
        self.state = after(left - read as u64);
        Poll::Ready(true)
    }

    fn poll_chunked(&mut self, cx: &mut Context<'_>, mut watched: Chunked) -> Poll<()> {
        if self.buf.is_empty() && ready!(self.fill(cx)) == 0 {
            self.shut(
                Reason::ClientTimeout,
                "the client closed in the body",
                true,
                true,
            );
            return Poll::Ready(());
        }
        match watched.take(&self.buf) {
            Ok(clean) => {
                self.cleared = clean;
                self.state = if watched.is_over() {
                    State::Answer
                } else {
                    State::Chunked(watched)
                };
            }
            Err(_) => self.shut(
                Reason::HttpMalformed,
                "the chunked body is not clean; send no extensions and no trailers",
                true,
                false,
            ),
        }
        Poll::Ready(())
    }

    /// The request is over. Until its answer is flushed nothing passes; the socket is watched for the client's end.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.waker.register(cx.waker());
        if self.wire.answered.load(Ordering::Acquire) && self.wire.flushed.load(Ordering::Relaxed) {
            if self.wire.gone() {
                // What the client had sent ahead is read no more; the record says that it was there.
                if self.buf.is_empty() {
                    self.state = State::Shut;
                } else {
                    let hint = "the client closed before the answer to its request before this one";
                    self.shut(Reason::ClientTimeout, hint, false, true);
                }
                return Poll::Ready(());
            }
            if self.wire.refused() && !self.buf.is_empty() {
                // Sent before the refusal was: the body may have been longer than its head said, and this a part of it.
                let hint = "more was sent behind a refused call; wait for its answer before the next request";
                self.shut(Reason::HttpMalformed, hint, false, false);
                return Poll::Ready(());
            }
            self.deadline = Instant::now() + self.limits.idle;
            self.state = State::Head { scanned: 0 };
            return Poll::Ready(());
        }
        // A client that sends on without waiting is read ahead by one head at most.
        while !self.wire.gone() && self.buf.len() <= self.limits.head {
            if ready!(self.fill(cx)) == 0 {
                self.wire.gone.store(true, Ordering::Relaxed);
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.cleared > 0 {
                let step = this.cleared.min(out.remaining());
                out.put_slice(&this.buf[..step]);
                this.buf.advance(step);
                this.cleared -= step;
                return Poll::Ready(Ok(()));
            }
            match this.state {
                State::Head { scanned } => ready!(this.poll_head(cx, scanned)),
                State::Length(left) => {
                    if ready!(this.poll_length(cx, left, out)) {
                        return Poll::Ready(Ok(()));
                    }
                }
                State::Chunked(watched) => ready!(this.poll_chunked(cx, watched)),
                State::Answer => ready!(this.poll_answer(cx)),
                State::Shut => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Gate<S> {
    /// Lets a write through. A client that takes nothing for `limits.idle` has gone: what it holds goes back to others.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.wire.flushed.store(false, Ordering::Relaxed);
        let written = write(Pin::new(&mut self.io), cx);
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let idle = self.limits.idle;
        let timer = self
            .stuck
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .written(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .written(cx, |io, cx| io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes once its own buffer is empty: then the answer is out.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        if !this.wire.flushed.swap(true, Ordering::Relaxed) && this.wire.awaits_flush() {
            this.wire.waker.wake();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
