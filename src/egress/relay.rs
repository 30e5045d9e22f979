//! The host's body on its way back: as it arrives, one piece for each poll, no buffer beyond the connection's own.
//!
//! Promises: the end looks like an end only where the host's framing ended; a cut, a broken frame or a silence longer than `limits.idle`
//! ends in `Err`. The time a slow client takes does not count. The outcome is recorded with the last byte; where the answer is dropped
//! before, as `client_gone`, and the connection is closed at once. Only a clean exchange gives its connection back.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::account::Account;
use super::framing::Framing;
use super::kept::Conn;
use super::request::Uplink;
use super::{Failed, Inner};
use crate::policy::Host;
use crate::terms::Reason;

/// A longer limit means for ever; it must not overflow the clock.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes of one read, at most; of which a buffer's rest may be used up first.
const READ: usize = 64 * 1024;
/// A read below this is not worth a system call.
const SMALL: usize = 4 * 1024;
/// What is expected where the host named no length.
const UNKNOWN: u64 = 16 * 1024;

/// The host's body. Ends in `Err` where the host's ended early. Made by `Egress::send` alone; dropping it ends the exchange.
pub struct AnswerBody {
    pub(super) inner: Arc<Inner>,
    pub(super) host: Arc<Host>,
    pub(super) conn: Option<Conn>,
    pub(super) framing: Framing,
    /// The rest of the request, where the host answered before it had read all.
    pub(super) uplink: Option<Uplink>,
    /// Whether the connection may carry another call.
    pub(super) keep: bool,
    pub(super) idle: Duration,
    /// Whether the timer runs for the present wait.
    pub(super) waiting: bool,
    pub(super) account: Account,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerBody({:?})", self.framing)
    }
}

/// A read from a connection.
pub(super) enum Read {
    /// Bytes came.
    More,
    /// The host closed in order.
    End,
    /// The connection broke.
    Broken,
}

impl Conn {
    /// Reads into the buffer; `want` says how much is expected.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, want: u64) -> Poll<Read> {
        let want = usize::try_from(want).unwrap_or(READ).clamp(1, READ);
        if self.buf.capacity() - self.buf.len() < want.min(SMALL) {
            self.buf.reserve(want.max(SMALL));
        }
        let read = pin!(self.wire.read_buf(&mut self.buf)).poll(cx);
        read.map(|read| match read {
            Ok(0) => Read::End,
            Ok(_) => Read::More,
            Err(_) => Read::Broken,
        })
    }

    /// Whether a wait of `limit` is over; sets the timer when the wait begins.
    pub(super) fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        waiting: &mut bool,
        limit: Duration,
    ) -> Poll<()> {
        if !*waiting {
            self.timer
                .as_mut()
                .reset(Instant::now() + limit.min(LONGEST_WAIT));
            *waiting = true;
        }
        self.timer.as_mut().poll(cx)
    }
}

impl AnswerBody {
    /// Ends the exchange: the outcome is queued, and the connection kept or closed.
    pub(super) fn finish(&mut self, error: Option<&'static str>) {
        self.framing = Framing::Done;
        self.account.close(error);
        let Some(conn) = self.conn.take() else {
            return;
        };
        if error.is_none() && self.keep && self.uplink.is_none() {
            self.inner.kept.keep(&self.inner, &self.host, conn);
        }
    }

    fn fail(
        &mut self,
        reason: Reason,
        error: &'static str,
        hint: &str,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        self.finish(Some(error));
        Poll::Ready(Some(Err(Failed::new(reason, hint))))
    }

    /// The request goes on while its answer comes.
    fn drive_uplink(&mut self, cx: &mut Context<'_>) {
        let (Some(uplink), Some(conn)) = (&mut self.uplink, &mut self.conn) else {
            return;
        };
        let (_, moved) = uplink.poll(&mut conn.wire, cx);
        self.account.sent(uplink);
        if moved {
            self.waiting = false;
        }
        // A finished uplink stays: its connection is not kept.
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        self.drive_uplink(cx);
        loop {
            let Some(conn) = &mut self.conn else {
                return Poll::Ready(None);
            };
            match self.framing.next(&mut conn.buf) {
                Err(_) => return self.unclean(),
                Ok(Some(piece)) => {
                    self.waiting = false;
                    self.account.received(&piece);
                    // A chunk's end and the last chunk often come with the data: then this piece is known to be the last.
                    if self.framing.advance(&mut conn.buf).is_ok() && self.framing.done() {
                        self.finish(None);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Ok(None) if self.framing.done() => {
                    self.finish(None);
                    return Poll::Ready(None);
                }
                Ok(None) => {}
            }
            match conn.poll_fill(cx, self.framing.left().unwrap_or(UNKNOWN)) {
                Poll::Ready(Read::More) => self.waiting = false,
                Poll::Ready(Read::End) if self.framing.ends_with_close() => {
                    self.finish(None);
                    return Poll::Ready(None);
                }
                Poll::Ready(Read::End | Read::Broken) => {
                    return self.fail(
                        Reason::HostMalformed,
                        "host_cut",
                        "the host ended its answer before it was complete",
                    );
                }
                Poll::Pending => {
                    if conn
                        .poll_wait(cx, &mut self.waiting, self.idle)
                        .is_pending()
                    {
                        return Poll::Pending;
                    }
                    return self.fail(
                        Reason::HostTimeout,
                        Reason::HostTimeout.code(),
                        "the host was silent for longer than limits.idle in its answer",
                    );
                }
            }
        }
    }

    fn unclean(&mut self) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        self.fail(
            Reason::HostMalformed,
            Reason::HostMalformed.code(),
            "the host's answer is not cleanly chunked",
        )
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        self.get_mut().poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.conn.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.framing
            .left()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
