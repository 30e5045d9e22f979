//! The way out: connections that the command made to the listener in its namespace, carried to leafgate's own, and nowhere else.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::super::out::Failure;
use crate::files::shell_word;

/// Connections at once: each takes two descriptors of the 1,024 that a process usually has. More wait in the listener's queue.
const MOST: usize = 400;
/// After an accept that failed (no descriptor left): long enough not to spin, short enough not to be seen.
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether something listens there: asked once, before anything is set up.
pub(super) fn reachable(address: SocketAddr, policy: Option<&Path>) -> Result<(), Failure> {
    #[allow(
        clippy::disallowed_methods,
        reason = "leafgate's own listener, as its client; no call is in hand here"
    )]
    let tried = std::net::TcpStream::connect_timeout(&address, PATIENCE);
    match tried {
        Ok(_) => Ok(()),
        Err(error) => {
            let policy = policy.map_or_else(String::new, |file| {
                format!(" --policy {}", shell_word(file))
            });
            Err(Failure::new(format!(
                "leafgate does not listen at {address} ({error}): start `leafgate serve{policy}` first; the command was not run"
            )))
        }
    }
}

/// Accepts on a listener of the command's namespace for as long as this process lives.
pub(super) fn carry(listener: OwnedFd, to: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(MOST));
    let told = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let told = told.clone();
            tokio::spawn(async move {
                if let Err(error) = one(client, to).await
                    && !told.swap(true, Ordering::Relaxed)
                {
                    super::stage::say(&format!("run: leafgate at {to} was not reached: {error}"));
                }
                drop(place);
            });
        }
    });
    Ok(())
}

/// One connection, each side's end handed to the other. The error is of the connect alone: what breaks later breaks for the client.
async fn one(mut client: TcpStream, to: SocketAddr) -> io::Result<()> {
    #[allow(
        clippy::disallowed_methods,
        reason = "leafgate's own listener, as its client; no call is in hand here"
    )]
    let mut leafgate = TcpStream::connect(to).await?;
    let _ = client.set_nodelay(true);
    let _ = leafgate.set_nodelay(true);
    let _ = tokio::io::copy_bidirectional(&mut client, &mut leafgate).await;
    Ok(())
}
