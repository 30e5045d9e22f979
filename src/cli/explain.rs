//! `explain`: the whole path of one card, dry. Nothing is sent, resolved or recorded.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use jiff::Timestamp;
use serde_json::json;

use super::card::{facts, read, shown};
use super::out::{Done, Failure, Out, Tone};
use super::{input, pin, policy, serve};
use crate::admit::{CallHead, CallId, Eligible, Plan, Refusal, SealedBody, Target, check_head};
use crate::ingress::Live;
use crate::policy::{Envelope, Policy};
use crate::terms::{Field, Step, Verdict};
use crate::tree::{Decision, Ruling, classify};

/// Show what would become of a call: tree, admission, and what would leave.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate explain cards/seed-04.json --body request.json --policy policy.toml

Nothing is sent. Exits 1 where nothing would leave. Without --body the body is taken as empty.")]
pub(super) struct Args {
    /// The card file; `-` is standard input
    #[arg(value_name = "CARD")]
    card: String,
    /// The body of the call; `-` is standard input
    #[arg(long, value_name = "F")]
    body: Option<PathBuf>,
    /// The policy file; without one, the built-in policy
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// The path of the call under /v1
    #[arg(long, value_name = "PATH", default_value = "/chat/completions")]
    path: String,
    /// The whole path as one JSON object
    #[arg(long)]
    json: bool,
}

/// The body of the call; empty where none was named.
fn body(args: &Args, policy: &Policy) -> Result<Bytes, Failure> {
    match &args.body {
        Some(file) => Ok(input::body(file, policy.limits.body)?.into()),
        None => Ok(Bytes::new()),
    }
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    if args.card == "-" && args.body.as_ref().is_some_and(|b| b.as_os_str() == "-") {
        return Err(Failure::new(
            "CARD and --body: both are standard input (-); write one of them to a file",
        ));
    }
    let reading = read(&args.card)?;
    let decision = classify(&reading);
    let ruling = decision.ruling();
    let policy = Arc::new(policy::load_to_look(args.policy.as_ref())?);
    let body = body(args, &policy)?;
    let admitted = admission(decision, &policy, &args.path, body)?;
    if args.json {
        let mut facts = facts(&args.card, &reading, &ruling);
        // `null` is the built-in one.
        facts["policy"] = args
            .policy
            .as_ref()
            .map(|file| file.display().to_string())
            .into();
        match &admitted {
            Ok(plan) => {
                facts["verdict"] = Verdict::Forward.name().into();
                facts["leaves"] = json!({
                    "host": plan.facts().host.as_ref().map(|host| host.pin.as_str()),
                    "len": plan.len(), "sha256": hex(&plan.sha256()), "clear_text": plan.clear_text(),
                });
            }
            Err(refusal) => {
                facts["verdict"] = refusal.verdict.name().into();
                facts["reason"] = refusal.reason.code().into();
                facts["field"] = refusal.field.map(Field::name).into();
                facts["hint"] = refusal.hint.as_str().into();
            }
        }
        out.json(&facts)?;
    } else {
        tell(args, &ruling, &admitted, out)?;
    }
    Ok(Done::when(admitted.is_ok()))
}

/// Runs admission as a call would, over the policy's fixtures as they are now.
fn admission(
    decision: Decision,
    policy: &Arc<Policy>,
    path: &str,
    body: Bytes,
) -> Result<Result<Plan, Box<Refusal>>, Failure> {
    // The record is not written, so the id is nobody's.
    let call = CallId::new(0, [0; 10]);
    let eligible = match decision {
        Decision::Hold(hold) => {
            return Ok(Err(Box::new(Refusal::hold(&hold, call, None, false, None))));
        }
        Decision::Split(split) => Eligible::Split(split),
        Decision::Release(release) => Eligible::Release(release),
    };
    let live = Live::load(policy.clone()).map_err(|error| Failure::of(&error))?;
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    let head = CallHead {
        call,
        attach: None,
        method: &Method::POST,
        target: Target::Origin(path),
        headers: &headers,
        peer_uid: None,
    };
    let checked = serve::runtime()?.block_on(check_head(
        eligible,
        head,
        policy,
        &live.fixtures,
        Timestamp::now(),
    ));
    Ok(checked.and_then(|admitted| admitted.finish(SealedBody::seal(body))))
}

