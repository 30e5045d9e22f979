//! Connections kept between calls of one host.
//!
//! Promises: a connection is used again only for the same `Host` value of the same policy, at most 60 s after it was dialled, only where
//! the exchange before it ended clean, and never after `close`. An idle one is closed at that age by itself. The lock is held for a push, a
//! pop or a sweep, never across a wait.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, Sleep};

use super::Inner;
use super::wire::Wire;
use crate::policy::Host;

/// No connection is used later than this after it was dialled.
const OLDEST: Duration = Duration::from_secs(60);
/// A larger buffer is not kept with its connection.
const BUFFER: usize = 16 * 1024;
/// Idle connections of one host.
const MOST: usize = 256;

/// One connection, with what it carries from call to call.
pub(super) struct Conn {
    pub(super) wire: Wire,
    /// The address dialled.
    pub(super) peer: SocketAddr,
    /// Bytes read and not yet taken; empty where the connection is kept.
    pub(super) buf: BytesMut,
    /// One timer, set anew for each wait.
    pub(super) timer: Pin<Box<Sleep>>,
    dialled: Instant,
    generation: u64,
}

/// The kept connections of all hosts.
#[derive(Default)]
pub(super) struct Pool {
    hosts: Mutex<Vec<(Arc<Host>, Vec<Conn>)>>,
    generation: AtomicU64,
    sweeping: AtomicBool,
}

impl Pool {
    /// A connection as it comes from the dial.
    pub(super) fn fresh(&self, wire: Wire, peer: SocketAddr, generation: u64) -> Conn {
        let now = Instant::now();
        Conn {
            wire,
            peer,
            buf: BytesMut::new(),
            timer: Box::pin(tokio::time::sleep_until(now)),
            dialled: now,
            generation,
        }
    }

    /// To be read before a dial begins: a reload during the dial closes what it gives.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A kept connection that is open and silent, the youngest first.
    pub(super) fn take(&self, host: &Arc<Host>) -> Option<Conn> {
        loop {
            let mut conn = {
                let mut hosts = self.lock();
                let (_, conns) = hosts.iter_mut().find(|(of, _)| Arc::ptr_eq(of, host))?;
                conns.pop()?
            };
            // Whatever fails a check is dropped here, outside the lock, and closed by that.
            if self.usable(&conn) && conn.buf.is_empty() && conn.wire.quiet() {
                return Some(conn);
            }
        }
    }

    /// Keeps a connection whose exchange ended clean.
    pub(super) fn keep(&self, inner: &Arc<Inner>, host: &Arc<Host>, mut conn: Conn) {
        if !conn.buf.is_empty() || !self.usable(&conn) {
            return;
        }
        if conn.buf.capacity() > BUFFER {
            conn.buf = BytesMut::new();
        }
        {
            let mut hosts = self.lock();
            // Under the lock, so that a `close` between the check above and here cannot be missed.
            if conn.generation != self.generation() {
                return;
            }
            match hosts.iter_mut().find(|(of, _)| Arc::ptr_eq(of, host)) {
                Some((_, conns)) if conns.len() >= MOST => return,
                Some((_, conns)) => conns.push(conn),
                None => hosts.push((host.clone(), vec![conn])),
            }
        }
        self.sweep_later(inner);
    }

    /// Closes all kept connections, and those in use when their calls end.
    pub(super) fn close(&self) {
        let closed = {
            let mut hosts = self.lock();
            self.generation.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *hosts)
        };
        drop(closed);
    }

    fn usable(&self, conn: &Conn) -> bool {
        conn.generation == self.generation() && conn.dialled.elapsed() < OLDEST
    }

    /// One task for the whole pool, while it holds anything.
    fn sweep_later(&self, inner: &Arc<Inner>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::downgrade(inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                if !inner.kept.sweep() {
                    return;
                }
            }
        });
    }

    /// Closes what is too old or was closed by its host; whether anything is left.
    fn sweep(&self) -> bool {
        let mut closed = Vec::new();
        let mut hosts = self.lock();
        for (_, conns) in hosts.iter_mut() {
            closed.extend(conns.extract_if(.., |conn| !self.usable(conn) || !conn.wire.quiet()));
        }
        hosts.retain(|(_, conns)| !conns.is_empty());
        let left = !hosts.is_empty();
        if !left {
            // Under the lock: a `keep` that comes next starts a new sweeper.
            self.sweeping.store(false, Ordering::Release);
        }
        drop(hosts);
        drop(closed);
        left
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Host>, Vec<Conn>)>> {
        // No code under the lock can leave the list half changed.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections are kept, all hosts together.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().iter().map(|(_, conns)| conns.len()).sum()
    }
}
