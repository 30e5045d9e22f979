//! A tunnel that leafgate answers by itself (contract, section 5, `CONNECT`; section 7, `[intercept]`).
//!
//! Promises: no byte behind a `CONNECT` is read before what it names was found to be a policy host with TLS, byte for byte; in the tunnel that name, the server
//! name of the handshake and `Host` are one; HTTP/1.1 alone is offered; a request inside comes through the same gate to the same call as any other. It opens
//! no connection: the way to the host is egress's, per call.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, BytesMut};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::call::Via;
use super::connection::{self, Ended};
use super::head::Names;
use super::state::Shared;
use super::tls::strict;
use super::wire::{Connect, Fault};
use crate::certs::{Authority, Name};
use crate::policy::{BaseUrl, Host};
use crate::terms::Reason;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A certificate with less time than this is made anew: half of its day.
const RENEW: Duration = Duration::from_secs(12 * 3_600);

/// The host that a `CONNECT` names, and the TLS for it.
struct Way {
    host: Arc<Host>,
    config: Arc<ServerConfig>,
}

/// Answers a `CONNECT` and serves what comes through it, to its end.
pub(super) async fn serve<S>(
    ended: Ended<S>,
    connect: Connect,
    shared: Arc<Shared>,
    via: Via,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let way = match shared.way(&connect.authority) {
        Ok(way) => way,
        Err(hint) => {
            // What the client sent behind its CONNECT is thrown away with the connection.
            let _ = ended.wire.fault.set(Fault {
                reason: Reason::HttpMalformed,
                hint,
                in_body: false,
                gone: false,
                bytes: connect.bytes,
            });
            return connection::finish(ended, &shared, &via, Some(&connect.authority)).await;
        }
    };
    let tls = tokio::select! {
        tls = handshake(ended, way.config, &shared, &via) => tls,
        // No call is under way in a handshake: a stop does not wait for it.
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let Some(tls) = tls else { return };
    let names = Arc::new(Names::of_tunnel(&way.host.base));
    let via = Via {
        tunnel: Some(way.host),
        ..via
    };
    connection::serve_tunnel(tls, shared, names, via, stop).await;
}

/// The 200 and the handshake, within `limits.client_head`. One that fails leaves a `refused` record, unless the client sent no byte of it.
async fn handshake<S>(
    ended: Ended<S>,
    config: Arc<ServerConfig>,
    shared: &Shared,
    via: &Via,
) -> Option<TlsStream<Behind<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let most = shared.live.load().policy.limits.client_head;
    let read = Arc::new(AtomicU64::new(0));
    let mut io = Behind {
        first: ended.rest,
        io: ended.io,
        read: read.clone(),
    };
    let done = tokio::time::timeout(most, async {
        io.write_all(ESTABLISHED).await?;
        io.flush().await?;
        TlsAcceptor::from(config).accept(io).await
    })
    .await;
    let (reason, error) = match done {
        Ok(Ok(tls)) => return Some(tls),
        Err(_) => (Reason::ClientTimeout, None),
        Ok(Err(error))
            if error
                .get_ref()
                .is_some_and(|inner| inner.is::<rustls::Error>()) =>
        {
            (Reason::HttpMalformed, Some(error))
        }
        Ok(Err(error)) => (Reason::ClientTimeout, Some(error)),
    };
    let bytes = read.load(Ordering::Relaxed);
    if bytes > 0 {
        let error = error.map_or_else(|| "not in time".to_owned(), |error| error.to_string());
        tracing::warn!(target: "leafgate::ingress", error, "a client's handshake in a tunnel failed; does it trust the ca of [intercept]?");
        shared.metrics.refused_message(reason);
        let _ = shared
            .ledger
            .message_refused_from(reason, bytes, via.peer_uid)
            .await;
    }
    None
}

impl Shared {
    /// Where a `CONNECT` may go; else what to tell the client.
    fn way(&self, authority: &str) -> Result<Way, &'static str> {
        let policy = self.live.load().policy.clone();
        let Some(intercept) = &policy.intercept else {
            return Err("CONNECT is not answered; aim the client's base URL at leafgate");
        };
        let host = policy.tunnel_to(authority).ok_or(
            "the CONNECT names no https host of the policy, name and port exactly; add the host, or let the client not use this proxy for it",
        )?;
        let config = self
            .leaves
            .of(&intercept.authority, &host.base, SystemTime::now())
            .ok_or("no certificate could be made; look at this machine's random source")?;
        Ok(Way {
            host: host.clone(),
            config,
        })
    }
}

/// The certificates of the authority in force, each made when it is first needed, kept in memory.
#[derive(Default)]
pub(super) struct Leaves(Mutex<Option<Signed>>);

struct Signed {
    by: Arc<Authority>,
    all: BTreeMap<String, (Arc<ServerConfig>, SystemTime)>,
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaves")
    }
}

impl Leaves {
    fn of(
        &self,
        authority: &Arc<Authority>,
        to: &BaseUrl,
        now: SystemTime,
    ) -> Option<Arc<ServerConfig>> {
        let mut signed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |signed: &Signed| Arc::ptr_eq(&signed.by, authority);
        if !signed.as_ref().is_some_and(same) {
            *signed = Some(Signed {
                by: authority.clone(),
                all: BTreeMap::new(),
            });
        }
        let all = &mut signed.as_mut()?.all;
        if let Some((config, until)) = all.get(&to.host)
            && now + RENEW < *until
        {
            return Some(config.clone());
        }
        let (config, until) = tls(authority, &to.host, now)?;
        all.insert(to.host.clone(), (config.clone(), until));
        Some(config)
    }
}

/// TLS for one name.
fn tls(
    authority: &Authority,
    host: &str,
    now: SystemTime,
) -> Option<(Arc<ServerConfig>, SystemTime)> {
    let name = Name::of(host);
    let leaf = authority.leaf(&name, now).ok()?;
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&leaf.key).ok()?;
    let one = One {
        name: match name {
            Name::Dns(name) => Some(name),
            Name::Address(_) => None,
        },
        key: Arc::new(CertifiedKey::new(vec![leaf.certificate], key)),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(one));
    Some((strict(config), leaf.until))
}

/// One certificate, for a client that asks for its very name; for an address, which a handshake cannot name, one that asks for none.
#[derive(Debug)]
struct One {
    name: Option<String>,
    key: Arc<CertifiedKey>,
}

impl ResolvesServerCert for One {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (hello.server_name() == self.name.as_deref()).then(|| self.key.clone())
    }
}

/// The stream behind a `CONNECT`: what was read with its head comes first.
#[derive(Debug)]
struct Behind<S> {
    first: BytesMut,
    io: S,
    /// Bytes handed on.
    read: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Behind<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        if this.first.is_empty() {
            std::task::ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
        } else {
            let step = this.first.len().min(out.remaining());
            out.put_slice(&this.first[..step]);
            this.first.advance(step);
        }
        let read = (out.filled().len() - before) as u64;
        this.read.fetch_add(read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Behind<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
