//! The fuzzers' way to the readers of a host's answer. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: bytes go through the head scan and the body framing in the order of `exchange` and `relay`, without a socket. A plan is
//! opened to see what would be written, or to be answered from memory; no connection is made.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use tokio::io::ReadBuf;

use super::account::{Account, Sink};
use super::exchange::{self, MOST_INTERIM, failed, live, talk};
use super::head::{Bad, Found, Head, Scan};
use super::request::Uplink;
use super::wire::Wire;
use super::{Answer, Door, Egress, Failed};
use crate::admit::Plan;
use crate::ledger::Outcome;

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

/// The request of a plan as it would be written, head and body. Nothing is opened but the plan.
///
/// # Errors
/// Where it would not be one clean message.
pub fn request(plan: Plan) -> Result<Vec<u8>, Failed> {
    let departure = plan.open(&Door(()));
    let mut bytes = super::request::head(&departure)?;
    bytes.extend_from_slice(&departure.body);
    Ok(bytes)
}

/// A host in memory: takes a request whole, answers in these pieces, and then closes, or breaks off. Before each piece it is silent once.
#[derive(Debug)]
pub struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    broken: bool,
    silent: bool,
}

impl Pieces {
    /// What the host says, and whether the connection breaks at the end.
    pub fn new(pieces: impl Iterator<Item = Vec<u8>>, broken: bool) -> Pieces {
        Pieces {
            pieces: pieces.filter(|piece| !piece.is_empty()).collect(),
            broken,
            silent: false,
        }
    }

    pub(super) fn take(&mut self, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    pub(super) fn give(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.silent = !self.silent;
        if self.silent {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(piece) = self.pieces.front_mut() else {
            return Poll::Ready(match self.broken {
                true => Err(io::ErrorKind::ConnectionReset.into()),
                false => Ok(()),
            });
        };
        let step = piece.len().min(out.remaining());
        out.put_slice(&piece[..step]);
        piece.drain(..step);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

/// One exchange with this host in memory, and where its outcome will be. The way of `exchange`, but for the dial; the connection is never kept.
///
/// # Errors
/// Why there is no answer.
pub async fn exchanged(
    egress: &Egress,
    plan: Plan,
    host: Pieces,
    outcome: Sender<Outcome>,
) -> Result<Answer, Failed> {
    let inner = &egress.inner;
    let departure = plan.open(&Door(()));
    let mut account = Account::open(inner.clone(), &departure, Sink::Test(outcome));
    let head = super::request::head(&departure)?;
    let mut uplink = Uplink::new(head, departure.body.clone());
    let other = inner.kept.generation().wrapping_add(1);
    let peer = ([127, 0, 0, 1], 9).into();
    let mut conn = inner.kept.fresh(Wire::Pieces(host), peer, other);
    let (method, limits) = (departure.method.clone(), departure.policy.limits.clone());
    match talk(&mut conn, &mut uplink, &method, &limits, &mut account).await {
        Ok((head, clean)) => {
            let live = live(conn, head, uplink, clean);
            Ok(exchange::answer(inner, departure, account, live))
        }
        Err(stop) => {
            let failed = failed(stop, &mut account);
            account.close(Some(failed.reason.code()));
            Err(failed)
        }
    }
}
