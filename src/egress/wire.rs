//! A connection to a host, in clear text or through TLS. Made by `dial.rs`; it knows its TCP socket, so that a kept one can be looked at.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::records::Records;

/// The byte stream of a connection.
pub(super) enum Wire {
    /// `http://`
    Plain(TcpStream),
    /// `https://`, verified.
    Tls(Box<TlsStream<Records>>),
    /// What a fuzzer's host says, from memory.
    #[cfg(fuzzing)]
    Pieces(super::fuzzing::Pieces),
}

impl Wire {
    /// Whether an idle connection is still open and silent. A byte that nobody asked for, an end or an error: it is not.
    pub(super) fn quiet(&mut self) -> bool {
        self.look() == Look::Silent
    }

    /// The same of a connection that was just made. Its tickets may be on their way still: what tokio has not seen yet is not judged by the
    /// socket, but let into the session first, and a record that has begun is waited for. The caller bounds the time.
    pub(super) async fn quiet_at_first(&mut self) -> bool {
        loop {
            match (self.look(), &*self) {
                (Look::Silent, _) => return true,
                (Look::Unread | Look::Amid, Wire::Tls(stream)) => {
                    if stream.get_ref().0.tcp.readable().await.is_err() {
                        return false;
                    }
                    // A host that never stops may not keep this task from its own timer.
                    tokio::task::consume_budget().await;
                }
                (Look::Unread | Look::Amid | Look::Spoke, _) => return false,
            }
        }
    }

    fn look(&mut self) -> Look {
        // TLS 1.3 tickets come unasked and are no answer: let the session take them, then nothing may be left, neither in the session, which
        // may have opened more than was asked for, nor in the socket.
        if let Wire::Tls(stream) = self {
            let mut context = Context::from_waker(Waker::noop());
            let mut byte = [0_u8; 1];
            let mut buf = ReadBuf::new(&mut byte);
            if Pin::new(stream.as_mut())
                .poll_read(&mut context, &mut buf)
                .is_ready()
            {
                return Look::Spoke;
            }
        }
        // tokio's own readiness may be older than the socket's state; the socket is asked itself.
        let look = self.tcp().map_or(Look::Spoke, peek);
        if look == Look::Silent && self.amid() {
            return Look::Amid;
        }
        look
    }

    /// Whether the session has the beginning of a record, whose end would be read as part of the next answer.
    fn amid(&self) -> bool {
        matches!(self, Wire::Tls(stream) if stream.get_ref().0.amid())
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Wire::Plain(tcp) => Some(tcp),
            Wire::Tls(stream) => Some(&stream.get_ref().0.tcp),
            #[cfg(fuzzing)]
            Wire::Pieces(_) => None,
        }
    }

    /// Writes from two pieces at once.
    pub(super) fn poll_write_pieces(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, pieces),
            Wire::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, pieces),
            #[cfg(fuzzing)]
            Wire::Pieces(host) => host.take(pieces),
        }
    }

    /// Hands on what a TLS session took.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Plain(_) => Poll::Ready(Ok(())),
            Wire::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            #[cfg(fuzzing)]
            Wire::Pieces(_) => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
            #[cfg(fuzzing)]
            Wire::Pieces(host) => host.give(cx, buf),
        }
    }
}

/// What an idle connection is found in.
#[derive(PartialEq, Eq)]
enum Look {
    Silent,
    /// The socket holds bytes, an end or an error.
    Unread,
    /// The socket holds nothing, the session a part of a record.
    Amid,
    /// The session holds bytes, an end or an error.
    Spoke,
}

fn peek(tcp: &TcpStream) -> Look {
    let mut byte = [MaybeUninit::uninit(); 1];
    // tokio's sockets do not block.
    match SockRef::from(tcp).peek(&mut byte) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Look::Silent,
        Err(_) | Ok(_) => Look::Unread,
    }
}
