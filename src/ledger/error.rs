//! What can be wrong with a ledger: at the start ([`LedgerError`]), and in its files ([`Problem`]). Each names the file and, where a record is
//! at fault, its line; none quotes a record.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the ledger could not be opened or read. The cause of an [`LedgerError::Io`] is its `source`.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The system refused.
    #[error("{}: cannot {doing}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another process, or another part of this one, holds `LOCK`.
    #[error("{}: the ledger is in use by another leafgate; stop that one, or give this one its own ledger.dir", file.display())]
    Locked {
        /// `LOCK`.
        file: PathBuf,
    },
    /// A key file is missing, malformed, or open to others.
    #[error("{}: {what}", file.display())]
    Key {
        /// The key file.
        file: PathBuf,
        /// What is wrong and what to do.
        what: &'static str,
    },
    /// Maintenance that cannot be done to this ledger as it is.
    #[error("{}: {what}", file.display())]
    Unfit {
        /// The folder.
        file: PathBuf,
        /// Why, and what to do.
        what: &'static str,
    },
    /// The files are not a whole ledger.
    #[error(
        "{0}; keep the files as they are for the auditor, and restore the ledger from a copy or name a new ledger.dir"
    )]
    Problem(Problem),
}

impl LedgerError {
    /// For `map_err`.
    pub(super) fn io(file: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> LedgerError {
        let file = file.to_owned();
        move |source| LedgerError::Io {
            file,
            doing,
            source,
        }
    }
}

/// The first thing that is wrong with a ledger's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as its path.
    pub file: PathBuf,
    /// The line in that file, counted from 1.
    pub line: Option<u64>,
    /// The `seq` that the record has by its place.
    pub seq: Option<u64>,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        match self.seq {
            Some(seq) => write!(f, " record {seq} {}", self.fault),
            None => write!(f, " {}", self.fault),
        }
    }
}

/// What is wrong; reads on after `record N`, or alone where no record is named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not the one legal form, or not the fields of its type.
    #[error("{0}")]
    Form(&'static str),
    /// Over 65,535 bytes.
    #[error("is longer than 65,535 bytes")]
    Long,
    /// Another `seq` than its place.
    #[error("says seq {found}: a record was dropped, added, moved or numbered anew")]
    Seq {
        /// What stands there.
        found: u64,
    },
    /// `prev` is not the hash of the line before.
    #[error(
        "does not follow the record before it: one of the two was changed, or a record between them is gone"
    )]
    Prev,
    /// `log` is not the name of the ledger's key.
    #[error("names another ledger's key in log")]
    Log,
    /// A segment that another number of records stands before.
    #[error(
        "the segment is named {named}, but {here} records stand before it: a segment or the file pruned is missing, or records are gone or added"
    )]
    Name {
        /// From the file's name.
        named: u64,
        /// Records before it.
        here: u64,
    },
    /// A segment without a record that is not the newest.
    #[error("the segment is empty and is not the newest")]
    Empty,
    /// A last line without its newline.
    #[error(
        "is torn: {bytes} bytes without a newline (the next start of serve cuts off a torn last line that no checkpoint covers)"
    )]
    Torn {
        /// How many bytes.
        bytes: u64,
    },
    /// No segment, or no record.
    #[error("no record is here: this is no ledger")]
    Nothing,
    /// `of` names no forwarded decision that is open, or another call's.
    #[error("is the outcome of no open decision")]
    OutcomeOfNothing,
    /// A forwarded decision that never got its outcome.
    #[error(
        "was forwarded and has no outcome: it may have left (the next start of serve closes what a crash left open)"
    )]
    Unclosed,
    /// The checkpoint is missing.
    #[error("the checkpoint is missing: nothing says how long this ledger was")]
    NoCheckpoint,
    /// `leafgate.pub` is missing or is no verifier key, or not that of `leafgate.key`.
    #[error("is no verifier key of this ledger")]
    VerifierKey,
    /// The checkpoint is no signed note.
    #[error("the checkpoint is not in the form of a C2SP checkpoint")]
    CheckpointForm,
    /// No signature that verifies.
    #[error("no signature on the checkpoint verifies under leafgate.pub")]
    CheckpointSignature,
    /// The checkpoint is from before the last rotation.
    #[error(
        "puts the last key in place, and the checkpoint does not cover it: the checkpoint is older than the rotation, or was put back"
    )]
    CheckpointKey,
    /// The checkpoint is from before the last run.
    #[error(
        "is not covered by the checkpoint, as it was before the last run went on: the checkpoint is older than the ledger, or was put back"
    )]
    Uncovered,
    /// Fewer records than the checkpoint covers.
    #[error("the checkpoint covers {covers} records, {here} are here: records were cut off")]
    Short {
        /// The checkpoint's size.
        covers: u64,
        /// Records here.
        here: u64,
    },
    /// A `key` record without the signature of the key before it.
    #[error("puts another key in place, and the key before it did not sign that")]
    KeySignature,
    /// A `prune` record without the signature of the key in force.
    #[error(
        "says that a segment was pruned, and the key in force did not sign that: it was forged or changed"
    )]
    PruneSignature,
    /// `leafgate.pub` holds a key from before the last rotation.
    #[error(
        "is the key of before the last rotation: the rotation was cut (the next start of serve, or leafgate ledger rotate-key, completes it)"
    )]
    Rotation,
    /// `pruned` holds no prune record's line.
    #[error("does not hold one line, a prune record")]
    PrunedForm,
    /// The record is another than the line in `pruned`.
    #[error("is not the line that the file pruned holds: one of the two was changed")]
    PrunedLine,
    /// The line in `pruned` stands nowhere in the chain, or after what the checkpoint covers.
    #[error("holds record {seq}, and no checkpoint covers that record")]
    PrunedUncovered {
        /// The line's `seq`.
        seq: u64,
    },
    /// A prune record that says something else than the records of its segment, or than another prune record of it.
    #[error("says something else of the segment {segment} than is known of it")]
    PruneFacts {
        /// The segment's first `seq`.
        segment: u64,
    },
    /// No prune record for a segment that is gone.
    #[error("no prune record says what the segment from record {segment} on held")]
    PruneMissing {
        /// The segment's first `seq`.
        segment: u64,
    },
    /// The root of the records is another.
    #[error(
        "is the last that the checkpoint covers, and the root up to it is not the checkpoint's: it was changed, or the ledger was written anew"
    )]
    Root,
    /// A checkpoint from elsewhere that another key signed.
    #[error(
        "this checkpoint is not signed by the ledger's key: it is another ledger's, or this ledger was written anew under another key"
    )]
    KeptSignature,
    /// A checkpoint from elsewhere that covers records which were pruned since, and none after them.
    #[error(
        "this checkpoint cannot be checked here: it covers {covers} records, and the first {gone} of the ledger were pruned; hold it against the archived segments, or name a newer one"
    )]
    KeptPruned {
        /// The checkpoint's size.
        covers: u64,
        /// Records that were pruned.
        gone: u64,
    },
    /// Fewer records than a checkpoint from elsewhere covers.
    #[error(
        "the ledger was cut since this checkpoint was kept: it covers {covers} records, {here} are here"
    )]
    KeptShort {
        /// The checkpoint's size.
        covers: u64,
        /// Records here.
        here: u64,
    },
    /// Another root than that of a checkpoint from elsewhere.
    #[error(
        "the ledger was rewritten since this checkpoint was kept: the root of its first {covers} records is another"
    )]
    KeptRoot {
        /// The checkpoint's size.
        covers: u64,
    },
}
