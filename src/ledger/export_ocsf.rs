//! OCSF 1.5 events of class HTTP Activity (4002) with the profile `security_control`: one for each call and each refused message.
//!
//! | leafgate | `action_id` | `disposition_id` |
//! | --- | --- | --- |
//! | release, forwarded; `GET /models`, answered here | 1 Allowed | 1 Allowed |
//! | split, forwarded | 4 Modified | 11 Corrected |
//! | hold; refused by admission; a message that never became a call | 2 Denied | 2 Blocked |
//! | forwarded, and then refused at the host's address or identity with nothing sent | 2 Denied | 2 Blocked |
//!
//! Promises: every attribute that the class requires is there; the whole record stands in `unmapped`; a line is ASCII alone, so what it holds steers no terminal. A start, a stop or a reload is no HTTP activity and has no event.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::export::Row;
use super::look::Record;
use crate::terms::Reason;

/// The version of the schema whose class and enumerations these are.
pub(super) const SCHEMA: &str = "1.5.0";

/// The event of a row; `None` for a record that is no HTTP activity.
pub(super) fn event(row: &Row) -> Option<Value> {
    let record = &row.record;
    match record.text("t") {
        Some("decision") => Some(call(record, row.outcome.as_ref())),
        Some("refused") => Some(refused(record)),
        // An outcome whose decision lies outside the filter.
        Some("outcome") => Some(call(record, Some(record))),
        _ => None,
    }
}

/// What the control did: `action_id` and its caption, `disposition_id` and its caption.
type Action = (u8, &'static str, u8, &'static str);
const ALLOWED: Action = (1, "Allowed", 1, "Allowed");
const DENIED: Action = (2, "Denied", 2, "Blocked");
const MODIFIED: Action = (4, "Modified", 11, "Corrected");
const UNKNOWN: Action = (0, "Unknown", 0, "Unknown");

fn action(record: &Record, outcome: Option<&Record>) -> Action {
    let stopped = outcome.is_some_and(|outcome| {
        let before = [Reason::AddressRefused, Reason::TlsFailed];
        let error = outcome.text("error");
        outcome.text("sent") == Some("none")
            && before.iter().any(|reason| error == Some(reason.code()))
    });
    match (record.text("verdict"), record.text("leaf")) {
        (Some("forward"), _) if stopped => DENIED,
        (Some("forward"), Some("split")) => MODIFIED,
        (Some("forward"), Some("release")) | (Some("local"), _) => ALLOWED,
        (Some("refuse"), _) => DENIED,
        _ => UNKNOWN,
    }
}

fn call(record: &Record, outcome: Option<&Record>) -> Value {
    let action = action(record, outcome);
    let (method, path) = record
        .text("route")
        .and_then(|route| route.split_once(' '))
        .unzip();
    let mut event = base(record, activity(method), action);
    let mut request = Map::new();
    if let Some(call) = record.text("call") {
        request.insert("uid".to_owned(), json!(call));
    }
    if let (Some(method), Some(path)) = (method, path) {
        request.insert("http_method".to_owned(), json!(method));
        let mut url = json!({ "path": path, "url_string": path });
        if let Some(host) = host(record) {
            url["hostname"] = json!(host);
        }
        request.insert("url".to_owned(), url);
    }
    if let Some(len) = record.int("plan_len") {
        request.insert("length".to_owned(), json!(len));
    }
    event.insert("http_request".to_owned(), Value::Object(request));
    event.insert("dst_endpoint".to_owned(), destination(record, outcome));
    event.insert("message".to_owned(), json!(message(record, outcome)));
    if let Some(outcome) = outcome {
        answer(&mut event, outcome);
    }
    let (status, caption) = status(record, outcome);
    event.insert("status_id".to_owned(), json!(status));
    event.insert("status".to_owned(), json!(caption));
    let code = outcome
        .and_then(|outcome| outcome.text("error"))
        .or(record.text("reason"));
    if let Some(code) = code {
        event.insert("status_code".to_owned(), json!(code));
    }
    let mut raw = Map::new();
    raw.insert(
        record.text("t").unwrap_or("record").to_owned(),
        record.value.clone(),
    );
    if let Some(outcome) = outcome {
        raw.insert("outcome".to_owned(), outcome.value.clone());
    }
    event.insert("unmapped".to_owned(), json!({ "leafgate": raw }));
    Value::Object(event)
}

/// What came back.
fn answer(event: &mut Map<String, Value>, outcome: &Record) {
    if let Some(code) = outcome.int("status") {
        let mut response = json!({ "code": code });
        if let Some(len) = outcome.int("received_len") {
            response["length"] = json!(len);
        }
        if let Some(ms) = outcome.int("ms") {
            response["latency"] = json!(ms);
        }
        event.insert("http_response".to_owned(), response);
    }
    if let Some(sent) = outcome.int("sent_len") {
        let received = outcome.int("received_len").unwrap_or(0);
        let traffic = json!({ "bytes_out": sent, "bytes_in": received, "bytes": sent + received });
        event.insert("traffic".to_owned(), traffic);
    }
    if let Some(ms) = outcome.int("ms") {
        event.insert("duration".to_owned(), json!(ms));
    }
}

