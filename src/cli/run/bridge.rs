//! The way out: connections that the command made to the listener in its namespace, carried to leafgate's own, and nowhere else.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::super::out::Failure;
use super::server::Server;
use crate::files::shell_word;

/// Connections at once: each takes two descriptors of the 1,024 that a process usually has. More wait in the listener's queue.
const MOST: usize = 400;
/// After an accept that failed (no descriptor left): long enough not to spin, short enough not to be seen.
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether leafgate listens there: asked once, before anything is set up.
pub(super) fn reachable(server: &Server, policy: Option<&Path>) -> Result<(), Failure> {
    let address = server.address;
    #[allow(
        clippy::disallowed_methods,
        reason = "leafgate's own listener, as its client; no call is in hand here"
    )]
    let tried = std::net::TcpStream::connect_timeout(&address, PATIENCE);
    let connection = tried.map_err(|error| {
        let policy = policy.map_or_else(String::new, |file| {
            format!(" --policy {}", shell_word(file))
        });
        Failure::new(format!(
            "leafgate does not listen at {address} ({error}): start `leafgate serve{policy}` first; the command was not run"
        ))
    })?;
    let whose = (|| server.took(connection.local_addr()?))();
    whose.map_err(|error| Failure::new(format!("{error}; the command was not run")))?;
    server
        .on_its_ledger(policy)
        .map_err(|why| Failure::new(format!("{why}; the command was not run")))
}

/// Accepts on a listener of the command's namespace for as long as this process lives.
pub(super) fn carry(listener: OwnedFd, server: Arc<Server>) -> io::Result<()> {
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
            let (told, server) = (told.clone(), server.clone());
            tokio::spawn(async move {
                if let Err(error) = one(client, &server).await
                    && !told.swap(true, Ordering::Relaxed)
                {
                    let to = server.address;
                    super::stage::say(&format!("run: leafgate at {to} was not reached: {error}"));
                }
                drop(place);
            });
        }
    });
    Ok(())
}

/// One connection, each side's end handed to the other, once it is known who took it: leafgate may have gone, and somebody else listen there. The error is of
/// the connect alone: what breaks later breaks for the client.
async fn one(mut client: TcpStream, server: &Arc<Server>) -> io::Result<()> {
    #[allow(
        clippy::disallowed_methods,
        reason = "leafgate's own listener, as its client; no call is in hand here"
    )]
    let mut leafgate = TcpStream::connect(server.address).await?;
    let (own, asked) = (leafgate.local_addr()?, server.clone());
    // Off this thread, which carries everything: the kernel's table may be long.
    tokio::task::spawn_blocking(move || asked.took(own))
        .await
        .map_err(io::Error::other)??;
    let _ = client.set_nodelay(true);
    let _ = leafgate.set_nodelay(true);
    let _ = tokio::io::copy_bidirectional(&mut client, &mut leafgate).await;
    Ok(())
}