const STEPS: [(Step, &str); 7] = [
    (
        Step::S0,
        "no card, two, a malformed one, or a field is absent",
    ),
    (Step::S1, "egress_class is machine-local"),
    (Step::S2, "residue is not empty"),
    (Step::S3, "a field is blank"),
    (Step::S4, "egress_class is redacted-metadata"),
    (Step::S5, "egress_class is public-fixture"),
    (Step::S6, "anything else, a typo included"),
];

fn tell(
    args: &Args,
    ruling: &Ruling,
    admitted: &Result<Plan, Box<Refusal>>,
    out: &mut Out,
) -> Result<(), Failure> {
    let policy = args.policy.as_ref().map_or_else(
        || "built-in: no --policy was given, so this is not what a serve with a policy of its own would do".to_owned(),
        |file| shown(&file.display().to_string()),
    );
    out.line(format!("{}{policy}", out.paint(Tone::Strong, "policy", 12)))?;
    out.line(out.paint(
        Tone::Strong,
        &format!("tree        {}", shown(&args.card)),
        0,
    ))?;
    for (step, what) in STEPS {
        let line = format!("  {}  {what:<52}", step.text());
        if step < ruling.step {
            out.line(format!("{line}  no"))?;
        } else if step == ruling.step {
            let leaf = out.paint(Tone::of(ruling.leaf), ruling.leaf.name(), 0);
            let field = ruling
                .field
                .map_or(String::new(), |field| format!(" ({})", field.name()));
            out.line(format!(
                "{line}  yes: {leaf}, {}{field}",
                ruling.reason.code()
            ))?;
        }
    }
    out.line(out.paint(Tone::Strong, "admission", 0))?;
    match admitted {
        Ok(plan) => {
            out.line("  every check passes")?;
            out.line(out.paint(Tone::Strong, "would leave", 0))?;
            for line in leaving(plan) {
                out.line(format!("  {line}"))?;
            }
        }
        Err(refusal) => {
            let field = refusal.field.map_or("", Field::name);
            if refusal.reason == ruling.reason {
                out.line("  not asked: a hold is refused by the tree")?;
            } else {
                let reason = out.paint(Tone::Bad, refusal.reason.code(), 0);
                out.line(format!("  refused: {reason} ({field})"))?;
            }
            out.line(format!("  {}", refusal.hint))?;
            out.line(out.paint(Tone::Strong, "would leave", 0))?;
            out.line("  nothing: no name is looked up, no connection is opened")?;
        }
    }
    if args.body.is_none() && ruling.step == Step::S5 {
        out.line(out.paint(
            Tone::Dim,
            "no --body was given: checked with an empty one",
            0,
        ))?;
    }
    Ok(())
}

/// Where it would go, and the exact bytes as far as the terminal is the place for them.
fn leaving(plan: &Plan) -> Vec<String> {
    let facts = plan.facts();
    let mut lines = Vec::new();
    if let Some(host) = &facts.host {
        let clear = if plan.clear_text() {
            ", in clear text"
        } else {
            ""
        };
        lines.push(format!(
            "to        {} ({}){clear}",
            host.pin,
            pin::url(host)
        ));
        if facts.ruling.step == Step::S4 {
            let card = facts.card.as_deref();
            let text = |field| card.and_then(|card| card.text(field)).unwrap_or_default();
            let envelope = match &host.split.envelope {
                Envelope::Bare => "four values",
                Envelope::Chat { .. } => "four values, as the only user message",
            };
            lines.push(format!("what      {envelope}"));
            lines.push(format!(
                "          fixture_id     {}",
                text(Field::FixtureId)
            ));
            lines.push(format!(
                "          fixture_hash   {}",
                text(Field::FixtureHash)
            ));
            lines.push(format!(
                "          egress_class   {}",
                text(Field::EgressClass)
            ));
            let label = facts
                .failure_label
                .as_ref()
                .map_or("", |label| label.as_str());
            lines.push(format!("          failure_label  {label}"));
        } else {
            let mode = plan.bind().map_or("none", |bind| bind.mode);
            lines.push(format!("what      the body, byte for byte (bind {mode})"));
        }
    }
    lines.push(format!("bytes     {}", plan.len()));
    lines.push(format!("sha256    {}", hex(&plan.sha256())));
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
