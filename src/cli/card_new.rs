//! `card new`: fills a card in the note's order and refuses to guess.
//!
//! Promises: nothing has a default; an answer once given is never put in question again to reach another leaf; a file that is there stays as it is, unless `--replace` was
//! given: then it is replaced whole.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::card_lint::PLACEHOLDERS;
use super::hash::{self, Hasher};
use super::out::{Done, Failure, Out, Tone, safe};
use super::rooms;
use crate::card::{Card, Reading};
use crate::files;
use crate::oracle::said;
use crate::policy::Policy;
use crate::terms::{
    CardName, EgressClass, FailureLabel, FixtureId, Leaf, fits_byte_class, fits_pin, fits_window,
    is_blank,
};
use crate::tree::classify;

/// Fill a card: fixture, id, class, residue, pin, window, surface.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate card new --out cards/seed-04.json          asks, on a terminal
  leafgate card new --fixture seed-04.txt --id seed-04 --class public-fixture --no-residue \\
      --pin models.example.org --window 24h --surface tmpdir --out cards/seed-04.json --replace

Nothing is guessed: without a terminal a missing flag is an error that names it.")]
pub(super) struct Args {
    /// The fixture's file; several are joined in order
    #[arg(long, value_name = "FILE")]
    fixture: Vec<PathBuf>,
    /// hmac-sha256 under the key in this environment variable
    #[arg(long, value_name = "V")]
    key_env: Option<String>,
    /// The fixture's id
    #[arg(long)]
    id: Option<String>,
    /// machine-local, redacted-metadata or public-fixture
    #[arg(long)]
    class: Option<String>,
    /// A byte class that would remain with the host; may be given again
    #[arg(long, value_delimiter = ',', conflicts_with = "no_residue")]
    residue: Vec<String>,
    /// The claim that no byte class would remain
    #[arg(long)]
    no_residue: bool,
    /// The host, as the policy names it
    #[arg(long)]
    pin: Option<String>,
    /// The interval in which the same fixture must give the same score
    #[arg(long)]
    window: Option<String>,
    /// The place that the job may write to
    #[arg(long)]
    surface: Option<String>,
    /// A failure label computed on this machine, one of the policy's split.failure_labels; without that key pass, wrong-answer, format-error, timeout, refusal, tool-error
    #[arg(long)]
    label: Option<String>,
    /// Write the card here; a file that is there stays, unless --replace is given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put the card in the place of the file that --out names, whole
    #[arg(long, requires = "out")]
    replace: bool,
}

/// The card as it is written: the fields in the contract's order.
#[derive(Debug, Serialize)]
struct Filled {
    fixture_id: String,
    fixture_hash: String,
    egress_class: String,
    residue: Vec<String>,
    host_pin: String,
    replay_window: String,
    writable_surface: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_label: Option<String>,
}

/// What is wrong with an answer; the same words on a terminal and for a flag.
type Wrong = &'static str;

fn id(text: &str) -> Result<(), Wrong> {
    yes(
        FixtureId::parse(text).is_some(),
        "1 to 64 letters, digits, dots, underscores or hyphens, the first a letter or digit",
    )
}

fn class(text: &str) -> Result<(), Wrong> {
    yes(
        EgressClass::parse(text).is_some(),
        "machine-local, redacted-metadata or public-fixture, spelled so",
    )
}

fn byte_class(text: &str) -> Result<(), Wrong> {
    yes(
        fits_byte_class(text),
        "each byte class is 1 to 64 letters, digits, dots, underscores or hyphens; where there is none, say so",
    )
}

fn pin(text: &str) -> Result<(), Wrong> {
    yes(
        !PLACEHOLDERS.contains(&text),
        "this is a placeholder and names no host; write the host's name as the policy has it",
    )?;
    yes(
        fits_pin(text),
        "a host name in lower-case ASCII, as the policy has it, or local",
    )
}

fn window(text: &str) -> Result<(), Wrong> {
    yes(
        fits_window(text),
        "1 to 64 letters, digits, spaces or ._:/-, the first a letter or digit",
    )
}

fn surface(text: &str) -> Result<(), Wrong> {
    yes(!is_blank(text), "a blank names no place")
}

