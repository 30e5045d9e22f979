//! Reading the body of a call: to its end, its cap, or the time allowed, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest, Sha256};

use super::wire::Wire;
use crate::admit::{BodyFacts, SealedBody};
use crate::terms::Reason;

/// Why a body was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// Over `limits.body`.
    TooLarge,
    /// Over `limits.client_body`.
    Late,
    /// The client closed; nobody is there to answer.
    Gone,
    /// The chunked coding is broken.
    Malformed,
    /// Over `limits.in_flight_bytes`, all calls together.
    Overloaded,
}

impl Unread {
    pub(super) fn reason(self) -> Reason {
        match self {
            Unread::TooLarge => Reason::BodyTooLarge,
            Unread::Late | Unread::Gone => Reason::ClientTimeout,
            Unread::Malformed => Reason::HttpMalformed,
            Unread::Overloaded => Reason::Overloaded,
        }
    }

    pub(super) fn hint(self) -> &'static str {
        match self {
            Unread::TooLarge => {
                "the body is over limits.body; send a shorter one or raise the limit"
            }
            Unread::Late => {
                "the body did not end in time; send it faster or raise limits.client_body"
            }
            Unread::Gone => "the client closed before the end of its request; send it whole",
            Unread::Malformed => {
                "the chunked body is not clean; send no extensions and no trailers"
            }
            Unread::Overloaded => "too many body bytes are in flight; send it again later",
        }
    }
}

/// Bytes of bodies that are held, all calls together; the share goes back when this is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    total: Arc<AtomicU64>,
    most: u64,
    held: u64,
}

impl HeldBytes {
    pub(super) fn new(total: Arc<AtomicU64>, most: u64) -> HeldBytes {
        HeldBytes {
            total,
            most,
            held: 0,
        }
    }

    fn hold(&mut self, bytes: u64) -> Result<(), Unread> {
        let taken = self
            .total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |total| {
                total.checked_add(bytes).filter(|total| *total <= self.most)
            });
        taken
            .map(|_| self.held += bytes)
            .map_err(|_| Unread::Overloaded)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.held, Ordering::Relaxed);
    }
}

/// What reading is bounded by.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    pub(super) wire: &'a Wire,
    pub(super) most: u64,
    pub(super) time: Duration,
}

/// Whether the head declares a body that is over the cap: then nothing of it need be read.
pub(super) fn declared_too_large(body: &Incoming, most: u64) -> bool {
    body.size_hint().lower() > most
}

/// Reads a body that may leave.
pub(super) async fn keep(
    mut body: Incoming,
    bounds: &Bounds<'_>,
    held: &mut HeldBytes,
) -> Result<SealedBody, Unread> {
    let declared = body.size_hint().exact();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let read = async {
        while let Some(piece) = next(&mut body, bounds.wire).await? {
            let so_far = (first.len() + rest.len() + piece.len()) as u64;
            if so_far > bounds.most {
                return Err(Unread::TooLarge);
            }
            // As it comes, not as it was declared: a client that declares much and sends little holds little.
            held.hold(piece.len() as u64)?;
            // The usual body comes in one piece and is never copied; a longer one is gathered once, in room made once.
            if first.is_empty() && rest.is_empty() {
                first = piece;
                continue;
            }
            if rest.is_empty() {
                rest.reserve(declared.unwrap_or(so_far).min(bounds.most) as usize);
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&piece);
        }
        Ok(())
    };
    tokio::time::timeout(bounds.time, read)
        .await
        .unwrap_or(Err(Unread::Late))?;
    Ok(SealedBody::seal(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    }))
}

/// Reads a body that will not leave, and keeps its length and hash alone.
pub(super) async fn discard(mut body: Incoming, bounds: &Bounds<'_>) -> Result<BodyFacts, Unread> {
    let mut hash = Sha256::new();
    let mut len = 0;
    let read = async {
        while let Some(piece) = next(&mut body, bounds.wire).await? {
            len += piece.len() as u64;
            if len > bounds.most {
                return Err(Unread::TooLarge);
            }
            hash.update(&piece);
        }
        Ok(())
    };
    tokio::time::timeout(bounds.time, read)
        .await
        .unwrap_or(Err(Unread::Late))?;
    Ok(BodyFacts {
        len,
        sha256: hash.finalize().into(),
    })
}

async fn next(body: &mut Incoming, wire: &Wire) -> Result<Option<Bytes>, Unread> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // Trailers never come: the gate refuses them.
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
            Some(Err(_)) => {
                let clean = wire.fault().is_none_or(|fault| fault.gone);
                return Err(if clean {
                    Unread::Gone
                } else {
                    Unread::Malformed
                });
            }
        }
    }
}
