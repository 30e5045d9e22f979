//! `init`: a folder to begin in: a commented policy, a card folder, a first fixture with its entry and its card.
//!
//! Promises: nothing that is there is changed: where one of its files exists, none is written. What it wrote loads.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::out::{Done, Failure, Out, Tone, safe};
use super::rooms::{self, NewFixture};
use crate::files::shell_word;
use crate::fixture;
use crate::policy::Policy;
use crate::terms::FixtureId;

/// Begin: write a commented policy, a card folder and a first fixture.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate init my-evals
  leafgate init my-evals --base-url http://127.0.0.1:8080/v1

It writes leafgate.toml, cards/first.json, fixtures/first.txt and fixtures.lock, and changes nothing that is there.")]
pub(super) struct Args {
    /// The folder; made where it is not there
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The model server on this machine
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:11434/v1")]
    base_url: String,
}

const POLICY: &str = include_str!("../../policies/init.toml");
const POLICY_FILE: &str = "leafgate.toml";
/// The base URL in [`POLICY`].
const SHIPPED_URL: &str = "\"http://127.0.0.1:11434/v1\"";
const ID: &str = "first";
const FIXTURE_FILE: &str = "fixtures/first.txt";
const LOCK_FILE: &str = "fixtures.lock";
const CARD_FILE: &str = "cards/first.json";
/// Public on the day it was written, and long enough to cover itself.
const FIXTURE: &str =
    "Name three colours that a leaf may have in autumn, and one that it never has.\n";

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let dir = &args.dir;
    let there: Vec<String> = [POLICY_FILE, FIXTURE_FILE, LOCK_FILE, CARD_FILE]
        .iter()
        .map(|name| dir.join(name))
        .filter(|file| file.symlink_metadata().is_ok())
        .map(|file| {
            format!(
                "{}: is there already; nothing was written. Name another folder, or move it",
                file.display()
            )
        })
        .collect();
    if !there.is_empty() {
        return Err(Failure::Lines(there));
    }
    let policy = policy_text(&args.base_url);
    // Tried in a folder of its own first, so that a wrong URL leaves nothing behind.
    let trial = tempfile::tempdir().map_err(|error| Failure::of(&error))?;
    write(trial.path(), &policy)?;
    check(&trial.path().join(POLICY_FILE))?;
    write(dir, &policy)?;
    tell(dir, out)
}

/// The policy with this base URL.
fn policy_text(base_url: &str) -> String {
    POLICY.replacen(SHIPPED_URL, &toml::Value::from(base_url).to_string(), 1)
}

fn check(file: &Path) -> Result<(), Failure> {
    Policy::load(file).map(drop).map_err(|faults| {
        let lines = faults.iter().map(|fault| {
            if fault.key == "hosts.local.base_url" {
                format!("--base-url: {}", fault.what)
            } else {
                fault.to_string()
            }
        });
        Failure::Lines(lines.collect())
    })
}

fn write(dir: &Path, policy: &str) -> Result<(), Failure> {
    for folder in ["cards", "fixtures"] {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder).map_err(|error| Failure::file(&folder, &error))?;
    }
    put(&dir.join(FIXTURE_FILE), FIXTURE)?;
    let id = FixtureId::parse(ID).ok_or_else(|| Failure::new("init: its own id does not fit"))?;
    let new = NewFixture {
        id,
        key: None,
        files: vec![dir.join(FIXTURE_FILE)],
        format: fixture::Format::Text,
        glue: None,
    };
    let hash = rooms::fixture_add(&dir.join(LOCK_FILE), &new)?.hash;
    let card = serde_json::json!({
        "fixture_id": ID,
        "fixture_hash": hash.as_str(),
        "egress_class": "public-fixture",
        "residue": [],
        "host_pin": "local",
        "replay_window": "24h",
        "writable_surface": "tmpdir",
    });
    put(&dir.join(CARD_FILE), &format!("{card}\n"))?;
    // Last: where it is, the rest is.
    put(&dir.join(POLICY_FILE), policy)
}

/// Writes a file that is not there yet.
fn put(file: &Path, text: &str) -> Result<(), Failure> {
    fs::File::create_new(file)
        .and_then(|mut to| to.write_all(text.as_bytes()))
        .map_err(|error| Failure::file(file, &error))
}

