//! The request, built anew (contract, section 4): nothing in it comes from the client but what the departure names. And its writing, with
//! the exact count of what was taken.
//!
//! Order: request line, `host`, `content-type`, `content-length`, `accept`, `accept-encoding`, `user-agent`, then the departure's headers.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};

use super::Failed;
use super::wire::Wire;
use crate::admit::Departure;
use crate::terms::Reason;

/// The head of the request.
///
/// # Errors
/// `route_not_allowed` where path, headers or method would make it more than one clean message: admission makes none such, and nothing is
/// written then.
pub(super) fn head(departure: &Departure) -> Result<Vec<u8>, Failed> {
    let path = departure.path.as_bytes();
    let plain = path.first() == Some(&b'/') && path.iter().all(u8::is_ascii_graphic);
    let bodyless = departure.method == Method::GET;
    let framed = departure.headers.iter().any(|(name, _)| {
        [
            HOST,
            CONTENT_LENGTH,
            TRANSFER_ENCODING,
            CONNECTION,
            EXPECT,
            UPGRADE,
        ]
        .contains(name)
    });
    if !plain || framed || (bodyless && !departure.body.is_empty()) {
        return Err(Failed::new(
            Reason::RouteNotAllowed,
            "the request to the host would not be one clean message, nothing was sent; check base_url, routes and headers",
        ));
    }
    let mut head = Vec::with_capacity(512);
    let mut put = |pieces: &[&[u8]]| {
        for piece in pieces {
            head.extend_from_slice(piece);
        }
    };
    put(&[
        departure.method.as_str().as_bytes(),
        b" ",
        path,
        b" HTTP/1.1\r\nhost: ",
        departure.host.base.authority.as_bytes(),
        b"\r\n",
    ]);
    if !bodyless {
        put(&[
            b"content-type: application/json\r\ncontent-length: ",
            departure.body.len().to_string().as_bytes(),
            b"\r\n",
        ]);
    }
    put(&[b"accept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\n"]);
    for (name, value) in &departure.headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    put(&[b"\r\n"]);
    Ok(head)
}

/// A request on its way.
pub(super) struct Uplink {
    head: Vec<u8>,
    body: Bytes,
    head_taken: usize,
    body_taken: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    Flushing,
    Done,
    Broken,
}

impl Uplink {
    pub(super) fn new(head: Vec<u8>, body: Bytes) -> Uplink {
        Uplink {
            head,
            body,
            head_taken: 0,
            body_taken: 0,
            state: State::Writing,
        }
    }

    /// The same request from its start: for a connection in place of one that took no byte of it.
    pub(super) fn again(self) -> Uplink {
        debug_assert!(!self.begun());
        Uplink::new(self.head, self.body)
    }

    /// Whether any byte was taken.
    pub(super) fn begun(&self) -> bool {
        self.head_taken > 0
    }

    /// Body bytes taken.
    pub(super) fn body_taken(&self) -> u64 {
        self.body_taken as u64
    }

    /// Whether every byte was taken.
    pub(super) fn all_taken(&self) -> bool {
        self.head_taken == self.head.len() && self.body_taken == self.body.len()
    }

    /// Whether it was all taken and handed on.
    pub(super) fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the host takes no more.
    pub(super) fn broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Writes as much as is taken. Ready when nothing is left to do, for good or ill; says whether bytes moved.
    pub(super) fn poll(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> (Poll<()>, bool) {
        let before = self.head_taken + self.body_taken;
        let poll = match self.poll_state(wire, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                self.state = State::Done;
                Poll::Ready(())
            }
            Poll::Ready(Err(_)) => {
                self.state = State::Broken;
                Poll::Ready(())
            }
        };
        (poll, before != self.head_taken + self.body_taken)
    }

    fn poll_state(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.state, State::Done | State::Broken) {
            return Poll::Ready(match self.state {
                State::Broken => Err(io::ErrorKind::BrokenPipe.into()),
                State::Writing | State::Flushing | State::Done => Ok(()),
            });
        }
        while self.state == State::Writing {
            let head = self.head.get(self.head_taken..).unwrap_or_default();
            let body = self.body.get(self.body_taken..).unwrap_or_default();
            if head.is_empty() && body.is_empty() {
                self.state = State::Flushing;
                break;
            }
            let taken = if head.is_empty() {
                ready!(wire.poll_write_pieces(cx, &[IoSlice::new(body)]))?
            } else {
                ready!(wire.poll_write_pieces(cx, &[IoSlice::new(head), IoSlice::new(body)]))?
            };
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = taken.min(head.len());
            self.head_taken += of_head;
            self.body_taken += taken - of_head;
        }
        wire.poll_flush(cx)
    }
}
