//! Files that are no files, have no end, or are too long: each command says so and ends.

use super::*;

/// What standard error would say; nothing on standard output.
fn refused(line: &[&str]) -> String {
    match ran(line) {
        (Err(Failure::Lines(lines)), text) if text.is_empty() => lines.join("\n"),
        other => panic!("{line:?}: {other:?}"),
    }
}

/// A folder with a fixture, a card for it, and a policy whose bodies are at most so long.
fn gate(most: usize) -> (tempfile::TempDir, impl Fn(&str) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().to_owned();
    let at = move |name: &str| top.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("f.txt"), "a fixture that is long enough").unwrap();
    let (f, lock) = (at("f.txt"), at("fixtures.lock"));
    ran(&["fixture", "add", &f, "--id", "f", "--lock", &lock])
        .0
        .unwrap();
    std::fs::write(at("card.json"), RELEASE).unwrap();
    std::fs::write(
        at("policy.toml"),
        format!("version = 1\n[limits]\nbody = {most}\n"),
    )
    .unwrap();
    (dir, at)
}

#[test]
fn a_body_longer_than_the_policy_takes_is_not_read_on() {
    let body = r#"{"prompt": "a fixture that is long enough"}"#;
    let (_dir, at) = gate(body.len());
    let (card, policy, long, lines) = (at("card.json"), at("policy.toml"), at("b"), at("b.jsonl"));
    let explain = |body: &str| {
        [
            "explain", &card, "--json", "--body", body, "--policy", &policy,
        ]
        .map(str::to_owned)
    };
    let check = |body: &str| {
        [
            "fixture", "check", body, "--json", "--id", "f", "--policy", &policy,
        ]
        .map(str::to_owned)
    };
    let learn = |body: &str| {
        [
            "fixture", "learn", "--json", "--id", "f", "--from", body, "--policy", &policy,
        ]
        .map(str::to_owned)
    };
    let limit = format!("limits.body ({} bytes)", body.len());
    for (name, text) in [(&long, format!("{body} ")), (&lines, format!("{body} \n"))] {
        std::fs::write(name, text).unwrap();
    }
    for file in [long.as_str(), "/dev/zero"] {
        for line in [&explain(file)[..], &check(file), &learn(file)] {
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let why = refused(&line);
            assert!(
                why.contains(&limit) && !why.contains("fixture that"),
                "{why}"
            );
        }
    }
    assert!(refused(&check(&lines).each_ref().map(String::as_str)).contains("line 1"));
    // The twin: as long as it may be.
    for name in [&long, &lines] {
        std::fs::write(name, body).unwrap();
    }
    for line in [
        &explain(&long)[..],
        &check(&long),
        &check(&lines),
        &learn(&lines),
    ] {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        assert!(ran(&line).0.is_ok(), "{line:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_regular_file_is_registered_by_nobody_and_no_one_waits_for_it() {
    let (_dir, at) = gate(1024);
    let (f, lock, pipe, policy) = (
        at("f.txt"),
        at("fixtures.lock"),
        at("pipe"),
        at("policy.toml"),
    );
    crate::files::make_fifo(std::path::Path::new(&pipe));
    let add = |file: &str, lock: &str, more: &[&str]| {
        let line = ["fixture", "add", file, "--id", "g", "--lock", lock];
        refused(&[&line[..], more].concat())
    };
    let no_file = "not a regular file";
    for file in [pipe.as_str(), "/dev/zero"] {
        for why in [
            add(file, &lock, &[]),
            add(&f, file, &[]),
            add(&f, &lock, &["--glue", file]),
        ] {
            assert!(why.contains(no_file), "{why}");
        }
        assert!(!std::fs::read_to_string(&lock).unwrap().contains("\"g\""));
        // The glue of an entry that a look takes up.
        let text = std::fs::read_to_string(&lock).unwrap();
        let text = text.replace("id = \"f\"", &format!("id = \"f\"\nglue = \"{file}\""));
        let other = at("other.lock");
        std::fs::write(&other, &text).unwrap();
        let named = at("named.toml");
        std::fs::write(&named, "version = 1\n[fixtures]\nlock = \"other.lock\"\n").unwrap();
        let learn = [
            "fixture", "learn", "--id", "f", "--from", &f, "--policy", &named,
        ];
        assert!(refused(&learn).contains("glue"), "{file}");
    }
    // The faults of such a policy are shown without reading it again.
    assert!(refused(&["policy", "check", &pipe]).is_empty());
    assert!(refused(&["policy", "check", "/dev/zero"]).is_empty());
    assert_eq!(ran(&["policy", "check", &policy]).0.unwrap(), Done::Yes);
}

#[test]
fn a_fixture_longer_than_the_registry_reads_is_not_read() {
    let (_dir, at) = gate(1024);
    let (f, lock, long) = (at("f.txt"), at("fixtures.lock"), at("long"));
    let file = std::fs::File::create(&long).unwrap();
    file.set_len((64 << 30) + 1).unwrap();
    let add = ["fixture", "add", &long, "--id", "g", "--lock", &lock];
    for why in [refused(&add), refused(&["hash", &long])] {
        assert!(why.contains("long") && why.contains("64 GiB"), "{why}");
    }
    // Together they are too long, and the one that makes them so is named.
    file.set_len(64 << 30).unwrap();
    let both = ["fixture", "add", &f, &long, "--id", "g", "--lock", &lock];
    let why = refused(&both);
    assert!(why.contains("/long: ") && why.contains("64 GiB"), "{why}");
    file.set_len(1 << 20).unwrap();
    assert_eq!(ran(&both).0.unwrap(), Done::Yes);
    assert_eq!(ran(&["hash", &long]).0.unwrap(), Done::Yes);
}

#[cfg(target_os = "linux")]
#[test]
fn a_hash_is_of_a_file_or_a_pipe_and_of_no_device() {
    let (_dir, at) = gate(1024);
    let (f, pipe) = (at("f.txt"), at("pipe"));
    assert!(refused(&["hash", "/dev/zero"]).contains("a device, not a file"));
    crate::files::make_fifo(std::path::Path::new(&pipe));
    let into = pipe.clone();
    let text = std::fs::read(&f).unwrap();
    let writer = std::thread::spawn(move || std::fs::write(into, text));
    let hash = |file: &str| ran(&["hash", file]).1.split(' ').next().unwrap().to_owned();
    let piped = hash(&pipe);
    writer.join().unwrap().unwrap();
    assert_eq!(piped, hash(&f));
}
