//! The body of an answer on a client's connection, and what a call holds until it ends.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body::HeldBytes;
use super::state::Shared;
use super::wire::Wire;
use crate::egress::AnswerBody;

/// A call's share of the limits; it goes back when the answer has ended.
#[derive(Debug)]
pub(super) struct Share {
    shared: Arc<Shared>,
    bytes: Option<HeldBytes>,
}

impl Share {
    /// One place of `most` in flight, where there is one.
    pub(super) fn take(shared: &Arc<Shared>, most: usize) -> Option<Share> {
        let taken = shared
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                (now < most).then_some(now + 1)
            });
        taken.ok().map(|_| Share {
            shared: shared.clone(),
            bytes: None,
        })
    }

    pub(super) fn holding(mut self, bytes: HeldBytes) -> Share {
        self.bytes = Some(bytes);
        self
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Source {
    Own(Option<Bytes>),
    Host(Box<AnswerBody>),
    /// The host broke off.
    Cut,
}

/// Cut short: hyper then closes the connection, so that the client sees a cut.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut short")]
pub(super) struct Cut;

/// The body of an answer. Dropped when its last byte is with hyper: then the gate may look at the next request.
#[derive(Debug)]
pub(super) struct Reply {
    source: Source,
    wire: Arc<Wire>,
    _share: Option<Share>,
}

impl Reply {
    pub(super) fn own(bytes: Bytes, wire: Arc<Wire>, share: Option<Share>) -> Reply {
        Reply {
            source: Source::Own(Some(bytes)),
            wire,
            _share: share,
        }
    }

    pub(super) fn relay(body: AnswerBody, wire: Arc<Wire>, share: Option<Share>) -> Reply {
        Reply {
            source: Source::Host(Box::new(body)),
            wire,
            _share: share,
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.wire.set_answered();
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        match &mut this.source {
            Source::Own(bytes) => Poll::Ready(
                bytes
                    .take()
                    .filter(|bytes| !bytes.is_empty())
                    .map(|bytes| Ok(Frame::data(bytes))),
            ),
            // A client that closed needs no more of the answer: the cut ends the exchange with the host.
            Source::Host(_) | Source::Cut if this.wire.gone() => Poll::Ready(Some(Err(Cut))),
            Source::Host(body) => match ready!(Pin::new(body.as_mut()).poll_frame(cx)) {
                Some(Err(_)) => {
                    this.source = Source::Cut;
                    Pin::new(this).poll_frame(cx)
                }
                frame => Poll::Ready(frame.map(|frame| frame.map_err(|_| Cut))),
            },
            // At an error hyper drops what it has not written yet: first that goes out.
            Source::Cut if this.wire.out_before_cut(cx.waker()) => Poll::Ready(Some(Err(Cut))),
            Source::Cut => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Source::Host(body) => body.is_end_stream(),
            Source::Cut => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Source::Host(body) => body.size_hint(),
            Source::Cut => SizeHint::default(),
        }
    }
}

/// Drives `future` as long as the client is there. The gate sees the client's end in the same task, before this is polled again.
pub(super) async fn unless_gone<F: Future>(wire: &Wire, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        if wire.gone() {
            Poll::Ready(None)
        } else {
            future.as_mut().poll(cx).map(Some)
        }
    })
    .await
}
