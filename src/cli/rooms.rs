//! What the commands ask of other rooms, put as the commands need it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::out::Failure;
use crate::files;
use crate::fixture::{self, AddFault, Entry, Fixture, Registry};
use crate::ledger;
use crate::policy::{self, Host, Policy};
use crate::terms::{FixtureHash, FixtureId, HostPin, Reason, Secret, did_you_mean};
use crate::vocabulary::Vocabularies;

/// What `fixture add` is told. Files are relative to the working directory.
#[derive(Debug, Clone)]
pub(super) struct NewFixture {
    pub(super) id: FixtureId,
    pub(super) files: Vec<PathBuf>,
    pub(super) format: fixture::Format,
    pub(super) glue: Option<PathBuf>,
    pub(super) key: Option<Secret>,
}

/// A row of `fixture list`.
#[derive(Debug, Clone)]
pub(super) struct FixtureRow {
    pub(super) id: String,
    pub(super) hash: String,
    pub(super) format: &'static str,
    pub(super) files: Vec<String>,
    /// Why a call under this entry would be refused, where it would.
    pub(super) fault: Option<&'static str>,
}

/// What `fixture add` recorded.
#[derive(Debug, Clone)]
pub(super) struct Added {
    pub(super) hash: FixtureHash,
    /// What in it would weaken the rule.
    pub(super) warnings: Vec<String>,
    /// The entry's glue file, as the lock file writes it.
    pub(super) glue: Option<PathBuf>,
    /// The entry that had this id before, where there was one.
    pub(super) before: Option<Before>,
    /// Files that stand under another id too, each with that id.
    pub(super) also: Vec<(PathBuf, FixtureId)>,
}

/// The entry that a new one took the place of.
#[derive(Debug, Clone)]
pub(super) struct Before {
    pub(super) hash: FixtureHash,
    /// Whether the new entry says the same.
    pub(super) same: bool,
    /// What it says otherwise besides the hash: `format text → jsonl`.
    pub(super) changes: Vec<String>,
}

/// Records a fixture. An entry that is replaced keeps its glue where no other is named: it was accepted for this id.
pub(super) fn fixture_add(lock: &Path, new: &NewFixture) -> Result<Added, Failure> {
    let folder = folder(lock)?;
    let beside = |file: &PathBuf| beside(&folder, file);
    let paths: Vec<PathBuf> = new.files.iter().map(beside).collect::<Result<_, _>>()?;
    for (place, path) in paths.iter().enumerate() {
        if paths[..place].contains(path) {
            let path = path.display();
            return Err(Failure::new(format!(
                "FILE: {path} is named twice; name each file once"
            )));
        }
    }
    let entries = entries(lock);
    let old = entries.iter().find(|entry| entry.id == new.id);
    let entry = fixture::NewFixture {
        id: new.id.clone(),
        paths,
        format: new.format,
        glue: match &new.glue {
            Some(glue) => Some(beside(glue)?),
            None => old.and_then(|old| old.glue.clone()),
        },
        bodies: Vec::new(),
    };
    let warnings = fixture::warnings(&folder, &entry).map_err(add_failed)?;
    let hash = fixture::add(lock, &entry, new.key.as_ref()).map_err(add_failed)?;
    let before = old.map(|old| {
        let changes = changes(old, &entry);
        Before {
            same: old.hash == hash && changes.is_empty(),
            changes,
            hash: old.hash.clone(),
        }
    });
    let others = entries.iter().filter(|other| other.id != new.id);
    let also = others
        .flat_map(|other| other.paths.iter().map(|path| (path.clone(), &other.id)))
        .filter(|(path, _)| entry.paths.contains(path))
        .map(|(path, id)| (path, id.clone()))
        .collect();
    Ok(Added {
        hash,
        warnings: warnings.iter().map(ToString::to_string).collect(),
        glue: entry.glue,
        before,
        also,
    })
}

/// What a new entry says otherwise.
fn changes(old: &Entry, new: &fixture::NewFixture) -> Vec<String> {
    let names = |paths: &[PathBuf]| {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        names.join(" ")
    };
    let glue = |glue: &Option<PathBuf>| {
        glue.as_ref()
            .map_or_else(|| "none".to_owned(), |file| file.display().to_string())
    };
    [
        (
            "format",
            old.format.name().to_owned(),
            new.format.name().to_owned(),
        ),
        ("files", names(&old.paths), names(&new.paths)),
        ("glue", glue(&old.glue), glue(&new.glue)),
    ]
    .into_iter()
    .filter(|(_, was, is)| was != is)
    .map(|(what, was, is)| format!("{what} {was} → {is}"))
    .collect()
}

