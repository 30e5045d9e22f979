//! One client connection: the gate, hyper behind it, and what is said when the gate shuts.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use super::answer::Own;
use super::call::{self, Gone, Via};
use super::gate::{Gate, GateLimits};
use super::head::{MAX_LINES, Names};
use super::reply::Reply;
use super::state::Shared;
use super::tunnel;
use super::wire::Wire;
use crate::terms::Reason;

/// How long the rest of a refused message is read, so that the client sees the answer and not a reset.
const DRAIN: Duration = Duration::from_secs(2);

/// A connection that hyper is done with.
pub(super) struct Ended<S> {
    pub(super) io: S,
    /// What was read and not let through.
    pub(super) rest: BytesMut,
    pub(super) wire: Arc<Wire>,
    /// hyper refused what the gate let through.
    unparsed: bool,
}

/// Serves one connection to its end, a tunnel through it too.
pub(super) async fn serve<S>(
    io: S,
    shared: Arc<Shared>,
    names: Arc<Names>,
    via: Via,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connects = shared.live.load().policy.intercept.is_some();
    let ended = exchange(io, &shared, names, &via, connects, stop.clone()).await;
    match ended.wire.connect.get().cloned() {
        Some(connect) => tunnel::serve(ended, connect, shared, via, stop).await,
        None => finish(ended, &shared, &via, None).await,
    }
}

/// Serves what comes through a tunnel to its end: there is no tunnel in a tunnel.
pub(super) async fn serve_tunnel<S>(
    io: S,
    shared: Arc<Shared>,
    names: Arc<Names>,
    via: Via,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ended = exchange(io, &shared, names, &via, false, stop).await;
    finish(ended, &shared, &via, None).await;
}

/// Gate and hyper over one stream, until nothing passes any more.
async fn exchange<S>(
    io: S,
    shared: &Arc<Shared>,
    names: Arc<Names>,
    via: &Via,
    connects: bool,
    mut stop: watch::Receiver<bool>,
) -> Ended<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = {
        let live = shared.live.load();
        let limits = &live.policy.limits;
        GateLimits {
            head: limits.head,
            client_head: limits.client_head,
            idle: limits.idle,
            connects,
        }
    };
    let wire = Arc::new(Wire::default());
    let http = library(limits.head);
    let gate = Gate::new(io, wire.clone(), names, limits);
    let service = Service {
        shared: shared.clone(),
        wire: wire.clone(),
        via: via.clone(),
    };
    let mut connection = http.serve_connection(TokioIo::new(gate), service);
    let mut stopping = *stop.borrow();
    if stopping {
        std::pin::Pin::new(&mut connection).graceful_shutdown();
    }
    let ended = loop {
        tokio::select! {
            biased;
            ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
            _ = stop.changed(), if !stopping => {
                stopping = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let (io, rest) = connection.into_parts().io.into_inner().into_parts();
    Ended {
        io,
        rest,
        wire,
        unparsed: ended.is_err_and(|error| error.is_parse()),
    }
}

/// hyper as it stands behind the gate. Room for the largest head that the gate lets through, and one more header than it does: hyper must never
/// be the one to refuse.
pub(super) fn library(most_head: usize) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(false)
        .max_headers(MAX_LINES + 1)
        .max_buf_size(most_head.saturating_add(64 * 1024));
    http
}

/// Records and answers a message that the gate refused, and drains what still comes.
pub(super) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    ended: Ended<S>,
    shared: &Shared,
    via: &Via,
    connect: Option<&str>,
) {
    let Ended {
        mut io,
        wire,
        unparsed,
        ..
    } = ended;
    let fault = wire.fault().filter(|fault| !fault.in_body);
    if fault.is_none() && unparsed {
        // hyper refused what the gate let through, and answered by itself. Nothing left; the record says so.
        tracing::error!(target: "leafgate::ingress", "a head passed the gate and not the HTTP library");
        shared.metrics.refused_message(Reason::HttpMalformed);
        let _ = shared
            .ledger
            .message_refused_from(Reason::HttpMalformed, 0, via.peer_uid)
            .await;
    }
    if let Some(fault) = fault {
        if !fault.gone {
            // No call, so no line of its own elsewhere: without this one, nobody at the log sees a client that takes leafgate for another proxy.
            tracing::warn!(
                target: "leafgate::ingress",
                reason = fault.reason.code(),
                connect = connect.map_or("-", printable),
                why = fault.hint,
                "a message that is no call was refused"
            );
        }
        shared.metrics.refused_message(fault.reason);
        let refused_status = shared.live.load().policy.refused_status;
        let own = match shared
            .ledger
            .message_refused_from(fault.reason, fault.bytes, via.peer_uid)
            .await
        {
            Ok(_) => Own::message(fault.reason, fault.hint, refused_status),
            Err(unrecorded) => Own::unrecorded(unrecorded.reason, refused_status),
        };
        if fault.gone
            || tokio::time::timeout(DRAIN, io.write_all(&own.into_bytes()))
                .await
                .is_err()
        {
            return;
        }
    }
    if fault.is_some() || wire.drain() {
        let _ = tokio::time::timeout(DRAIN, drain(&mut io)).await;
    }
}

/// What a `CONNECT` names, where it can be a host and a port: the client chose it.
fn printable(named: &str) -> &str {
    let host = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    if named.len() <= 255 && named.bytes().all(host) {
        named
    } else {
        "-"
    }
}

async fn drain<S: AsyncRead + AsyncWrite + Unpin>(io: &mut S) {
    let _ = io.shutdown().await;
    let mut sink = vec![0; 16 * 1024];
    while let Ok(1..) = io.read(&mut sink).await {}
}

struct Service {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    via: Via,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = http::Response<Reply>;
    type Error = Gone;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Gone>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(call::handle(
            self.shared.clone(),
            self.wire.clone(),
            self.via.clone(),
            request,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_connect_names_is_shown_where_it_can_be_a_host() {
        for named in ["example.org:443", "[::1]:443", "a_b-c.example:1"] {
            assert_eq!(printable(named), named);
        }
        let long = "a".repeat(256);
        for odd in [
            "user@a.b:443",
            "a\u{1b}[31m:443",
            "caf\u{e9}:443",
            "a b:443",
            &long,
        ] {
            assert_eq!(printable(odd), "-", "{odd:?}");
        }
    }
}
