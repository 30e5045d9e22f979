//! Reload (contract, section 7): by `SIGHUP` at once, by a changed file after two equal reads a second apart. All or nothing: a policy
//! that does not load leaves the old one in place, and the error is logged, recorded and shown by `/readyz`.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::state::{Live, Part, Shared, load_cards};
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

/// A refused file is tried again this often: what it needs besides itself (a key, a folder, the lock file) may be there by then.
const AGAIN: Duration = Duration::from_secs(5);

/// A file as it was seen; what is in force has the same print, made of the very bytes that were loaded.
type Print = [u8; 32];

/// A watched file.
#[derive(Default)]
struct Watched {
    seen: Option<Print>,
    /// What was loaded last and refused, and when to try it again.
    refused: Option<(Print, Instant)>,
}

impl Watched {
    /// Whether to load the file now: it was seen twice, and is not in force, or is again after another was refused.
    fn due(&mut self, print: Print, in_force: Print, now: Instant) -> bool {
        let settled = self.seen.replace(print) == Some(print);
        settled
            && match self.refused {
                Some((refused, again)) => refused != print || again <= now,
                None => print != in_force,
            }
    }

    /// What came of it.
    fn tried(&mut self, print: Print, taken: bool, now: Instant) {
        self.refused = (!taken).then_some((print, now + AGAIN));
    }

    /// What it needs has changed.
    fn try_again(&mut self, now: Instant) {
        if let Some((_, again)) = &mut self.refused {
            *again = now;
        }
    }
}

/// Who asked for a reload. One that a look asked for again and that ended as before leaves no record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Signal,
    Look,
}

#[derive(Default)]
struct Watch {
    policy: Watched,
    lock: Watched,
    cards: CardWatch,
}

/// Runs until told to stop. Its own thread: it reads files.
pub(super) fn run(shared: &Shared, signals: &Receiver<Signal>) {
    again_after_a_panic(
        || say_that_looking_failed(shared),
        || {
            let mut watch = Watch::default();
            let mut next = Instant::now() + LOOK_EVERY;
            loop {
                match signals.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                    Ok(Signal::Reload) => watch.reload(shared, By::Signal),
                    Err(RecvTimeoutError::Timeout) => {
                        next = Instant::now() + LOOK_EVERY;
                        watch.look(shared);
                    }
                }
            }
        },
    );
}

/// Looks at the fixtures in use until the other end of `stop` is gone. A thread apart: a file of any length may have to be read, and a changed card must not wait
/// for it.
pub(super) fn look_at_fixtures(shared: &Shared, stop: &Receiver<Infallible>) {
    again_after_a_panic(
        || say_that_looking_failed(shared),
        || {
            while stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                shared.live.load_full().fixtures.look();
            }
        },
    );
}

/// A thread that ended would leave what is on disk out of force, and nobody would know.
fn again_after_a_panic(failed: impl Fn(), mut work: impl FnMut()) {
    while std::panic::catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
        failed();
    }
}

fn say_that_looking_failed(shared: &Shared) {
    let what =
        "looking at the files failed inside leafgate; restart it, and report the panic in its log";
    tracing::error!(target: "leafgate::policy", "{what}");
    shared.reload_errors.set(Part::Look, Some(what.to_owned()));
}

impl Watch {
    fn look(&mut self, shared: &Shared) {
        let policy = shared.live.load().policy.clone();
        let print = print_policy(&policy);
        if policy.file.is_some() && self.policy.due(print, policy.text_sha256, Instant::now()) {
            self.reload(shared, By::Look);
        }
        if shared.reload_errors.of(Part::Cards).is_some() {
            reload_cards(shared, By::Look);
        }
        look_at_cards(shared, &mut self.cards);
        let live = shared.live.load_full();
        let print = print_file(&live.policy.fixtures.lock);
        if self
            .lock
            .due(print, live.fixtures.text_sha256(), Instant::now())
        {
            self.reload_lock(shared, By::Look);
        }
    }

    /// Loads everything anew.
    fn reload(&mut self, shared: &Shared, by: By) {
        let policy = shared.live.load().policy.clone();
        let Some(file) = &policy.file else {
            // The embedded default has no file; its cards and fixtures do.
            reload_cards(shared, by);
            self.reload_lock(shared, by);
            return;
        };
        // Printed before the load: what changes afterwards is news.
        let print = print_policy(&policy);
        let taken = reload_policy(shared, &policy, file, by);
        self.policy.tried(print, taken, Instant::now());
        if taken {
            self.lock.refused = None;
        }
    }

