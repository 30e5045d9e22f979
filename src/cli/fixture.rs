//! `fixture add` and `fixture list`; `learn` and `check` have files of their own.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde_json::json;

use super::out::{Done, Failure, Out, Tone, safe};
use super::rooms::{self, NewFixture};
use super::{fixture_check, fixture_learn, hash, policy};
use crate::fixture;
use crate::terms::{FixtureId, Secret};

/// Register fixtures, learn the template around them, check bodies against them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate fixture add fixtures/seed-04.txt --id seed-04
  leafgate fixture learn --id seed-04 -- python my_eval.py
  leafgate fixture check body.json --id seed-04
  leafgate fixture list --policy policy.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(Add),
    Learn(fixture_learn::Args),
    Check(fixture_check::Args),
    List(List),
}

/// Record the hash of a fixture's files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate fixture add fixtures/seed-04.txt --id seed-04 --glue fixtures/seed-04.glue.json
  leafgate fixture add part-1.jsonl part-2.jsonl --id set-9 --format jsonl")]
struct Add {
    /// The files, in the order in which they are joined
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The fixture's id, as cards name it
    #[arg(long)]
    id: String,
    /// What the files hold; without one, text: each file is one string
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A JSON array of template strings that may stand around fixture text; an id that has one keeps it
    #[arg(long, value_name = "F")]
    glue: Option<PathBuf>,
    /// The lock file
    #[arg(long, value_name = "F", default_value = "fixtures.lock")]
    lock: PathBuf,
    /// hmac-sha256 under the key in this environment variable
    #[arg(long, value_name = "V")]
    key_env: Option<String>,
    /// What was recorded, as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    Jsonl,
}

impl Format {
    fn format(self) -> fixture::Format {
        match self {
            Format::Text => fixture::Format::Text,
            Format::Json => fixture::Format::Json,
            Format::Jsonl => fixture::Format::Jsonl,
        }
    }
}

/// Show the registered fixtures and whether their files still have the recorded hash.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate fixture list --policy policy.toml

Exits 1 where a file changed or is missing.")]
struct List {
    /// The policy file that names the lock file; without one, the built-in policy
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// One JSON object on a line for each fixture
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    match args.command {
        Command::Add(args) => add(args, out),
        Command::Learn(args) => fixture_learn::run(&args, out),
        Command::Check(args) => fixture_check::run(&args, out),
        Command::List(args) => list(&args, out),
    }
}

fn add(args: Add, out: &mut Out) -> Result<Done, Failure> {
    let id = FixtureId::parse(&args.id).ok_or_else(|| {
        Failure::new(
            "--id: 1 to 64 letters, digits, dots, underscores or hyphens, the first a letter or digit",
        )
    })?;
    let key = args.key_env.as_deref().map(hash::key).transpose()?;
    let new = NewFixture {
        key: key.map(Secret::new),
        id,
        files: args.files,
        format: args.format.unwrap_or(Format::Text).format(),
        glue: args.glue,
    };
    let added = rooms::fixture_add(&args.lock, &new)?;
    let (hash, mut warnings) = (added.hash, added.warnings);
    if args.format.is_none() {
        warnings.extend(new.files.iter().filter_map(|file| taken_as_text(file)));
    }
    let before = added.before.as_ref();
    let glue = added.glue.map(|glue| glue.display().to_string());
    let lock = args.lock.display().to_string();
    if args.json {
        out.json(&json!({
            "id": new.id.as_str(), "hash": hash.as_str(), "format": new.format.name(), "lock": lock, "glue": glue, "warnings": warnings,
            "before": before.map(|before| before.hash.as_str()), "same": before.is_some_and(|before| before.same),
            "also": added.also.iter().map(|(file, id)| json!({"file": file.display().to_string(), "id": id.as_str()})).collect::<Vec<_>>(),
        }))?;
        return Ok(Done::Yes);
    }
    out.line(format!("{}  {hash}  in {}", new.id, safe(&lock)))?;
    match before {
        Some(before) if before.same => out.line("it is registered already, and as it was")?,
        Some(before) if before.hash == hash => {
            let changes = safe(&before.changes.join(", ")).into_owned();
            out.line(format!(
                "it was registered already; entry changed: {changes}"
            ))?;
        }
        Some(before) => out.line(format!(
            "it takes the place of {}: a card with that hash is refused from now on",
            before.hash
        ))?,
        None => {}
    }
    for (file, id) in &added.also {
        let file = file.display().to_string();
        out.line(format!("{} is registered under {id} too", safe(&file)))?;
    }
    if let Some(glue) = glue {
        let kept = if new.glue.is_none() { ", kept" } else { "" };
        out.line(format!("glue: {}{kept}", safe(&glue)))?;
    }
    for warning in warnings {
        out.line(format!("{} {warning}", out.paint(Tone::Half, "weak:", 0)))?;
    }
    if let Some(variable) = &args.key_env {
        let variable = safe(variable);
        out.line(format!(
            "next: set hmac_key = {{ env = \"{variable}\" }} under [fixtures] in the policy; without it the lock file does not load"
        ))?;
    }
    Ok(Done::Yes)
}

/// A remark on a file that is named like JSON and taken as one string, because nobody said otherwise.
fn taken_as_text(file: &Path) -> Option<String> {
    let (kind, format) = match file.extension()?.to_str()? {
        "jsonl" | "ndjson" => ("JSON Lines", "jsonl"),
        "json" => ("JSON", "json"),
        _ => return None,
    };
    let name = file.display().to_string();
    Some(format!(
        "{} is named like {kind} and is taken as text, one string with its quotes and braces; --format {format} takes its strings",
        safe(&name)
    ))
}

fn list(args: &List, out: &mut Out) -> Result<Done, Failure> {
    let policy = policy::load_to_look(args.policy.as_ref())?;
    let rows = rooms::fixture_list(&policy)?;
    let width = rows.iter().map(|row| row.id.chars().count()).max();
    for row in &rows {
        if args.json {
            out.json(&json!({
                "id": row.id, "hash": row.hash, "format": row.format, "files": row.files, "fault": row.fault,
            }))?;
            continue;
        }
        let id = out.paint(Tone::Strong, &safe(&row.id), width.unwrap_or(0));
        let state = row.fault.as_ref().map_or_else(
            || out.paint(Tone::Good, "as recorded", 0),
            |fault| out.paint(Tone::Bad, fault, 0),
        );
        let (hash, format) = (safe(&row.hash), row.format);
        out.line(format!(
            "{id}  {hash}  {format:<5}  {state}  {}",
            safe(&row.files.join(" "))
        ))?;
    }
    Ok(Done::when(rows.iter().all(|row| row.fault.is_none())))
}
