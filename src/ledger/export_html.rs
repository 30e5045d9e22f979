//! The page: one run, or whatever the filter takes, for a person to read, mail or print. No script, nothing loaded from anywhere.
//!
//! Promises: every value is escaped, also what is not to be seen in it, so that a record which `verify` finds forged cannot look like another; the page's own policy allows its one style and nothing else; what it calls proven is what `verify` and the checkpoint's signature and root
//! say at the time it was made; of records beyond the checkpoint it says that nothing but the chain ties them.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::export::{Export, Row, Tally};
use super::look::{Record, Stopped};
use super::verify::verify;
use crate::terms::{Reason, safe};

/// Rows on the page; a person reads no more, and a mail takes no more.
const MOST_ROWS: u64 = 5_000;
/// Bars of the timeline.
const BARS: usize = 96;

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1a1c20;--soft:#5b616b;--line:#d6d9de;--hold:#b3261e;--split:#9a6700;--release:#1a7f37;--refuse:#6e40aa}\
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e6e8eb;--soft:#9aa1ab;--line:#343840;--hold:#ff8a80;--split:#e3b341;--release:#56d364;--refuse:#c297ff}}\
body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);margin:2rem auto;padding:0 1.5rem;max-width:90rem}\
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.25rem 0}.soft{color:var(--soft)}\
table{border-collapse:collapse;width:100%;font-size:13px}th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line)}\
th{color:var(--soft);font-weight:600}td,code,pre{font-family:ui-monospace,monospace;overflow-wrap:anywhere}pre{white-space:pre-wrap;font-size:12px;border:1px solid var(--line);padding:.75rem}\
.counts{display:flex;flex-wrap:wrap;gap:.5rem 2rem;padding:0;list-style:none}.counts b{display:block;font-size:1.4rem}\
.hold{color:var(--hold)}.split{color:var(--split)}.release{color:var(--release)}.refuse{color:var(--refuse)}\
svg{width:100%;height:9rem;border-bottom:1px solid var(--line)}rect.hold{fill:var(--hold)}rect.split{fill:var(--split)}rect.release{fill:var(--release)}rect.refuse{fill:var(--refuse)}\
@media print{body{margin:0;max-width:none;font-size:11px}table{font-size:9px}h2{break-after:avoid}tr,svg,pre{break-inside:avoid}thead{display:table-header-group}}";

/// The page's content security policy: this one style, by its hash, and nothing else.
pub fn policy() -> String {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"
        )
    });
    POLICY.clone()
}

/// What a row counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Release,
    Split,
    Hold,
    Refuse,
}

const CLASSES: [(Class, &str, &str); 4] = [
    (
        Class::Release,
        "release",
        "released, forwarded byte for byte",
    ),
    (Class::Split, "split", "split, forwarded as four values"),
    (Class::Hold, "hold", "held by the tree"),
    (
        Class::Refuse,
        "refuse",
        "refused by admission, or answered here",
    ),
];

fn class(record: &Record) -> Option<Class> {
    match (record.text("leaf")?, record.text("verdict")?) {
        ("hold", _) => Some(Class::Hold),
        ("release", "forward") => Some(Class::Release),
        ("split", "forward") => Some(Class::Split),
        _ => Some(Class::Refuse),
    }
}

/// Calls over time, in bars that grow wider as the time does, so that one pass is enough.
#[derive(Debug, Default)]
struct Timeline {
    start: i64,
    /// Seconds that one bar stands for.
    width: i64,
    bars: Vec<[u64; 4]>,
}

impl Timeline {
    fn note(&mut self, second: i64, class: Class) {
        if self.bars.is_empty() {
            (self.start, self.width) = (second, 1);
        }
        let place = loop {
            // A clock that was set back counts in the first bar.
            let place = usize::try_from((second - self.start) / self.width).unwrap_or(0);
            if place < BARS {
                break place;
            }
            self.width *= 2;
            self.bars = self
                .bars
                .chunks(2)
                .map(|pair| std::array::from_fn(|class| pair.iter().map(|bar| bar[class]).sum()))
                .collect();
        };
        if self.bars.len() <= place {
            self.bars.resize(place + 1, [0; 4]);
        }
        self.bars[place][class as usize] += 1;
    }

