//! The user's own command, started with the base URL of the capture.

use std::ffi::OsString;
use std::process::ExitStatus;

use super::capture::{Capture, Captured};
use super::tell;
use crate::cli::out::{Failure, Out, Tone};
use crate::cli::serve::runtime;

/// Where a client library looks for its base URL, and whether `/v1` is part of it.
const BASES: [(&str, bool); 3] = [
    ("OPENAI_BASE_URL", true),
    ("OPENAI_API_BASE", true),
    ("ANTHROPIC_BASE_URL", false),
];
/// Client libraries do not start without a key; the capture asks for none.
const KEYS: [&str; 2] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];

/// Captures what the command sends, or with no command, what comes until Ctrl-C.
pub(super) fn capture(
    command: &[String],
    models: &[String],
    quiet: bool,
    out: &mut Out,
) -> Result<Captured, Failure> {
    runtime()?.block_on(async {
        let capture = Capture::start(models)
            .await
            .map_err(|error| Failure::new(format!("the capture cannot listen: {error}")))?;
        let base = format!("http://{}", capture.address);
        if !quiet {
            let label = out.paint(Tone::Strong, "capture", 0);
            out.line(format!(
                "{label}  {base}/v1  (nothing leaves; answers are empty)"
            ))?;
        }
        out.flush()?;
        match command.split_first() {
            Some((program, args)) => {
                let status = run(program, args, &base).await?;
                if !status.success() {
                    tell::note(&format!("the command ended with {status}"));
                }
            }
            None => {
                tokio::signal::ctrl_c()
                    .await
                    .map_err(|error| Failure::new(format!("no signals: {error}")))?;
            }
        }
        Ok(capture.end())
    })
}

async fn run(program: &str, args: &[String], base: &str) -> Result<ExitStatus, Failure> {
    let with_base = |text: &String| text.replace("{base_url}", &format!("{base}/v1"));
    #[allow(
        clippy::disallowed_methods,
        reason = "the user's own command, written on the command line; no call is in hand here"
    )]
    let mut command = std::process::Command::new(program);
    command.args(args.iter().map(with_base));
    for (name, versioned) in BASES {
        let path = if versioned { "/v1" } else { "" };
        command.env(name, format!("{base}{path}"));
    }
    for name in KEYS {
        if std::env::var_os(name).is_none() {
            command.env(name, "leafgate-capture");
        }
    }
    // A proxy from the environment would take the calls elsewhere.
    for name in ["NO_PROXY", "no_proxy"] {
        let mut list = std::env::var_os(name).unwrap_or_default();
        if !list.is_empty() {
            list.push(",");
        }
        list.push(OsString::from("127.0.0.1,localhost"));
        command.env(name, list);
    }
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(format!("{program}: {error}")))?;
    let mut waiting = tokio::task::spawn_blocking(move || child.wait());
    loop {
        tokio::select! {
            done = &mut waiting => {
                return done
                    .map_err(std::io::Error::other)
                    .and_then(|status| status)
                    .map_err(|error| Failure::new(format!("{program}: {error}")));
            }
            // Ctrl-C reaches the command too; what it sent before is still worth a look.
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|error| Failure::new(format!("no signals: {error}")))?;
            }
        }
    }
}
