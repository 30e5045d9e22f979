//! What leafgate answers by itself (contract, section 6), and the headers on what it passes on.
//!
//! One JSON body for every client. It never looks like a model's own refusal and never quotes the call.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::ext::ReasonPhrase;

use crate::admit::{CallId, Refusal};
use crate::egress::Failed;
use crate::policy::Host;
use crate::terms::{Field, Leaf, Reason, Side, Verdict, reads_as_refusal};
use crate::tree::Ruling;

const CALL: HeaderName = HeaderName::from_static("leafgate-call");
const LEAF: HeaderName = HeaderName::from_static("leafgate-leaf");
const STEP: HeaderName = HeaderName::from_static("leafgate-step");
const VERDICT: HeaderName = HeaderName::from_static("leafgate-verdict");
const REASON: HeaderName = HeaderName::from_static("leafgate-reason");
const SCORE: HeaderName = HeaderName::from_static("leafgate-score");
const RETRY: HeaderName = HeaderName::from_static("x-should-retry");

const UNPROCESSABLE: &str = "Unprocessable Content";

/// An answer of leafgate's own, whole.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) status: StatusCode,
    pub(super) call: Option<CallId>,
    pub(super) ruling: Option<Ruling>,
    pub(super) verdict: Verdict,
    pub(super) reason: Reason,
    pub(super) body: Bytes,
    /// The connection closes after it.
    pub(super) close: bool,
}

impl Own {
    /// A refused call: by the tree, by admission or by a limit.
    pub(super) fn refusal(refusal: &Refusal, refused_status: u16) -> Own {
        let ruling = refusal.facts.ruling;
        let refused = if refusal.reason == ruling.reason {
            ""
        } else {
            ", refused"
        };
        let decided = format!(
            "leafgate {} at step {}{refused}",
            ruling.leaf.name(),
            ruling.step.text()
        );
        let (what, next) = refusal
            .hint
            .split_once("; ")
            .unwrap_or((&refusal.hint, "see docs/reasons.md"));
        let message = format!(
            "{decided}: {what}; nothing left this machine. {}. Call {}.",
            capital(next),
            refusal.facts.call
        );
        Own::error(refusal.reason, refused_status, refusal.field, &message)
            .of_call(refusal.facts.call, ruling)
    }

    /// A call that was forwarded, and came to nothing because of the host.
    pub(super) fn failed(
        call: CallId,
        ruling: Ruling,
        host: Option<&Host>,
        failed: &Failed,
        refused_status: u16,
    ) -> Own {
        let message = format!(
            "leafgate {} at step {}, {}: host {}: {}. Call {call}.",
            ruling.leaf.name(),
            ruling.step.text(),
            failed.reason.code(),
            host.map_or("?", |host| host.pin.as_str()),
            failed.hint
        );
        Own::error(failed.reason, refused_status, None, &message).of_call(call, ruling)
    }

    /// A call that could not be recorded or taken: nothing left.
    pub(super) fn unrecorded(reason: Reason, refused_status: u16) -> Own {
        let next = match reason.side() {
            Side::Leafgate if reason == Reason::Overloaded => {
                "too many calls are in flight or waiting; send it again later, or raise limits.in_flight"
            }
            Side::Leafgate | Side::Client | Side::Host => {
                "the ledger cannot make the record durable; free its disk and restart leafgate"
            }
        };
        Own::error(
            reason,
            refused_status,
            None,
            &format!(
                "leafgate {}: nothing left this machine; {next}",
                reason.code()
            ),
        )
    }

    /// A message that never became a call.
    pub(super) fn message(reason: Reason, hint: &str, refused_status: u16) -> Own {
        Own::error(
            reason,
            refused_status,
            None,
            &format!(
                "leafgate {}: {hint}; nothing left this machine",
                reason.code()
            ),
        )
    }

