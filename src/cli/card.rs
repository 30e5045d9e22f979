//! `card new` and `card lint`, and how every command reads a card file.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;

use super::out::{Done, Failure, Out, safe};
use super::{card_lint, card_new};
use crate::card::{Card, MAX_CARD_BYTES, Reading};
use crate::tree::Ruling;

/// Fill a card, or check card files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate card new --out cards/seed-04.json
  leafgate card lint cards/*.json")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(card_new::Args),
    Lint(card_lint::Args),
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    match args.command {
        Command::New(args) => card_new::run(&args, out),
        Command::Lint(args) => card_lint::run(&args, out),
    }
}

/// Reads a card file, or standard input for `-`. A malformed one is a reading, not an error.
pub(super) fn read(name: &str) -> Result<Reading, Failure> {
    read_with_bytes(name).map(|(reading, _)| reading)
}

/// The same, and the bytes it was made of.
pub(super) fn read_with_bytes(name: &str) -> Result<(Reading, Vec<u8>), Failure> {
    let mut bytes = Vec::new();
    // One byte more than a card may have is enough to know that it is too long.
    let most = MAX_CARD_BYTES as u64 + 1;
    let read = if name == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(name).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::file(Path::new(name), &error))?;
    let reading =
        Card::parse(&bytes).map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card)));
    Ok((reading, bytes))
}

/// `{"name":…,"leaf":…,"step":…,"reason":…,"field":…,"fault":…}`.
pub(super) fn facts(name: &str, reading: &Reading, ruling: &Ruling) -> serde_json::Value {
    let mut facts = serde_json::json!({
        "name": name,
        "leaf": ruling.leaf.name(),
        "step": ruling.step.number(),
        "reason": ruling.reason.code(),
    });
    if let Some(field) = ruling.field {
        facts["field"] = field.name().into();
    }
    if let Reading::Malformed(fault) = reading {
        facts["fault"] = fault.to_string().into();
    }
    facts
}

/// A name as it is shown in front of a line.
pub(super) fn shown(name: &str) -> String {
    safe(name).into_owned()
}
