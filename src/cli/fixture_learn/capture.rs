//! The capture: a server on a loopback port that keeps the bodies it is sent and answers each with an empty completion.
//!
//! Promises: it connects to nothing; headers are not kept, so no key is; what it holds is bounded, and what was too much is counted.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::answers::{self, Answer};
use crate::fixture::Sample;

/// Bytes of one body, at most: what a policy's default lets a call have, and room.
const BODY: usize = 16 * 1024 * 1024;
/// Bytes of all bodies, at most.
const ALL: usize = 256 * 1024 * 1024;
/// Different bodies, at most.
const MOST: usize = 50_000;
/// Calls read at one time.
const AT_ONCE: usize = 32;
/// Paths that are named where nothing answers them.
const PATHS: usize = 8;

/// What was captured.
#[derive(Debug, Default)]
pub(super) struct Captured {
    /// Different bodies, in the order they came.
    pub(super) samples: Vec<Sample>,
    /// Calls with a body, equal ones too.
    pub(super) calls: usize,
    /// Calls that were answered and not kept, for their size or number.
    pub(super) beyond: usize,
    /// Paths that no answer is known for.
    pub(super) unknown: BTreeMap<String, usize>,
}

/// What is kept of the bodies that come.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) captured: Captured,
    seen: HashSet<(String, [u8; 32])>,
    bytes: usize,
}

impl Kept {
    /// Keeps a body that is new, as long as there is room.
    pub(super) fn keep(&mut self, sample: Sample) {
        self.captured.calls += 1;
        let print = Sha256::digest(&sample.body).into();
        if self.seen.contains(&(sample.route.clone(), print)) {
            return;
        }
        if self.captured.samples.len() >= MOST || self.bytes + sample.body.len() > ALL {
            self.captured.beyond += 1;
            return;
        }
        self.bytes += sample.body.len();
        self.seen.insert((sample.route.clone(), print));
        self.captured.samples.push(sample);
    }
}

/// A running capture.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    kept: Mutex<Kept>,
    models: Vec<String>,
    calls: Semaphore,
    hosts: [String; 2],
}

impl Capture {
    /// Listens on a loopback port that the system chooses.
    pub(super) async fn start(models: &[String]) -> std::io::Result<Capture> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let port = address.port();
        let shared = Arc::new(Shared {
            kept: Mutex::default(),
            models: models.to_vec(),
            calls: Semaphore::new(AT_ONCE),
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
        });
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream, serving.clone()))),
                    // Out of file descriptors, perhaps: let some be closed.
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                }
            }
        });
        Ok(Capture {
            address,
            shared,
            task,
        })
    }

    /// Stops listening and gives what was captured.
    pub(super) fn end(self) -> Captured {
        self.task.abort();
        std::mem::take(&mut self.shared.kept().captured)
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(call(request, &shared).await) }
    });
    // A connection that breaks concerns its client alone.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn call(request: Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    // A page in a browser may reach loopback; it comes under another name or says where it is from.
    let own = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .is_some_and(|host| shared.hosts.iter().any(|own| own == host));
    if !own || request.headers().contains_key(header::ORIGIN) {
        return answer(StatusCode::FORBIDDEN, Answer::fault("not for browsers"));
    }
    let path = request.uri().path().to_owned();
    let inner = under_v1(&path);
    if request.method() == Method::GET
        && let Some(rest) = inner.strip_prefix("/models")
    {
        return answer(StatusCode::OK, answers::models(&shared.models, rest));
    }
    let known = answers::ROUTES.iter().find(|route| **route == inner);
    let (Some(route), true) = (known, request.method() == Method::POST) else {
        let mut kept = shared.kept();
        let unknown = &mut kept.captured.unknown;
        let line = format!("{} {path}", request.method());
        if unknown.len() < PATHS || unknown.contains_key(&line) {
            *unknown.entry(line).or_default() += 1;
        }
        return answer(
            StatusCode::NOT_FOUND,
            Answer::fault("the capture has no answer for this path"),
        );
    };
    let Ok(_share) = shared.calls.acquire().await else {
        return answer(
            StatusCode::NOT_FOUND,
            Answer::fault("the capture has ended"),
        );
    };
    let Ok(body) = Limited::new(request.into_body(), BODY).collect().await else {
        shared.kept().captured.beyond += 1;
        return answer(
            StatusCode::PAYLOAD_TOO_LARGE,
            Answer::fault("the body is too long to capture"),
        );
    };
    let body = body.to_bytes();
    let made = answers::empty(route, &body);
    shared.kept().keep(Sample {
        route: (*route).to_owned(),
        body: body.to_vec(),
    });
    answer(StatusCode::OK, made)
}

/// The path without the base URL's part: `/v1`, and before it `/card/NAME` where the client was set up for leafgate.
fn under_v1(path: &str) -> &str {
    let rest = match path.strip_prefix("/card/").and_then(|p| p.split_once('/')) {
        Some((name, _)) => &path["/card/".len() + name.len()..],
        None => path,
    };
    match rest.strip_prefix("/v1") {
        Some(inner) if inner.starts_with('/') => inner,
        Some(_) | None => rest,
    }
}

fn answer(status: StatusCode, made: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(made.body.into()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(made.kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_urls_part_of_a_path_is_taken_off() {
        for (path, inner) in [
            ("/v1/chat/completions", "/chat/completions"),
            ("/card/seed-04/v1/messages", "/messages"),
            ("/chat/completions", "/chat/completions"),
            ("/v1", "/v1"),
            ("/v1x/y", "/v1x/y"),
            ("/card/x", "/card/x"),
        ] {
            assert_eq!(under_v1(path), inner);
        }
    }

    #[test]
    fn equal_bodies_are_kept_once_and_too_much_is_counted() {
        let sample = |body: &[u8]| Sample {
            route: "/completions".into(),
            body: body.to_vec(),
        };
        let mut kept = Kept::default();
        for body in [b"a", b"a", b"b"] {
            kept.keep(sample(body));
        }
        let captured = &kept.captured;
        assert_eq!((captured.samples.len(), captured.calls), (2, 3));
        let mut kept = Kept {
            bytes: ALL,
            ..Kept::default()
        };
        kept.keep(sample(b"a"));
        assert_eq!((kept.captured.samples.len(), kept.captured.beyond), (0, 1));
    }
}
