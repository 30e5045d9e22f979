//! The start of a run (contract, section 9), in this order: take `LOCK`; the keys; read everything; compare with the checkpoint; cut off a torn last line; write
//! a checkpoint over what the last one does not cover; write `open` and an `outcome` with `sent: unknown` for each forwarded decision that has none; write the checkpoint; start the writer.
//!
//! Promises: whatever else is wrong with the files refuses the start, names file and line, and changes nothing; but a rotation that was cut after its record, in a ledger that is
//! whole, is completed before the other keys are looked at.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::checkpoint::{self, Checkpoint};
use super::cleared::Sent;
use super::entry::{Recovered, Stamp};
use super::error::{Fault, LedgerError};
use super::judge::{in_folder, judge, last_key};
use super::keeper::Keeper;
use super::kept::{self, Kept};
use super::keys::{Keys, VerifierKey, random};
use super::past::Past;
use super::queue::{Kind, Shared};
use super::scan::{Scan, SegmentFile, Torn, segments};
use super::state::Meters;
use super::store::{Store, segment_name};
use super::writer::{Chain, Manner, Writer, own};
use super::{Ledger, RunFacts, prune, rotate};
use crate::admit::CallId;
use crate::policy::LedgerSettings;

/// The lock's file name.
pub(super) const LOCK_FILE: &str = "LOCK";
/// How long a start waits for somebody who only looks at the lock (`verify` does, for an instant).
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// Starts a ledger over a store.
pub(super) fn start<S: Store>(
    settings: &LedgerSettings,
    run: &RunFacts,
    mut store: S,
) -> Result<Ledger, LedgerError> {
    let dir = settings.dir.as_path();
    make_folder(dir)?;
    let lock = take_lock(dir)?;
    let copy = settings.checkpoint_copy.as_deref();
    let copied = copy.map(|file| kept::read_copy(file, dir)).transpose()?;
    let copied = copied.flatten();
    let all = segments(dir)?;
    let unused = rotate::complete(dir, &all)?;
    let (keys, missing) = Keys::open(dir, all.is_empty())?;
    let read = read_all(dir, &all, keys.signer.public(), copied.as_ref())?;
    missing.store(dir)?;
    if unused {
        rotate::discard(dir)?;
    }
    let (mut files, covered) = prune::complete(dir, &all, &read, &keys.signer)?;
    let unsigned = read.unsigned();
    let Read { scan, torn, .. } = read;
    if let Some(file) = copy.filter(|_| copied.is_none() && scan.seq > 0) {
        tracing::warn!(file = %file.display(), "the checkpoint's copy is missing and is made anew; nothing outside the ledger's folder says how long the ledger was");
    }

    let recovered = Recovered {
        cut: torn.as_ref().map_or(0, |torn| torn.cut),
        closed: scan.open.len() as u64,
        unsigned,
    };
    if let Some(torn) = &torn {
        cut_off(torn)?;
    }
    let keeper = Keeper {
        file: dir.join(checkpoint::FILE),
        copy: copy.map(Path::to_owned),
        signer: keys.signer,
    };
    // No run is ever followed by another while it is under no checkpoint: see `judge`.
    if covered < scan.seq {
        say_unsigned(unsigned, scan.stopped);
        keeper.write((scan.seq, scan.tree.root()))?;
    }
    let path = match files.pop() {
        Some(SegmentFile { path, .. }) => path,
        None => dir.join(segment_name(0)),
    };
    let opened = if path.exists() {
        let len = path
            .metadata()
            .map_err(LedgerError::io(&path, "look at the segment"))?
            .len();
        store.reopen(&path, len)
    } else {
        store.create(0)
    };
    let segment = opened.map_err(LedgerError::io(&path, "open the segment for appending"))?;

    let log = keeper.signer.public().name().to_owned();
    let stamp = Stamp {
        log,
        run: new_run(dir)?,
        mac: keys.mac,
    };
    let mut first = vec![own(
        stamp.open(
            run,
            settings.sync,
            &keeper.signer.public().line(),
            recovered,
        ),
        Kind::Own(None),
    )];
    for (of, call) in &scan.open {
        let draft = stamp.unreported(call, *of, Sent::Unknown, "crash");
        first.push(own(draft, Kind::Outcome(*of)));
    }
    let (queue, jobs) = mpsc::channel();
    let (checkpoints, covered) = mpsc::channel();
    let shared = Arc::new(Shared::new(queue, stamp, Meters::default()));
    let mut writer = Writer::new(
        shared.clone(),
        store,
        segment,
        path,
        Chain {
            seq: scan.seq,
            prev: scan.prev,
            tree: scan.tree,
            time: scan.time,
        },
        Manner {
            segment_bytes: settings.segment_bytes,
            checkpoint_every: settings.checkpoint_every,
            sync: settings.sync,
        },
        run.policy.clone(),
        checkpoints,
    );
    write_first(dir, &mut writer, &shared, &keeper, &mut first)?;

    let keeper = spawn(dir, "leafgate-notes", {
        let shared = shared.clone();
        move || keeper.run(&covered, &shared)
    })?;
    let guard = Ended(shared.clone());
    spawn(dir, "leafgate-ledger", move || {
        let tell = writer.run(&jobs);
        // In this order: no further job, the last checkpoint on disk, the lock free, and only then is the stop answered.
        drop(guard);
        drop(jobs);
        drop(writer);
        let _ = keeper.join();
        drop(lock);
        if let Some(tell) = tell {
            let _ = tell.send(());
        }
    })?;
    Ok(Ledger::of(shared))
}

