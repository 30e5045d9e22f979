//! The admin listener (contract, section 11): health, metrics, a plain page of the last calls, the record as JSON, and its exports. Loopback only.
//!
//! Promises: it reads and never changes; it shows nothing that the record does not hold; it asks no host anything. A request whose `Host` is
//! not this listener's, or that a page of another origin sent, gets nothing (DNS rebinding, RFC 9110 section 7.4). It sends no CORS permission.
//! Makers: `serve` binds the listener and makes one [`Shared`]. Takers: people, Prometheus, health checks.

mod cut;
mod export;
mod guard;
mod page;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ledger::{self, Filter, LedgerError, LedgerState, Page};
use crate::metrics::{Metrics, Readings};
use crate::terms::safe;

/// Connections served at once; more wait.
const MAX_CONNECTIONS: usize = 32;
/// The longest wait for a request head, also between two requests of one connection. Short: on loopback a head comes at once, and a connection without one holds a place.
const HEAD_WAIT: Duration = Duration::from_secs(2);
/// The longest life of a connection; a client that wants more opens another.
const CONNECTION_MOST: Duration = Duration::from_secs(10);
/// The longest life of a connection that an export runs over, beyond that.
const EXPORT_MOST: Duration = Duration::from_secs(600);
/// Lines that one request for a list looks at; it says where to go on.
const MAX_SCANNED: usize = 200_000;
/// Records that one request may ask for.
const MAX_LIMIT: usize = 500;

/// What the admin listener reads of the running gate.
pub struct Shared {
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The state of the running gate, asked anew for each request.
    pub state: Box<dyn Fn() -> State + Send + Sync>,
    /// The folder with the segments.
    pub ledger_dir: PathBuf,
    /// The base URL that clients use.
    pub base_url: String,
}

/// The state of the running gate at one moment.
#[derive(Debug, Clone)]
pub struct State {
    /// The ledger's, [`crate::ledger::Ledger::state`].
    pub ledger: LedgerState,
    /// What other rooms count.
    pub readings: Readings,
    /// Hash of the effective policy in force.
    pub policy_hash: String,
    /// Why the last reload was refused, where it was.
    pub policy_error: Option<Arc<String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("ledger_dir", &self.ledger_dir)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

impl State {
    /// Why the gate is not ready; empty where it is.
    pub fn not_ready(&self) -> Option<String> {
        if !self.ledger.ok {
            let why = self.ledger.why.as_deref().unwrap_or("no reason given");
            return Some(format!("ledger: {why}"));
        }
        let error = self.policy_error.as_ref()?;
        Some(format!("policy: {error}"))
    }

    /// What `/readyz` says where the gate is ready: also what should be looked at though calls go on.
    fn ready(&self) -> String {
        match &self.ledger.checkpoint_error {
            Some(why) => format!("ready\nledger: {why}\n"),
            None => "ready\n".to_owned(),
        }
    }
}

/// Serves until it is dropped; dropping it closes every connection.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(bound) = listener.local_addr() else {
        return;
    };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, most of the time: waiting is all that helps.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = shared.clone();
        connections.spawn(async move {
            let _place = place;
            // Set by a request that was answered with an export.
            let exports = Arc::new(AtomicBool::new(false));
            let long = exports.clone();
            let service = hyper::service::service_fn(move |request| {
                let (shared, exports) = (shared.clone(), exports.clone());
                async move { Ok::<_, Infallible>(answer(request, bound, &shared, &exports).await) }
            });
            // A connection that breaks concerns nobody but its client.
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WAIT)
                .max_buf_size(16 * 1024)
                .serve_connection(TokioIo::new(stream), service);
            // A client that does not read its answers gives its place back.
            let mut served = std::pin::pin!(served);
            let quick = tokio::time::timeout(CONNECTION_MOST, served.as_mut()).await;
            if quick.is_err() && long.load(Ordering::Relaxed) {
                let _ = tokio::time::timeout(EXPORT_MOST, served).await;
            }
        });
    }
}

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

