//! The TCP connection under a TLS session, with where its stream stands: a record that has begun and not ended is in no session yet and in no socket any more.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Type, version and length (RFC 8446, section 5.1; RFC 5246, section 6.2.1).
const HEADER: u8 = 5;

/// A TCP connection that carries TLS records.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) tcp: TcpStream,
    place: Place,
}

impl Records {
    pub(super) fn new(tcp: TcpStream) -> Records {
        Records {
            tcp,
            place: Place::default(),
        }
    }

    /// Whether what was read ends amid a record.
    pub(super) fn amid(&self) -> bool {
        self.place.header > 0
    }
}

/// A place in a stream of records.
#[derive(Debug, Default)]
struct Place {
    /// Bytes of the header that were passed.
    header: u8,
    /// Bytes to come behind it.
    left: u16,
}

impl Place {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.header < HEADER {
                self.header += 1;
                // The last two bytes are the length.
                self.left = self.left << 8 | u16::from(*first);
                bytes = rest;
            } else {
                let step = bytes.len().min(usize::from(self.left));
                bytes = &bytes[step..];
                self.left -= u16::try_from(step).unwrap_or(self.left);
            }
            if self.header == HEADER && self.left == 0 {
                self.header = 0;
            }
        }
    }
}

impl AsyncRead for Records {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.tcp).poll_read(cx, buf))?;
        this.place.pass(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Records {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_between_records_at_their_ends_alone() {
        // Records of 3, 0, 300 and the most bytes that the length can say.
        let lengths = [3_u16, 0, 300, u16::MAX];
        let (mut stream, mut ends) = (Vec::new(), vec![0]);
        for length in lengths {
            stream.extend([23, 3, 3]);
            stream.extend(length.to_be_bytes());
            stream.resize(stream.len() + usize::from(length), 7);
            ends.push(stream.len());
        }
        for step in [1, 2, 5, 7, 299, 4096, stream.len()] {
            let (mut place, mut at) = (Place::default(), 0);
            for piece in stream.chunks(step) {
                place.pass(piece);
                at += piece.len();
                assert_eq!(place.header == 0, ends.contains(&at), "{step} {at}");
            }
        }
    }
}