/// Latches when the writer's thread ends, also where it panics: nobody may take a ledger without a writer for a working one.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.latch("the ledger's writer has ended".to_owned());
    }
}

fn make_folder(dir: &Path) -> Result<(), LedgerError> {
    if !dir.exists() {
        let made: Vec<&Path> = dir
            .ancestors()
            .take_while(|at| !at.as_os_str().is_empty() && !at.exists())
            .collect();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(LedgerError::io(dir, "make the folder"))?;
        for parent in made.iter().filter_map(|made| made.parent()) {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(LedgerError::io(parent, "sync the folder"))?;
        }
    }
    let facts = dir
        .metadata()
        .map_err(LedgerError::io(dir, "look at the folder"))?;
    if facts.mode() & 0o022 != 0 {
        return Err(LedgerError::Key {
            file: dir.to_owned(),
            what: "others may write to this folder, and so could put another ledger in place; set its mode to 0700",
        });
    }
    Ok(())
}

/// The files whose locks keep other processes out: `LOCK`, and the folder itself, which stays locked where somebody removes `LOCK`.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    _folder: File,
}

pub(super) fn take_lock(dir: &Path) -> Result<Lock, LedgerError> {
    let path = dir.join(LOCK_FILE);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(LedgerError::io(&path, "open the lock"))?;
    wait_for(&file, &path)?;
    let folder = File::open(dir).map_err(LedgerError::io(dir, "open the folder"))?;
    wait_for(&folder, &path)?;
    Ok(Lock {
        _file: file,
        _folder: folder,
    })
}

fn wait_for(file: &File, path: &Path) -> Result<(), LedgerError> {
    let begun = std::time::Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(LedgerError::Locked {
                    file: path.to_owned(),
                });
            }
            Err(TryLockError::Error(cause)) => {
                return Err(LedgerError::io(path, "take the lock")(cause));
            }
        }
    }
}

/// What the start found.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) scan: Scan,
    pub(super) torn: Option<Torn>,
    /// The checkpoint, where one was there.
    pub(super) note: Option<Checkpoint>,
    /// The segments that were read: all but those that a cut prune left.
    pub(super) files: Vec<SegmentFile>,
}

impl Read {
    /// How many records the checkpoint does not cover.
    pub(super) fn unsigned(&self) -> u64 {
        let covered = self.note.as_ref().map_or(0, |note| note.size);
        self.scan.seq.saturating_sub(covered)
    }
}

/// A crash leaves them, and so does whoever wrote them: which, the files do not say.
fn say_unsigned(records: u64, stopped: bool) {
    if stopped {
        tracing::warn!(
            records,
            "the checkpoint of the last stop is missing: the last records were under no signature until now, and could have been forged; open.recovered says how many"
        );
    } else {
        tracing::warn!(
            records,
            "the last run ended without a stop: its last records were under no signature until now; open.recovered says how many"
        );
    }
}

