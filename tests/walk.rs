//! `docs/architecture.md` walks one call through the files: each file it names is there, and each function it names stands in the sources.

#![allow(clippy::expect_used, reason = "a test's helper may fail the test")]

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file under `src/`, its text.
fn sources(dir: &Path, into: &mut String) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("src/ can be listed")
        .map(|entry| entry.expect("an entry of src/").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push_str(&std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// What stands between backticks in the section about one call.
fn named(page: &str) -> Vec<&str> {
    let walk = page
        .split("\n## ")
        .find(|section| section.starts_with("One call"))
        .expect("a section about one call");
    walk.split('`').skip(1).step_by(2).collect()
}

/// Whether `name` (`tree::classify`, `Plan`, `poll_head`) ends in a function or a type that `code` defines.
fn defined(name: &str, code: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    ["fn ", "struct ", "enum ", "trait ", "type "]
        .iter()
        .flat_map(|kind| {
            code.match_indices(&format!("{kind}{last}"))
                .map(|(at, found)| at + found.len())
                .collect::<Vec<_>>()
        })
        .any(|end| !code[end..].starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// A name of the code: `a_b`, `a::b`, `Type`; not a route, a policy key or a header.
fn is_code(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_alphanumeric() || c == '_' || c == ':')
        && !["SIGHUP", "CONNECT"].contains(&name)
        && !name.is_empty()
}

#[test]
fn each_file_of_the_walk_is_there() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let files: Vec<_> = named(&page)
        .into_iter()
        .filter(|name| name.starts_with("src/"))
        .collect();
    assert!(files.len() > 8, "the walk names only {files:?}");
    for file in files {
        assert!(root().join(file).exists(), "{file} is not there");
    }
}

#[test]
fn each_function_of_the_walk_stands_in_the_sources() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let mut code = String::new();
    sources(&root().join("src"), &mut code);
    let names: Vec<_> = named(&page)
        .into_iter()
        .filter(|name| is_code(name))
        .collect();
    assert!(names.len() > 25, "the walk names only {names:?}");
    // `Decision::Hold` is a variant, and the type `Hold` besides.
    let missing: Vec<_> = names
        .into_iter()
        .filter(|name| !defined(name, &code))
        .collect();
    assert!(missing.is_empty(), "not in src/: {missing:?}");
}

#[test]
fn a_name_that_is_not_there_is_seen() {
    let code = "pub fn classify(reading: &Reading) -> Decision { }\npub struct Hold { }";
    assert!(defined("tree::classify", code) && defined("Hold", code));
    assert!(!defined("tree::classif", code) && !defined("Release", code));
}
