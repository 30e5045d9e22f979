//! `fixture check`: which characters of a body no fixture covers, on the terminal of the person who owns them.
//!
//! Promises: the text is shown on standard output and nowhere else; `--json` gives facts without text. It runs the rule that a call runs.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::fixture_learn::{named, note};
use super::fixture_show::places;
use super::out::{Done, Failure, Out, Tone, safe};
use super::{input, policy, rooms};
use crate::fixture::{Finding, Fixture};
use crate::policy::{Bind, Host};
use crate::vocabulary::Vocabularies;

/// Show which characters of a body are not covered by a fixture and its glue.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate fixture check body.json --id seed-04
  leafgate fixture check bodies.jsonl --id seed-04 --passing bound.jsonl

A file that ends in .jsonl holds one body on each line. The text is shown: keep the output to yourself.
Exits 1 where a body is not bound.")]
pub(super) struct Args {
    /// The body, or a .jsonl file with one body on each line; `-` is standard input
    #[arg(value_name = "BODY")]
    body: PathBuf,
    /// The fixture's id; needed where the lock file has more than one
    #[arg(long)]
    id: Option<String>,
    /// The policy file; without one, fixtures.lock in this folder, and no model is judged
    #[arg(long, value_name = "F")]
    policy: Option<PathBuf>,
    /// The host it would go to; without one, the models and parameters of every host may be named
    #[arg(long, value_name = "PIN")]
    host: Option<String>,
    /// The path of the call under /v1
    #[arg(long, value_name = "PATH", default_value = "/chat/completions")]
    route: String,
    /// Write the bodies that are bound to this file, one on each line
    #[arg(long, value_name = "OUT")]
    passing: Option<PathBuf>,
    /// Facts, one JSON object for each body, none of its text
    #[arg(long)]
    json: bool,
}

/// What bodies are held against.
struct Against {
    fixture: Arc<Fixture>,
    host: Option<Arc<Host>>,
    models: Vec<String>,
    /// Of the host, or of every host.
    vocabularies: Vec<Vocabularies>,
    route: String,
    policy: Option<PathBuf>,
    /// How a command names it.
    flag: String,
}

/// How one body came out.
struct Verdict {
    bound: bool,
    /// Why, where there is no finding to show.
    hint: Option<String>,
    findings: Vec<Finding>,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let policy = policy::load_to_look(args.policy.as_ref())?;
    let host = rooms::host(&policy, args.host.as_deref())?;
    let (_, fixture) = rooms::fixture_open(&policy, args.id.as_deref())?;
    let against = Against {
        models: rooms::models(&policy, host.as_deref()),
        vocabularies: rooms::vocabularies(&policy, host.as_deref()),
        fixture,
        host,
        route: args.route.clone(),
        policy: args.policy.clone(),
        flag: policy.flag(),
    };
    if against.policy.is_none() {
        note("the model is not judged without --policy");
    }
    let most = policy.limits.body;
    let lines = args.body.extension().is_some_and(|e| e == "jsonl");
    if lines {
        return each(args, &against, most, out);
    }
    let body = input::body(&args.body, most)?;
    let verdict = against.verdict(&body);
    if args.json {
        out.json(&verdict.facts(None))?;
    } else {
        verdict.tell(out)?;
    }
    if let Some(file) = &args.passing {
        let kept: &[u8] = if verdict.bound { &body } else { b"" };
        std::fs::write(file, one_line(kept)).map_err(|error| Failure::file(file, &error))?;
        wrote(u64::from(verdict.bound), file);
    }
    Ok(Done::when(verdict.bound))
}

