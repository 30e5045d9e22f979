//! CSV (RFC 4180): one row for each call, its decision and its outcome together, and one for each other record.
//!
//! Promises: a cell that a spreadsheet would take for a formula is made text by an apostrophe before it; what has no column of its own stands in `other`, as JSON, so nothing of
//! a record is lost.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::export::Row;
use super::look::Record;
use crate::terms::hides;

/// Fields of a decision or of another record.
const OWN: [&str; 29] = [
    "seq",
    "t",
    "time",
    "run",
    "call",
    "peer_uid",
    "attach",
    "leaf",
    "step",
    "reason",
    "field",
    "verdict",
    "fixture_id",
    "fixture_hash",
    "egress_class",
    "residue",
    "host_pin",
    "host",
    "replay_window",
    "surface_named",
    "failure_label",
    "route",
    "body_len",
    "plan_len",
    "plan_sha256",
    "clear_text",
    "bytes",
    "count",
    "policy",
];
/// Fields of an outcome.
const OUTCOME: [&str; 12] = [
    "sent",
    "sent_len",
    "sent_sha256",
    "peer",
    "status",
    "received_len",
    "received_sha256",
    "model",
    "score",
    "ms",
    "error",
    "of",
];
/// The same in every row, or without a meaning beyond the line.
const LEFT: [&str; 1] = ["v"];

pub(super) fn head(to: &mut dyn Write) -> io::Result<()> {
    let names =
        OWN.iter()
            .chain(&OUTCOME)
            .chain(&["outcome_seq", "outcome_time", "log", "prev", "other"]);
    let names: Vec<&str> = names.copied().collect();
    write!(to, "{}\r\n", names.join(","))
}

pub(super) fn row(row: &Row, to: &mut dyn Write) -> io::Result<()> {
    let (record, outcome) = (&row.record, row.outcome.as_ref());
    let mut cells: Vec<String> = OWN.iter().map(|key| cell(&record.value[*key])).collect();
    let about = outcome.unwrap_or(record);
    cells.extend(OUTCOME.iter().map(|key| cell(&about.value[*key])));
    cells.push(outcome.map_or(String::new(), |outcome| outcome.seq.to_string()));
    cells.push(outcome.map_or(String::new(), |outcome| cell(&outcome.value["time"])));
    cells.push(cell(&record.value["log"]));
    cells.push(cell(&record.value["prev"]));
    cells.push(other(record));
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    write!(to, "{}\r\n", cells.join(","))
}

/// What stands in no other column.
fn other(record: &Record) -> String {
    let members = record.value.as_object().into_iter().flatten();
    let others: Map<String, Value> = members
        .filter(|(key, _)| {
            let key = key.as_str();
            let known = OWN.contains(&key) || OUTCOME.contains(&key) || LEFT.contains(&key);
            !known && key != "log" && key != "prev"
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if others.is_empty() {
        return String::new();
    }
    Value::Object(others).to_string()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// One cell: no control character but within quotes, and no formula.
fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    // Line breaks and tabs are legal within quotes; every other character that is not to be seen is shown as its escape.
    let hidden = |c: char| hides(c) && !matches!(c, '\n' | '\r' | '\t');
    let text = if text.contains(hidden) {
        text.chars().fold(String::new(), |mut shown, c| {
            if hidden(c) {
                shown.extend(c.escape_unicode());
            } else {
                shown.push(c);
            }
            shown
        })
    } else {
        text
    };
    // Not only what RFC 4180 asks: some spreadsheets take a semicolon or a tab for the end of a cell.
    if text.contains(['"', ',', ';', '\t', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        for (text, cell) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@sum", "'@sum"),
            ("\t=1", "\"'\t=1\""),
            ("a;=1+1", "\"a;=1+1\""),
            ("a\t=1+1", "\"a\t=1+1\""),
            ("a:=1+1", "a:=1+1"),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("\u{1b}[2J\0", "\\u{1b}[2J\\u{0}"),
            ("\u{202e}=1+1\u{2069}é", "\\u{202e}=1+1\\u{2069}é"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }
}
