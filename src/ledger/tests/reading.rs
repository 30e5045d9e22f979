//! Reading and exporting: over a real run, and over ledgers written by hand with values that no leafgate writes.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::export_ocsf::SCHEMA;
use super::super::look::each_raw;
use super::*;

/// Lines of one segment, each with the time that its place says: one a minute.
fn segment(dir: &Path, first: u64, records: &[Value]) {
    let lines = (first..).zip(records).map(|(seq, record)| {
        let mut record = record.clone();
        record["seq"] = json!(seq);
        record["v"] = json!(1);
        for (key, value) in [
            (
                "time",
                format!("2026-11-30T{:02}:{:02}:00.000000Z", seq / 60, seq % 60),
            ),
            ("log", "leafgate-00".to_owned()),
            ("run", "01R".to_owned()),
            ("prev", "00".repeat(32)),
        ] {
            if record[key].is_null() {
                record[key] = json!(value);
            }
        }
        format!("{record}\n")
    });
    let text: String = lines.collect();
    std::fs::write(dir.join(format!("{first:012}.jsonl")), text).expect("a segment");
}

fn decided(call: &str, leaf: &str, verdict: &str) -> Value {
    json!({
        "t": "decision", "call": call, "leaf": leaf, "step": 5, "reason": "public_fixture", "verdict": verdict, "fixture_id": "seed-04",
        "host_pin": "models.example.org", "route": "POST /chat/completions", "plan_len": 9,
    })
}

fn ended(call: &str, of: u64, sent: &str, error: Option<&str>) -> Value {
    let mut record = json!({"t": "outcome", "call": call, "of": of, "sent": sent, "sent_len": 9, "peer": "203.0.113.7:443", "status": 200, "ms": 3});
    if let Some(error) = error {
        record["error"] = json!(error);
    }
    record
}

fn filter(parts: &[(&str, &str)]) -> Filter {
    let mut filter = Filter::default();
    for (key, value) in parts {
        filter
            .add(key, value, jiff::Timestamp::UNIX_EPOCH)
            .expect("a filter");
    }
    filter
}

fn exported(dir: &Path, filter: Filter, format: Format) -> (String, Value) {
    let export = Export::new(dir, filter, format).expect("readable");
    let mut bytes = Vec::new();
    let manifest = export.write(&mut bytes).expect("written");
    (String::from_utf8(bytes).expect("text"), manifest.to_json())
}

fn seqs(dir: &Path, filter: &Filter, outcomes: bool) -> Vec<u64> {
    let mut found = Vec::new();
    each(dir, filter, outcomes, |record| {
        found.push(record.seq);
        Ok(())
    })
    .expect("readable");
    found
}

/// Three segments of a ledger whose beginning was pruned: 60 to 69, 70 to 79, 80 to 89, a decision and then its outcome.
fn pruned() -> TempDir {
    let dir = folder();
    for first in [60, 70, 80] {
        let records: Vec<Value> = (first..first + 10)
            .map(|seq| match seq % 2 {
                0 => decided(&format!("01C{seq}"), "release", "forward"),
                _ => ended(&format!("01C{}", seq - 1), seq - 1, "all", None),
            })
            .collect();
        segment(dir.path(), first, &records);
    }
    dir
}

#[test]
fn a_pruned_ledger_is_read_from_its_first_record_on() {
    let dir = pruned();
    let all = page(dir.path(), &Filter::default(), 100, usize::MAX).expect("readable");
    assert_eq!((all.records.len(), all.next), (30, None));
    let first = page(dir.path(), &filter(&[("before", "61")]), 1, usize::MAX).expect("readable");
    assert_eq!(
        (first.records[0].seq, first.next),
        (60, None),
        "nothing older is promised"
    );
    assert!(one(dir.path(), 59).expect("readable").is_none());
    assert_eq!(
        one(dir.path(), 79).expect("readable").expect("there").seq,
        79
    );
    assert_eq!(end(dir.path()).expect("readable"), 90);
    assert_eq!(of_call(dir.path(), "01C70").expect("readable").len(), 2);
    assert_eq!(
        seqs(dir.path(), &Filter::default(), false),
        (60..90).collect::<Vec<_>>()
    );
}