    fn reload_lock(&mut self, shared: &Shared, by: By) {
        let print = print_file(&shared.live.load().policy.fixtures.lock);
        let taken = reload_fixtures(shared, by);
        self.lock.tried(print, taken, Instant::now());
        if taken {
            self.policy.try_again(Instant::now());
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

/// Whether the policy file was taken, with its cards and fixtures.
fn reload_policy(shared: &Shared, old: &Policy, file: &Path, by: By) -> bool {
    let loaded = Policy::load(file)
        .map_err(|faults| say_all(&faults))
        .and_then(|policy| {
            restart_needed(old, &policy)?;
            Live::load(Arc::new(policy)).map_err(|error| Refused {
                safe: "a card folder or fixtures.lock named by the policy cannot be loaded"
                    .to_owned(),
                full: error.to_string(),
            })
        });
    match loaded {
        Ok(live) => {
            shared.live.store(Arc::new(live));
            shared.egress.close_kept();
            for part in [Part::Policy, Part::Cards, Part::Fixtures] {
                shared.reload_errors.set(part, None);
            }
            accepted(shared);
            true
        }
        Err(refused) => {
            self::refused(shared, Part::Policy, &refused, by);
            false
        }
    }
}

fn reload_cards(shared: &Shared, by: By) {
    let live = shared.live.load_full();
    match load_cards(&live.policy) {
        Ok(cards) => {
            shared.live.store(Arc::new(Live {
                policy: live.policy.clone(),
                cards: Arc::new(cards),
                fixtures: live.fixtures.clone(),
            }));
            shared.reload_errors.set(Part::Cards, None);
        }
        Err(error) => {
            let refused = Refused {
                safe: "the card folder cannot be read".to_owned(),
                full: error.to_string(),
            };
            self::refused(shared, Part::Cards, &refused, by);
        }
    }
}

fn reload_fixtures(shared: &Shared, by: By) -> bool {
    let live = shared.live.load_full();
    match Registry::load(&live.policy.fixtures) {
        Ok(fixtures) => {
            shared.live.store(Arc::new(Live {
                policy: live.policy.clone(),
                cards: live.cards.clone(),
                fixtures: Arc::new(fixtures),
            }));
            shared.reload_errors.set(Part::Fixtures, None);
            accepted(shared);
            true
        }
        Err(faults) => {
            let full: Vec<_> = faults.iter().map(ToString::to_string).collect();
            let refused = Refused {
                safe: format!("fixtures.lock has {}", counted(faults.len())),
                full: full.join("; "),
            };
            self::refused(shared, Part::Fixtures, &refused, by);
            false
        }
    }
}

/// Why a reload was refused: for the record, and for the log of the person whose files they are.
struct Refused {
    safe: String,
    full: String,
}

fn counted(faults: usize) -> String {
    match faults {
        1 => "1 fault".to_owned(),
        more => format!("{more} faults"),
    }
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
            "the policy has {}, the first at line {line}",
            counted(faults.len())
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

fn accepted(shared: &Shared) {
    let hash = shared.live.load().policy.hash.clone();
    shared.ledger.config(&hash, None);
    tracing::info!(target: "leafgate::policy", policy = hash, "reloaded");
}

fn refused(shared: &Shared, part: Part, refused: &Refused, by: By) {
    let news = shared.reload_errors.set(part, Some(refused.safe.clone()));
    if by == By::Look && !news {
        return;
    }
    let hash = shared.live.load().policy.hash.clone();
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
    use std::time::{Duration, Instant};

    use std::cell::Cell;

    use super::{AGAIN, Watched, again_after_a_panic, counted};

    #[test]
    fn one_fault_is_not_faults() {
        assert_eq!([1, 2].map(counted), ["1 fault", "2 faults"]);
    }

    #[test]
    fn a_panic_is_told_and_the_work_begins_again() {
        let (begun, told) = (Cell::new(0), Cell::new(0));
        again_after_a_panic(
            || told.set(told.get() + 1),
            || {
                begun.set(begun.get() + 1);
                assert!(begun.get() > 2, "twice it fails");
            },
        );
        assert_eq!((begun.get(), told.get()), (3, 2));
    }

    #[test]
    fn a_change_is_taken_once_after_two_equal_looks() {
        let now = Instant::now();
        let mut watched = Watched::default();
        assert!(!watched.due([0; 32], [0; 32], now));
        assert!(!watched.due([1; 32], [0; 32], now), "seen once");
        assert!(!watched.due([2; 32], [0; 32], now), "still changing");
        assert!(watched.due([2; 32], [0; 32], now), "settled");
        watched.tried([2; 32], true, now);
        assert!(!watched.due([2; 32], [2; 32], now), "in force");
        assert!(!watched.due([0; 32], [2; 32], now));
        assert!(watched.due([0; 32], [2; 32], now), "back again");
    }

    #[test]
    fn what_was_refused_is_tried_again_later_or_when_it_changes_or_is_what_is_in_force() {
        let now = Instant::now();
        let mut watched = Watched::default();
        assert!(!watched.due([1; 32], [0; 32], now));
        assert!(watched.due([1; 32], [0; 32], now));
        watched.tried([1; 32], false, now);
        assert!(!watched.due([1; 32], [0; 32], now + AGAIN - Duration::from_millis(1)));
        assert!(watched.due([1; 32], [0; 32], now + AGAIN));
        watched.try_again(now);
        assert!(watched.due([1; 32], [0; 32], now), "what it needs changed");
        watched.tried([1; 32], false, now);
        assert!(!watched.due([0; 32], [0; 32], now), "seen once");
        assert!(watched.due([0; 32], [0; 32], now), "in force again");
        watched.tried([0; 32], true, now);
        assert!(!watched.due([0; 32], [0; 32], now), "and nothing to do");
    }
}
