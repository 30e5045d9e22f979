//! `serve`: runs the proxy and the admin listener until a signal ends it.
//!
//! Promises: it starts only where the oracle gives what it states, the policy has no fault and the ledger opens; at the end the ledger is
//! drained and stopped, whatever happened to the calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::out::{Done, Failure, Out, Tone, safe};
use super::{custody, oracle, pin, policy};
use crate::admin;
use crate::files::shell_word;
use crate::ingress::{self, Live, Running};
use crate::ledger::{Ledger, RunFacts};
use crate::metrics::{Metrics, Readings};
use crate::policy::Policy;

/// Run the proxy.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate serve
  leafgate serve --policy policy.toml

SIGHUP reloads the policy; SIGTERM and SIGINT drain the calls in flight, and end at once where they come twice.
The log goes to standard error; LEAFGATE_LOG=warn shows less of it.")]
pub(super) struct Args {
    /// The policy file; without one, the built-in policy, whose only host is local
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
}

/// The most threads that serve calls: more only wait for each other at the ledger.
const MAX_WORKERS: usize = 4;

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let oracle = tested_oracle()?;
    let policy = policy::load(args.policy.as_ref())?;
    log();
    for finding in custody::of_secrets(&policy) {
        let line = safe(&finding.line()).into_owned();
        tracing::warn!(target: "leafgate::serve", "{line}");
    }
    open_files();
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let gate = Gate::start(policy, oracle).await?;
        let shown = gate.show(out).and_then(|()| out.flush());
        // A reader that left, or a full disk under standard output, ends no proxy.
        if let Err(Failure::Lines(lines)) = shown {
            super::complain(&lines);
        }
        signals.until_end(&gate).await;
        gate.stop(signals.end()).await;
        Ok(Done::Yes)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Takes as many open files as the machine allows: the usual limit of 1,024 is there for programs that use `select`.
fn open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let allowed = getrlimit(Resource::Nofile);
    // macOS gives no hard limit and takes no more than this.
    let current = allowed.maximum.or(Some(10_240));
    if allowed.current.is_none() || allowed.current >= current {
        return;
    }
    let wanted = Rlimit {
        current,
        maximum: allowed.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(target: "leafgate::serve", %error, "the limit on open files stays as it is");
    }
}

/// The oracle's hash, where every case gives what it states.
pub(super) fn tested_oracle() -> Result<String, Failure> {
    let oracle = oracle::open(None)?;
    let differences = oracle.differences();
    if differences.is_empty() {
        return Ok(oracle.hash().to_owned());
    }
    let lines = differences.iter().map(|case| {
        let (id, got, expected) = (&case.id, &case.got, &case.expected);
        format!("oracle: {id}: got {got}, expected {expected}; this build does not start")
    });
    Err(Failure::Lines(lines.collect()))
}

/// The runtime of every command that needs one.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.min(MAX_WORKERS))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))
}