/// Twin: the same file in a ledger that was never pruned is read.
#[test]
fn what_lies_before_the_pruned_ledgers_first_record_is_shown_nowhere() {
    let dir = folder();
    let mut settings = settings(dir.path());
    settings.segment_bytes = 2000;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for number in 0..12 {
            let (_, ticket) = forward(&ledger, number).await.expect("recorded");
            ticket.close(outcome());
        }
    });
    ledger.stop();
    let at = dir.path().join("ledger");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    assert!(prune(&at, soon, &mut |_| true).expect("pruned").done);
    let base = gone(&at).expect("readable");
    assert!(base > 2, "{base}");
    segment(
        &at,
        0,
        &[
            decided("01FORGED", "release", "forward"),
            ended("01FORGED", 0, "all", None),
        ],
    );
    whole(&dir);
    let (page_text, manifest) = exported(&at, Filter::default(), Format::Html);
    assert_eq!(manifest["pruned_records"], json!(base));
    assert!(page_text.contains(&format!("The records before seq {base} were pruned")));
    let shown = |at: &Path| {
        let listed = page(at, &Filter::default(), 1000, usize::MAX).expect("readable");
        let raw = records(at)
            .expect("readable")
            .map(|record| record.expect("a record").0);
        let mut found = vec![
            listed.records.iter().any(|record| record.seq < 2),
            listed.next.is_some(),
            one(at, 0).expect("readable").is_some(),
            !of_call(at, "01FORGED").expect("readable").is_empty(),
            seqs(at, &Filter::default(), true).contains(&0),
            raw.min() == Some(0),
            !explain(at, "seed-04", &filter(&[("until", "2026-11-30T00:01:00Z")]))
                .expect("readable")
                .runs
                .is_empty(),
        ];
        for name in Format::NAMES {
            let format = Format::parse(name).expect("a name");
            found.push(
                exported(at, Filter::default(), format)
                    .0
                    .contains("01FORGED"),
            );
        }
        found
    };
    assert_eq!(shown(&at), [false; 11]);
    std::fs::remove_file(at.join("pruned")).expect("taken away");
    let all = shown(&at);
    assert_eq!(
        all,
        [
            true, false, true, true, true, true, true, true, true, true, true
        ]
    );
}

#[test]
fn a_look_from_the_end_is_linear_and_names_a_line_that_is_too_long() {
    let dir = folder();
    segment(dir.path(), 0, &[decided("01A", "release", "forward")]);
    let path = dir.path().join("000000000000.jsonl");
    let whole = std::fs::read(&path).expect("text");
    // A tail without its newline is no record yet, as long as a crash can have left it.
    let mut torn = whole.clone();
    torn.resize(whole.len() + (16 << 20), b'X');
    std::fs::write(&path, &torn).expect("written");
    let begun = std::time::Instant::now();
    assert_eq!(end(dir.path()).expect("readable"), 1);
    assert!(one(dir.path(), 1).expect("readable").is_none());
    assert_eq!(one(dir.path(), 0).expect("readable").expect("there").seq, 0);
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    // A longer one is none, and is not read on: 20 GiB that are nowhere on the disk.
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    file.expect("open").set_len(20 << 30).expect("long");
    let begun = std::time::Instant::now();
    let all = Export::new(dir.path(), Filter::default(), Format::Csv).map(|_| ());
    for found in [
        end(dir.path()).map(|_| ()),
        one(dir.path(), 1).map(|_| ()),
        page(dir.path(), &filter(&[("until", "1h")]), 1, usize::MAX).map(|_| ()),
        all,
        each_raw(dir.path(), |_, _| Ok(())),
    ] {
        let why = found.expect_err("too long").to_string();
        let place = "000000000000.jsonl:2: record 1 is longer than 65,535 bytes";
        assert!(why.contains(place), "{why}");
    }
    let report = verify(dir.path(), &mut |_, _| ()).expect("readable");
    assert!(report.problem.is_some());
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    // A whole line of 65,535 bytes is a record; one byte more is none, and a line of megabytes is not gathered.
    let padded = |len: usize| {
        let mut line = format!("{{\"seq\":0,\"t\":\"{}\"}}", "x".repeat(len - 16));
        assert_eq!(line.len(), len);
        line.push('\n');
        line
    };
    for (len, legal) in [
        (MAX_RECORD_BYTES, true),
        (MAX_RECORD_BYTES + 1, false),
        (8 << 20, false),
    ] {
        std::fs::write(&path, padded(len)).expect("written");
        for found in [
            page(dir.path(), &Filter::default(), 1, usize::MAX).map(|page| page.records.len() == 1),
            one(dir.path(), 0).map(|record| record.is_some()),
        ] {
            match found {
                Ok(found) => assert!(found && legal, "{len}"),
                Err(fault) => {
                    let fault = fault.to_string();
                    assert!(!legal && fault.contains("000000000000.jsonl"), "{fault}");
                }
            }
        }
    }
}

