//! The fuzzers' way to the gate with hyper behind it. Compiled under `cfg(fuzzing)` alone: a release has no such door.
//!
//! Promises: gate and HTTP library are those of `connection`, set up by the same function; only the calls behind them are others: each
//! request is read to its end, noted, and answered, or answered with what a host in memory says.

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

use super::answer::Own;
use super::connect::check_connect;
use super::gate::{Gate, GateLimits};
use super::head::{Names, scan_for};
use super::reply::Reply;
use super::wire::Wire;
use super::{call, connection};
use crate::admit::CallFacts;
use crate::egress::{Answer, Failed};
use crate::policy::Host;
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

/// What a connection left behind that a clean `CONNECT` ended: the host and port it names, and what was read behind it.
pub type Tunnel = Option<(String, Vec<u8>)>;

/// Serves one connection to its end: heads of at most `head` bytes, `wait` for a head and between two requests; whether a `CONNECT` may pass.
pub async fn through<S>(
    io: S,
    names: Arc<Names>,
    head: usize,
    wait: Duration,
    connects: bool,
) -> (Ended, Tunnel)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wire = Arc::new(Wire::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let limits = limits(head, wait, connects);
    let gate = Gate::new(io, wire.clone(), names, limits);
    let service = service_fn(|request| Box::pin(note(request, wire.clone(), seen.clone())));
    let mut connection = connection::library(head).serve_connection(TokioIo::new(gate), service);
    let ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let (_, rest) = connection.into_parts().io.into_inner().into_parts();
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let tunnel = wire.connect.get();
    let tunnel = tunnel.map(|connect| (connect.authority.clone(), rest.to_vec()));
    let ended = Ended {
        seen,
        refused: wire.fault().map(|fault| fault.reason),
        unparsed: ended.is_err_and(|error| error.is_parse()),
    };
    (ended, tunnel)
}

fn limits(head: usize, wait: Duration, connects: bool) -> GateLimits {
    GateLimits {
        head,
        client_head: wait,
        idle: wait,
        connects,
    }
}

/// The length of the head of a `CONNECT`, where its end is there and nothing refuses it before.
pub fn connect_length(bytes: &[u8]) -> Option<usize> {
    scan_for(bytes, 0, true).ok()?
}

/// What the whole head of a `CONNECT` names, where it is clean.
pub fn connect_to(head: &[u8]) -> Option<String> {
    check_connect(head).ok()
}

/// The names in a tunnel to this host.
pub fn names_of_tunnel(host: &Host) -> Names {
    Names::of_tunnel(&host.base)
}

/// Serves one connection to its end, each of whose requests is answered with what `answers` gives: the host's answer, relayed as a call does, or what a call says
/// where there is none.
pub async fn relayed<S, F, A>(io: S, names: Arc<Names>, wait: Duration, answers: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn() -> (CallFacts, A),
    A: Future<Output = Result<Answer, Failed>>,
{
    let wire = Arc::new(Wire::default());
    let gate = Gate::new(io, wire.clone(), names, limits(64 << 10, wait, false));
    let service = service_fn(|request: Request<Incoming>| {
        let (facts, answer) = answers();
        let wire = wire.clone();
        Box::pin(async move {
            let _ = request.into_body().collect().await;
            let CallFacts { call, ruling, .. } = facts;
            Ok::<_, Infallible>(match answer.await {
                Ok(answer) => call::relayed(answer, call, ruling, wire, None),
                Err(failed) => Own::failed(call, ruling, facts.host.as_deref(), &failed, 422)
                    .into_response()
                    .map(|bytes| Reply::own(bytes, wire, None)),
            })
        })
    });
    let mut connection =
        connection::library(64 << 10).serve_connection(TokioIo::new(gate), service);
    let _ = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
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
