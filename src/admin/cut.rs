//! An answer's body that may break off, as an export does where the ledger cannot be read on.
//!
//! Promises: what came before the break reaches the client first. hyper throws away what it has not flushed where a body fails, the head among it; a client that is shown nothing takes its call for unsent
//! and sends it again. So hyper is let to its flush once before it hears of the failure.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

/// A body, and whether it has failed.
#[derive(Debug)]
pub(crate) struct ShowsCut<B: Body> {
    body: B,
    failed: Option<B::Error>,
}

impl<B: Body> ShowsCut<B> {
    pub(crate) fn new(body: B) -> ShowsCut<B> {
        ShowsCut { body, failed: None }
    }
}

impl<B: Body + Unpin> Body for ShowsCut<B>
where
    B::Error: Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Err(failed))) = polled {
            self.failed = Some(failed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