#[test]
fn a_span_of_time_skips_segments_and_brings_the_outcomes_that_belong() {
    let dir = pruned();
    let span = |since: &str, until: &str| filter(&[("since", since), ("until", until)]);
    let of = |filter: &Filter| {
        let page = page(dir.path(), filter, 100, usize::MAX).expect("readable");
        page.records
            .iter()
            .rev()
            .map(|record| record.seq)
            .collect::<Vec<_>>()
    };
    let middle = span("2026-11-30T01:18:00Z", "2026-11-30T01:19:00Z");
    assert_eq!(of(&middle), [78]);
    assert_eq!(seqs(dir.path(), &middle, false), [78]);
    assert_eq!(
        seqs(dir.path(), &middle, true),
        [78, 79],
        "the outcome came after the span"
    );
    assert_eq!(of(&span("2026-12-01", "2026-12-02")), [0_u64; 0]);
    // A segment far from the span is not read: what stands in its middle is no record, and nobody minds.
    let far = folder();
    segment(
        far.path(),
        0,
        &[
            decided("01A", "hold", "refuse"),
            decided("01B", "hold", "refuse"),
        ],
    );
    let path = far.path().join("000000000000.jsonl");
    let text = std::fs::read_to_string(&path).expect("text");
    std::fs::write(&path, text.replacen('\n', "\nno record\n", 1)).expect("written");
    segment(far.path(), 600, &[decided("01C", "hold", "refuse")]);
    let late = filter(&[("since", "2026-11-30T09:00:00Z")]);
    assert_eq!(
        page(far.path(), &late, 9, usize::MAX)
            .expect("skipped")
            .records
            .len(),
        1
    );
    assert_eq!(seqs(far.path(), &late, true), [600]);
    assert!(page(far.path(), &Filter::default(), 9, usize::MAX).is_err());
}

#[test]
fn a_look_says_where_to_go_on_after_so_many_lines() {
    let dir = pruned();
    let mut filter = filter(&[("call", "01C60")]);
    let mut found = Vec::new();
    let mut looks = 0;
    loop {
        let page = page(dir.path(), &filter, 10, 8).expect("readable");
        found.extend(page.records.iter().map(|record| record.seq));
        looks += 1;
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(found, [61, 60]);
    assert!(looks >= 3, "{looks}");
}

/// What OCSF 1.5 requires of a class 4002 event, as its schema has it: the path, and the values that are legal where the schema lists them.
const REQUIRED: [(&str, &[i64]); 8] = [
    ("activity_id", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99]),
    ("category_uid", &[4]),
    ("class_uid", &[4002]),
    ("severity_id", &[0, 1, 2, 3, 4, 5, 6, 99]),
    ("time", &[]),
    ("type_uid", &[400_200, 400_203, 400_206, 400_299]),
    ("metadata/version", &[]),
    ("metadata/product/name", &[]),
];

