//! The page at `/`: the last records, plain HTML, no script, nothing loaded from anywhere.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Shared;
use crate::ledger::{Filter, Page, Record};
use crate::terms::safe;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:14px/1.5 system-ui,sans-serif;margin:2rem;max-width:110rem}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8884;white-space:nowrap}\
td{font-family:ui-monospace,monospace;font-size:13px}\
.hold{color:#c33}.split{color:#a70}.release{color:#283}\
.bad{color:#c33;font-weight:bold}";

/// The page's content security policy: this one style, by its hash, and nothing else.
pub(super) fn policy() -> HeaderValue {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    });
    HeaderValue::from_str(&POLICY)
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

/// maud escapes every value; the style alone is ours and stands as it is.
pub(super) fn render(shared: &Shared, filter: &Filter, page: &Page) -> String {
    let state = (shared.state)();
    let not_ready = state.not_ready();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "leafgate" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "leafgate " (env!("CARGO_PKG_VERSION")) }
                p {
                    "clients: " code { (shared.base_url) }
                    " · policy " code { (short(&state.policy_hash)) }
                    " · next record " code { (state.ledger.next_seq) }
                    " · "
                    @match &not_ready {
                        None => "ready",
                        Some(why) => span.bad { "not ready: " (why) },
                    }
                    @if let Some(why) = &state.ledger.checkpoint_error {
                        " · " span.bad { (why) }
                    }
                }
                p {
                    a href="/" { "all" } " · "
                    @for leaf in ["hold", "split", "release"] {
                        a href={ "/?t=decision&leaf=" (leaf) } { (leaf) } " · "
                    }
                    a href="/?t=refused" { "refused messages" } " · "
                    a href="/metrics" { "metrics" } " · "
                    a href={ "/api/records?" (filter.query()) } { "json" }
                    " · export as "
                    @for format in ["jsonl", "csv", "ocsf", "html"] {
                        a href={ "/api/export?" (with(filter, "format", format)) } { (format) } " "
                    }
                }
                @if *filter != Filter::default() {
                    p {
                        "shown: "
                        @for (key, value) in filter.parts() { code { (key) "=" (safe(&value)) } " " }
                    }
                }
                (table(page))
                @if let Some(next) = page.next {
                    p { a href={ "/?" (older(filter, next)) } { "older" } }
                }
            }
        }
    }
    .into_string()
}

/// The same filter, further back.
fn older(filter: &Filter, before: u64) -> String {
    Filter {
        before: Some(before),
        ..filter.clone()
    }
    .query()
}

/// The same filter and one more key.
fn with(filter: &Filter, key: &str, value: &str) -> String {
    let query = filter.query();
    let joint = if query.is_empty() { "" } else { "&" };
    format!("{query}{joint}{key}={value}")
}

fn table(page: &Page) -> Markup {
    const HEADS: [&str; 11] = [
        "seq", "time", "record", "leaf", "step", "reason", "verdict", "fixture", "host", "call",
        "more",
    ];
    html! {
        table {
            thead { tr { @for head in HEADS { th { (head) } } } }
            tbody {
                @for record in &page.records { (row(record)) }
                @if page.records.is_empty() { tr { td colspan="11" { "no record" } } }
            }
        }
    }
}

fn row(record: &Record) -> Markup {
    let get = |key: &str| shown(&record.value[key]);
    html! {
        tr {
            td { a href={ "/api/records/" (record.seq) } { (record.seq) } }
            td { (get("time")) }
            td { (get("t")) }
            td class=(leaf_class(&record.value)) { (get("leaf")) }
            td { (get("step")) }
            td { (get("reason")) }
            td class=(leaf_class(&record.value)) { (get("verdict")) }
            td { (get("fixture_id")) }
            td { (host(&record.value)) }
            td { (get("call")) }
            td { (more(&record.value)) }
        }
    }
}

/// What matters most of each kind of record beside the columns.
fn more(value: &Value) -> String {
    let keys: &[&str] = match value["t"].as_str() {
        Some("decision") => &["field", "plan_len"],
        Some("outcome") => &["of", "sent", "sent_len", "peer", "status", "error"],
        Some("refused") => &["bytes", "count"],
        Some("open") => &["version", "sync", "recovered"],
        Some("config") => &["error"],
        Some("stop") => &["policy"],
        // A type of record that this page does not know is shown with all that is its own.
        _ => return others(value),
    };
    let parts: Vec<String> = keys
        .iter()
        .filter(|key| !value[**key].is_null())
        .map(|key| format!("{key} {}", shown(&value[*key])))
        .collect();
    parts.join(" · ")
}

/// What every record has, and the table's own columns.
const EVERYWHERE: [&str; 9] = [
    "v", "t", "log", "run", "seq", "prev", "time", "call", "host",
];

fn others(value: &Value) -> String {
    let members = value.as_object().into_iter().flatten();
    let parts: Vec<String> = members
        .filter(|(key, _)| !EVERYWHERE.contains(&key.as_str()))
        .map(|(key, value)| format!("{} {}", safe(key), shown(value)))
        .collect();
    parts.join(" · ")
}

/// The host, or the pin where it names none.
fn host(value: &Value) -> String {
    let host = shown(&value["host"]);
    if host.is_empty() {
        shown(&value["host_pin"])
    } else {
        host
    }
}

fn leaf_class(value: &Value) -> &'static str {
    // What was refused never has the colour of what was sent.
    if value["verdict"] == "refuse" {
        return "hold";
    }
    match value["leaf"].as_str() {
        Some("hold") => "hold",
        Some("split") => "split",
        Some("release") => "release",
        _ => "",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => safe(text).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            safe(&value.to_string()).into_owned()
        }
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_seen_in_a_record_is_shown_as_its_escape() {
        let row = |text: &str| {
            let mut value = serde_json::json!({"t": "decision", "seq": 1});
            for key in [
                "time",
                "leaf",
                "step",
                "reason",
                "verdict",
                "fixture_id",
                "host",
                "call",
                "field",
            ] {
                value[key] = text.into();
            }
            let own = serde_json::json!({"t": text, text: text});
            let record = |value| Record {
                seq: 1,
                line: Vec::new(),
                value,
            };
            row(&record(value)).into_string() + &row(&record(own)).into_string()
        };
        let hostile = row("a\u{1b}]0;x\u{7}\u{202e}\u{2069}");
        assert!(!hostile.contains(crate::terms::hides), "{hostile}");
        assert_eq!(
            hostile
                .matches("a\\u{1b}]0;x\\u{7}\\u{202e}\\u{2069}")
                .count(),
            12
        );
        assert_eq!(row("aé").matches("aé").count(), 12);
    }
}
