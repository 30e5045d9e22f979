//! `fixture learn`: runs the user's own command against a capture on loopback, and proposes what recurs around the fixture as glue.
//!
//! Promises: the capture has no way out; a string of one body only is not proposed; nothing is written without `--accept` but what `--record` asks for.
//! The command itself is the user's own: what it sends elsewhere is not seen here.

mod alone;
mod answers;
mod capture;
mod command;
mod lacking;
mod tell;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub(super) use tell::note;

use super::fixture_check::one_line;
use super::out::{Done, Failure, Out};
use super::{input, policy, rooms};
use crate::fixture::{self, Entry, Fixture, Learned, Proposal, Sample};
use crate::policy::Policy;
use crate::vocabulary::Vocabularies;

/// Learn the template around a fixture from the calls of your own command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate fixture learn --id seed-04 -- python my_eval.py
  leafgate fixture learn --id seed-04 --accept=DIGEST -- python my_eval.py    what a look showed, or nothing
  leafgate fixture learn --id seed-04 -- lm_eval --model_args base_url={base_url}/chat/completions …

The command gets OPENAI_BASE_URL, OPENAI_API_BASE and ANTHROPIC_BASE_URL (and API keys where they are not set);
{base_url} in its arguments is replaced. It talks to a capture on this machine that sends nothing on and gives empty
answers. Exits 1 where a captured body would not be bound, or glue is proposed and not accepted.")]
pub(super) struct Args {
    /// The fixture's id; needed where the lock file has more than one
    #[arg(long)]
    id: Option<String>,
    /// The policy file; without one, fixtures.lock in this folder, and no model is judged
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// The host the calls are for; without one, the models and parameters of every host may be named
    #[arg(long, value_name = "PIN")]
    host: Option<String>,
    /// Write what is proposed: the glue, or with --exact the bodies' hashes; with the digest that a look showed, that or nothing
    #[arg(
        long,
        value_name = "DIGEST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    accept: Option<String>,
    /// Leave out proposals of these numbers
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    except: Vec<usize>,
    /// Record the bodies' hashes, for hosts with bind = "exact", in place of glue
    #[arg(long, conflicts_with = "from")]
    exact: bool,
    /// Write the captured bodies to this file, one on each line; they hold their whole text
    #[arg(long, value_name = "BODIES.jsonl")]
    record: Option<PathBuf>,
    /// Take bodies that were recorded, in place of a command
    #[arg(long, value_name = "BODIES.jsonl", conflicts_with_all = ["command", "listen", "record"])]
    from: Option<PathBuf>,
    /// The path under /v1 of the bodies of --from
    #[arg(long, value_name = "PATH", default_value = "/chat/completions")]
    route: String,
    /// Capture until Ctrl-C, in place of a command
    #[arg(long, conflicts_with = "command")]
    listen: bool,
    /// Facts as one JSON object, no text
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["listen", "from"])]
    command: Vec<String>,
}

/// What the calls are held against.
struct Subject {
    policy: Policy,
    entry: Entry,
    fixture: Arc<Fixture>,
    glue: Vec<String>,
    /// The models that the policy lets a body name.
    allowed: Vec<String>,
    /// The vocabularies of the host, or of every host.
    vocabularies: Vec<Vocabularies>,
}

/// What came of it all.
struct Outcome {
    learned: Learned,
    /// Proposals with their numbers, without those left out.
    offered: Vec<(usize, Proposal)>,
    /// The bodies under the glue there is, and under what is offered too.
    now: tell::Tally,
    then: tell::Tally,
    /// Models that the bodies name and the policy does not.
    models: Vec<String>,
    written: Option<fixture::Accepted>,
    /// Of what is offered, and for what.
    digest: String,
}