fn check_event(event: &Value) {
    for (path, legal) in REQUIRED {
        let value = event.pointer(&format!("/{path}")).unwrap_or(&Value::Null);
        assert!(!value.is_null(), "{path} of {event}");
        assert!(
            legal.is_empty() || legal.contains(&value.as_i64().expect("a number")),
            "{path}"
        );
    }
    assert_eq!(
        event["type_uid"].as_i64(),
        event["activity_id"].as_i64().map(|id| 400_200 + id)
    );
    assert!(
        event["time"]
            .as_i64()
            .is_some_and(|ms| ms > 1_700_000_000_000),
        "milliseconds"
    );
    assert_eq!(event["metadata"]["version"], SCHEMA);
    assert_eq!(event["metadata"]["product"]["vendor_name"], "leafgate");
    assert_eq!(event["metadata"]["profiles"], json!(["security_control"]));
    // At least one of each pair; each that is there has what its own object requires.
    assert!(!event["http_request"].is_null() || !event["http_response"].is_null());
    if !event["http_response"].is_null() {
        assert!(event["http_response"]["code"].is_u64(), "{event}");
    }
    for end in ["src_endpoint", "dst_endpoint"] {
        let names = ["ip", "name", "hostname", "svc_name", "uid"];
        assert!(
            names.iter().any(|name| event[end][name].is_string()),
            "{end} of {event}"
        );
    }
    let pair = (
        event["action_id"].as_i64(),
        event["disposition_id"].as_i64(),
    );
    let legal = [(0, 0), (1, 1), (2, 2), (4, 11)];
    assert!(
        legal
            .iter()
            .any(|(action, disposition)| pair == (Some(*action), Some(*disposition))),
        "{pair:?}"
    );
}

#[test]
fn ocsf_events_have_what_the_class_requires_and_say_allowed_denied_modified() {
    let dir = folder();
    let mut local = decided("01L", "release", "local");
    local["route"] = json!("GET /models");
    let mut bare = json!({"t": "decision", "call": "01M", "leaf": "hold", "step": 0, "reason": "card_missing", "verdict": "refuse"});
    bare["host_pin"] = json!({"len": 3, "mac": "ab"});
    segment(
        dir.path(),
        0,
        &[
            json!({"t": "open", "version": "0.1.0", "policy": "aa", "oracle": "bb", "sync": "record"}),
            decided("01A", "release", "forward"),
            ended("01A", 1, "all", None),
            decided("01B", "split", "forward"),
            ended("01B", 3, "all", None),
            decided("01C", "hold", "refuse"),
            decided("01D", "release", "refuse"),
            decided("01E", "release", "forward"),
            ended("01E", 7, "none", Some("address_refused")),
            decided("01F", "release", "forward"),
            ended("01F", 9, "unknown", Some("crash")),
            local,
            bare,
            json!({"t": "refused", "reason": "http_malformed", "bytes": 7}),
            json!({"t": "refused", "reason": "overloaded", "count": 12}),
            json!({"t": "later", "x": 1}),
        ],
    );
    let (text, manifest) = exported(dir.path(), Filter::default(), Format::Ocsf);
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    events.iter().for_each(check_event);
    let said: Vec<(&str, &str, &str)> = events
        .iter()
        .map(|event| {
            let text = |key: &str| event[key].as_str().expect("a caption");
            (text("action"), text("disposition"), text("status"))
        })
        .collect();
    let denied = ("Denied", "Blocked", "Failure");
    assert_eq!(
        said,
        [
            ("Allowed", "Allowed", "Success"),
            ("Modified", "Corrected", "Success"),
            denied,
            denied,
            denied,
            ("Allowed", "Allowed", "Unknown"),
            ("Allowed", "Allowed", "Success"),
            denied,
            denied,
            denied,
        ]
    );
    assert_eq!(events[9]["count"], 12);
    assert_eq!(manifest["left_out"], json!({"later": 1, "open": 1}));
    assert_eq!(
        (&manifest["records"], &manifest["rows"]),
        (&json!(16), &json!(10))
    );
}