/// The entries of the lock file; one with faults gives none, and is not written to either.
pub(super) fn entries(lock: &Path) -> Vec<Entry> {
    files::read(lock, fixture::LOCK_BYTES)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| fixture::parse_lock(lock, &text).ok())
        .unwrap_or_default()
}

/// The entries of the policy's lock file; a default one that is not there has none.
pub(super) fn registered(policy: &Policy) -> Result<Vec<Entry>, Failure> {
    let registry = Registry::load(&policy.fixtures)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))?;
    Ok(registry.entries().cloned().collect())
}

pub(super) fn add_failed(fault: AddFault) -> Failure {
    if let AddFault::Lock(faults) = &fault
        && !faults.is_empty()
    {
        return Failure::Lines(faults.iter().map(ToString::to_string).collect());
    }
    Failure::of(&fault)
}

/// The lock file's folder, as the system names it.
fn folder(lock: &Path) -> Result<PathBuf, Failure> {
    let parent = match lock.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    parent
        .canonicalize()
        .map_err(|error| Failure::file(parent, &error))
}

/// A path as the lock file writes it: relative to its folder where the file lies in it, else whole.
fn beside(folder: &Path, file: &Path) -> Result<PathBuf, Failure> {
    let whole = file
        .canonicalize()
        .map_err(|error| Failure::file(file, &error))?;
    Ok(whole
        .strip_prefix(folder)
        .map(Path::to_path_buf)
        .unwrap_or(whole))
}

/// The registered fixture of this id, or the only one there is, read from its files now.
pub(super) fn fixture_open(
    policy: &Policy,
    id: Option<&str>,
) -> Result<(Entry, Arc<Fixture>), Failure> {
    let lock = policy.fixtures.lock.display();
    let registry = Registry::load(&policy.fixtures)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))?;
    let mut entries: Vec<&Entry> = registry.entries().collect();
    entries.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    let entry = match (id, &entries[..]) {
        (None, [one]) => *one,
        (_, []) if policy.file.is_none() && !policy.fixtures.lock.exists() => {
            return Err(no_lock());
        }
        (_, []) => {
            return Err(Failure::new(format!(
                "{lock} registers no fixture; run {}",
                policy.fixture_add("ID")
            )));
        }
        (None, _) => {
            return Err(Failure::new(format!(
                "--id: name one of the fixtures of {lock}: {}",
                ids.join(", ")
            )));
        }
        (Some(id), _) => entries
            .iter()
            .find(|entry| entry.id.as_str() == id)
            .ok_or_else(|| {
                Failure::new(format!(
                    "--id: {lock} has no such fixture; it has {}{}",
                    ids.join(", "),
                    did_you_mean(id, ids.iter().copied())
                ))
            })?,
    };
    let fixture = registry.admit_now(&entry.id, &entry.hash).map_err(|_| {
        Failure::new(format!(
            "{}: its files are missing or no longer have the recorded hash; leafgate fixture list{} shows it, {} records them anew",
            entry.id,
            policy.flag(),
            policy.fixture_add_again(
                entry.id.as_str(),
                &entry.paths,
                entry.format.name(),
                entry.glue.as_deref()
            )
        ))
    })?;
    Ok((entry.clone(), fixture))
}

/// No policy is named, and the lock file that would be taken then is not there.
fn no_lock() -> Failure {
    let file = if Path::new("leafgate.toml").exists() {
        "leafgate.toml"
    } else {
        "FILE"
    };
    Failure::new(format!(
        "no fixtures.lock in this folder; name the policy: --policy {file}"
    ))
}

/// The host of this pin.
pub(super) fn host(policy: &Policy, pin: Option<&str>) -> Result<Option<Arc<Host>>, Failure> {
    let Some(pin) = pin else { return Ok(None) };
    let host = policy
        .hosts
        .iter()
        .find(|(own, _)| own.as_str() == pin)
        .map(|(_, host)| host.clone());
    match host {
        Some(host) => Ok(Some(host)),
        None => Err(Failure::new(format!(
            "--host: the policy has no such host; leafgate pin list{} shows them{}",
            policy.flag(),
            did_you_mean(pin, policy.hosts.keys().map(HostPin::as_str))
        ))),
    }
}