async fn answer(
    request: Request<Incoming>,
    bound: SocketAddr,
    shared: &Arc<Shared>,
    exports: &AtomicBool,
) -> Answer {
    if let Err(why) = guard::check(&request, bound) {
        return text(StatusCode::FORBIDDEN, why);
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "leafgate: only GET here\n");
        refused
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let query = request.uri().query().unwrap_or_default();
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let state = (shared.state)();
            match state.not_ready() {
                None => text(StatusCode::OK, state.ready()),
                Some(why) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("not ready: {why}\n"),
                ),
            }
        }
        "/metrics" => made(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            shared.metrics.render(&(shared.state)().readings),
        ),
        "/" => {
            list(query, shared, |shared, filter, page| {
                let html = page::render(shared, filter, &page);
                let mut answer = made(StatusCode::OK, "text/html; charset=utf-8", html);
                answer
                    .headers_mut()
                    .insert(header::CONTENT_SECURITY_POLICY, page::policy());
                answer
            })
            .await
        }
        "/api/records" => {
            list(query, shared, |_, _, page| {
                json(StatusCode::OK, ledger::ascii(&page.to_json().to_string()))
            })
            .await
        }
        "/api/export" => {
            let answer = export::answer(query, &shared.ledger_dir).await;
            exports.store(answer.status() == StatusCode::OK, Ordering::Relaxed);
            answer
        }
        path => match path.strip_prefix("/api/records/") {
            Some(seq) => single(seq, shared).await,
            None => text(
                StatusCode::NOT_FOUND,
                "leafgate: not here; there are /, /metrics, /healthz, /readyz, /api/records, /api/export\n",
            ),
        },
    }
}

/// What a query asks of the list.
#[derive(Debug, Clone)]
struct Asked {
    filter: Filter,
    limit: usize,
}

impl Asked {
    /// Reads a query string, `leaf=hold&limit=20&before=99`.
    fn parse(query: &str) -> Result<Asked, String> {
        let mut asked = Asked {
            filter: Filter::default(),
            limit: 50,
        };
        pairs(query, |key, value| {
            if key != "limit" {
                return asked.filter.add(key, value, Timestamp::now());
            }
            let limit = ledger::seq(value).and_then(|limit| usize::try_from(limit).ok());
            asked.limit = limit
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or("limit is 1 to 500")?;
            Ok(())
        })?;
        Ok(asked)
    }
}

/// Each `key=value` of a query string. Of the percent-encodings only those of the two characters that a form encodes in a time or a hash are read.
fn pairs(
    query: &str,
    mut take: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or("the query is key=value&…")?;
        let value = value.replace("%3A", ":").replace("%3a", ":");
        take(key, &value.replace("%2B", "+").replace("%2b", "+"))?;
    }
    Ok(())
}

/// Reads records off the runtime's threads and hands them to `show`.
async fn list(
    query: &str,
    shared: &Arc<Shared>,
    show: impl FnOnce(&Shared, &Filter, Page) -> Answer,
) -> Answer {
    let Asked { filter, limit } = match Asked::parse(query) {
        Ok(asked) => asked,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("leafgate: {why}\n")),
    };
    let (dir, wanted) = (shared.ledger_dir.clone(), filter.clone());
    let read = tokio::task::spawn_blocking(move || ledger::page(&dir, &wanted, limit, MAX_SCANNED));
    match read.await {
        Ok(Ok(page)) => show(shared, &filter, page),
        Ok(Err(fault)) => unreadable(&fault),
        Err(_) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "leafgate: the ledger could not be read\n",
        ),
    }
}

async fn single(seq: &str, shared: &Arc<Shared>) -> Answer {
    let Some(seq) = ledger::seq(seq) else {
        return text(
            StatusCode::BAD_REQUEST,
            "leafgate: seq is a number, digits alone\n",
        );
    };
    let dir = shared.ledger_dir.clone();
    let read = move || Ok((ledger::one(&dir, seq)?, ledger::gone(&dir)?));
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok((Some(record), _))) => json(StatusCode::OK, record.json()),
        Ok(Ok((None, gone))) if seq < gone => text(
            StatusCode::NOT_FOUND,
            "leafgate: the record of that seq was pruned\n",
        ),
        Ok(Ok((None, _))) => text(
            StatusCode::NOT_FOUND,
            "leafgate: there is no record of that seq\n",
        ),
        Ok(Err(fault)) => unreadable(&fault),
        Err(_) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "leafgate: the ledger could not be read\n",
        ),
    }
}

fn unreadable(fault: &LedgerError) -> Answer {
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("leafgate: {}\n", safe(&fault.to_string())),
    )
}

fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    made(status, "text/plain; charset=utf-8", body.into())
}

fn json(status: StatusCode, line: impl std::fmt::Display) -> Answer {
    made(status, "application/json", format!("{line}\n"))
}

fn made(status: StatusCode, media: &'static str, body: String) -> Answer {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    with_headers(status, media, body.boxed())
}

fn with_headers(
    status: StatusCode,
    media: &'static str,
    body: BoxBody<Bytes, std::io::Error>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests;
