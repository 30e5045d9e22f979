//! A connection to a host, in clear text or through TLS. Made by `dial.rs`; it knows its TCP socket, so that a kept one can be looked at.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The byte stream of a connection.
pub(super) enum Wire {
    /// `http://`
    Plain(TcpStream),
    /// `https://`, verified.
    Tls(Box<TlsStream<TcpStream>>),
    /// What a fuzzer's host says, from memory.
    #[cfg(fuzzing)]
    Pieces(super::fuzzing::Pieces),
}

impl Wire {
    /// Whether an idle connection is still open and silent. A byte that nobody asked for, an end or an error: it is not.
    pub(super) fn quiet(&mut self) -> bool {
        // tokio's own readiness may be older than the socket's state; the socket is asked itself.
        if self.tcp().is_some_and(|tcp| peek(tcp) == Peek::Silent) {
            return true;
        }
        match self {
            Wire::Plain(_) => false,
            #[cfg(fuzzing)]
            Wire::Pieces(_) => false,
            Wire::Tls(stream) => {
                // TLS 1.3 tickets come unasked and are no answer: let the session take them, then nothing may be left.
                let mut context = Context::from_waker(Waker::noop());
                let mut byte = [0_u8; 1];
                let mut buf = ReadBuf::new(&mut byte);
                let pending = Pin::new(stream.as_mut())
                    .poll_read(&mut context, &mut buf)
                    .is_pending();
                pending && self.tcp().is_some_and(|tcp| peek(tcp) == Peek::Silent)
            }
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Wire::Plain(tcp) => Some(tcp),
            Wire::Tls(stream) => Some(stream.get_ref().0),
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

#[derive(PartialEq, Eq)]
enum Peek {
    Silent,
    NotSilent,
}

fn peek(tcp: &TcpStream) -> Peek {
    let mut byte = [MaybeUninit::uninit(); 1];
    // tokio's sockets do not block.
    match SockRef::from(tcp).peek(&mut byte) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Silent,
        Err(_) | Ok(_) => Peek::NotSilent,
    }
}
