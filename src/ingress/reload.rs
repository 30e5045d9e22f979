//! Reload (contract, section 7): by `SIGHUP` at once, by a changed file after two equal reads a second apart. All or nothing: a policy
//! that does not load leaves the old one in place, and the error is logged, recorded and shown by `/readyz`.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::state::{Live, Shared, load_cards};
use crate::card::CardWatch;
use crate::files;
use crate::fixture::Registry;
use crate::policy::{Fault, Policy};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In how long a changed file is taken: two looks after the change, and the time that they take.
pub const TAKEN_WITHIN: Duration = Duration::from_millis(2500);

/// Bytes of a watched file that are read.
const WATCHED_BYTES: u64 = 64 << 20;

/// What the reload thread is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `SIGHUP`.
    Reload,
    /// The process ends.
    Stop,
}

/// A file as it was seen; what is in force has the same print, made of the very bytes that were loaded.
type Print = [u8; 32];

/// A watched file.
#[derive(Default)]
struct Watched {
    seen: Option<Print>,
    /// A print that was loaded and refused: it is not tried again.
    tried: Option<Print>,
}

impl Watched {
    /// Whether a change has settled: seen twice, not in force, and not tried.
    fn settled(&mut self, now: Print, in_force: Print) -> bool {
        let settled = self.seen == Some(now) && now != in_force && self.tried != Some(now);
        self.seen = Some(now);
        if settled {
            self.tried = Some(now);
        }
        settled
    }
}

/// Runs until told to stop. Its own thread: it reads files.
pub(super) fn run(shared: &Arc<Shared>, signals: &Receiver<Signal>) {
    let (mut file, mut lock, mut cards) =
        (Watched::default(), Watched::default(), CardWatch::default());
    let mut next = Instant::now() + LOOK_EVERY;
    loop {
        match signals.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Signal::Reload) => {
                // Printed before the load: what changes afterwards is news.
                file.tried = Some(print_policy(&shared.live.load().policy));
                reload(shared);
            }
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + LOOK_EVERY;
                let policy = shared.live.load().policy.clone();
                if policy.file.is_some() && file.settled(print_policy(&policy), policy.text_sha256)
                {
                    reload(shared);
                }
                look_at_cards(shared, &mut cards);
                let live = shared.live.load_full();
                if lock.settled(
                    print_file(&live.policy.fixtures.lock),
                    live.fixtures.text_sha256(),
                ) {
                    reload_fixtures(shared);
                }
                shared.live.load().fixtures.look();
            }
        }
    }
}

/// Takes the cards that changed.
fn look_at_cards(shared: &Shared, watch: &mut CardWatch) {
    let live = shared.live.load_full();
    if let Some(cards) = watch.look(&live.policy.cards_dir, &live.cards) {
        // A card that was written a moment before it was read is read again, and most often says the same.
        if cards.iter().ne(live.cards.iter()) {
            tracing::info!(target: "leafgate::cards", cards = cards.iter().count(), "reloaded");
        }
        shared.live.store(Arc::new(Live {
            policy: live.policy.clone(),
            cards: Arc::new(cards),
            fixtures: live.fixtures.clone(),
        }));
    }
}

/// Loads everything anew.
fn reload(shared: &Shared) {
    let old = shared.live.load().policy.clone();
    let Some(file) = &old.file else {
        // The embedded default has no file; its cards and fixtures do.
        reload_cards(shared);
        reload_fixtures(shared);
        return;
    };
    let loaded = Policy::load(file)
        .map_err(|faults| say_all(&faults))
        .and_then(|policy| {
            restart_needed(&old, &policy)?;
            Live::load(Arc::new(policy)).map_err(|error| Refused {
                safe: "a card folder or fixtures.lock named by the policy cannot be loaded"
                    .to_owned(),
                full: error.to_string(),
            })
        });
    match loaded {
        Ok(live) => {
            let hash = live.policy.hash.clone();
            shared.live.store(Arc::new(live));
            shared.egress.close_kept();
            accepted(shared, &hash);
        }
        Err(refused) => self::refused(shared, &refused),
    }
}

fn reload_cards(shared: &Shared) {
    let live = shared.live.load_full();
    match load_cards(&live.policy) {
        Ok(cards) => shared.live.store(Arc::new(Live {
            policy: live.policy.clone(),
            cards: Arc::new(cards),
            fixtures: live.fixtures.clone(),
        })),
        Err(error) => refused(
            shared,
            &Refused {
                safe: "the card folder cannot be read".to_owned(),
                full: error.to_string(),
            },
        ),
    }
}

fn reload_fixtures(shared: &Shared) {
    let live = shared.live.load_full();
    match Registry::load(&live.policy.fixtures) {
        Ok(fixtures) => {
            shared.live.store(Arc::new(Live {
                policy: live.policy.clone(),
                cards: live.cards.clone(),
                fixtures: Arc::new(fixtures),
            }));
            accepted(shared, &live.policy.hash);
        }
        Err(faults) => {
            let full = faults
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ");
            refused(
                shared,
                &Refused {
                    safe: format!("fixtures.lock has {} faults", faults.len()),
                    full,
                },
            );
        }
    }
}

/// Why a reload was refused: for the record, and for the log of the person whose files they are.
struct Refused {
    safe: String,
    full: String,
}

fn say_all(faults: &[Fault]) -> Refused {
    let line = faults.first().map_or(0, |fault| fault.line);
    let full = faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    Refused {
        safe: format!(
            "the policy has {} faults, the first at line {line}",
            faults.len()
        ),
        full,
    }
}

/// `[listen]` and `[ledger]` are taken at start alone.
fn restart_needed(old: &Policy, new: &Policy) -> Result<(), Refused> {
    let part = |policy: &Policy, key: &str| policy.effective().get(key).cloned();
    for key in ["listen", "ledger"] {
        if part(old, key) != part(new, key) {
            let text = format!("[{key}] changed; restart leafgate to take it");
            return Err(Refused {
                safe: text.clone(),
                full: text,
            });
        }
    }
    Ok(())
}

fn accepted(shared: &Shared, hash: &str) {
    shared.reload_error.store(None);
    shared.ledger.config(hash, None);
    tracing::info!(target: "leafgate::policy", policy = hash, "reloaded");
}

fn refused(shared: &Shared, refused: &Refused) {
    let hash = shared.live.load().policy.hash.clone();
    shared
        .reload_error
        .store(Some(Arc::new(refused.safe.clone())));
    shared.ledger.config(&hash, Some(&refused.safe));
    tracing::error!(target: "leafgate::policy", error = refused.full, "reload refused, the old policy stays");
}

fn print_policy(policy: &Policy) -> Print {
    policy.file.as_deref().map_or([0; 32], print_file)
}

/// A small file's bytes; one that cannot be read has a print of its own.
fn print_file(path: &Path) -> Print {
    files::read(path, WATCHED_BYTES).map_or([0; 32], |bytes| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::Watched;

    #[test]
    fn a_change_is_taken_once_after_two_equal_looks() {
        let mut watched = Watched::default();
        assert!(!watched.settled([0; 32], [0; 32]));
        assert!(!watched.settled([1; 32], [0; 32]), "seen once");
        assert!(!watched.settled([2; 32], [0; 32]), "still changing");
        assert!(watched.settled([2; 32], [0; 32]), "settled");
        assert!(!watched.settled([2; 32], [0; 32]), "tried already");
        assert!(!watched.settled([2; 32], [2; 32]), "in force");
        assert!(!watched.settled([0; 32], [2; 32]));
        assert!(watched.settled([0; 32], [2; 32]), "back again");
    }
}