fn label(text: &str) -> Result<(), Wrong> {
    yes(
        FailureLabel::parse(text).is_some(),
        "1 to 64 letters, digits, dots, underscores or hyphens, from the policy's list",
    )
}

fn yes(good: bool, wrong: Wrong) -> Result<(), Wrong> {
    if good { Ok(()) } else { Err(wrong) }
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let key = args.key_env.as_deref().map(hash::key).transpose()?;
    let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    check(args)?;
    let filled = if on_terminal {
        ask(args, key.as_deref(), &mut Terminal)?
    } else {
        let missing = missing(args);
        if !missing.is_empty() {
            return Err(Failure::Lines(missing));
        }
        ask(args, key.as_deref(), &mut Nobody)?
    };
    finish(&filled, args, out)
}

/// Every flag that is there is right; all faults at once.
fn check(args: &Args) -> Result<(), Failure> {
    let mut faults = Vec::new();
    let mut look = |flag: &str, value: Option<&String>, fits: fn(&str) -> Result<(), Wrong>| {
        if let Some(Err(wrong)) = value.map(|value| fits(value)) {
            faults.push(format!("{flag}: {wrong}"));
        }
    };
    look("--id", args.id.as_ref(), id);
    look("--class", args.class.as_ref(), class);
    for item in &args.residue {
        look("--residue", Some(item), byte_class);
    }
    look("--pin", args.pin.as_ref(), pin);
    look("--window", args.window.as_ref(), window);
    look("--surface", args.surface.as_ref(), surface);
    look("--label", args.label.as_ref(), label);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::Lines(faults))
    }
}

/// A line for each flag without which the card would have to be guessed.
fn missing(args: &Args) -> Vec<String> {
    let line =
        |flag: &str| format!("card new: {flag} is missing, and there is no terminal to ask on");
    [
        ("--fixture", args.fixture.is_empty()),
        ("--id", args.id.is_none()),
        ("--class", args.class.is_none()),
        (
            "--residue or --no-residue",
            args.residue.is_empty() && !args.no_residue,
        ),
        ("--pin", args.pin.is_none()),
        ("--window", args.window.is_none()),
        ("--surface", args.surface.is_none()),
    ]
    .into_iter()
    .filter(|(_, absent)| *absent)
    .map(|(flag, _)| line(flag))
    .collect()
}

/// Whoever answers.
trait Person {
    /// One answer, without its line end.
    fn answer(&mut self, question: &str) -> Result<String, Failure>;
    /// Says why an answer was not taken.
    fn say(&mut self, wrong: &str);
}

struct Terminal;

impl Person for Terminal {
    fn answer(&mut self, question: &str) -> Result<String, Failure> {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "{question}: ");
        let _ = stderr.flush();
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        match read {
            Ok(0) => Err(Failure::new(
                "card new: the answers ended before the card was whole",
            )),
            Ok(_) => {
                let end = line.trim_end_matches(['\r', '\n']).len();
                line.truncate(end);
                Ok(line)
            }
            Err(error) => Err(Failure::new(format!("standard input: {error}"))),
        }
    }

    fn say(&mut self, wrong: &str) {
        let _ = writeln!(std::io::stderr(), "  not taken: {wrong}");
    }
}

/// No terminal: every flag was there, so nothing is asked.
struct Nobody;

impl Person for Nobody {
    fn answer(&mut self, question: &str) -> Result<String, Failure> {
        Err(Failure::new(format!(
            "card new: nobody can be asked for {question}"
        )))
    }

    fn say(&mut self, _: &str) {}
}

/// Asks for what no flag gave, in the note's order: hash, residue, pin, window, surface.
fn ask(args: &Args, key: Option<&[u8]>, person: &mut dyn Person) -> Result<Filled, Failure> {
    let fixture_hash = if args.fixture.is_empty() {
        ask_files(registered(args.id.as_deref()), key, person)?
    } else {
        hash_of(&args.fixture, key)?
    };
    let fixture_id = given(
        args.id.as_ref(),
        "fixture_id, the fixture's name",
        id,
        person,
    )?;
    let egress_class = given(
        args.class.as_ref(),
        "egress_class (machine-local, redacted-metadata or public-fixture)",
        class,
        person,
    )?;
    let residue = match (&args.residue[..], args.no_residue) {
        ([], true) => Vec::new(),
        ([], false) => ask_residue(person)?,
        (some, _) => some.to_vec(),
    };
    let host_pin = given(
        args.pin.as_ref(),
        "host_pin, the host as the policy names it",
        pin,
        person,
    )?;
    let replay_window = given(
        args.window.as_ref(),
        "replay_window, for example 24h",
        window,
        person,
    )?;
    let writable_surface = given(
        args.surface.as_ref(),
        "writable_surface, the place the job may write to",
        surface,
        person,
    )?;
    Ok(Filled {
        fixture_id,
        fixture_hash,
        egress_class,
        residue,
        host_pin,
        replay_window,
        writable_surface,
        // A card without a label takes the payload's: there is nothing to guess.
        failure_label: args.label.clone(),
    })
}

