//! Finds the model's name in an answer that passes by: the top-level `model` of a JSON answer of at most 64 KiB, or of the first event
//! of a stream. Keeps handles on the bytes, no copy of a body; parses once. Made by the exchange, read by the account.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memmem;
use serde::Deserialize;

/// Bytes that are looked at.
const MOST: usize = 64 * 1024;
/// Pieces that are looked at: a host that drips gets no more of our time.
const MOST_PIECES: usize = 128;
/// A longer name is no model name.
const LONGEST: usize = 256;

/// The state of the search.
pub(super) enum Sniff {
    /// Not looking: no answer yet, another media type, over the size.
    Nothing,
    /// A JSON answer; its pieces so far.
    Json(Vec<Bytes>, usize),
    /// An event stream; its pieces until the first event's end.
    Events(Vec<Bytes>, usize),
    /// Found, or known not to be there.
    Done(Option<String>),
}

#[derive(Deserialize)]
struct Named {
    model: Option<String>,
    message: Option<Inner>,
    response: Option<Inner>,
}

#[derive(Deserialize)]
struct Inner {
    model: Option<String>,
}

impl Sniff {
    /// What to look for in an answer with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Sniff {
        if headers.contains_key(CONTENT_ENCODING) {
            return Sniff::Nothing;
        }
        let kind = headers
            .get(CONTENT_TYPE)
            .map(|value| value.as_bytes())
            .unwrap_or_default();
        let essence = kind.split(|b| *b == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            Sniff::Json(Vec::new(), 0)
        } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Sniff::Events(Vec::new(), 0)
        } else {
            Sniff::Nothing
        }
    }

    /// Takes note of the next piece.
    pub(super) fn look(&mut self, bytes: &Bytes) {
        match self {
            Sniff::Nothing | Sniff::Done(_) => {}
            Sniff::Json(pieces, len) => {
                *len += bytes.len();
                if *len > MOST || pieces.len() >= MOST_PIECES {
                    *self = Sniff::Nothing;
                } else {
                    pieces.push(bytes.clone());
                }
            }
            Sniff::Events(pieces, len) => {
                *len += bytes.len();
                if *len > MOST || pieces.len() >= MOST_PIECES {
                    *self = Sniff::Nothing;
                    return;
                }
                pieces.push(bytes.clone());
                // Only a piece with a line's end can complete the first event's data.
                if memchr::memchr(b'\n', bytes).is_some() {
                    let so_far = joined(pieces);
                    if let Some(data) = first_data(&so_far) {
                        *self = Sniff::Done(named(data));
                    }
                }
            }
        }
    }

    /// The name, where the answer had one; parses a JSON answer now.
    pub(super) fn take_name(&mut self) -> Option<String> {
        match std::mem::replace(self, Sniff::Nothing) {
            Sniff::Nothing => None,
            Sniff::Json(pieces, _) => named(&joined(&pieces)),
            Sniff::Events(pieces, _) => first_data(&joined(&pieces)).and_then(named),
            Sniff::Done(name) => name,
        }
    }
}

fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => {
            let mut all = BytesMut::with_capacity(many.iter().map(Bytes::len).sum());
            for piece in many {
                all.extend_from_slice(piece);
            }
            all.freeze()
        }
    }
}

/// The first whole `data:` line.
fn first_data(bytes: &[u8]) -> Option<&[u8]> {
    let start = if bytes.starts_with(b"data:") {
        5
    } else {
        memmem::find(bytes, b"\ndata:")? + 6
    };
    let rest = bytes.get(start..)?;
    let end = memchr::memchr(b'\n', rest)?;
    rest.get(..end)
}

fn named(json: &[u8]) -> Option<String> {
    let found: Named = serde_json::from_slice(json).ok()?;
    found
        .model
        .or_else(|| found.message.and_then(|inner| inner.model))
        .or_else(|| found.response.and_then(|inner| inner.model))
        .filter(|name| !name.is_empty() && name.len() <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_in(kind: &'static str, pieces: &[&'static str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
        let mut sniff = Sniff::of(&headers);
        for piece in pieces {
            sniff.look(&Bytes::from_static(piece.as_bytes()));
        }
        sniff.take_name()
    }

    #[test]
    fn the_top_level_model_is_found_and_its_twin_is_not() {
        let json = "application/json; charset=utf-8";
        let sse = "text/event-stream";
        for (kind, pieces, expected) in [
            (
                json,
                &[r#"{"id":1,"model":"m-small"}"#][..],
                Some("m-small"),
            ),
            (
                json,
                &[r#"{"id":1,"mod"#, r#"el":"m-small"}"#],
                Some("m-small"),
            ),
            (json, &[r#"{"x":{"model":"m-small"}}"#], None),
            (json, &[r#"{"model":"a","model":"b"}"#], None),
            (json, &[r#"{"model":7}"#], None),
            (json, &[r#"{"model":"m-small""#], None),
            ("text/html", &[r#"{"model":"m-small"}"#], None),
            (
                sse,
                &["data: {\"model\":\"m-small\"}\n\ndata: {\"model\":\"b\"}\n\n"],
                Some("m-small"),
            ),
            (
                sse,
                &["event: x\r\nda", "ta: {\"model\":\"m-small\"}\r\n\r\n"],
                Some("m-small"),
            ),
            (
                sse,
                &["event: message_start\ndata: {\"message\":{\"model\":\"m\"}}\n\n"],
                Some("m"),
            ),
            (sse, &["data: {}\n\ndata: {\"model\":\"b\"}\n\n"], None),
            (sse, &["data: {\"model\":\"m-small\"}"], None),
        ] {
            assert_eq!(
                name_in(kind, pieces).as_deref(),
                expected,
                "{kind} {pieces:?}"
            );
        }
    }

    #[test]
    fn an_answer_over_the_size_is_let_go() {
        let big = Bytes::from(vec![b' '; MOST + 1]);
        let mut sniff = Sniff::Json(Vec::new(), 0);
        sniff.look(&big);
        assert!(matches!(sniff, Sniff::Nothing));
        let mut sniff = Sniff::Json(Vec::new(), 0);
        sniff.look(&big.slice(..MOST));
        assert!(matches!(sniff, Sniff::Json(..)));
    }
}
