//! Where the host's body ends (RFC 9112, sections 6 and 7). Pieces are cut from the read buffer, not copied.
//!
//! Chunked: a size has 1 to 15 hex digits; extensions are ignored and trailers dropped, 16 KiB of either is too much; every line ends in CR LF.

use bytes::{Buf, Bytes, BytesMut};

/// A chunk's size line or the trailers, bytes.
const MOST_LINE: usize = 16 * 1024;

/// The rest of a body.
#[derive(Debug)]
pub(super) enum Framing {
    /// So many bytes are to come.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// Everything until the host closes.
    UntilClose,
    /// Complete.
    Done,
}

/// Where in a chunked body.
#[derive(Debug)]
pub(super) enum Chunk {
    /// Before a size.
    Size,
    /// In a chunk's data.
    Data(u64),
    /// Behind it, before CR LF.
    End,
    /// Behind the last chunk; bytes of trailers so far.
    Trailers(usize),
}

/// The chunks are not clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclean;

impl Framing {
    pub(super) fn length(length: u64) -> Framing {
        match length {
            0 => Framing::Done,
            more => Framing::Length(more),
        }
    }

    pub(super) fn chunked() -> Framing {
        Framing::Chunked(Chunk::Size)
    }

    pub(super) fn until_close() -> Framing {
        Framing::UntilClose
    }

    /// Whether only the connection's end ends the body.
    pub(super) fn ends_with_close(&self) -> bool {
        matches!(self, Framing::UntilClose)
    }

    /// Whether the body was framed by a length (a complete one is, before any byte was read).
    pub(super) fn is_length(&self) -> bool {
        matches!(self, Framing::Length(_) | Framing::Done)
    }

    /// Whether nothing more is to come.
    pub(super) fn done(&self) -> bool {
        matches!(self, Framing::Done)
    }

