//! `classify`: the leaf, step and reason of card files.

use clap::ValueEnum;

use super::card::{facts, read, shown};
use super::out::{Done, Failure, Out, Tone};
use crate::card::Reading;
use crate::terms::Leaf;
use crate::tree::{Ruling, classify};

/// Show the leaf, step, reason and deciding field of card files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate classify cards/seed-04.json
  leafgate classify --expect hold - < card.json

Exits 0 for any leaf, 1 where --expect differs, 2 where a file cannot be read.")]
pub(super) struct Args {
    /// Card files; `-` is standard input
    #[arg(value_name = "CARD", default_value = "-")]
    cards: Vec<String>,
    /// Exit with 1 unless every card has this leaf
    #[arg(long, value_name = "LEAF")]
    expect: Option<ExpectedLeaf>,
    /// One JSON object on a line for each card
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExpectedLeaf {
    Hold,
    Split,
    Release,
}

impl ExpectedLeaf {
    fn leaf(self) -> Leaf {
        match self {
            ExpectedLeaf::Hold => Leaf::Hold,
            ExpectedLeaf::Split => Leaf::Split,
            ExpectedLeaf::Release => Leaf::Release,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let expected = args.expect.map(ExpectedLeaf::leaf);
    let width = args
        .cards
        .iter()
        .map(|name| shown(name).chars().count())
        .max();
    let mut same = true;
    for name in &args.cards {
        let reading = read(name)?;
        let ruling = classify(&reading).ruling();
        same &= expected.is_none_or(|leaf| leaf == ruling.leaf);
        if args.json {
            out.json(&facts(name, &reading, &ruling))?;
        } else {
            let line = said(out, name, width.unwrap_or(0), &reading, &ruling);
            out.line(line)?;
        }
    }
    Ok(Done::when(same))
}

/// `NAME: leaf step reason field`; behind it, what makes a card malformed.
fn said(out: &Out, name: &str, width: usize, reading: &Reading, ruling: &Ruling) -> String {
    let name = format!("{}:", shown(name));
    let leaf = out.paint(Tone::of(ruling.leaf), ruling.leaf.name(), 0);
    let field = ruling.field.map_or("-", |field| field.name());
    let (step, reason) = (ruling.step.text(), ruling.reason.code());
    let why = match reading {
        Reading::Malformed(fault) => format!("  ({fault})"),
        Reading::Missing | Reading::Ambiguous | Reading::Card(_) => String::new(),
    };
    format!(
        "{name:<width$} {leaf} {step} {reason} {field}{why}",
        width = width + 1
    )
}
