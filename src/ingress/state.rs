//! What every call shares: the live policy with its cards and fixtures, the ledger, the door, the counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use jiff::Timestamp;

use crate::card::{CardStore, StoreFault};
use crate::egress::Egress;
use crate::fixture::{LockFault, Registry};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::policy::{Policy, ProxyAddress};
use crate::terms::Secret;

/// One policy with the cards and fixtures that belong to it. A call keeps the one it started with.
#[derive(Debug)]
pub struct Live {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The card folder, as last read.
    pub cards: Arc<CardStore>,
    /// The registered fixtures, as last read.
    pub fixtures: Arc<Registry>,
}

/// What the policy's files could not be loaded for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The card folder.
    #[error(transparent)]
    Cards(#[from] StoreFault),
    /// The lock file: every fault.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fixtures(Vec<LockFault>),
}

impl Live {
    /// Reads what the policy names. A default folder or file that is not there is empty; a named one must be there.
    ///
    /// # Errors
    /// Where a named folder or file cannot be read, or the lock file has faults.
    pub fn load(policy: Arc<Policy>) -> Result<Live, LoadError> {
        let cards = Arc::new(load_cards(&policy)?);
        let fixtures = Arc::new(Registry::load(&policy.fixtures).map_err(LoadError::Fixtures)?);
        Ok(Live {
            policy,
            cards,
            fixtures,
        })
    }
}

pub(super) fn load_cards(policy: &Policy) -> Result<CardStore, StoreFault> {
    if !policy.cards_named && !policy.cards_dir.exists() {
        return Ok(CardStore::default());
    }
    CardStore::read(&policy.cards_dir)
}

/// What is loaded by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Policy,
    Cards,
    Fixtures,
    /// The looking itself.
    Look,
}

/// Why a part of what is on disk is not in force; each part is mended by itself.
#[derive(Debug, Default)]
pub struct ReloadErrors(Mutex<BTreeMap<Part, Arc<String>>>);

impl ReloadErrors {
    /// The first of them; none quotes a file.
    pub fn first(&self) -> Option<Arc<String>> {
        self.lock().values().next().cloned()
    }

    pub(super) fn of(&self, part: Part) -> Option<Arc<String>> {
        self.lock().get(&part).cloned()
    }

    /// Sets or clears the one of a part; whether that was news.
    pub(super) fn set(&self, part: Part, error: Option<String>) -> bool {
        let mut errors = self.lock();
        let before = match error.clone() {
            Some(error) => errors.insert(part, Arc::new(error)),
            None => errors.remove(&part),
        };
        before.as_deref() != error.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Arc<String>>> {
        // No code under the lock can leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shared by the listener, every connection, the reload and the admin listener.
#[derive(Debug)]
pub struct Shared {
    /// The live policy.
    pub live: ArcSwap<Live>,
    /// The ledger.
    pub ledger: Ledger,
    /// The door out.
    pub egress: Egress,
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
    /// Why files on disk are not in force, where they are not.
    pub reload_errors: ReloadErrors,
    pub(super) token: Option<Secret>,
    pub(super) tls: bool,
    pub(super) bound: ProxyAddress,
    pub(super) in_flight: AtomicUsize,
    pub(super) in_flight_bytes: Arc<AtomicU64>,
    pub(super) calls: AtomicU64,
    pub(super) leaves: super::tunnel::Leaves,
    pub(super) random_start: u128,
}

impl Shared {
    /// The base URL to give a client; over a Unix socket the host says nothing but what `Host` is.
    pub fn base_url(&self) -> String {
        match &self.bound {
            ProxyAddress::Tcp(bound) if self.tls => format!("https://{bound}/v1"),
            ProxyAddress::Tcp(bound) => format!("http://{bound}/v1"),
            ProxyAddress::Unix(_) => "http://localhost/v1".to_owned(),
        }
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