    /// Bytes to come, where known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Framing::Length(left) => Some(*left),
            Framing::Done => Some(0),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// Cuts the next piece of the body off `buf`; `None` where more has to be read or the body is done. After a piece, what frames it is
    /// taken too, so that `done` is known with the last one.
    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Bytes>, Unclean> {
        self.advance(buf)?;
        let most = match self {
            Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) => *left,
            Framing::UntilClose => u64::MAX,
            Framing::Chunked(Chunk::Size | Chunk::End | Chunk::Trailers(_)) | Framing::Done => 0,
        };
        let len = usize::try_from(most).unwrap_or(usize::MAX).min(buf.len());
        if len == 0 {
            return Ok(None);
        }
        let piece = buf.split_to(len).freeze();
        let taken = len as u64;
        match self {
            Framing::Length(left) if *left == taken => *self = Framing::Done,
            Framing::Chunked(Chunk::Data(left)) if *left == taken => {
                *self = Framing::Chunked(Chunk::End);
            }
            Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) => *left -= taken,
            Framing::Chunked(Chunk::Size | Chunk::End | Chunk::Trailers(_))
            | Framing::UntilClose
            | Framing::Done => {}
        }
        Ok(Some(piece))
    }

    /// Takes everything that is no data. An unclean end behind a piece is told by the next `next`.
    pub(super) fn advance(&mut self, buf: &mut BytesMut) -> Result<(), Unclean> {
        while let Framing::Chunked(chunk) = self {
            match chunk {
                Chunk::Data(_) => return Ok(()),
                Chunk::End => match (buf.first(), buf.get(1)) {
                    (Some(b'\r'), Some(b'\n')) => {
                        buf.advance(2);
                        *chunk = Chunk::Size;
                    }
                    (None, _) | (Some(b'\r'), None) => return Ok(()),
                    (Some(_), _) => return Err(Unclean),
                },
                Chunk::Size => {
                    let Some(line) = line(buf, MOST_LINE)? else {
                        return Ok(());
                    };
                    *chunk = match size(buf.get(..line).unwrap_or_default())? {
                        0 => Chunk::Trailers(0),
                        more => Chunk::Data(more),
                    };
                    buf.advance(line + 2);
                }
                Chunk::Trailers(so_far) => {
                    let Some(line) = line(buf, MOST_LINE.saturating_sub(*so_far))? else {
                        return Ok(());
                    };
                    *so_far += line + 2;
                    buf.advance(line + 2);
                    if line == 0 {
                        *self = Framing::Done;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The length of the line at the start, without its CR LF, where it is whole.
fn line(buf: &[u8], most: usize) -> Result<Option<usize>, Unclean> {
    match memchr::memchr2(b'\n', 0, buf) {
        Some(at) if at <= most && buf.get(at) == Some(&b'\n') => {
            let text = buf.get(..at).unwrap_or_default();
            match text.split_last() {
                Some((b'\r', text)) if memchr::memchr(b'\r', text).is_none() => {
                    Ok(Some(text.len()))
                }
                Some(_) | None => Err(Unclean),
            }
        }
        Some(_) => Err(Unclean),
        None if buf.len() > most => Err(Unclean),
        None => Ok(None),
    }
}

/// `chunk-size [ chunk-ext ]`
fn size(line: &[u8]) -> Result<u64, Unclean> {
    let end = line
        .iter()
        .position(|b| !b.is_ascii_hexdigit())
        .unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    // Section 7.1.1: an extension begins with `;`, with optional white space before it.
    let extension = rest.trim_ascii_start();
    if digits.is_empty() || digits.len() > 15 || !matches!(extension.first(), None | Some(b';')) {
        return Err(Unclean);
    }
    if extension.is_empty() && !rest.is_empty() {
        return Err(Unclean);
    }
    Ok(digits.iter().fold(0, |all, digit| {
        all * 16 + u64::from((*digit as char).to_digit(16).unwrap_or(0))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, and whether it ended, when the wire comes in pieces of `step`.
    fn run(wire: &[u8], step: usize) -> Result<(Vec<u8>, bool, usize), Unclean> {
        let mut framing = Framing::chunked();
        let mut buf = BytesMut::new();
        let mut body = Vec::new();
        for piece in wire.chunks(step) {
            buf.extend_from_slice(piece);
            while let Some(data) = framing.next(&mut buf)? {
                body.extend_from_slice(&data);
            }
        }
        Ok((body, framing.done(), buf.len()))
    }

    #[test]
    fn clean_chunks_pass_in_any_pieces() {
        for (wire, body, left) in [
            (&b"3\r\nabc\r\n0\r\n\r\n"[..], &b"abc"[..], 0),
            (
                b"3;x=y\r\nabc\r\nA \t;q=\"z\"\r\n0123456789\r\n000\r\nt: v\r\n\r\n",
                b"abc0123456789",
                0,
            ),
            (b"0\r\n\r\n", b"", 0),
            (b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", b"a", 17),
        ] {
            for step in [1, 2, 3, 7, 100] {
                assert_eq!(run(wire, step), Ok((body.to_vec(), true, left)), "{step}");
            }
        }
    }

    #[test]
    fn unclean_chunks_do_not() {
        let long = [b"1;".as_slice(), &[b'x'; 17_000], b"\r\na\r\n0\r\n\r\n"].concat();
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(3000), b"\r\n"].concat();
        for wire in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"g\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"-1\r\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"3 4\r\nabc\r\n0\r\n\r\n",
            b"3;a\rb\r\nabc\r\n0\r\n\r\n",
            b"1000000000000000\r\nabc",
            b"0\r\nt: v\n\r\n",
            b"0\r\nt\0: v\r\n\r\n",
            &long,
            &trailers,
        ] {
            for step in [1, 3, 100_000] {
                assert_eq!(
                    run(wire, step),
                    Err(Unclean),
                    "{:?}",
                    wire.get(..20.min(wire.len()))
                );
            }
        }
    }

    #[test]
    fn a_cut_body_is_not_done() {
        for wire in [
            &b"3\r\nabc\r\n"[..],
            b"3\r\nabc\r\n0\r\n",
            b"3\r\nab",
            b"3\r\nabc\r\n0\r\n\r",
        ] {
            assert!(matches!(run(wire, 2), Ok((_, false, _))));
        }
    }
}
