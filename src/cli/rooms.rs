//! The one place where the commands call functions of other rooms that are built at the same time.
//!
//! Each adapter says which function it stands for; it answers `not joined` until that function is there.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use super::out::Failure;
use crate::policy::Policy;

fn not_joined(what: &str) -> Failure {
    Failure::new(format!("{what} is not joined to this build"))
}

/// What `fixture add` is told. `key` is the HMAC key, and is never shown.
#[derive(Debug, Clone)]
pub(super) struct NewFixture {
    pub(super) id: String,
    pub(super) files: Vec<PathBuf>,
    pub(super) format: &'static str,
    pub(super) glue: Option<PathBuf>,
    pub(super) key: Option<Vec<u8>>,
}

/// A row of `fixture list`.
#[derive(Debug, Clone)]
pub(super) struct FixtureRow {
    pub(super) id: String,
    pub(super) hash: String,
    pub(super) format: String,
    pub(super) files: Vec<String>,
    /// Whether the files still have the hash; the fault where not.
    pub(super) fault: Option<String>,
}

/// `fixture::lock::add(lock, …)`: writes or replaces the entry, gives its hash.
pub(super) fn fixture_add(_lock: &Path, _new: &NewFixture) -> Result<String, Failure> {
    Err(not_joined("fixture::lock::add"))
}

/// `fixture::lock::list(lock, key)`: every entry, checked against its files.
pub(super) fn fixture_list(_policy: &Policy) -> Result<Vec<FixtureRow>, Failure> {
    Err(not_joined("fixture::lock::list"))
}

/// `policy::confirm_pin(file, pin, now)`: sets `copied_at` in the policy file.
pub(super) fn confirm_pin(_file: &Path, _pin: &str, _now: Timestamp) -> Result<(), Failure> {
    Err(not_joined("policy::confirm_pin"))
}

/// What `ledger::verify::verify(dir)` found.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    /// How many records there are.
    pub(super) records: u64,
    /// Further facts, shown as they are with `--json`.
    pub(super) facts: Value,
    /// What is wrong, one line each; empty where the ledger is whole.
    pub(super) problems: Vec<String>,
}

/// `ledger::verify::verify(dir)`.
pub(super) fn verify(_dir: &Path) -> Result<Verified, Failure> {
    Err(not_joined("ledger::verify::verify"))
}
