//! `docs/decisions.md` has one line for each dependency of `Cargo.toml`, and none for another.

#![allow(clippy::expect_used, reason = "a test's helper may fail the test")]

use std::collections::BTreeSet;
use std::path::Path;

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file)
}

/// The names in every dependency table of a manifest, those for one target too.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let manifest: toml::Table = manifest.parse().expect("Cargo.toml is TOML");
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets
        .into_iter()
        .flat_map(toml::Table::values)
        .filter_map(toml::Value::as_table);
    std::iter::once(&manifest)
        .chain(tables)
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"]
                .iter()
                .filter_map(|kind| table.get(*kind)?.as_table())
        })
        .flat_map(|table| table.keys().cloned())
        .collect()
}

/// The lines that decide on a crate: `` - `name`: what for. Refused: what. ``
fn decided(page: &str) -> Vec<(String, String)> {
    page.lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn each_dependency_has_one_line_and_no_other_stands() {
    let page = read("docs/decisions.md");
    let lines = decided(&page);
    let names: BTreeSet<_> = lines.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), lines.len(), "a crate is decided on twice");
    let wanted = dependencies(&read("Cargo.toml"));
    let missing: Vec<_> = wanted.difference(&names).collect();
    let extra: Vec<_> = names.difference(&wanted).collect();
    assert!(
        missing.is_empty(),
        "no line in docs/decisions.md: {missing:?}"
    );
    assert!(extra.is_empty(), "not in Cargo.toml: {extra:?}");
}

#[test]
fn each_line_says_what_was_refused() {
    for (name, text) in decided(&read("docs/decisions.md")) {
        assert!(text.contains(" Refused: "), "{name}");
    }
}

#[test]
fn every_kind_of_dependency_is_seen() {
    let manifest = "[dependencies]\na = \"1\"\n[dev-dependencies]\nb = \"1\"\n[target.'cfg(unix)'.dependencies]\nc = \"1\"\n";
    assert_eq!(
        dependencies(manifest),
        ["a", "b", "c"].map(String::from).into()
    );
}
