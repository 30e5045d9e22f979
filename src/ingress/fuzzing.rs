//! The fuzzers' way to the gate with hyper behind it. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: gate and HTTP library are those of `connection`, set up by the same function; only the calls behind them are others: each
//! request is read to its end, noted, and answered.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection;
use super::gate::{Gate, GateLimits};
use super::head::Names;
use super::reply::Reply;
use super::wire::Wire;
use crate::terms::Reason;

/// A request as the HTTP library gave it to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// How many header lines it has.
    pub headers: usize,
    /// Its body, as far as it came.
    pub body: Vec<u8>,
    /// Whether the body came whole.
    pub whole: bool,
}

/// What became of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Every request that passed, in order.
    pub seen: Vec<Seen>,
    /// Why the gate shut, where it refused.
    pub refused: Option<Reason>,
    /// The HTTP library refused a head that the gate had passed: must never be.
    pub unparsed: bool,
}

/// Serves one connection to its end: heads of at most `head` bytes, `wait` for a head and between two requests.
pub async fn gated<S>(io: S, names: Arc<Names>, head: usize, wait: Duration) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = GateLimits {
        head,
        client_head: wait,
        idle: wait,
        connects: false,
    };
    let wire = Arc::new(Wire::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gate = Gate::new(io, wire.clone(), names, limits);
    let service = service_fn(|request| Box::pin(note(request, wire.clone(), seen.clone())));
    let mut connection = connection::library(head).serve_connection(TokioIo::new(gate), service);
    let ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    drop(connection);
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ended {
        seen,
        refused: wire.fault().map(|fault| fault.reason),
        unparsed: ended.is_err_and(|error| error.is_parse()),
    }
}

async fn note(
    request: Request<Incoming>,
    wire: Arc<Wire>,
    seen: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Reply>, Infallible> {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    let whole = loop {
        match incoming.frame().await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => body.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
        }
    };
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Seen {
            method: head.method,
            uri: head.uri,
            headers: head.headers.len(),
            body,
            whole,
        });
    Ok(Response::new(Reply::own(
        Bytes::from_static(b"ok"),
        wire,
        None,
    )))
}
