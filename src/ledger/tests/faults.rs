//! Faults of the disk, injected into the store or made on it: each latches, and nothing is forwarded after.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::start::start;
use super::super::store::{Disk, Segment, Store};
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Write,
    ShortWrite,
    Sync,
    Create,
}

/// Counts what the writer does, and fails from the call after the start's first batch on.
#[derive(Debug, Default)]
struct Counts {
    syncs: AtomicU64,
    failed: AtomicU64,
}

struct Faulty {
    disk: Disk,
    fault: Fault,
    counts: Arc<Counts>,
}

struct FaultyFile {
    file: <Disk as Store>::Open,
    fault: Fault,
    counts: Arc<Counts>,
}

fn injected(counts: &Counts, kind: io::ErrorKind) -> io::Error {
    counts.failed.fetch_add(1, Ordering::SeqCst);
    io::Error::from(kind)
}

impl Store for Faulty {
    type Open = FaultyFile;
    fn create(&mut self, first: u64) -> io::Result<FaultyFile> {
        if first > 0 && self.fault == Fault::Create {
            return Err(injected(&self.counts, io::ErrorKind::StorageFull));
        }
        Ok(FaultyFile {
            file: self.disk.create(first)?,
            fault: self.fault,
            counts: self.counts.clone(),
        })
    }
    fn reopen(&mut self, path: &Path, len: u64) -> io::Result<FaultyFile> {
        Ok(FaultyFile {
            file: self.disk.reopen(path, len)?,
            fault: self.fault,
            counts: self.counts.clone(),
        })
    }
}

impl FaultyFile {
    fn now(&self) -> bool {
        self.counts.syncs.load(Ordering::SeqCst) > 0
    }
}

impl Segment for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.fault {
            Fault::Write if self.now() => Err(injected(&self.counts, io::ErrorKind::StorageFull)),
            // Part of the batch is on the disk, as when it fills midway.
            Fault::ShortWrite if self.now() => {
                self.file.append(&bytes[..bytes.len() - 20])?;
                Err(injected(&self.counts, io::ErrorKind::WriteZero))
            }
            Fault::Write | Fault::ShortWrite | Fault::Sync | Fault::Create => {
                self.file.append(bytes)
            }
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        if self.now() && self.fault == Fault::Sync {
            return Err(injected(&self.counts, io::ErrorKind::Other));
        }
        self.counts.syncs.fetch_add(1, Ordering::SeqCst);
        self.file.sync()
    }
    fn whole(&self) -> io::Result<Result<(), &'static str>> {
        self.file.whole()
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
}

#[test]
fn each_fault_latches_and_nothing_is_forwarded_after() {
    for (fault, why) in [
        (Fault::Write, "the write failed"),
        (Fault::ShortWrite, "the write failed"),
        (Fault::Sync, "the sync failed"),
    ] {
        let dir = folder();
        let settings = settings(dir.path());
        let counts = Arc::new(Counts::default());
        let store = Faulty {
            disk: Disk::new(&settings.dir),
            fault,
            counts: counts.clone(),
        };
        let ledger = start(&settings, &facts(), store).expect("the first batch is whole");
        assert!(ledger.state().ok);
        let rt = runtime();
        rt.block_on(async {
            let tasks: Vec<_> = (0..30)
                .map(|number| {
                    let ledger = ledger.clone();
                    tokio::spawn(async move { forward(&ledger, number).await.map(drop) })
                })
                .collect();
            for task in tasks {
                assert_eq!(
                    task.await.expect("no panic"),
                    Err(Reason::LedgerUnavailable),
                    "{fault:?}"
                );
            }
            let card = release_card();
            let refused = ledger.refuse(&hold(50, &card)).await;
            assert_eq!(refused.unwrap_err().reason, Reason::LedgerUnavailable);
        });
        let state = ledger.state();
        assert!(!state.ok);
        assert!(
            state.why.is_some_and(|text| text.contains(why)),
            "{fault:?}"
        );
        ledger.stop();
        assert_eq!(
            counts.failed.load(Ordering::SeqCst),
            1,
            "{fault:?} was tried again"
        );
        assert_eq!(state.records, 1, "{fault:?}: the open record alone");

        // What did come to the disk is a ledger that the next start can take up: decisions there have an outcome, unknown.
        let again = Ledger::start(&settings, facts()).expect("recovers");
        rt.block_on(forward(&again, 60))
            .expect("recorded")
            .1
            .close(outcome());
        again.stop();
        let report = whole(&dir);
        assert_eq!(report.counts.runs, 2);
        assert_eq!(report.counts.forwarded, report.counts.unknown + 1);
    }
}

#[test]
fn a_segment_that_cannot_be_made_latches() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.segment_bytes = 1500;
    let store = Faulty {
        disk: Disk::new(&settings.dir),
        fault: Fault::Create,
        counts: Arc::default(),
    };
    let ledger = start(&settings, &facts(), store).expect("the first batch is whole");
    let rt = runtime();
    let mut forwarded = 0;
    while let Ok((_, ticket)) = rt.block_on(forward(&ledger, forwarded)) {
        ticket.close(outcome());
        forwarded += 1;
        assert!(forwarded < 10, "never latched");
    }
    assert!(forwarded > 0);
    assert!(
        ledger
            .state()
            .why
            .is_some_and(|why| why.contains("next segment"))
    );
    ledger.stop();
}

#[test]
fn a_segment_that_is_no_longer_itself_latches() {
    type Deed = fn(&Path) -> io::Result<()>;
    let deeds: [(&str, Deed, &str); 5] = [
        ("untouched", |_| Ok(()), ""),
        (
            "renamed",
            |path| fs::rename(path, path.with_extension("away")),
            "renamed",
        ),
        ("deleted", |path| fs::remove_file(path), "deleted"),
        (
            "truncated",
            |path| fs::OpenOptions::new().write(true).open(path)?.set_len(0),
            "truncated",
        ),
        (
            "replaced",
            |path| {
                let copy = path.with_extension("copy");
                fs::copy(path, &copy)?;
                fs::hard_link(path, path.with_extension("kept"))?;
                fs::rename(copy, path)?;
                fs::remove_file(path.with_extension("kept"))?;
                Ok(())
            },
            "deleted",
        ),
    ];
    for (name, deed, why) in deeds {
        let dir = folder();
        let ledger = start_in(&dir);
        let rt = runtime();
        rt.block_on(forward(&ledger, 1))
            .expect("recorded")
            .1
            .close(outcome());
        // The outcome is written by itself: the writer must not look while the deed is half done.
        while ledger.state().next_seq < 3 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        deed(&settings(dir.path()).dir.join("000000000000.jsonl")).expect("done");
        let after = rt.block_on(forward(&ledger, 2)).map(|(seq, ticket)| {
            ticket.close(outcome());
            seq
        });
        if why.is_empty() {
            assert!(after.is_ok(), "{name}");
            ledger.stop();
            whole(&dir);
            continue;
        }
        assert_eq!(after, Err(Reason::LedgerUnavailable), "{name}");
        let state = ledger.state();
        assert!(
            state.why.as_deref().is_some_and(|text| text.contains(why)),
            "{name}: {state:?}"
        );
        assert_eq!(
            rt.block_on(forward(&ledger, 3)).err(),
            Some(Reason::LedgerUnavailable),
            "{name}"
        );
        ledger.stop();
    }
}
