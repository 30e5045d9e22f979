//! Ingress: the listener, the strict gate, the calls, the answers, the reload.
//!
//! Promises: what reaches a call is one clean HTTP/1.1 message; what is refused before that leaves a `refused` record; every call ends with
//! exactly one decision or, over the limits, with a count. It does not promise who the client is unless the policy asks for a token or a certificate.
//! [`start`] makes it run; `cli::serve` and `cli::demo` take it.

mod answer;
mod body;
mod call;
mod chunked;
mod connect;
mod connection;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod head;
mod listener;
mod log;
mod path;
mod refuse;
mod reload;
mod reply;
mod state;
#[cfg(test)]
mod tests;
mod tls;
mod tunnel;
mod wire;

pub use chunked::{ChunkFault, Chunked};
pub use head::{Framing, HeadFacts, HeadFault, Names, check, scan};
pub use reload::{Signal, TAKEN_WITHIN};
pub use state::{Live, LoadError, ReloadErrors, Shared};
pub use tls::TlsError;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use ring::rand::SecureRandom as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use self::call::Via;
use self::listener::{Accepted, Listener};

use crate::egress::Egress;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::policy::ProxyAddress;
use crate::terms::Reason;

/// Connections at once, for each call that may be in flight: idle ones cost little, but not nothing.
const CONNECTIONS_PER_CALL: usize = 4;

/// Connections at once, however few calls may be in flight: clients keep idle ones.
const CONNECTIONS_AT_LEAST: usize = 1024;

/// Open files that are not for clients, where few are allowed: the ledger, the listeners, hosts, cards and fixtures.
const FILES_KEPT: u64 = 16;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not this machine's.
    #[error("listen.proxy {address} cannot be bound; free it or choose another")]
    Bind {
        /// The address.
        address: ProxyAddress,
        /// Why.
        source: std::io::Error,
    },
    /// The listener's TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Random,
    /// A thread that looks at files could not be started.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// A running proxy.
#[derive(Debug)]
pub struct Running {
    /// What the calls share.
    pub shared: Arc<Shared>,
    /// Where it listens.
    pub bound: ProxyAddress,
    signals: mpsc::Sender<Signal>,
    /// The looks at fixtures end when it is dropped.
    _looks: mpsc::Sender<Infallible>,
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
}

/// Binds the listener and serves in the background.
///
/// # Errors
/// Where the address, the listener's TLS or the system does not serve.
pub async fn start(
    live: Live,
    ledger: Ledger,
    metrics: Arc<Metrics>,
) -> Result<Running, StartError> {
    let listen = live.policy.listen.clone();
    let acceptor = listen.tls.as_ref().map(tls::acceptor).transpose()?;
    let bind = |source| StartError::Bind {
        address: listen.proxy.clone(),
        source,
    };
    let listener = Listener::bind(&listen.proxy).map_err(bind)?;
    let bound = listener.bound().map_err(bind)?;
    let mut random = [0; 16];
    ring::rand::SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| StartError::Random)?;
    let shared = Arc::new(Shared {
        live: ArcSwap::from_pointee(live),
        ledger,
        egress: Egress::new(),
        metrics,
        reload_errors: ReloadErrors::default(),
        token: listen.token.clone(),
        tls: acceptor.is_some(),
        bound: bound.clone(),
        in_flight: AtomicUsize::new(0),
        in_flight_bytes: Arc::new(AtomicU64::new(0)),
        calls: AtomicU64::new(0),
        leaves: tunnel::Leaves::default(),
        random_start: u128::from_be_bytes(random),
    });
    let (signals, received) = mpsc::channel();
    let watched = shared.clone();
    thread("reload", move || reload::run(&watched, &received))?;
    let (looks, looked) = mpsc::channel();
    let watched = shared.clone();
    thread("fixtures", move || {
        reload::look_at_fixtures(&watched, &looked);
    })?;
    let (stop, stopped) = watch::channel(false);
    let done = tokio::spawn(accept(
        listener,
        acceptor,
        shared.clone(),
        listen.names,
        stopped,
    ));
    Ok(Running {
        shared,
        bound,
        signals,
        _looks: looks,
        stop,
        done,
    })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(StartError::Thread)
}