fn tell(dir: &Path, out: &mut Out) -> Result<Done, Failure> {
    let shown = |name: &str| safe(&dir.join(name).display().to_string()).into_owned();
    let word = |name: &str| safe(&shell_word(&dir.join(name))).into_owned();
    for (name, what) in [
        (POLICY_FILE, "the policy, with comments"),
        (FIXTURE_FILE, "a public text"),
        (LOCK_FILE, "its hash, as a registered fixture"),
        (CARD_FILE, "its card: public-fixture, for local: a release"),
    ] {
        out.line(format!("written  {}  {what}", shown(name)))?;
    }
    out.line("")?;
    out.line("next")?;
    let next = format!("  leafgate serve --policy {}", word(POLICY_FILE));
    out.line(out.paint(Tone::Strong, &next, 0))?;
    out.line("  then, with the name of a model of yours,")?;
    out.line("  curl http://127.0.0.1:8484/card/first/v1/chat/completions -H 'content-type: application/json' \\")?;
    out.line(format!(
        "    -d '{{\"model\": \"llama3.2\", \"messages\": [{{\"role\": \"user\", \"content\": \"{}\"}}]}}'",
        FIXTURE.trim_end()
    ))?;
    out.line("a text of your own, registered, and its card (--no-residue is a claim, and yours)")?;
    let (text, lock, card) = (
        word("fixtures/mine.txt"),
        word(LOCK_FILE),
        word("cards/mine.json"),
    );
    out.line(format!("  echo 'A text of my own.' > {text}"))?;
    out.line(format!(
        "  leafgate fixture add {text} --id mine --lock {lock}"
    ))?;
    out.line(format!(
        "  leafgate card new --fixture {text} --id mine --class public-fixture --no-residue \\"
    ))?;
    out.line(format!(
        "    --pin local --window 24h --surface tmpdir --out {card}"
    ))?;
    Ok(Done::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Card, Reading};
    use crate::terms::Leaf;
    use crate::tree::classify;
    use std::sync::Arc;

    fn init(dir: &Path, base_url: &str) -> Result<Done, Failure> {
        let args = Args {
            dir: dir.to_owned(),
            base_url: base_url.to_owned(),
        };
        run(&args, &mut Out::to(std::io::sink(), false))
    }

    fn lines(done: Result<Done, Failure>) -> Vec<String> {
        match done {
            Err(Failure::Lines(lines)) => lines,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_it_writes_loads_and_its_card_is_a_release_of_a_registered_fixture() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("my evals");
        init(&dir, "http://127.0.0.1:8080/v1").unwrap();
        let policy = Policy::load(&dir.join(POLICY_FILE)).unwrap();
        let host = policy.hosts.get("local").unwrap();
        assert_eq!(host.base.authority.as_str(), "127.0.0.1:8080");
        let rows = rooms::fixture_list(&policy).unwrap();
        assert_eq!((rows.len(), &rows[0].fault), (1, &None));
        let card = Card::parse(&fs::read(dir.join(CARD_FILE)).unwrap()).unwrap();
        let ruling = classify(&Reading::Card(Arc::new(card))).ruling();
        assert_eq!(ruling.leaf, Leaf::Release);
    }

    #[test]
    fn a_file_that_is_there_is_not_touched_and_nothing_else_is_written() {
        for name in [POLICY_FILE, FIXTURE_FILE, LOCK_FILE, CARD_FILE] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "mine").unwrap();
            let lines = lines(init(dir.path(), "http://127.0.0.1:8080/v1"));
            assert!(
                lines[0].contains(name) && lines[0].contains("nothing was written"),
                "{lines:?}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
            let others = [POLICY_FILE, FIXTURE_FILE, LOCK_FILE, CARD_FILE];
            assert_eq!(
                others
                    .iter()
                    .filter(|other| dir.path().join(other).exists())
                    .count(),
                1
            );
        }
    }

    #[test]
    fn a_url_that_local_may_not_have_leaves_nothing_behind() {
        for url in [
            "http://10.0.0.1/v1",
            "https://api.groq.com/openai/v1",
            "ollama",
            "\"\nx = 1",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let lines = lines(init(dir.path(), url));
            assert!(lines[0].starts_with("--base-url: "), "{lines:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