/// Reads all segments; the root at the size of `copied` is kept too.
pub(super) fn read_chain(
    dir: &Path,
    all: &[SegmentFile],
    copied: Option<&Kept>,
) -> Result<Read, LedgerError> {
    let note = read_checkpoint(dir)?;
    let past = Past::read(dir)?;
    let files = past.kept(all).to_vec();
    let mut scan = Scan::new(&past, note.as_ref().map(|note| note.size));
    if let Some(copied) = copied {
        scan.mark(copied.note.size);
    }
    let torn = scan.read(&files, &mut |_| {})?;
    Ok(Read {
        scan,
        torn,
        note,
        files,
    })
}

/// Reads all segments and holds them against the checkpoint, its copy, and the last key.
pub(super) fn read_all(
    dir: &Path,
    all: &[SegmentFile],
    public: &VerifierKey,
    copied: Option<&Kept>,
) -> Result<Read, LedgerError> {
    let read = read_chain(dir, all, copied)?;
    hold(dir, &read, public)?;
    let Read { scan, .. } = &read;
    if let Some(copied) = copied {
        let (covers, gone) = (copied.note.size, scan.counts.pruned);
        if covers < gone {
            // Maintenance does not know of the copy. What was pruned since is under the signatures of its prune records, and the ledger's own checkpoint holds.
            tracing::warn!(file = %copied.file.display(), covers, gone, "the checkpoint's copy is from before a prune and is written anew");
        } else {
            copied.holds(scan, public)?;
        }
    }
    Ok(read)
}

/// Holds what was read against the checkpoint and the last key.
pub(super) fn hold(dir: &Path, read: &Read, public: &VerifierKey) -> Result<(), LedgerError> {
    let Read { scan, files, .. } = read;
    match &read.note {
        Some(note) => judge(dir, files, scan, public, note),
        // The first start writes its checkpoint right after its first record. Where a crash came between, the next start writes one over
        // that record before it adds another: no ledger that is longer ever lacks one.
        None if scan.must_cover > 0
            || scan.counts.runs > 1
            || scan.counts.decisions > 0
            || scan.counts.pruned > 0 =>
        {
            Err(in_folder(dir, checkpoint::FILE, Fault::NoCheckpoint))
        }
        None if scan.seq > 0 => last_key(dir, files, scan, public),
        None => Ok(()),
    }
}

/// The checkpoint, `None` where there is none.
pub(super) fn read_checkpoint(dir: &Path) -> Result<Option<Checkpoint>, LedgerError> {
    Ok(Kept::read(&dir.join(checkpoint::FILE))?.map(|kept| kept.note))
}

pub(super) fn cut_off(torn: &Torn) -> Result<(), LedgerError> {
    tracing::warn!(file = %torn.path.display(), bytes = torn.cut, "a torn last line is cut off");
    OpenOptions::new()
        .write(true)
        .open(&torn.path)
        .and_then(|file| file.set_len(torn.keep).and_then(|()| file.sync_all()))
        .map_err(LedgerError::io(&torn.path, "cut off the torn last line"))
}

pub(super) fn new_run(dir: &Path) -> Result<String, LedgerError> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or_default();
    Ok(CallId::new(millis, random(dir)?).to_string())
}

/// The first records and their checkpoint: the start fails where they cannot be made durable.
fn write_first<S: Store>(
    dir: &Path,
    writer: &mut Writer<S>,
    shared: &Shared,
    keeper: &Keeper,
    first: &mut Vec<super::queue::Entry>,
) -> Result<(), LedgerError> {
    writer.write(first);
    if let Some(why) = shared.why() {
        let cause = io::Error::other(why.to_owned());
        return Err(LedgerError::io(dir, "write the first record of this run")(
            cause,
        ));
    }
    keeper.write(writer.covered())?;
    writer.checkpoint_written();
    Ok(())
}

fn spawn(
    dir: &Path,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, LedgerError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(LedgerError::io(dir, "start the ledger's threads"))
}