#[test]
fn hostile_values_stay_text_in_every_export() {
    let dir = folder();
    let mut hostile = decided("=cmd|'/c calc'!A1", "hold", "refuse");
    hostile["fixture_id"] = json!("<script>alert(1)</script>");
    hostile["host_pin"] = json!({"len": 40, "mac": "ab".repeat(32)});
    hostile["reason"] = json!("\"><img src=x onerror=alert(1)>\u{1b}[2J\u{202e}");
    hostile["field"] = json!("two\r\nlines, \"quoted\"");
    for (place, key) in ["time", "log", "attach", "leaf", "verdict", "route", "run"]
        .iter()
        .enumerate()
    {
        hostile[*key] = json!(format!(
            "{}\u{1b}]0;x\u{7}\u{202e}\u{2069}\u{200f}",
            "v".repeat(place)
        ));
    }
    segment(
        dir.path(),
        0,
        &[
            hostile,
            json!({"t": "<b>", "</style>": "@sum", "call": "-1", "k\u{1b}\u{202e}": 1, "host": "h\u{202e}", "time": "\u{1b}[2J\u{202e}"}),
        ],
    );
    let (page, _) = exported(dir.path(), Filter::default(), Format::Html);
    for bad in [
        "<script", "<img", "<a ", "<link", "<iframe", "\u{1b}", "\u{202e}", "url(",
    ] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(
        page.contains("sealed, 40 bytes") && page.contains("&lt;script&gt;"),
        "{page}"
    );
    assert!(
        page.contains(&format!("content=\"{}\"", page_policy())),
        "its own policy"
    );
    let (csv, _) = exported(dir.path(), Filter::default(), Format::Csv);
    assert!(csv.contains("'=cmd|'/c calc'!A1,"), "{csv}");
    assert!(csv.contains("\"two\r\nlines, \"\"quoted\"\"\""), "{csv}");
    assert!(
        csv.contains(",'-1,") && csv.contains("\\u{1b}[2J") && !csv.contains('\u{1b}'),
        "{csv}"
    );
    let (events, _) = exported(dir.path(), Filter::default(), Format::Ocsf);
    for shown in [&page, &csv, &events] {
        let hidden = |c: char| crate::terms::hides(c) && !matches!(c, '\n' | '\r');
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert!(events.is_ascii() && events.contains("\\u202e"), "{events}");
    let (lines, _) = exported(dir.path(), Filter::default(), Format::Jsonl);
    let file = std::fs::read_to_string(dir.path().join("000000000000.jsonl")).expect("text");
    assert_eq!(lines, file, "as they stand");
}

#[test]
fn an_empty_ledger_exports_nothing_and_its_manifest_says_so() {
    let dir = folder();
    for there in [dir.path().to_owned(), dir.path().join("nowhere")] {
        for name in Format::NAMES {
            let (text, manifest) = exported(
                &there,
                Filter::default(),
                Format::parse(name).expect("a name"),
            );
            assert_eq!(
                (text.as_str(), &manifest["records"], &manifest["last_seq"]),
                ("", &json!(0), &Value::Null),
                "{name}"
            );
        }
    }
}

#[test]
fn an_export_stops_where_the_ledger_ended_when_it_began() {
    let dir = folder();
    segment(dir.path(), 0, &[decided("01A", "release", "forward")]);
    let export = Export::new(dir.path(), Filter::default(), Format::Jsonl).expect("readable");
    segment(
        dir.path(),
        0,
        &[
            decided("01A", "release", "forward"),
            ended("01A", 0, "all", None),
        ],
    );
    let manifest = export.write(&mut io::sink()).expect("written").to_json();
    assert_eq!(
        (&manifest["records"], &manifest["ledger_end"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn a_real_run_is_exported_whole_and_its_page_says_what_is_proven() {
    let dir = folder();
    let ledger = start_in(&dir);
    runtime().block_on(async {
        ledger
            .refuse(&hold(1, r#"{"fixture_id":"x","note":"CANARY"}"#))
            .await
            .expect("recorded");
        let (_, ticket) = forward(&ledger, 2).await.expect("recorded");
        ticket.close(outcome());
        ledger
            .message_refused(Reason::HttpMalformed, 17)
            .await
            .expect("recorded");
    });
    ledger.stop();
    whole(&dir);
    let at = dir.path().join("ledger");
    let (page, manifest) = exported(&at, Filter::default(), Format::Html);
    for words in [
        "found no fault",
        "have the root that the checkpoint below signs",
        "Every record on this page is among them.",
        "The reasons on this page",
        "The request is not one clean HTTP/1.1 message.",
        "signed by the key of leafgate.pub",
        "left whole",
        "<svg",
        "<rect class=\"release\"",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(
        !page.contains("No card was attached.") && !page.contains("were pruned"),
        "no such reason here, and nothing pruned"
    );
    let note = std::fs::read_to_string(at.join("checkpoint")).expect("a checkpoint");
    let size = all(&dir).len();
    let said = |covers: bool, checked: bool| {
        json!({
            "note": note, "size": size, "signed": true, "covers_last": covers, "root_checked": checked,
        })
    };
    assert_eq!(manifest["checkpoint"], said(true, true));
    let (_, lines) = exported(&at, Filter::default(), Format::Jsonl);
    assert_eq!(lines["checkpoint"], said(true, false), "only html looks");
    for name in Format::NAMES {
        let (text, _) = exported(&at, Filter::default(), Format::parse(name).expect("a name"));
        assert!(!text.contains("CANARY") && !text.is_empty(), "{name}");
    }
    // The same bytes each time, and the lines' hash is that of the export as jsonl.
    assert_eq!(exported(&at, Filter::default(), Format::Html).0, page);
    let lines = exported(&at, Filter::default(), Format::Jsonl).1;
    assert_eq!(lines["sha256"], manifest["records_sha256"]);
    // A changed ledger is not called proven.
    let path = at.join("000000000000.jsonl");
    let text = std::fs::read_to_string(&path).expect("text");
    std::fs::write(&path, text.replacen("http_malformed", "http_malformex", 1)).expect("written");
    let (page, manifest) = exported(&at, Filter::default(), Format::Html);
    assert_eq!(manifest["checkpoint"], said(true, false));
    assert!(!page.contains("have the root") && !page.contains("is among them"));
    assert!(page.contains("found the ledger not whole") && !page.contains("found no fault"));
    assert!(
        !page.contains(&at.display().to_string()),
        "the folder stays here"
    );
}

/// A tail that somebody without the key wrote after the checkpoint is in the chain; the page does not call it more than that. Twin: the run as it was.
#[test]
fn a_forged_tail_is_not_called_covered() {
    use sha2::{Digest as _, Sha256};
    let dir = folder();
    filled(&dir, 2);
    let at = dir.path().join("ledger");
    let (page, manifest) = exported(&at, Filter::default(), Format::Html);
    assert!(
        page.contains("Every record on this page is among them."),
        "{page}"
    );
    assert_eq!(manifest["checkpoint"]["covers_last"], json!(true));
    let path = at.join("000000000000.jsonl");
    let mut text = std::fs::read(&path).expect("text");
    let lines: Vec<&[u8]> = text[..text.len() - 1].split(|b| *b == b'\n').collect();
    let (last, open) = (lines[lines.len() - 1], lines[0]);
    let mut forged: Value = serde_json::from_slice(open).expect("a record");
    let hash: [u8; 32] = Sha256::digest(last).into();
    forged["prev"] = json!(super::super::hex::hex(&hash));
    forged["seq"] = json!(lines.len());
    forged["run"] = json!("01KFORGEDFORGEDFORGEDFORGE");
    text.extend_from_slice(format!("{forged}\n").as_bytes());
    std::fs::write(&path, text).expect("written");
    whole(&dir);
    let (page, manifest) = exported(&at, Filter::default(), Format::Html);
    assert!(
        !page.contains("is among them") && page.contains("are under no checkpoint yet"),
        "{page}"
    );
    let note = &manifest["checkpoint"];
    assert_eq!(
        (&note["covers_last"], &note["root_checked"]),
        (&json!(false), &json!(true))
    );
    // Without a checkpoint nothing but the chain is claimed.
    std::fs::remove_file(at.join("checkpoint")).expect("taken away");
    let (page, manifest) = exported(&at, Filter::default(), Format::Html);
    assert!(!page.contains("have the root"), "{page}");
    assert_eq!(manifest["checkpoint"], Value::Null);
}