fn refused(record: &Record) -> Value {
    let mut event = base(record, (0, "Unknown"), DENIED);
    let code = record.text("reason").unwrap_or("unknown");
    let reason = Reason::ALL.iter().find(|reason| reason.code() == code);
    event.insert(
        "http_response".to_owned(),
        json!({ "code": reason.map_or(400, |reason| reason.status()) }),
    );
    event.insert("dst_endpoint".to_owned(), json!({ "svc_name": "leafgate" }));
    event.insert("status_id".to_owned(), json!(2));
    event.insert("status".to_owned(), json!("Failure"));
    event.insert("status_code".to_owned(), json!(code));
    event.insert("count".to_owned(), json!(record.int("count").unwrap_or(1)));
    event.insert(
        "message".to_owned(),
        json!(format!(
            "leafgate refused a message that never became a call: {code}; nothing left"
        )),
    );
    event.insert(
        "unmapped".to_owned(),
        json!({ "leafgate": { "refused": record.value } }),
    );
    Value::Object(event)
}

/// What every event has.
fn base(record: &Record, activity: (u16, &str), action: Action) -> Map<String, Value> {
    let time = record.text("time").unwrap_or_default();
    let millis = time
        .parse::<Timestamp>()
        .map_or(0, Timestamp::as_millisecond);
    let log = record.text("log").unwrap_or_default();
    let (activity, caption) = activity;
    let mut metadata = json!({
        "version": SCHEMA,
        "product": { "name": "leafgate", "vendor_name": "leafgate", "version": env!("CARGO_PKG_VERSION"), "feature": { "name": "ledger" } },
        "profiles": ["security_control"],
        "log_name": log,
        "original_time": time,
        "sequence": record.seq,
        "uid": format!("{log}/{}", record.seq),
    });
    if let Some(call) = record.text("call") {
        metadata["correlation_uid"] = json!(call);
    }
    let event = json!({
        "activity_id": activity, "activity_name": caption,
        "category_uid": 4, "category_name": "Network Activity",
        "class_uid": 4002, "class_name": "HTTP Activity",
        "type_uid": 400_200 + u32::from(activity), "type_name": format!("HTTP Activity: {caption}"),
        "severity_id": 1, "severity": "Informational",
        "time": millis, "timezone_offset": 0,
        "action_id": action.0, "action": action.1, "disposition_id": action.2, "disposition": action.3,
        // The record does not hold the client's address.
        "src_endpoint": { "name": "client of leafgate, address not recorded" },
        "metadata": metadata,
    });
    match event {
        Value::Object(event) => event,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn activity(method: Option<&str>) -> (u16, &'static str) {
    match method {
        Some("GET") => (3, "Get"),
        Some("POST") => (6, "Post"),
        Some(_) => (99, "Other"),
        None => (0, "Unknown"),
    }
}

/// The host, or the pin where it names none and may be shown.
fn host(record: &Record) -> Option<&str> {
    record.text("host").or(record.text("host_pin"))
}

fn destination(record: &Record, outcome: Option<&Record>) -> Value {
    let mut endpoint = Map::new();
    if let Some(host) = host(record) {
        endpoint.insert("hostname".to_owned(), json!(host));
    }
    let peer = outcome.and_then(|outcome| outcome.text("peer"));
    if let Some(peer) = peer.and_then(|peer| peer.parse::<std::net::SocketAddr>().ok()) {
        endpoint.insert("ip".to_owned(), json!(peer.ip().to_string()));
        endpoint.insert("port".to_owned(), json!(peer.port()));
    }
    if endpoint.is_empty() {
        endpoint.insert("svc_name".to_owned(), json!("leafgate"));
    }
    Value::Object(endpoint)
}

fn status(record: &Record, outcome: Option<&Record>) -> (u8, &'static str) {
    let Some(outcome) = outcome else {
        return match record.text("verdict") {
            Some("forward") => (0, "Unknown"),
            Some("local") => (1, "Success"),
            _ => (2, "Failure"),
        };
    };
    let fine = outcome.int("status").is_some_and(|status| status < 400);
    match (outcome.text("error"), outcome.text("sent")) {
        (_, Some("unknown")) => (0, "Unknown"),
        (None, _) if fine => (1, "Success"),
        _ => (2, "Failure"),
    }
}

fn message(record: &Record, outcome: Option<&Record>) -> String {
    let reason = record.text("reason").unwrap_or("unknown");
    let leaf = record.text("leaf").unwrap_or("unknown");
    let sent = outcome.and_then(|outcome| outcome.text("sent"));
    match (record.text("verdict"), sent) {
        (Some("forward"), Some(sent)) => format!("leafgate {leaf}: {reason}; sent {sent}"),
        (Some("forward"), None) => {
            format!("leafgate {leaf}: {reason}; no outcome yet, it may have left")
        }
        (Some("local"), _) => {
            format!("leafgate {leaf}: answered here from the policy; nothing left")
        }
        (Some(_), _) => format!("leafgate {leaf}: {reason}; nothing left"),
        (None, _) => format!(
            "leafgate: the outcome of decision {}",
            record.int("of").unwrap_or(0)
        ),
    }
}
