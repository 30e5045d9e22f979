//! `pin list` and `pin confirm`: the hosts, where and when each host string was copied.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use jiff::Timestamp;
use serde_json::json;

use super::out::{Done, Failure, Out, Tone, safe};
use super::{policy, rooms};
use crate::files::shell_word;
use crate::policy::{Addresses, Host, Policy};
use crate::terms::{HostPin, did_you_mean};

/// The pinned hosts: list them, or record that a page was read again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate pin list --policy policy.toml
  leafgate pin confirm models.example.org --policy policy.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Confirm(Confirm),
}

/// Show the hosts, where and when each string was copied.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate pin list --policy policy.toml

Exits 1 where a pin is stale.")]
struct List {
    /// The policy file; without one, the built-in policy
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// One JSON object on a line for each host
    #[arg(long)]
    json: bool,
}

/// Record that a person read the host's page again today and the string is still right.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate pin confirm models.example.org --policy policy.toml

It writes copied_at in the policy file. Read the page first: leafgate never asks a host anything.")]
struct Confirm {
    /// The host, as the policy names it
    #[arg(value_name = "HOST")]
    host: String,
    /// The policy file
    #[arg(long, value_name = "F")]
    policy: PathBuf,
}

/// How old a pin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// On loopback, without `max_age`.
    Ageless,
    /// Never confirmed: stale.
    Never,
    /// Copied so long ago; may be as old as.
    Copied { ago: Duration, most: Duration },
}

impl Age {
    pub(super) fn of(host: &Host, policy: &Policy, now: Timestamp) -> Age {
        if host.on_loopback() && host.max_age.is_none() {
            return Age::Ageless;
        }
        match host.copied_at {
            None => Age::Never,
            // A date a little ahead of the clock has no age yet.
            Some(copied) => Age::Copied {
                ago: Duration::try_from(now.duration_since(copied)).unwrap_or_default(),
                most: host.max_age.unwrap_or(policy.pin_max_age),
            },
        }
    }

    pub(super) fn stale(self) -> bool {
        match self {
            Age::Ageless => false,
            Age::Never => true,
            Age::Copied { ago, most } => ago > most,
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Age::Ageless => "on this machine, does not age".to_owned(),
            Age::Never => "STALE: never confirmed".to_owned(),
            Age::Copied { ago, most } => {
                let (ago, most) = (span(ago), span(most));
                if self.stale() {
                    format!("STALE: copied {ago} ago, valid for {most}")
                } else {
                    format!("copied {ago} ago, valid for {most}")
                }
            }
        }
    }
}

/// A duration as a person says it.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    match args.command {
        Command::List(args) => list(&args, out),
        Command::Confirm(args) => confirm(&args, out),
    }
}

fn list(args: &List, out: &mut Out) -> Result<Done, Failure> {
    let policy = policy::load_without_secrets(args.policy.as_ref())?;
    let now = Timestamp::now();
    if args.json {
        for host in policy.hosts.values() {
            let age = Age::of(host, &policy, now);
            out.json(&json!({
                "host": host.pin.as_str(), "base_url": url(host), "source": host.source,
                "copied_at": host.copied_at.map(|time| time.to_string()), "stale": age.stale(),
                "addresses": addresses(host), "bind": host.bind.name(),
            }))?;
        }
    } else {
        if args.policy.is_none() {
            out.line("the built-in policy, since no --policy was given")?;
        }
        for line in lines(&policy, now, out) {
            out.line(line)?;
        }
    }
    let stale = policy
        .hosts
        .values()
        .any(|host| Age::of(host, &policy, now).stale());
    Ok(Done::when(!stale))
}

/// Two lines for each host: the pin with its base URL, then how old it is and where it came from.
pub(super) fn lines(policy: &Policy, now: Timestamp, out: &Out) -> Vec<String> {
    let width = policy.hosts.keys().map(|pin| pin.as_str().len()).max();
    let width = width.unwrap_or(0);
    let mut lines = Vec::new();
    for (pin, host) in &policy.hosts {
        let age = Age::of(host, policy, now);
        let tone = if age.stale() { Tone::Bad } else { Tone::Dim };
        let name = out.paint(Tone::Strong, pin.as_str(), width);
        lines.push(format!(
            "{name}  {}  {}, bind {}",
            url(host),
            addresses(host),
            host.bind.name()
        ));
        let source = host
            .source
            .as_deref()
            .map_or_else(String::new, |source| format!(", from {}", safe(source)));
        let blank = " ".repeat(width);
        lines.push(format!(
            "{blank}  {}{source}",
            out.paint(tone, &age.text(), 0)
        ));
    }
    if policy.hosts.is_empty() {
        lines.push("no host: nothing can be sent".to_owned());
    }
    lines
}

fn confirm(args: &Confirm, out: &mut Out) -> Result<Done, Failure> {
    // The policy's own faults come first where it has some.
    let hosts = policy::load_without_secrets(Some(&args.policy))?.hosts;
    let (pin, host) = hosts.get_key_value(args.host.as_str()).ok_or_else(|| {
        let file = args.policy.display();
        Failure::new(format!(
            "{} is no host of {file}; leafgate pin list --policy {} shows them{}",
            args.host,
            shell_word(&args.policy),
            did_you_mean(&args.host, hosts.keys().map(HostPin::as_str))
        ))
    })?;
    let now = Timestamp::now();
    rooms::confirm_pin(&args.policy, pin, now)?;
    // Rounded down, as the file has it.
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let source = host
        .source
        .as_deref()
        .unwrap_or("no source is written: add the page as `source`");
    out.line(format!("{}: copied_at = {seconds}", args.host))?;
    out.line(format!(
        "you say that you read this host string today on its own page: {}",
        safe(source)
    ))?;
    Ok(Done::Yes)
}

pub(super) fn url(host: &Host) -> String {
    let scheme = if host.base.tls { "https" } else { "http" };
    format!("{scheme}://{}{}", host.base.authority, host.base.path)
}

fn addresses(host: &Host) -> &'static str {
    match &host.addresses {
        Addresses::Public => "public",
        Addresses::Loopback => "loopback",
        Addresses::Private => "private",
        Addresses::Networks(_) => "listed networks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_says_stale_only_where_it_is() {
        let hours = |count: u64| Duration::from_secs(count * 3600);
        let copied = |ago| Age::Copied {
            ago,
            most: hours(24),
        };
        assert!(!copied(hours(24)).stale());
        assert!(copied(hours(24) + Duration::from_nanos(1)).stale());
        assert_eq!(copied(hours(3)).text(), "copied 3 h ago, valid for 24 h");
        assert!(
            copied(hours(72))
                .text()
                .starts_with("STALE: copied 3 days ago")
        );
        assert!(Age::Never.stale() && !Age::Ageless.stale());
    }
}