fn given(
    flag: Option<&String>,
    question: &str,
    fits: fn(&str) -> Result<(), Wrong>,
    person: &mut dyn Person,
) -> Result<String, Failure> {
    if let Some(value) = flag {
        return Ok(value.clone());
    }
    loop {
        let answer = person.answer(question)?;
        match fits(&answer) {
            Ok(()) => return Ok(answer),
            Err(wrong) => person.say(wrong),
        }
    }
}

/// The hash under which the lock file of this folder registers the id.
fn registered(id: Option<&str>) -> Option<String> {
    let entries = rooms::entries(Path::new("fixtures.lock"));
    let entry = entries.iter().find(|entry| Some(entry.id.as_str()) == id)?;
    Some(entry.hash.as_str().to_owned())
}

/// The hash of the fixture's files in their order, or on the person's word the one that is registered.
fn ask_files(
    registered: Option<String>,
    key: Option<&[u8]>,
    person: &mut dyn Person,
) -> Result<String, Failure> {
    let first = match &registered {
        Some(hash) => format!(
            "the fixture's file, to be hashed; or the word lock for {hash}, as fixtures.lock registers it"
        ),
        None => "the fixture's file, to be hashed".to_owned(),
    };
    let mut files: Vec<PathBuf> = Vec::new();
    let mut hash = String::new();
    loop {
        let answer = if files.is_empty() {
            person.answer(&first)?
        } else {
            person.answer("another file of the fixture (empty: no more)")?
        };
        match (&registered, files.is_empty(), &*answer) {
            (Some(hash), true, "lock") => return Ok(hash.clone()),
            (_, false, "") => return Ok(hash),
            _ => files.push(answer.into()),
        }
        match hash_of(&files, key) {
            Ok(all) => hash = all,
            Err(Failure::Lines(lines)) => {
                files.pop();
                person.say(&lines.join("; "));
            }
            Err(gone @ Failure::ReaderGone) => return Err(gone),
        }
    }
}

fn ask_residue(person: &mut dyn Person) -> Result<Vec<String>, Failure> {
    loop {
        let answer = person.answer(
            "residue, the byte classes that would remain with the host, with commas between; or the word none",
        )?;
        if answer == "none" {
            return Ok(Vec::new());
        }
        let classes: Vec<String> = answer
            .split(',')
            .map(|class| class.trim().to_owned())
            .collect();
        match classes.iter().try_for_each(|class| byte_class(class)) {
            Ok(()) => return Ok(classes),
            Err(wrong) => person.say(wrong),
        }
    }
}

fn hash_of(files: &[PathBuf], key: Option<&[u8]>) -> Result<String, Failure> {
    let mut hasher = Hasher::new(key);
    for file in files {
        hasher.file(file)?;
    }
    Ok(hasher.end().as_str().to_owned())
}

/// Writes the card, and says its leaf and the line that attaches it.
/// What to know of a split's label. No policy is read here: the list that holds without `split.failure_labels` is the one to name.
fn label_note(label: Option<&str>) -> Option<String> {
    let usual = Policy::embedded().failure_labels;
    let names: Vec<&str> = usual.iter().map(FailureLabel::as_str).collect();
    let names = names.join(", ");
    match label {
        None => Some(format!(
            "label    none: the payload of each call must bring failure_label (or --label writes it here), one of {names}, or of the policy's split.failure_labels"
        )),
        Some(label) if usual.iter().any(|known| known.as_str() == label) => None,
        Some(_) => Some(format!(
            "label    none of {names}: such a call is refused, unless the policy's split.failure_labels has it"
        )),
    }
}

