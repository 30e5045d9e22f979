//! `demo`: the whole product with no set-up. A folder of its own, a host of its own, the real proxy between them.
//!
//! Promises: it speaks to 127.0.0.1 alone, writes nowhere but in a temporary folder that it removes, and says so where a call did not come out
//! as it must (exit status 1).

mod client;
mod host;
mod scenes;
mod show;

use std::path::Path;
use std::time::Duration;

use client::Request;
use host::Host;
use scenes::{SCENES, Scene};

use super::out::{Done, Failure, Out, Tone, safe};
use super::serve::{self, Gate, Signals};
use super::{policy, rooms};
use crate::terms::Leaf;

/// See hold, split and release on this machine, with no set-up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate demo --once
  leafgate demo            goes on serving, so that you can try a client of your own")]
pub(super) struct Args {
    /// End after the four calls
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let oracle = serve::tested_oracle()?;
    let dir = tempfile::Builder::new()
        .prefix("leafgate-demo-")
        .tempdir()
        .map_err(|error| Failure::new(format!("no temporary folder: {error}")))?;
    let runtime = serve::runtime()?;
    let done = runtime.block_on(play(args, dir.path(), oracle, out));
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn play(args: &Args, dir: &Path, oracle: String, out: &mut Out) -> Result<Done, Failure> {
    let (host, address) = Host::start()
        .await
        .map_err(|error| Failure::new(format!("the demo's host cannot listen: {error}")))?;
    let file = scenes::write(dir, address, ports(args.once)?)?;
    let policy = policy::load(Some(&file))?;
    let mut signals = Signals::new()?;
    let gate = Gate::start(policy, oracle).await?;
    let done = acts(args, dir, &gate, &host, address, out).await;
    // What the reader left or a call broke is said after the gate has ended as it should.
    match done {
        Ok(true) if !args.once => {
            signals.until_end(&gate).await;
            gate.stop(signals.end()).await;
            Ok(Done::Yes)
        }
        Ok(as_it_must) => {
            gate.stop(signals.end()).await;
            if !args.once {
                return Ok(Done::when(as_it_must));
            }
            let whole = verified(dir, out)?;
            Ok(Done::when(as_it_must && whole))
        }
        Err(failure) => {
            gate.stop(signals.end()).await;
            Err(failure)
        }
    }
}

/// The four calls; while it goes on serving, also the ledger and how to attach to it.
async fn acts(
    args: &Args,
    dir: &Path,
    gate: &Gate,
    host: &Host,
    address: std::net::SocketAddr,
    out: &mut Out,
) -> Result<bool, Failure> {
    show::opening(out, address)?;
    let mut as_it_must = true;
    for (place, scene) in SCENES.iter().enumerate() {
        as_it_must &= call(place + 1, scene, gate, host, out).await?;
        out.flush()?;
    }
    if !args.once {
        let ledger = dir.to_path_buf();
        as_it_must &= verified(&ledger, out)?;
        attach(dir, gate, out)?;
        out.flush()?;
    }
    Ok(as_it_must)
}

/// One call through the proxy. Whether it came out as it must.
async fn call(
    number: usize,
    scene: &Scene,
    gate: &Gate,
    host: &Host,
    out: &mut Out,
) -> Result<bool, Failure> {
    let to = gate
        .running
        .bound
        .tcp()
        .ok_or_else(|| Failure::new("the demo listens on a port"))?;
    let accepts = host.accepts();
    host.take();
    let request = Request::new(to, scene.name, scene.body());
    let reply = request.send(to).await?;
    let received = host.take();
    let connected = host.accepts() > accepts;
    show::scene(out, number, scene, &request, &received, &reply)?;
    let sent_right = match scene.leaf {
        Leaf::Hold => received.is_empty() && !connected,
        Leaf::Split => matches!(&received[..], [one] if four_values(&one.body)),
        Leaf::Release => {
            matches!(&received[..], [one] if one.body == request.body.as_bytes())
        }
    };
    let right = sent_right && reply.leaf == scene.leaf.name();
    if !right {
        let line = format!(
            "   NOT AS IT MUST BE: {} was expected here",
            scene.leaf.name()
        );
        out.line(out.paint(Tone::Bad, &line, 0))?;
    }
    Ok(right)
}

/// Whether a body is one object of the four values and nothing else.
fn four_values(body: &[u8]) -> bool {
    const FOUR: [&str; 4] = [
        "egress_class",
        "failure_label",
        "fixture_hash",
        "fixture_id",
    ];
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).is_ok_and(|object| {
        object.keys().map(String::as_str).eq(FOUR)
            && object.values().all(serde_json::Value::is_string)
    })
}

fn verified(dir: &Path, out: &mut Out) -> Result<bool, Failure> {
    let found = rooms::verify(&dir.join("ledger"), &[], &mut |_, _| {})?;
    out.line("")?;
    if let Some(problem) = &found.problem {
        out.line(format!(
            "{} {}",
            out.paint(Tone::Bad, "ledger", 0),
            safe(problem)
        ))?;
    }
    let whole = found.problem.is_none();
    if whole {
        let records = found.records;
        out.line(format!(
            "{}: {records} records, each tied to the one before by its hash; the chain is whole",
            out.paint(Tone::Good, "ledger verified", 0)
        ))?;
    }
    Ok(whole)
}

/// How to go on while the demo serves.
fn attach(dir: &Path, gate: &Gate, out: &mut Out) -> Result<(), Failure> {
    out.line("")?;
    gate.show(out)?;
    let dir = dir.display().to_string();
    let dir = safe(&dir);
    let base = gate.running.shared.base_url();
    let root = base.strip_suffix("/v1").unwrap_or(&base);
    out.line("")?;
    out.line("Try it from another terminal:")?;
    out.line(format!(
        "  curl {root}/card/seed-04/v1/chat/completions -H 'content-type: application/json' \\"
    ))?;
    out.line(format!("    -d @{dir}/seed-04.body.json"))?;
    out.line(format!("  leafgate ledger list {dir}/ledger"))?;
    out.line("Ctrl-C ends the demo and removes its folder.")
}

/// Ports of the proxy and of the admin listener: the usual ones where they are free and the demo stays, else any.
fn ports(once: bool) -> Result<(u16, u16), Failure> {
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
    let failed = |error: std::io::Error| Failure::new(format!("no free port: {error}"));
    // Both are held until both are known, so that they differ.
    let usual = if once {
        None
    } else {
        bind(8484).ok().zip(bind(8485).ok())
    };
    let (proxy, admin) = match usual {
        Some(both) => both,
        None => (bind(0).map_err(failed)?, bind(0).map_err(failed)?),
    };
    let port = |listener: &std::net::TcpListener| {
        listener
            .local_addr()
            .map(|address| address.port())
            .map_err(failed)
    };
    Ok((port(&proxy)?, port(&admin)?))
}

#[cfg(test)]
mod tests {
    use super::four_values;

    #[test]
    fn four_values_are_four_and_no_more() {
        let four =
            r#"{"fixture_id":"a","fixture_hash":"b","egress_class":"c","failure_label":"d"}"#;
        assert!(four_values(four.as_bytes()));
        for wrong in [
            four.replace("\"d\"", "1"),
            four.replace("fixture_id", "id"),
            four.replace('}', ",\"text\":\"x\"}"),
            "[]".to_owned(),
        ] {
            assert!(!four_values(wrong.as_bytes()), "{wrong}");
        }
    }
}
