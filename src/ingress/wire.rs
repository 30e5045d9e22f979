//! What gate, service and connection of one client tell each other.
//!
//! All three live in one task, so nothing here is ever waited for; the atomics are for the type system. Made by the connection; written by
//! the gate, except what the service says of its answer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

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
    refused: AtomicBool,
    cut: AtomicBool,
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

    /// A new request: nothing is said of its answer yet.
    pub(super) fn begin(&self, fragment: bool) {
        self.fragment.store(fragment, Ordering::Relaxed);
        self.answered.store(false, Ordering::Relaxed);
        self.refused.store(false, Ordering::Relaxed);
    }

    /// The answer to the present request is a refusal: what was sent behind it unasked is not read as a request.
    pub(super) fn set_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The host broke off: what came of its answer goes out first. Whether it is out.
    pub(super) fn out_before_cut(&self, waker: &Waker) -> bool {
        if !self.cut.swap(true, Ordering::Relaxed) {
            // A flush from before does not count; hyper flushes when it finds nothing more to write.
            self.flushed.store(false, Ordering::Relaxed);
            waker.wake_by_ref();
            return false;
        }
        self.waker.register(waker);
        self.flushed.load(Ordering::Relaxed)
    }

    /// Someone waits for the end of a flush.
    pub(super) fn awaits_flush(&self) -> bool {
        self.answered.load(Ordering::Acquire) || self.cut.load(Ordering::Relaxed)
    }

    /// An answer goes out before the request was read to its end: the connection drains what still comes.
    pub(super) fn set_drain(&self) {
        self.drain.store(true, Ordering::Relaxed);
    }

    pub(super) fn drain(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }
}