    fn svg(&self) -> Markup {
        let most = self
            .bars
            .iter()
            .map(|bar| bar.iter().sum::<u64>())
            .max()
            .unwrap_or(0)
            .max(1);
        let bars = self.bars.len().max(1);
        html! {
            svg viewBox={ "0 0 " (bars * 10) " 100" } preserveAspectRatio="none" role="img"
                aria-label={ "calls over time, " (self.width) " seconds a bar, at most " (most) " calls" } {
                @for (place, bar) in self.bars.iter().enumerate() {
                    @for (class, name, _) in CLASSES {
                        @let below: u64 = bar[..class as usize].iter().sum();
                        @let height = bar[class as usize] as f64 * 100.0 / most as f64;
                        @if height > 0.0 {
                            rect class=(name) x=(place * 10 + 1) width="8"
                                y=(format!("{:.2}", 100.0 - below as f64 * 100.0 / most as f64 - height))
                                height=(format!("{height:.2}")) {}
                        }
                    }
                }
            }
            p.soft { "Calls over time: " (self.width) " s a bar, the highest " (most) " calls." }
        }
    }
}

/// What the first pass finds.
#[derive(Debug, Default)]
struct Found {
    counts: [u64; 4],
    /// Calls that left whole, in part, not at all, and where that is not known.
    sent: [u64; 4],
    refused: u64,
    /// Reason codes and ends of calls.
    reasons: BTreeSet<String>,
    timeline: Timeline,
}

impl Found {
    fn note(&mut self, row: &Row) {
        let record = &row.record;
        let ended = row.outcome.as_ref().unwrap_or(record).text("error");
        let words = [record.text("reason"), ended];
        let known = words
            .into_iter()
            .flatten()
            .filter(|word| meaning(word).is_some());
        self.reasons.extend(known.map(str::to_owned));
        if record.is("refused") {
            self.refused += record.int("count").unwrap_or(1);
        }
        let Some(class) = class(record) else { return };
        self.counts[class as usize] += 1;
        if record.forwards() {
            let sent = row
                .outcome
                .as_ref()
                .and_then(|outcome| outcome.text("sent"));
            let place = ["all", "partial", "none"]
                .iter()
                .position(|word| sent == Some(word));
            self.sent[place.unwrap_or(3)] += 1;
        }
        let time = record
            .text("time")
            .and_then(|time| time.parse::<Timestamp>().ok());
        if let Some(time) = time {
            self.timeline.note(time.as_second(), class);
        }
    }
}

/// What a reason code, or the end of a call that is no answer, means.
fn meaning(code: &str) -> Option<String> {
    const ENDS: [(&str, &str); 5] = [
        ("host_cut", "The host's answer ended early."),
        (
            "client_gone",
            "The client left before the end of the answer.",
        ),
        ("shutdown", "leafgate was stopped before the end."),
        (
            "crash",
            "leafgate ended without a stop before the outcome was recorded; the next start closed the call.",
        ),
        ("dropped", "leafgate gave the call up before its end."),
    ];
    let reason = Reason::ALL.iter().find(|reason| reason.code() == code);
    let end = ENDS.iter().find(|(end, _)| *end == code);
    reason
        .map(|reason| reason.text())
        .or(end.map(|(_, text)| *text))
        .map(|text| text.replace('`', ""))
}

/// Writes the page: a first pass counts, a second writes the rows. Also says whether the checkpoint's root was made again from the records, and `verify` found no fault.
pub(super) fn write(export: &Export, to: &mut dyn Write) -> Result<(Tally, bool), Stopped> {
    let mut found = Found::default();
    let tally = export.rows(&mut |row, _| {
        found.note(row);
        Ok(true)
    })?;
    if tally.records == 0 {
        return Ok((tally, false));
    }
    let whole = match verify(&export.dir, &mut |_, _| ()) {
        Ok(report) => report.problem.map(|problem| problem.to_string()),
        Err(error) => Some(error.to_string()),
    };
    // Where the folder lies on this machine is no concern of whoever reads the page.
    let folder = format!("{}/", export.dir.display());
    let whole = whole.map(|problem| problem.replace(&folder, ""));
    // The checkpoint that this page shows may be older than the one that verify read.
    let checked = match &export.note {
        Some(note) if whole.is_none() => note.holds(&export.dir)?,
        Some(_) | None => false,
    };
    let put = |to: &mut dyn Write, markup: Markup| to.write_all(markup.into_string().as_bytes());
    put(to, head()).map_err(Stopped::Taker)?;
    put(to, top(export, &tally, &found)).map_err(Stopped::Taker)?;
    put(to, reasons(&found)).map_err(Stopped::Taker)?;
    put(to, proofs(export, &tally, whole.as_deref(), checked)).map_err(Stopped::Taker)?;
    to.write_all(b"<h2>Calls and other records</h2><table><thead><tr>")
        .map_err(Stopped::Taker)?;
    put(to, html! { @for name in HEADS { th { (name) } } }).map_err(Stopped::Taker)?;
    to.write_all(b"</tr></thead><tbody>")
        .map_err(Stopped::Taker)?;
    let mut written = 0;
    export.rows(&mut |row, _| {
        if written < MOST_ROWS {
            put(to, line(row))?;
        }
        written += 1;
        Ok(true)
    })?;
    let more = written.saturating_sub(MOST_ROWS);
    put(
        to,
        html! {
            (PreEscaped("</tbody></table>"))
            @if more > 0 {
                p { (more) " more rows are not on this page; the counts have them. Export the same filter as csv or jsonl for all of them." }
            }
            (manifest(export, &tally))
            (PreEscaped("</body></html>\n"))
        },
    )
    .map_err(Stopped::Taker)?;
    Ok((tally, checked))
}

