//! `docs/threats.md` lists the incidents, each with tests and cases that are there.

use std::path::Path;

use crate::support::has_test;

/// Every incident that the page must have.
const INCIDENTS: [&str; 11] = [
    "smokescreen, CVE-2022-29188",
    "mitmproxy, CVE-2021-39214",
    "pingora, CVE-2025-4366",
    "pingora, CVE-2026-2833",
    "httpjail, issue 57",
    "httpjail, issue 59",
    "iron-proxy, issue 90",
    "litellm, issue 30728",
    "litellm, issue 18261",
    "litellm, issue 37053",
    "bifrost, issue 3954",
];

struct Row<'a> {
    incident: &'a str,
    what: &'a str,
    answer: &'a str,
    shown: &'a str,
}

/// The rows of the section's table.
fn rows(page: &str) -> Vec<Row<'_>> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("What went wrong elsewhere\n"))
        .expect("a section about other projects");
    let lines = section.lines().filter_map(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        match *cells.split(" | ").collect::<Vec<_>>() {
            [incident, what, answer, shown] => Some(Row {
                incident,
                what,
                answer,
                shown,
            }),
            _ => panic!("not four cells: {line}"),
        }
    });
    // Without the head of the table and the line below it.
    lines.skip(2).collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Why a row's last cell shows nothing; `read` gives the text of a file.
fn fault(shown: &str, read: &dyn Fn(&str) -> Option<String>, cases: &[String]) -> Option<String> {
    let mut tests = 0;
    for name in quoted(shown) {
        let there = match name.split_once("::") {
            Some((file, test)) => {
                tests += 1;
                read(file).is_some_and(|text| has_test(&text, test))
            }
            None => cases.iter().any(|case| case == name),
        };
        if !there {
            return Some(format!("{name} is not there"));
        }
    }
    (tests == 0).then(|| "no test".to_owned())
}

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).ok()
}

#[test]
fn each_incident_has_one_row_and_its_tests_are_there() {
    let page = read("docs/threats.md").unwrap();
    let rows = rows(&page);
    let found: Vec<&str> = rows.iter().map(|row| row.incident).collect();
    assert_eq!(found, INCIDENTS);
    let cases: Vec<serde_json::Value> =
        serde_json::from_str(&read("tests/attacks/cases.json").unwrap()).unwrap();
    let cases: Vec<String> = cases
        .iter()
        .map(|case| case["id"].as_str().unwrap().to_owned())
        .collect();
    for row in &rows {
        assert!(
            row.what.ends_with('.') && row.answer.ends_with('.'),
            "{}",
            row.incident
        );
        assert_eq!(fault(row.shown, &read, &cases), None, "{}", row.incident);
        // The files and folders that the answer names.
        for name in quoted(row.answer)
            .iter()
            .filter(|name| name.starts_with("src/"))
        {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            assert!(file.exists(), "{}: {name}", row.incident);
        }
    }
}

/// The tests of this program are all named: one that is not shows nothing to a reader of the page.
#[test]
fn each_test_here_is_named_on_the_page() {
    let page = read("docs/threats.md").unwrap();
    for file in ["answers.rs", "decisions.rs", "messages.rs", "names.rs"] {
        let text = read(&format!("tests/incidents/{file}")).unwrap();
        let mut count = 0;
        for line in text.lines() {
            let Some(name) = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once("()"))
            else {
                continue;
            };
            if has_test(&text, name.0) {
                count += 1;
                assert!(
                    page.contains(&format!("`tests/incidents/{file}::{}`", name.0)),
                    "{}",
                    name.0
                );
            }
        }
        assert!(count > 0, "{file}");
    }
}

#[test]
fn a_test_that_is_not_there_is_seen() {
    let text = |file: &str| (file == "a.rs").then(|| "#[test]\nfn shown() {}".to_owned());
    let cases = ["H1-01".to_owned()];
    let seen = |shown: &str| fault(shown, &text, &cases);
    assert_eq!(seen("`a.rs::shown`; case `H1-01`"), None);
    assert_eq!(
        seen("`a.rs::show`"),
        Some("a.rs::show is not there".to_owned())
    );
    assert_eq!(
        seen("`b.rs::shown`"),
        Some("b.rs::shown is not there".to_owned())
    );
    assert_eq!(
        seen("`a.rs::shown`, `H1-02`"),
        Some("H1-02 is not there".to_owned())
    );
    assert_eq!(seen("case `H1-01`"), Some("no test".to_owned()));
}
