//! The fuzzers' way to the readers of a host's answer. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: bytes go through the head scan and the body framing in the order of `exchange` and `relay`, without a socket. It makes no
//! [`Door`](super::Door) and opens nothing.

use bytes::{Buf, BytesMut};
use http::{HeaderMap, Method, StatusCode};

use super::exchange::MOST_INTERIM;
use super::head::{Bad, Found, Head, Scan};

/// How reading an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the framing, or with the connection where that frames it.
    Whole,
    /// The bytes ended before the answer did.
    Cut,
    /// A head or chunk that is not clean.
    Malformed,
    /// A redirect.
    Redirect(u16),
}

/// What was read of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Interim answers before it.
    pub interim: usize,
    /// Status and the headers that are relayed, where a final head was read.
    pub head: Option<(StatusCode, HeaderMap)>,
    /// Whether the head alone lets the connection be kept.
    pub keep: bool,
    /// The decoded body.
    pub body: Vec<u8>,
    /// How many bytes were taken from the wire.
    pub taken: usize,
    /// How it ended.
    pub end: End,
}

/// Reads an answer that comes in pieces of `piece` bytes and then ends.
pub fn answer(wire: &[u8], piece: usize, method: &Method) -> Read {
    let mut read = Read {
        interim: 0,
        head: None,
        keep: false,
        body: Vec::new(),
        taken: 0,
        end: End::Cut,
    };
    let mut pieces = wire.chunks(piece.max(1));
    let mut buf = BytesMut::new();
    let mut fed = 0;
    let mut more = |buf: &mut BytesMut| {
        let piece = pieces.next()?;
        buf.extend_from_slice(piece);
        fed += piece.len();
        Some(())
    };
    read.end = match final_head(&mut read, &mut buf, &mut more, method) {
        Err(Bad::Malformed) => End::Malformed,
        Err(Bad::Redirect(status)) => End::Redirect(status),
        Ok(None) => End::Cut,
        Ok(Some(head)) => body(&mut read, *head, &mut buf, &mut more),
    };
    read.taken = fed - buf.len();
    read
}

type More<'a> = dyn FnMut(&mut BytesMut) -> Option<()> + 'a;

fn final_head(
    read: &mut Read,
    buf: &mut BytesMut,
    more: &mut More<'_>,
    method: &Method,
) -> Result<Option<Box<Head>>, Bad> {
    let mut scan = Scan::default();
    while more(buf).is_some() {
        while !buf.is_empty() {
            match scan.read(buf, method)? {
                Found::Partial => break,
                Found::Interim(len) => {
                    buf.advance(len);
                    read.interim += 1;
                    if read.interim > MOST_INTERIM {
                        return Err(Bad::Malformed);
                    }
                }
                Found::Final(len, head) => {
                    buf.advance(len);
                    return Ok(Some(head));
                }
            }
        }
    }
    Ok(None)
}

fn body(read: &mut Read, head: Head, buf: &mut BytesMut, more: &mut More<'_>) -> End {
    let mut framing = head.framing;
    read.head = Some((head.status, head.headers));
    read.keep = head.keep;
    loop {
        match framing.next(buf) {
            Err(_) => return End::Malformed,
            Ok(Some(piece)) => {
                read.body.extend_from_slice(&piece);
                continue;
            }
            Ok(None) if framing.done() => return End::Whole,
            Ok(None) => {}
        }
        if more(buf).is_none() {
            return if framing.ends_with_close() {
                End::Whole
            } else {
                End::Cut
            };
        }
    }
}
