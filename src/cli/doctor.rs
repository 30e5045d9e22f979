//! `doctor`: what could go round leafgate on this machine (contract, section 10).
//!
//! Promises: it looks and touches nothing: no connection is made, no name is looked up, no value of a key is shown. Each finding says how to mend it. It sees this
//! machine, this environment and this policy; what another shell or another machine does it cannot see, and says so.

mod environment;
mod machine;
mod sockets;
mod trail;

#[cfg(target_os = "linux")]
pub(super) use environment::{KEYS, is_key};
#[cfg(target_os = "linux")]
pub(super) use sockets::{LISTEN, Socket, parse as tcp_sockets};

use std::path::PathBuf;

use serde_json::json;

use super::out::{Done, Failure, Out, Tone, safe};
use super::{custody, policy};

/// Show what could go round leafgate here, and how to mend it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate doctor --policy leafgate.toml
  leafgate doctor --json

Run it in the shell that will run the client: it reads that environment. It connects to nothing.
Exits 1 where something was found.")]
pub(super) struct Args {
    /// The policy file; without one, the built-in policy
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// One JSON object on a line for each finding
    #[arg(long)]
    json: bool,
}

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What it is about: a variable, a listener, a folder.
    pub(super) what: String,
    /// Why it matters.
    pub(super) why: String,
    /// What to do.
    pub(super) mend: String,
}

impl Finding {
    pub(super) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding {
            what: what.into(),
            why: why.into(),
            mend: mend.into(),
        }
    }

    /// As a warning of another command.
    pub(super) fn line(&self) -> String {
        format!("{}; {}: {}", self.what, self.why, self.mend)
    }
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let policy = policy::load_without_secrets(args.policy.as_ref())?;
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((
                name.into_string().ok()?,
                value.to_string_lossy().into_owned(),
            ))
        })
        .collect();
    let sockets = sockets::Sockets::read();
    let tunnel_to =
        |authority: &str| policy.intercept.is_some() && policy.tunnel_to(authority).is_some();
    let mut findings = environment::findings(&variables, &policy, &tunnel_to);
    findings.extend(sockets::findings(&policy, &sockets));
    findings.extend(machine::findings(&policy));
    let file = args.policy.as_deref();
    findings.extend(custody::of_everything(&policy, file));
    findings.extend(trail::findings(&policy));
    for finding in &findings {
        let Finding { what, why, mend } = finding;
        if args.json {
            out.json(&json!({ "what": what, "why": why, "mend": mend }))?;
            continue;
        }
        out.line(out.paint(Tone::Bad, &safe(what), 0))?;
        out.line(format!("  {}", safe(why)))?;
        out.line(format!("  mend: {}", safe(mend)))?;
    }
    if !args.json {
        let count = findings.len();
        let (tone, tail) = match count {
            0 => (Tone::Good, "nothing found in this environment".to_owned()),
            _ => (Tone::Strong, format!("{count} found")),
        };
        out.line(out.paint(tone, &tail, 0))?;
        out.line("not seen from here: other shells and machines, what a host does with what it gets, clients that ignore their base URL")?;
    }
    Ok(Done::when(findings.is_empty()))
}