fn finish(filled: &Filled, args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let file = args.out.as_deref();
    let json = serde_json::to_string(filled).map_err(|error| Failure::of(&error))?;
    let card = Card::parse(json.as_bytes()).map_err(|fault| Failure::of(&fault))?;
    let ruling = classify(&Reading::Card(Arc::new(card))).ruling();
    let leaf = said(&ruling);
    let attach = attach_line(&json, file);
    // A split needs a label from somewhere; nothing guesses one.
    let label = (ruling.leaf == Leaf::Split)
        .then(|| label_note(filled.failure_label.as_deref()))
        .flatten();
    if let Some(file) = file {
        let what = put(file, &format!("{json}\n"), args.replace)?;
        let file = file.display().to_string();
        out.line(format!("{what:<8} {}", safe(&file)))?;
        out.line(format!(
            "leaf     {}",
            out.paint(Tone::of(ruling.leaf), &leaf, 0)
        ))?;
        if let Some(label) = &label {
            out.line(label)?;
        }
        out.line(format!("attach   {attach}"))?;
    } else {
        // Standard output is the card alone, so that it can be a file.
        out.line(&json)?;
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "leaf     {leaf}");
        if let Some(label) = label {
            let _ = writeln!(stderr, "{label}");
        }
        let _ = writeln!(stderr, "attach   {attach}");
    }
    Ok(Done::Yes)
}

/// Writes the file, or puts it in the place of the one that is there; says which.
fn put(file: &Path, text: &str, replace: bool) -> Result<&'static str, Failure> {
    let new = std::fs::File::create_new(file).and_then(|mut to| to.write_all(text.as_bytes()));
    let (done, what) = match new {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && replace => {
            (files::replace(file, text.as_bytes()), "replaced")
        }
        done => (done, "written"),
    };
    done.map(|()| what).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists && !replace {
            let file = file.display();
            Failure::new(format!(
                "--out: {file} is there already and stays as it is; name another file, or add --replace"
            ))
        } else {
            Failure::file(file, &error)
        }
    })
}