/// One body on each line, read one after another.
fn each(args: &Args, against: &Against, most: u64, out: &mut Out) -> Result<Done, Failure> {
    let mut input = input::Bodies::open(&args.body, most)?;
    let mut passing = match &args.passing {
        Some(file) => {
            let made = File::create(file).map_err(|error| Failure::file(file, &error))?;
            Some((file, std::io::BufWriter::new(made)))
        }
        None => None,
    };
    let (mut bodies, mut bound) = (0_u64, 0_u64);
    while let Some((number, body)) = input.next()? {
        bodies += 1;
        let verdict = against.verdict(body);
        bound += u64::from(verdict.bound);
        if args.json {
            out.json(&verdict.facts(Some(number)))?;
        } else if verdict.bound {
            let word = out.paint(Tone::Good, "bound", 0);
            out.line(format!("line {number}: {word}"))?;
        } else {
            let word = out.paint(Tone::Bad, "not bound", 0);
            out.line(format!("line {number}: {word}"))?;
            verdict.why(out)?;
        }
        if let Some((file, to)) = &mut passing
            && verdict.bound
        {
            to.write_all(body)
                .and_then(|()| to.write_all(b"\n"))
                .map_err(|error| Failure::file(file, &error))?;
        }
    }
    if let Some((file, to)) = &mut passing {
        to.flush().map_err(|error| Failure::file(file, &error))?;
        wrote(bound, file);
    }
    if !args.json {
        out.line(format!("{bound} of {bodies} bodies are bound"))?;
    }
    Ok(Done::when(bodies > 0 && bound == bodies))
}

/// What `--passing` wrote.
fn wrote(bodies: u64, file: &Path) {
    let many = if bodies == 1 { "body" } else { "bodies" };
    note(&format!(
        "{bodies} bound {many} written to {}",
        file.display()
    ));
}

/// A body as one line: outside its strings a line break is white space, and inside them JSON has none.
pub(super) fn one_line(body: &[u8]) -> Vec<u8> {
    let mut line: Vec<u8> = body
        .iter()
        .map(|byte| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                *byte
            }
        })
        .collect();
    if !line.is_empty() {
        line.push(b'\n');
    }
    line
}

impl Against {
    fn verdict(&self, body: &[u8]) -> Verdict {
        // A host that binds otherwise has its own verdict.
        if let Some(host) = &self.host
            && host.bind != Bind::Cover
        {
            let sha256 = Sha256::digest(body).into();
            let refused = self.fixture.bind(host, &self.route, body, &sha256).err();
            return Verdict {
                bound: refused.is_none(),
                hint: refused.map(|unbound| unbound.hint_for(&self.flag)),
                findings: Vec::new(),
            };
        }
        // Without a policy there are no hosts, so no model is theirs or not.
        let own = match self.policy {
            Some(_) => None,
            None => named(body).map(|model| vec![model]),
        };
        let models = own.as_deref().unwrap_or(&self.models);
        let found = self
            .fixture
            .explain(models, &self.vocabularies, &self.route, body);
        match found {
            Ok(findings) => Verdict {
                bound: findings.is_empty(),
                hint: None,
                findings,
            },
            Err(unbound) => Verdict {
                bound: false,
                hint: Some(unbound.hint_for(&self.flag)),
                findings: Vec::new(),
            },
        }
    }
}

impl Verdict {
    fn tell(&self, out: &mut Out) -> Result<(), Failure> {
        if self.bound {
            return out.line(out.paint(Tone::Good, "bound", 0));
        }
        out.line(out.paint(Tone::Bad, "not bound", 0))?;
        self.why(out)
    }

    fn why(&self, out: &mut Out) -> Result<(), Failure> {
        if let Some(hint) = &self.hint {
            out.line(format!("  {}", safe(hint)))?;
        }
        places(&self.findings, out)
    }

    fn facts(&self, line: Option<u64>) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "pointer": finding.pointer, "reason": finding.fault.name(), "uncovered": finding.uncovered,
                    "glue": finding.of_glue(),
                })
            })
            .collect();
        let mut facts = json!({"bound": self.bound, "findings": findings});
        if let Some(line) = line {
            facts["line"] = line.into();
        }
        if let Some(hint) = &self.hint {
            facts["hint"] = hint.as_str().into();
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_becomes_one_line_and_stays_the_same_value() {
        let body = b"{\n  \"a\": \"x\\ny\"\r\n}";
        let line = one_line(body);
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(value(&line), value(body));
        assert!(one_line(b"").is_empty());
    }
}