impl Running {
    /// Reloads at once, as `SIGHUP` does.
    pub fn reload(&self) {
        // The thread ends with the process alone.
        let _ = self.signals.send(Signal::Reload);
    }

    /// Takes no new connection and no new call; waits for those in flight, `limits.shutdown` at most, and then cuts them, so
    /// that each has its outcome queued when this returns. The ledger is the caller's to stop.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.done.await;
        let _ = self.signals.send(Signal::Stop);
    }
}

/// Accepts until told to stop, then waits for the connections to end.
async fn accept(
    listener: Listener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    more: Vec<String>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = tokio::task::JoinSet::new();
    let most = most_connections(shared.live.load().policy.limits.in_flight);
    let fixed = Arc::new(match &shared.bound {
        ProxyAddress::Tcp(bound) => Names::new(*bound, shared.tls, &more),
        ProxyAddress::Unix(_) => Names::of_socket(&more),
    });
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept(), if connections.len() < most => accepted,
        };
        let Ok(accepted) = accepted else {
            // Out of file descriptors, most likely: wait for some to come back instead of spinning.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (shared, stop) = (shared.clone(), stop.clone());
        match accepted {
            Accepted::Tcp(stream) => {
                // Bound to every address: the name is the one this connection came to.
                let names = listener::came_to(&stream, &shared.bound)
                    .map(|local| Arc::new(Names::new(local, shared.tls, &more)))
                    .unwrap_or_else(|| fixed.clone());
                connections.spawn(connect(stream, acceptor.clone(), shared, names, stop));
            }
            Accepted::Unix(stream, uid) => {
                let via = Via {
                    peer_uid: Some(uid),
                    tunnel: None,
                };
                connections.spawn(connection::serve(stream, shared, fixed.clone(), via, stop));
            }
        }
    }
    drop(listener);
    let most = shared.live.load().policy.limits.shutdown;
    let drained = tokio::time::timeout(most, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
    if drained.is_err() {
        tracing::warn!(target: "leafgate::ingress", "limits.shutdown is over; calls in flight are cut");
        shared.egress.shutting_down();
        connections.shutdown().await;
    }
}

/// Connections at once. Those beyond wait with the kernel: a client that sends nothing must not take the file that a record, a fixture
/// or a host needs.
fn most_connections(in_flight: usize) -> usize {
    let wanted = in_flight
        .saturating_mul(CONNECTIONS_PER_CALL)
        .max(CONNECTIONS_AT_LEAST);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(wanted, |files| wanted.min(share_of(files)))
}

/// The clients' share of so many open files: each of their calls may need one more, for its host.
fn share_of(files: u64) -> usize {
    let share = files.saturating_sub(FILES_KEPT) / 2;
    usize::try_from(share).unwrap_or(usize::MAX).max(4)
}

async fn connect(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    names: Arc<Names>,
    stop: watch::Receiver<bool>,
) {
    let Some(acceptor) = acceptor else {
        return connection::serve(stream, shared, names, Via::default(), stop).await;
    };
    let most = shared.live.load().policy.limits.client_head;
    match tokio::time::timeout(most, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => connection::serve(tls, shared, names, Via::default(), stop).await,
        Ok(Err(error)) if certificate_refused(&error) => {
            shared.metrics.refused_message(Reason::ClientNotAllowed);
            let _ = shared
                .ledger
                .message_refused(Reason::ClientNotAllowed, 0)
                .await;
        }
        // No handshake, no message: nothing to record.
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Whether a handshake failed because the client showed no certificate, or one that `client_ca` does not vouch for.
fn certificate_refused(error: &std::io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
    )
}