/// `leafgate-card: …`, by name where the file has one.
fn attach_line(json: &str, file: Option<&Path>) -> String {
    let name = file
        .filter(|file| file.extension().is_some_and(|ext| ext == "json"))
        .and_then(|file| file.file_stem()?.to_str())
        .and_then(CardName::parse);
    match name {
        Some(name) => format!("leafgate-card: @{name}"),
        None if json.is_ascii() => format!("leafgate-card: {json}"),
        None => format!("leafgate-card: {}", URL_SAFE_NO_PAD.encode(json)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::try_parse_from(std::iter::once(&"new").chain(line))
            .unwrap()
            .args
    }

    struct Script {
        answers: std::vec::IntoIter<&'static str>,
        asked: Vec<String>,
        said: usize,
    }

    impl Person for Script {
        fn answer(&mut self, question: &str) -> Result<String, Failure> {
            self.asked.push(question.to_owned());
            self.answers
                .next()
                .map(str::to_owned)
                .ok_or_else(|| Failure::new("the script ended"))
        }
        fn say(&mut self, _: &str) {
            self.said += 1;
        }
    }

    #[test]
    fn it_asks_in_the_notes_order_and_takes_no_guess() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.txt");
        std::fs::write(&file, "abc").unwrap();
        let mut person = Script {
            answers: vec![
                "seed 04",
                "seed-04",
                "public",
                "public-fixture",
                "",
                "a b",
                "none",
                "free-server",
                "Models",
                "local",
                "",
                "24h",
                " ",
                "tmpdir",
            ]
            .into_iter(),
            asked: Vec::new(),
            said: 0,
        };
        let filled = ask(
            &args(&["--fixture", file.to_str().unwrap()]),
            None,
            &mut person,
        )
        .unwrap();
        let mut order: Vec<&str> = person
            .asked
            .iter()
            .filter_map(|q| q.split([',', ' ']).next())
            .collect();
        order.dedup();
        assert_eq!(
            order,
            [
                "fixture_id",
                "egress_class",
                "residue",
                "host_pin",
                "replay_window",
                "writable_surface"
            ]
        );
        assert_eq!(person.said, 8);
        assert_eq!(
            serde_json::to_string(&filled).unwrap(),
            r#"{"fixture_id":"seed-04","fixture_hash":"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","egress_class":"public-fixture","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"tmpdir"}"#
        );
    }

    #[test]
    fn a_fixture_of_several_files_is_asked_for_file_by_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned().leak() as &'static str
        };
        let (one, two) = (file("a", "a"), file("b", "bc"));
        let of = |answers: Vec<&'static str>, registered: Option<&str>| {
            let mut person = Script {
                answers: answers.into_iter(),
                asked: Vec::new(),
                said: 0,
            };
            let hash = ask_files(registered.map(str::to_owned), None, &mut person).unwrap();
            (hash, person.asked, person.said)
        };
        let both = hash_of(&[one.into(), two.into()], None).unwrap();
        let (hash, asked, said) = of(vec!["", one, "/not/there", two, ""], None);
        assert_eq!((hash, asked.len(), said), (both, 5, 2));
        assert!(asked[4].contains("empty: no more") && !asked[0].contains("lock"));
        let (hash, asked, _) = of(vec!["lock"], Some("sha256:00"));
        assert_eq!(hash, "sha256:00");
        assert!(asked[0].contains("sha256:00"), "{asked:?}");
        // Without an entry the word is a file's name like any other.
        let (hash, _, said) = of(vec!["lock", one, ""], None);
        assert_eq!((hash, said), (hash_of(&[one.into()], None).unwrap(), 1));
    }

    #[test]
    fn each_missing_flag_is_named_and_a_whole_line_is_taken() {
        let whole = [
            "--fixture",
            "f",
            "--id",
            "a",
            "--class",
            "machine-local",
            "--no-residue",
            "--pin",
            "local",
            "--window",
            "24h",
            "--surface",
            "t",
        ];
        assert_eq!(missing(&args(&whole)), Vec::<String>::new());
        let lines = missing(&args(&[]));
        assert_eq!(lines.len(), 7);
        for flag in [
            "--fixture",
            "--id",
            "--class",
            "--residue or --no-residue",
            "--pin",
            "--window",
            "--surface",
        ] {
            assert!(
                lines
                    .iter()
                    .any(|line| line.contains(&format!(": {flag} is missing"))),
                "{flag}"
            );
        }
    }

    #[test]
    fn each_wrong_flag_is_named() {
        assert!(check(&args(&["--id", "a", "--pin", "local", "--residue", "a,b"])).is_ok());
        let wrong = args(&[
            "--id",
            "a b",
            "--class",
            "x",
            "--residue",
            "a,",
            "--pin",
            "local-builder",
            "--window",
            "",
            "--surface",
            "\u{3164}",
            "--label",
            "?",
        ]);
        let Err(Failure::Lines(lines)) = check(&wrong) else {
            panic!("taken")
        };
        let flags: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split(':').next())
            .collect();
        assert_eq!(
            flags,
            [
                "--id",
                "--class",
                "--residue",
                "--pin",
                "--window",
                "--surface",
                "--label"
            ]
        );
    }

    #[test]
    fn a_label_outside_the_list_is_told_and_one_of_it_is_not() {
        use clap::CommandFactory as _;
        let all = "pass, wrong-answer, format-error, timeout, refusal, tool-error";
        assert_eq!(label_note(Some("wrong-answer")), None);
        for (label, begins) in [
            (Some("wrong_answer"), "label    none of "),
            (None, "label    none: "),
        ] {
            let told = label_note(label).unwrap();
            assert!(told.starts_with(begins) && told.contains(all), "{told}");
        }
        let help = Line::command().render_long_help().to_string();
        assert!(
            help.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(all),
            "{help}"
        );
    }

    #[test]
    fn the_line_that_attaches_it_can_be_sent() {
        assert_eq!(
            attach_line("{}", Some(Path::new("cards/seed-04.json"))),
            "leafgate-card: @seed-04"
        );
        assert_eq!(
            attach_line("{}", Some(Path::new("cards/seed 04.json"))),
            "leafgate-card: {}"
        );
        assert_eq!(attach_line("{}", None), "leafgate-card: {}");
        assert_eq!(attach_line("{\"é\"}", None), "leafgate-card: eyLDqSJ9");
    }
}