/// 32 hex digits of the SHA-256 of what would be written, and for which fixture: what was read is what is accepted.
fn digest(entry: &Entry, offered: &[(usize, Proposal)], bodies: &[[u8; 32]]) -> String {
    let texts: Vec<&str> = offered.iter().map(|(_, one)| &*one.text).collect();
    let all = (entry.id.as_str(), entry.hash.as_str(), texts, bodies);
    let json = serde_json::to_vec(&all).unwrap_or_default();
    let digest = Sha256::digest(json);
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The hashes that `--exact` would record, in an order that does not hang on which call came first.
fn hashes(args: &Args, samples: &[Sample]) -> Vec<[u8; 32]> {
    if !args.exact {
        return Vec::new();
    }
    let mut hashes: Vec<[u8; 32]> = samples
        .iter()
        .map(|sample| Sha256::digest(&sample.body).into())
        .collect();
    hashes.sort_unstable();
    hashes
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    if args.accept.as_deref() == Some("") && args.from.is_none() && !args.except.is_empty() {
        return Err(Failure::new(
            "--except: its numbers are those of a run that is over, and this run may number its proposals otherwise; give the digest too that the look showed with the same --except (--accept=DIGEST), or record the bodies and learn --from them",
        ));
    }
    let subject = Subject::open(args)?;
    let capture = match &args.from {
        Some(file) => from(file, &args.route, subject.policy.limits.body)?,
        None => command::capture(&args.command, &subject.allowed, args.json, out)?,
    };
    if let Some(file) = &args.record {
        for file in record(file, &capture.samples)? {
            tell::note(&format!("recorded in {}", file.display()));
        }
    }
    tell::captured(args, &capture, out)?;
    if args.policy.is_none() {
        note("the model is not judged without --policy");
    }
    if capture.samples.is_empty() {
        return Err(Failure::new(
            "no call with a body came; does the command take its base URL from OPENAI_BASE_URL or ANTHROPIC_BASE_URL? {base_url} in its arguments is replaced",
        ));
    }
    let mut outcome = subject.outcome(args, &capture.samples)?;
    let bodies = hashes(args, &capture.samples);
    outcome.digest = digest(&subject.entry, &outcome.offered, &bodies);
    if let Some(digest) = &args.accept {
        let here = &outcome.digest;
        if !digest.is_empty() && digest != here {
            if outcome.offered.is_empty() && !args.exact {
                return Err(Failure::new(
                    "--accept: this run proposes nothing; what that look showed may be written already. Nothing was written now",
                ));
            }
            return Err(Failure::new(format!(
                "--accept: this run proposes something else than what was shown ({here}); nothing was written. Look again without --accept, and read it anew"
            )));
        }
        outcome.written = Some(subject.write(&outcome, &bodies)?);
    }
    tell::outcome(args, &subject, &outcome, out)?;
    let open = outcome.written.is_none() && (args.exact || !outcome.offered.is_empty());
    let bound = if args.exact { true } else { outcome.then.all() };
    Ok(Done::when(bound && !open && outcome.models.is_empty()))
}

impl Subject {
    fn open(args: &Args) -> Result<Subject, Failure> {
        let policy = policy::load_to_look(args.policy.as_ref())?;
        let host = rooms::host(&policy, args.host.as_deref())?;
        let (entry, fixture) = rooms::fixture_open(&policy, args.id.as_deref())?;
        let glue = fixture::glue_of(&policy.fixtures.lock, &entry)
            .map_err(|fault| Failure::new(format!("{}: {fault}", entry.id)))?;
        Ok(Subject {
            allowed: rooms::models(&policy, host.as_deref()),
            vocabularies: rooms::vocabularies(&policy, host.as_deref()),
            policy,
            entry,
            fixture,
            glue,
        })
    }

    fn outcome(&self, args: &Args, samples: &[Sample]) -> Result<Outcome, Failure> {
        let seen = models(samples);
        let unusable = |fault| Failure::new(format!("{}: {fault}", self.entry.id));
        let learned = if args.exact {
            Learned::default()
        } else {
            fixture::propose(
                &self.fixture,
                &self.glue,
                &seen,
                &self.vocabularies,
                samples,
            )
            .map_err(unusable)?
        };
        let offered: Vec<(usize, Proposal)> = (1..)
            .zip(learned.proposals.iter().cloned())
            .filter(|(number, _)| !args.except.contains(number))
            .collect();
        let mut all = self.glue.clone();
        all.extend(offered.iter().map(|(_, proposal)| proposal.text.clone()));
        let wider = self.fixture.under(&all).map_err(unusable)?;
        Ok(Outcome {
            now: tell::Tally::of(&self.fixture, &seen, &self.vocabularies, samples),
            then: tell::Tally::of(&wider, &seen, &self.vocabularies, samples),
            // Without a policy there are no hosts, so no model is theirs or not.
            models: seen
                .into_iter()
                .filter(|model| args.policy.is_some() && !self.allowed.contains(model))
                .collect(),
            learned,
            offered,
            digest: String::new(),
            written: None,
        })
    }

    fn write(&self, outcome: &Outcome, bodies: &[[u8; 32]]) -> Result<fixture::Accepted, Failure> {
        let glue: Vec<String> = outcome
            .offered
            .iter()
            .map(|(_, proposal)| proposal.text.clone())
            .collect();
        fixture::accept(&self.policy.fixtures.lock, &self.entry.id, &glue, bodies)
            .map_err(rooms::add_failed)
    }
}

/// The model that a body names.
pub(super) fn named(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        model: String,
    }
    serde_json::from_slice::<Named>(body)
        .ok()
        .map(|named| named.model)
}

/// The models that the bodies name.
fn models(samples: &[Sample]) -> Vec<String> {
    let mut models: Vec<String> = samples
        .iter()
        .filter_map(|sample| named(&sample.body))
        .collect();
    models.sort();
    models.dedup();
    models
}

/// Bodies that were recorded, as far as a capture keeps them.
fn from(file: &Path, route: &str, most: u64) -> Result<capture::Captured, Failure> {
    let mut bodies = input::Bodies::open(file, most)?;
    let mut kept = capture::Kept::default();
    while let Some((_, body)) = bodies.next()? {
        kept.keep(Sample {
            route: route.to_owned(),
            body: body.to_vec(),
        });
    }
    Ok(kept.captured)
}

/// Writes the bodies, one file for each route; the first route's file has the name itself.
fn record(file: &Path, samples: &[Sample]) -> Result<Vec<PathBuf>, Failure> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let mut routes: Vec<&str> = samples.iter().map(|s| s.route.as_str()).collect();
    routes.sort_unstable();
    routes.dedup();
    let mut files = Vec::new();
    for (place, route) in routes.into_iter().enumerate() {
        let name = if place == 0 {
            file.to_path_buf()
        } else {
            file.with_extension(format!(
                "{}.jsonl",
                route.trim_matches('/').replace('/', "-")
            ))
        };
        let fault = |error: &std::io::Error| Failure::file(&name, error);
        let made = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&name)
            .map_err(|error| fault(&error))?;
        // A file that was there keeps its mode otherwise.
        made.set_permissions(std::fs::Permissions::from_mode(0o600))
            .map_err(|error| fault(&error))?;
        let mut to = std::io::BufWriter::new(made);
        for sample in samples.iter().filter(|sample| sample.route == route) {
            to.write_all(&one_line(&sample.body))
                .map_err(|error| fault(&error))?;
        }
        to.flush().map_err(|error| fault(&error))?;
        files.push(name);
    }
    Ok(files)
}
