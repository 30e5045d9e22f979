//! What gate, service and connection of one client tell each other.
//!
//! All three live in one task, so nothing here is ever waited for; the atomics are for the type system. Made by the connection; written by
//! the gate, except what the service says of its answer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use atomic_waker::AtomicWaker;

use crate::terms::Reason;

/// Why the gate shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) hint: &'static str,
    /// In the body of a call, whose decision says it, and not in a head.
    pub(super) in_body: bool,
    /// The client closed: there is nobody to answer.
    pub(super) gone: bool,
    /// Bytes of the message that were read.
    pub(super) bytes: u64,
}

/// A clean `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connect {
    /// What it names, `host:port`.
    pub(super) authority: String,
    /// Bytes of its head.
    pub(super) bytes: u64,
}

/// What gate, service and connection tell each other. All three live in one task; the atomics are for the type system.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) fault: OnceLock<Fault>,
    pub(super) connect: OnceLock<Connect>,
    pub(super) fragment: AtomicBool,
    pub(super) answered: AtomicBool,
    pub(super) flushed: AtomicBool,
    pub(super) gone: AtomicBool,
    drain: AtomicBool,
    pub(super) waker: AtomicWaker,
}

impl Wire {
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.get().copied()
    }

    /// Whether the target of the present request had a fragment.
    pub(super) fn fragment(&self) -> bool {
        self.fragment.load(Ordering::Relaxed)
    }

    /// The answer's last byte was handed to hyper.
    pub(super) fn set_answered(&self) {
        // A flush from before (of a `100 Continue`, say) does not count.
        self.flushed.store(false, Ordering::Relaxed);
        self.answered.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The client closed its side while a call was under way.
    pub(super) fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// An answer goes out before the request was read to its end: the connection drains what still comes.
    pub(super) fn set_drain(&self) {
        self.drain.store(true, Ordering::Relaxed);
    }

    pub(super) fn drain(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }
}