fn reasons(found: &Found) -> Markup {
    html! {
        @if !found.reasons.is_empty() {
            h2 { "The reasons on this page" }
            table { tbody {
                @for code in &found.reasons {
                    tr { td { (code) } td { (meaning(code).unwrap_or_default()) } }
                }
            } }
        }
    }
}

fn head() -> Markup {
    html! {
        (DOCTYPE)
        (PreEscaped("<html lang=\"en\">"))
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy());
            meta name="viewport" content="width=device-width";
            meta name="referrer" content="no-referrer";
            title { "leafgate ledger" }
            style { (PreEscaped(STYLE)) }
        }
        (PreEscaped("<body>"))
    }
}

fn top(export: &Export, tally: &Tally, found: &Found) -> Markup {
    let at = |at: &Option<(u64, String)>| at.clone().unwrap_or_default();
    let ((first, from), (last, until)) = (at(&tally.first), at(&tally.last));
    let filter = export.asked.parts();
    html! {
        h1 { "leafgate ledger" }
        p.soft {
            "log " code { (safe(&tally.logs.join(", "))) } " · records " code { (first) } " to " code { (last) }
            " · " (safe(&from)) " to " (safe(&until)) " · filter "
            @if filter.is_empty() { "none: every record" }
            @for (key, value) in &filter { code { (key) "=" (safe(value)) } " " }
        }
        h2 { "Counts" }
        ul.counts {
            @for (class, name, words) in CLASSES {
                li class=(name) { b { (found.counts[class as usize]) } (words) }
            }
            li { b { (found.refused) } "messages that never became a call" }
        }
        p {
            "Of the forwarded calls " (found.sent[0]) " left whole, " (found.sent[1]) " in part, " (found.sent[2]) " not at all, and "
            (found.sent[3]) " may have left (their outcome is unknown or not here)."
        }
        h2 { "Timeline" }
        (found.timeline.svg())
    }
}

fn proofs(export: &Export, tally: &Tally, problem: Option<&str>, checked: bool) -> Markup {
    let last = tally.last.as_ref().map_or(0, |(seq, _)| *seq);
    let covered = export.note.as_ref().is_some_and(|note| note.covers(last));
    let size = export.note.as_ref().and_then(|note| note.size).unwrap_or(0);
    let verify = html! { code { "leafgate ledger verify" } };
    html! {
        h2 { "What is proven" }
        @match problem {
            Some(problem) => p.hold { "Nothing. " (verify) " found the ledger not whole: " (safe(problem)) },
            None => p {
                "When this page was made, " (verify)
                " read every record in the ledger and found no fault: each record has its form and its place, and each follows the one before it by its hash."
            },
        }
        @if export.gone > 0 {
            p { "The records before seq " (export.gone) " were pruned: they are not on this page, and were not read." }
        }
        @if problem.is_none() && checked {
            p { "The records before seq " (size) " have the root that the checkpoint below signs." }
            @if covered {
                p { "Every record on this page is among them. Whoever keeps that checkpoint can show later that none of them was changed or taken away." }
            } @else {
                p.split { "Records from seq " (size) " on, which this page holds too, are under no checkpoint yet. Whoever may write to the ledger's folder can write, change or cut off those without a trace that " (verify) " could find." }
            }
        } @else if problem.is_none() {
            p.split { "No checkpoint that is signed by the key of leafgate.pub was held against the records: whoever may write to the ledger's folder can have written all of them." }
        }
        h2 { "What is not proven" }
        ul {
            li { "This page is a copy. Nothing signs it: hold its records against the ledger, by their seq, or compare " code { "records_sha256" } " with an export of the same filter." }
            li { "That the decision was on disk before a byte left rests on leafgate, not on these files; their order shows the order of writing." }
            li { "Who has root on the machine has the key and could write another ledger up to the newest checkpoint that somebody keeps elsewhere." }
            li { "Times are the machine's clock. The order is seq." }
            li { "What a host did with what it got, whether it kept it, and whether the model is the one it named: the record holds what the host said. An empty residue is the card's claim." }
            li { "What went round leafgate, or on from a server on loopback, is in no record." }
        }
    }
}

const HEADS: [&str; 10] = [
    "seq",
    "time",
    "record",
    "leaf",
    "reason",
    "verdict",
    "fixture",
    "host",
    "what left",
    "answer",
];