/// The models that a body may name: the host's, or those of every host where none is named.
pub(super) fn models(policy: &Policy, host: Option<&Host>) -> Vec<String> {
    match host {
        Some(host) => host.models.clone(),
        None => policy
            .hosts
            .values()
            .flat_map(|host| host.models.iter().cloned())
            .collect(),
    }
}

/// What a body may be held against: the host's vocabularies, or where none is named the shipped ones and those of each host that adds to them.
pub(super) fn vocabularies(policy: &Policy, host: Option<&Host>) -> Vec<Vocabularies> {
    match host {
        Some(host) => vec![host.vocabularies.clone()],
        None => {
            let hosts = policy.hosts.values();
            let own = hosts.map(|host| host.vocabularies.clone());
            std::iter::once(Vocabularies::default())
                .chain(own.filter(|own| own.added().next().is_some()))
                .collect()
        }
    }
}

/// Every entry of the policy's lock file, each checked against its files.
pub(super) fn fixture_list(policy: &Policy) -> Result<Vec<FixtureRow>, Failure> {
    let registry = Registry::load(&policy.fixtures)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))?;
    let mut rows: Vec<FixtureRow> = registry
        .entries()
        .map(|entry| FixtureRow {
            id: entry.id.as_str().to_owned(),
            hash: entry.hash.as_str().to_owned(),
            format: entry.format.name(),
            files: entry
                .paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            fault: registry
                .admit_now(&entry.id, &entry.hash)
                .err()
                .map(Reason::code),
        })
        .collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(rows)
}

/// Sets `copied_at` in the policy file.
pub(super) fn confirm_pin(file: &Path, pin: &HostPin, now: Timestamp) -> Result<(), Failure> {
    policy::confirm_pin(file, pin, now).map_err(|error| Failure::of(&error))
}

/// What a look through the whole ledger found.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    /// How many records there are.
    pub(super) records: u64,
    /// Further facts, for `--json`.
    pub(super) facts: Value,
    /// What a reader should know of a whole ledger besides.
    pub(super) notes: Vec<String>,
    /// What is wrong, where something is.
    pub(super) problem: Option<String>,
}

/// Verifies a ledger's files, also against checkpoints kept elsewhere.
pub(super) fn verify(
    dir: &Path,
    kept: &[PathBuf],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, Failure> {
    let report =
        ledger::verify_against(dir, kept, progress).map_err(|error| Failure::of(&error))?;
    let counts = report.counts;
    Ok(Verified {
        records: report.records,
        facts: json!({
            "log": report.log, "running": report.running, "segments": report.segments, "bytes": report.bytes,
            "covered": report.covered, "unsigned": report.unsigned, "torn": report.torn, "in_flight": report.in_flight, "runs": counts.runs,
            "decisions": counts.decisions, "forwarded": counts.forwarded, "unknown": counts.unknown,
            "refused": counts.refused, "pruned": counts.pruned, "set_back": counts.set_back, "set_back_at": counts.set_back_at,
        }),
        notes: notes(&report),
        problem: report.problem.map(|problem| problem.to_string()),
    })
}

fn notes(report: &ledger::Report) -> Vec<String> {
    let counts = &report.counts;
    let mut notes = Vec::new();
    if report.running {
        notes.push(format!(
            "leafgate is running on it (LOCK is held): {} calls on their way and {} bytes of a last line were not judged",
            report.in_flight, report.torn
        ));
    }
    if report.unsigned > 0 {
        let what_next = match (report.running, report.stopped) {
            (true, _) => "stop leafgate or wait for the next checkpoint",
            (false, true) => {
                "the checkpoint of the stop is missing; the next start signs what is there and records how many they were"
            }
            (false, false) => {
                "the last run ended without a stop; the next start signs what is there and records how many they were"
            }
        };
        let what = match report.unsigned {
            1 => "1 record is".to_owned(),
            more => format!("{more} records are"),
        };
        notes.push(format!(
            "{what} under no signature yet and could be forged, changed or cut; {what_next}"
        ));
    }
    if counts.pruned > 0 {
        notes.push(format!(
            "{} earlier records were pruned; the prune records say what they were",
            counts.pruned
        ));
    }
    if let Some(at) = counts.set_back_at {
        notes.push(format!(
            "the clock was set back {} times, first before record {at}; the order is seq",
            counts.set_back
        ));
    }
    notes
}
