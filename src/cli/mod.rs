//! The commands (contract, section 10): one file for each.
//!
//! Promises: exit status 0 done, 1 the answer is no, 2 usage or configuration; errors are lines on standard error that begin with `leafgate: `;
//! a broken pipe is not an error. Takers: `main`. It runs the rooms and adds no rule of its own.

mod card;
mod card_lint;
mod card_new;
mod certs;
mod classify;
mod custody;
mod demo;
mod doctor;
mod explain;
mod fixture;
mod fixture_check;
mod fixture_learn;
mod fixture_show;
mod hash;
mod init;
mod input;
mod ledger;
mod ledger_explain;
mod ledger_export;
mod ledger_keep;
mod ledger_list;
mod ledger_prove;
mod ledger_show;
mod oracle;
mod out;
mod pages;
mod pin;
mod policy;
mod progress;
mod rooms;
mod run;
mod serve;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{CommandFactory as _, Parser, Subcommand};

use out::{Done, Failure, Out};

/// An egress-enforcing forwarding proxy for model evaluations: hold, split or release, recorded before a byte leaves.
#[derive(Debug, Parser)]
#[command(
    name = "leafgate",
    version,
    max_term_width = 100,
    after_help = "\
Begin with:
  leafgate demo --once
Then:
  leafgate init my-evals      writes a policy, a card and a first fixture, and says the next command

Exit status: 0 done, 1 the answer is no, 2 usage or configuration."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Serve(serve::Args),
    Demo(demo::Args),
    Classify(classify::Args),
    Explain(explain::Args),
    Oracle(oracle::Args),
    Hash(hash::Args),
    Card(card::Args),
    Fixture(fixture::Args),
    Pin(pin::Args),
    Policy(policy::Args),
    Certs(certs::Args),
    Ledger(ledger::Args),
    Run(run::Args),
    Doctor(doctor::Args),
    Completions(pages::Completions),
    Man(pages::Man),
}

/// Runs one command line and gives its exit status.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(status) = run::stage(&args) {
        return status;
    }
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let mut out = Out::stdout();
    let done = dispatch(args.command, &mut out).and_then(|done| out.flush().map(|()| done));
    match done {
        Ok(Done::Yes) | Err(Failure::ReaderGone) => 0,
        Ok(Done::No) => 1,
        Ok(Done::Status(status)) => status,
        Err(Failure::Lines(lines)) => {
            // What was found before the fault is shown before it.
            let _ = out.flush();
            complain(&lines);
            2
        }
    }
}

fn dispatch(command: Command, out: &mut Out) -> Result<Done, Failure> {
    match command {
        Command::Init(args) => init::run(&args, out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Demo(args) => demo::run(&args, out),
        Command::Classify(args) => classify::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Oracle(args) => oracle::run(&args, out),
        Command::Hash(args) => hash::run(&args, out),
        Command::Card(args) => card::run(args, out),
        Command::Fixture(args) => fixture::run(args, out),
        Command::Pin(args) => pin::run(args, out),
        Command::Policy(args) => policy::run(args, out),
        Command::Certs(args) => certs::run(args, out),
        Command::Ledger(args) => ledger::run(args, out),
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Completions(args) => pages::completions(&args, &mut Args::command(), out),
        Command::Man(args) => pages::man(&args, Args::command(), out),
    }
}

/// Help and version are answers (0); everything else is usage (2), said as every other error.
fn usage(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        // A reader that left is no error.
        let _ = error.print();
        return 0;
    }
    let text = error.render().to_string();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return 2;
    }
    let first = lines.next().unwrap_or("wrong usage");
    let mut line = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    for more in lines.filter(|line| !line.starts_with("Usage:")) {
        line.push(' ');
        line.push_str(more.trim());
    }
    complain(&[line]);
    2
}

fn complain(lines: &[String]) {
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        let _ = writeln!(stderr, "leafgate: {}", out::safe(line));
    }
}

#[cfg(test)]
mod tests;