fn line(row: &Row) -> Markup {
    let record = &row.record;
    let get = |key: &str| shown(&record.value[key]);
    let name = class(record)
        .and_then(|class| CLASSES.into_iter().find(|(own, _, _)| *own == class))
        .map_or("", |(_, name, _)| name);
    let host = record
        .text("host")
        .map_or_else(|| get("host_pin"), |host| safe(host).into_owned());
    html! {
        tr {
            td { (record.seq) }
            td { (get("time")) }
            td { (get("t")) br; (get("call")) }
            td class=(name) { (get("leaf")) " " (get("step")) }
            td { (get("reason")) }
            td class=(name) { (get("verdict")) }
            td { (get("fixture_id")) }
            td { (host) }
            td { (left(row)) }
            td { (answer(row)) }
        }
    }
}

fn left(row: &Row) -> String {
    let record = &row.record;
    if !record.forwards() {
        return match record.text("t") {
            Some("decision") => "nothing".to_owned(),
            Some("refused") => format!("nothing ({} bytes read)", shown(&record.value["bytes"])),
            _ => String::new(),
        };
    }
    let Some(outcome) = &row.outcome else {
        return "may have left: no outcome".to_owned();
    };
    let get = |key: &str| shown(&outcome.value[key]);
    match outcome.text("sent") {
        Some("unknown") => "may have left: unknown".to_owned(),
        _ => format!(
            "{} {} of {} bytes to {}",
            get("sent"),
            get("sent_len"),
            shown(&record.value["plan_len"]),
            get("peer")
        ),
    }
}

fn answer(row: &Row) -> String {
    let outcome = row
        .outcome
        .as_ref()
        .or(row.record.is("outcome").then_some(&row.record));
    let Some(outcome) = outcome else {
        return others(&row.record);
    };
    let parts = ["status", "model", "ms", "error"]
        .iter()
        .filter(|key| !outcome.value[**key].is_null());
    let parts: Vec<String> = parts
        .map(|key| format!("{key} {}", shown(&outcome.value[*key])))
        .collect();
    parts.join(" · ")
}

/// Every other field of a record that is no call, so that a type this page does not know is shown all the same.
fn others(record: &Record) -> String {
    if record.is("decision") || record.is("refused") {
        return String::new();
    }
    let usual = ["v", "t", "log", "run", "seq", "prev", "time", "call"];
    let members = record.value.as_object().into_iter().flatten();
    let parts: Vec<String> = members
        .filter(|(key, _)| !usual.contains(&key.as_str()))
        .map(|(key, value)| format!("{} {}", safe(key), shown(value)))
        .collect();
    parts.join(" · ")
}

fn manifest(export: &Export, tally: &Tally) -> Markup {
    html! {
        h2 { "Manifest" }
        p { "records " code { (tally.records) } " · rows " code { (tally.rows) } " · looked at up to seq " code { (export.end) } " (not included) · filter " code { (shown(&export.asked.to_json())) } }
        p { "records_sha256 " code { (tally.records_sha256) } " (SHA-256 over the records' lines, each with its newline: the file that the same filter gives as jsonl)" }
        @match &export.note {
            Some(note) => {
                p { "checkpoint, " @if note.signed { "signed by the key of leafgate.pub" } @else { "NOT signed by the key of leafgate.pub" } ":" }
                pre { @for line in note.text.lines() { (safe(line)) "\n" } }
            },
            None => p { "There is no checkpoint in the ledger's folder." },
        }
    }
}

/// A value as text.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        Value::Object(sealed) if sealed.len() == 2 && sealed.contains_key("mac") => {
            return format!(
                "sealed, {} bytes",
                sealed.get("len").unwrap_or(&Value::Null)
            );
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    safe(&text).into_owned()
}

/// The parts are tested here; the page is, with the exports.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_and_every_end_has_its_meaning_and_nothing_else_has() {
        let ends = ["host_cut", "client_gone", "shutdown", "crash", "dropped"];
        let codes = Reason::ALL.iter().map(|reason| reason.code());
        for code in codes.chain(ends) {
            let text = meaning(code).expect(code);
            assert!(text.ends_with('.') && !text.contains('`'), "{code}: {text}");
        }
        assert_eq!(meaning("<script>"), None);
    }

    #[test]
    fn the_timeline_keeps_every_call_however_long_it_grows() {
        let mut line = Timeline::default();
        for second in (0..10_000).chain([5, -3]) {
            line.note(1_000_000 + second, Class::Hold);
        }
        let all: u64 = line.bars.iter().map(|bar| bar[Class::Hold as usize]).sum();
        assert_eq!((all, line.width, line.start), (10_002, 128, 1_000_000));
        assert!(line.bars.len() <= BARS);
    }
}