/// The log on standard error: `info` and above, or what `LEAFGATE_LOG` says.
fn log() {
    use std::io::IsTerminal as _;
    let filter = EnvFilter::try_from_env("LEAFGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let stderr = std::io::stderr();
    let colour = stderr.is_terminal()
        && anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never;
    // A second subscriber cannot be set; the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .try_init();
}

/// The running gate: proxy, admin listener and ledger.
pub(super) struct Gate {
    pub(super) running: Running,
    pub(super) admin: String,
    pub(super) policy: Arc<Policy>,
    ledger: Ledger,
    admin_task: tokio::task::JoinHandle<()>,
}

impl Gate {
    /// Starts everything, or nothing: what was begun is ended again.
    pub(super) async fn start(policy: Policy, oracle: String) -> Result<Gate, Failure> {
        let policy = Arc::new(policy);
        let live = Live::load(policy.clone()).map_err(|error| Failure::of(&error))?;
        let address = policy.listen.admin;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(format!(
                "listen.admin {address} cannot be bound; free it or choose another: {error}"
            ))
        })?;
        let admin = listener.local_addr().unwrap_or(address).to_string();
        let run = RunFacts {
            version: env!("CARGO_PKG_VERSION"),
            policy: policy.hash.clone(),
            oracle,
        };
        let settings = policy.ledger.clone();
        let ledger = tokio::task::spawn_blocking(move || Ledger::start(&settings, run))
            .await
            .map_err(|_| Failure::new("the ledger could not be opened"))?
            .map_err(|error| Failure::of(&error))?;
        let metrics = Arc::new(Metrics::new());
        let running = match ingress::start(live, ledger.clone(), metrics.clone()).await {
            Ok(running) => running,
            Err(error) => {
                stop_ledger(ledger).await;
                return Err(Failure::of(&error));
            }
        };
        let shared = admin_shared(&running, metrics, &policy);
        Ok(Gate {
            admin_task: tokio::spawn(admin::serve(listener, shared)),
            admin,
            policy,
            ledger,
            running,
        })
    }

    /// Base URL, hosts, and how to attach a card.
    pub(super) fn show(&self, out: &mut Out) -> Result<(), Failure> {
        let policy = &self.policy;
        let base = self.running.shared.base_url();
        let root = base.strip_suffix("/v1").unwrap_or(&base);
        let file = policy.file.as_ref().map_or_else(
            || "built-in policy".to_owned(),
            |file| safe(&file.display().to_string()).into_owned(),
        );
        out.line(out.paint(
            Tone::Strong,
            &format!("leafgate {}", env!("CARGO_PKG_VERSION")),
            0,
        ))?;
        out.line(format!(
            "  policy    {file}, {}",
            policy.hash.get(..12).unwrap_or_default()
        ))?;
        out.line(format!("  base URL  {}", out.paint(Tone::Strong, &base, 0)))?;
        out.line(format!(
            "            {root}  for clients that add /v1 themselves"
        ))?;
        if let Some(socket) = self.running.bound.unix() {
            let socket = socket.display().to_string();
            out.line(format!(
                "  socket    {}, mode 0600: curl --unix-socket, httpx uds=, undici socketPath",
                safe(&socket)
            ))?;
        }
        if let Some(intercept) = &policy.intercept {
            let ca = intercept.ca.display().to_string();
            let until = super::certs::day(intercept.authority.until());
            out.line(format!(
                "  CONNECT   to the https hosts below, vouched for by {} until {until}",
                safe(&ca)
            ))?;
        }
        out.line(format!("  console   http://{}/", self.admin))?;
        let ledger = policy.ledger.dir.display().to_string();
        out.line(format!(
            "  ledger    {}, sync {}",
            safe(&ledger),
            policy.ledger.sync.name()
        ))?;
        out.line("")?;
        for (place, line) in pin::lines(policy, Timestamp::now(), out).iter().enumerate() {
            let head = if place == 0 { "hosts" } else { "" };
            out.line(format!("  {head:<8}  {line}"))?;
        }
        out.line("")?;
        out.line("  attach exactly one card to each call:")?;
        out.line(
            "  header    leafgate-card: @NAME   or the card as compact JSON, or as base64url of it",
        )?;
        out.line(format!("  base URL  {root}/card/NAME/v1"))?;
        out.line("  API key   card:NAME")?;
        let cards = self.running.shared.live.load().cards.clone();
        let names: Vec<&str> = cards.iter().map(|(name, _)| name.as_str()).collect();
        let dir = policy.cards_dir.display().to_string();
        let known = match names.as_slice() {
            [] => format!(
                "none yet; leafgate card new --out {} fills one",
                safe(&shell_word(&policy.cards_dir.join("NAME.json")))
            ),
            [first @ .., _] if first.len() >= 5 => {
                format!("{}, … ({})", names[..5].join(", "), names.len())
            }
            all => all.join(", "),
        };
        out.line(format!(
            "  NAME      is the stem of a card file in {}: {known}",
            safe(&dir)
        ))?;
        if policy.listen.token.is_some() {
            out.line("  token     clients send it as leafgate-token")?;
        }
        out.line(self.edits())?;
        out.line(format!(
            "  doctor    leafgate doctor{}, in the client's shell, shows what could go round this",
            policy.flag()
        ))?;
        Ok(())
    }

    /// When a changed file is taken, and where that is seen.
    fn edits(&self) -> String {
        let files = match self.policy.file {
            Some(_) => "policy, cards and fixtures",
            None => "cards and fixtures",
        };
        let within = ingress::TAKEN_WITHIN.as_secs_f32();
        let admin = &self.admin;
        format!(
            "  edits     to {files} are taken within {within} s: the log says reloaded, and http://{admin}/readyz what is wrong"
        )
    }

    /// Drains the calls in flight until `hurry` is over, then the ledger, which is never hurried.
    pub(super) async fn stop(self, hurry: impl Future<Output = ()>) {
        tokio::select! {
            () = self.running.stop() => {}
            () = hurry => {}
        }
        self.admin_task.abort();
        stop_ledger(self.ledger).await;
    }
}

fn admin_shared(running: &Running, metrics: Arc<Metrics>, policy: &Policy) -> Arc<admin::Shared> {
    let shared = running.shared.clone();
    Arc::new(admin::Shared {
        metrics,
        base_url: shared.base_url(),
        ledger_dir: policy.ledger.dir.clone(),
        state: Box::new(move || {
            let ledger = shared.ledger.state();
            let egress = shared.egress.metrics();
            admin::State {
                readings: Readings {
                    ledger_ok: ledger.ok,
                    in_flight: shared.in_flight() as u64,
                    sync: ledger.sync.clone(),
                    host: egress.host_seconds.snapshot(),
                    sent: egress.bytes_sent.load(Relaxed),
                    received: egress.bytes_received.load(Relaxed),
                },
                ledger,
                policy_hash: shared.live.load().policy.hash.clone(),
                policy_error: shared.reload_errors.first(),
            }
        }),
    })
}

/// The ledger's end blocks: it syncs.
async fn stop_ledger(ledger: Ledger) {
    let _ = tokio::task::spawn_blocking(move || ledger.stop()).await;
}

/// The signals that `serve` knows.
pub(super) struct Signals {
    hangup: Signal,
    user: [Signal; 2],
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(format!("signals cannot be heard: {error}")))
        };
        Ok(Signals {
            hangup: listen(SignalKind::hangup())?,
            // Their default would end the process in the middle of its calls.
            user: [
                listen(SignalKind::user_defined1())?,
                listen(SignalKind::user_defined2())?,
            ],
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Reloads at each SIGHUP until SIGTERM or SIGINT.
    pub(super) async fn until_end(&mut self, gate: &Gate) {
        let [first, second] = &mut self.user;
        loop {
            tokio::select! {
                Some(()) = self.hangup.recv() => gate.running.reload(),
                Some(()) = first.recv() => ignored("SIGUSR1"),
                Some(()) = second.recv() => ignored("SIGUSR2"),
                () = ended(&mut self.interrupt, &mut self.terminate) => return,
            }
        }
    }

    /// SIGTERM or SIGINT.
    pub(super) async fn end(&mut self) {
        ended(&mut self.interrupt, &mut self.terminate).await;
    }
}

fn ignored(signal: &str) {
    tracing::warn!(target: "leafgate::serve", signal, "ignored; SIGHUP reloads, SIGTERM ends");
}

async fn ended(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
