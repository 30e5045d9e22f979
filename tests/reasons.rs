//! `docs/reasons.md` has one entry for each reason code, in the contract's order, and no other.

#![allow(clippy::expect_used, reason = "a test's helper may fail the test")]

use std::path::Path;

use leafgate::terms::Reason;

struct Entry<'a> {
    code: &'a str,
    text: &'a str,
}

/// The entries of the page: each begins with a line `` ## `code` ``.
fn entries(page: &str) -> Vec<Entry<'_>> {
    page.split("\n## ")
        .skip(1)
        .map(|entry| {
            let (heading, text) = entry.split_once('\n').unwrap_or((entry, ""));
            let code = heading
                .strip_prefix('`')
                .and_then(|rest| rest.strip_suffix('`'));
            Entry {
                code: code.unwrap_or(heading),
                text,
            }
        })
        .collect()
}

fn page() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reasons.md");
    std::fs::read_to_string(file).expect("docs/reasons.md")
}

/// The value of the one line `NAME: value` of an entry.
fn line<'a>(entry: &Entry<'a>, name: &str) -> &'a str {
    let mut found = entry
        .text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let value = found
        .next()
        .unwrap_or_else(|| panic!("{}: no line `{name}:`", entry.code));
    assert!(
        found.next().is_none(),
        "{}: two lines `{name}:`",
        entry.code
    );
    value
}

#[test]
fn each_reason_has_one_entry_and_no_other_stands() {
    let page = page();
    let written: Vec<_> = entries(&page)
        .iter()
        .map(|entry| entry.code.to_owned())
        .collect();
    let known: Vec<_> = Reason::ALL
        .iter()
        .map(|reason| reason.code().to_owned())
        .collect();
    assert_eq!(written, known);
}

#[test]
fn each_entry_has_its_status_and_says_what_happened_and_what_to_do() {
    let page = page();
    for (entry, reason) in entries(&page).iter().zip(Reason::ALL) {
        assert_eq!(
            line(entry, "Status"),
            reason.status().to_string(),
            "{}",
            entry.code
        );
        for name in ["What happened", "What to do"] {
            assert!(line(entry, name).ends_with('.'), "{}: {name}", entry.code);
        }
    }
}

#[test]
fn a_missing_a_strange_and_a_twice_written_entry_are_seen() {
    let codes = |page| {
        entries(page)
            .iter()
            .map(|entry| entry.code.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        codes("# Reasons\n\n## `a`\n\n## b\n\n## `a`\n"),
        ["a", "b", "a"]
    );
}
