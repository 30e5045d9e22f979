//! A new connection to a host: addresses, TCP, TLS, within `limits.connect` altogether.
//!
//! Promises: at most one attempt for each address; no TLS attempt is made twice; the address that was checked is the one dialled; not one
//! byte of a request is written here. Failure or timeout before TCP stands is `connect_failed`, after it `tls_failed`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::account::Account;
use super::kept::Conn;
use super::records::Records;
use super::relay::LONGEST_WAIT;
use super::wire::Wire;
use super::{Failed, Inner};
use crate::policy::{BaseUrl, Host, Policy};
use crate::terms::Reason;

/// Addresses that are tried.
const MOST_ADDRESSES: usize = 4;

/// Dials a host.
pub(super) async fn dial(
    inner: &Inner,
    policy: &Policy,
    host: &Arc<Host>,
    account: &mut Account,
) -> Result<Conn, Failed> {
    let generation = inner.kept.generation();
    let deadline = Instant::now() + policy.limits.connect.min(LONGEST_WAIT);
    let addresses = timeout_at(deadline, inner.resolver.addresses(policy, host))
        .await
        .map_err(|_| {
            Failed::new(
                Reason::ConnectFailed,
                "the host's name was not resolved within limits.connect",
            )
        })??;
    let (tcp, peer) = connect(&addresses, &host.base, deadline, account).await?;
    let wire = if host.base.tls {
        let config = inner.tls.of(host);
        timeout_at(deadline, async {
            secure(config.await?, &host.base, tcp).await
        })
        .await
        .map_err(|_| {
            Failed::new(
                Reason::TlsFailed,
                "the TLS handshake did not end within limits.connect, nothing was sent",
            )
        })??
    } else {
        Wire::Plain(tcp)
    };
    Ok(inner.kept.fresh(wire, peer, generation))
}

async fn connect(
    addresses: &[IpAddr],
    base: &BaseUrl,
    deadline: Instant,
    account: &mut Account,
) -> Result<(TcpStream, SocketAddr), Failed> {
    let mut refused = true;
    let count = addresses.len().min(MOST_ADDRESSES);
    for (place, ip) in addresses.iter().take(count).enumerate() {
        let peer = SocketAddr::new(*ip, base.port);
        account.peer = Some(peer);
        // An address that swallows everything may not use up the time of those behind it.
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let share = left / u32::try_from(count - place).unwrap_or(u32::MAX);
        match timeout_at(now + share, open(peer)).await {
            Ok(Ok(tcp)) => return Ok((tcp, peer)),
            Ok(Err(fault)) => refused &= fault.kind() == io::ErrorKind::ConnectionRefused,
            Err(_) => refused = false,
        }
    }
    if refused && count > 0 {
        // What base_url says, not what a resolver said of it.
        let hint = format!(
            "the connection was refused at {}: check that the model server is running",
            base.with_port()
        );
        return Err(Failed::new(Reason::ConnectFailed, hint));
    }
    Err(Failed::new(
        Reason::ConnectFailed,
        "no address of the host took a connection within limits.connect; check that the host is up",
    ))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place where leafgate opens a connection"
)]
async fn open(peer: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(peer).await?;
    // A port of the ephemeral range can be met by our own half of the connection: that is no host.
    if tcp.local_addr()? == peer {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

async fn secure(
    config: Arc<rustls::ClientConfig>,
    base: &BaseUrl,
    tcp: TcpStream,
) -> Result<Wire, Failed> {
    let failed = |_| {
        Failed::new(
            Reason::TlsFailed,
            "the host could not be verified (its certificate, name, key or TLS version), nothing was sent; check the host's ca, spki and base_url",
        )
    };
    // One name for SNI, verification and `host`. An address gives no SNI (RFC 6066, section 3).
    let name = ServerName::try_from(base.host.as_str())
        .map_err(|_| {
            Failed::new(
                Reason::TlsFailed,
                "base_url has no name that TLS can verify",
            )
        })?
        .to_owned();
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, Records::new(tcp))
        .await
        .map_err(failed)?;
    Ok(Wire::Tls(Box::new(stream)))
}
