//! `completions` and `man`: made from the same definition as the help.

use std::path::PathBuf;

use clap_complete::Shell;

use super::out::{Done, Failure, Out};

/// Print shell completions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate completions bash > ~/.local/share/bash-completion/completions/leafgate")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

/// Print the man page, or write one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate man | man -l -
  leafgate man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write leafgate.1, leafgate-serve.1 … into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(
    args: &Completions,
    command: &mut clap::Command,
    out: &mut Out,
) -> Result<Done, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "leafgate", &mut text);
    out.bytes(&text)?;
    Ok(Done::Yes)
}

pub(super) fn man(args: &Man, command: clap::Command, out: &mut Out) -> Result<Done, Failure> {
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(command, dir).map_err(|error| Failure::file(dir, &error))?;
        return Ok(Done::Yes);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::new(format!("the man page: {error}")))?;
    out.bytes(&page)?;
    Ok(Done::Yes)
}