    /// `GET /models` from the policy.
    pub(super) fn models(refusal: &Refusal, host: &Host) -> Own {
        let data: Vec<_> = host
            .models
            .iter()
            .map(|model| serde_json::json!({"id": model, "object": "model", "created": 0, "owned_by": host.pin.as_str()}))
            .collect();
        let body = serde_json::json!({"object": "list", "data": data}).to_string();
        Own {
            status: StatusCode::OK,
            call: Some(refusal.facts.call),
            ruling: Some(refusal.facts.ruling),
            verdict: Verdict::Local,
            reason: refusal.reason,
            body: body.into(),
            close: false,
        }
    }

    fn error(reason: Reason, refused_status: u16, param: Option<Field>, message: &str) -> Own {
        let status = if reason.status() == 422 {
            refused_status
        } else {
            reason.status()
        };
        let body = serde_json::json!({
            "type": "error",
            "error": {"type": "egress_refused", "code": reason.code(), "param": param.map(Field::name), "message": plain(reason, message)},
        });
        Own {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY),
            call: None,
            ruling: None,
            verdict: Verdict::Refuse,
            reason,
            body: body.to_string().into(),
            close: false,
        }
    }

    fn of_call(mut self, call: CallId, ruling: Ruling) -> Own {
        self.call = Some(call);
        self.ruling = Some(ruling);
        self
    }

    pub(super) fn closing(mut self, close: bool) -> Own {
        self.close |= close;
        self
    }

    pub(super) fn into_response(self) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // To send an overloaded call again later is the one thing that helps it.
        if self.reason != Reason::Overloaded {
            headers.insert(RETRY, HeaderValue::from_static("false"));
        }
        mark(headers, self.call, self.ruling, self.verdict, self.reason);
        if self.status == StatusCode::UNPROCESSABLE_ENTITY {
            // The phrase of RFC 9110; the library has that of RFC 4918.
            response
                .extensions_mut()
                .insert(ReasonPhrase::from_static(UNPROCESSABLE.as_bytes()));
        }
        response
    }

    /// The answer as bytes, for a connection on which hyper no longer speaks.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let (parts, body) = self.closing(true).into_response().into_parts();
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\n",
            parts.status.as_str(),
            phrase(parts.status)
        )
        .into_bytes();
        for (name, value) in &parts.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body);
        bytes
    }
}

/// Writes the `leafgate-*` headers; leaf and step stand where the tree was walked.
fn mark(
    headers: &mut http::HeaderMap,
    call: Option<CallId>,
    ruling: Option<Ruling>,
    verdict: Verdict,
    reason: Reason,
) {
    if let Some(call) = call
        && let Ok(value) = HeaderValue::from_str(call.as_str())
    {
        headers.insert(CALL, value);
    }
    if let Some(ruling) = ruling {
        headers.insert(LEAF, HeaderValue::from_static(ruling.leaf.name()));
        headers.insert(STEP, HeaderValue::from_static(ruling.step.text()));
    }
    headers.insert(VERDICT, HeaderValue::from_static(verdict.name()));
    headers.insert(REASON, HeaderValue::from_static(reason.code()));
}

/// Writes the `leafgate-*` headers of an answer that the host gave.
pub(super) fn mark_forwarded(headers: &mut http::HeaderMap, call: CallId, ruling: Ruling) {
    mark(
        headers,
        Some(call),
        Some(ruling),
        Verdict::Forward,
        ruling.reason,
    );
    if ruling.leaf == Leaf::Split {
        headers.insert(SCORE, HeaderValue::from_static("local"));
    }
}

/// One line of ASCII without the words that read like a model's own refusal: a card's own id or byte class may hold one.
fn plain(reason: Reason, message: &str) -> String {
    let line: String = message
        .chars()
        .map(|c| if matches!(c, ' '..='~') { c } else { '?' })
        .collect();
    if reads_as_refusal(&line) {
        return format!(
            "leafgate {}: nothing left this machine; see docs/reasons.md",
            reason.code()
        );
    }
    line
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// The phrase after the status.
fn phrase(status: StatusCode) -> &'static str {
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        UNPROCESSABLE
    } else {
        status.canonical_reason().unwrap_or("Refused")
    }
}
