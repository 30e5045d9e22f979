//! The host's head, strictly (RFC 9112): a head that two readers could read differently is `host_malformed`, and nothing of it is relayed.
//!
//! 1. The first bytes are `HTTP/1.0 ` or `HTTP/1.1 ` (no HTTP/0.9, no empty line before).
//! 2. Every line ends in CR LF; no other CR, LF or NUL; no folding (section 5.2), no space before a colon (section 5.1).
//! 3. At most 64 KiB and 100 fields.
//! 4. At most 8 interim answers, none of them 101, none with framing (RFC 9110, section 15.2).
//! 5. Any 3xx is `redirect_refused`.
//! 6. Framing (section 6.3): no length beside a transfer coding, one length, no coding but `chunked`, none in HTTP/1.0.
//! 7. Of the fields, those that contract section 4 lists are relayed, and no others; and of those none that holds the host's own key, in its name or its value.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::framing::Framing;
use crate::policy::Credential;

/// Bytes of one head.
pub(super) const MOST_BYTES: usize = 64 * 1024;
/// Fields of one head.
const MOST_FIELDS: usize = 100;

/// Why a head was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// Not one clean HTTP/1 head.
    Malformed,
    /// A redirect with this status.
    Redirect(u16),
}

/// What stands at the beginning of the bytes.
#[derive(Debug)]
pub(super) enum Found {
    /// Not all of it is there.
    Partial,
    /// An interim answer of this many bytes.
    Interim(usize),
    /// The answer's head, of this many bytes.
    Final(usize, Box<Head>),
}

/// A final head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// Those that are relayed.
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the connection may carry another call, for all the head says.
    pub(super) keep: bool,
}

/// A credential shorter than this may stand in an answer by chance.
const LEAST_KEY: usize = 8;

impl Head {
    /// Drops the fields that hold the key which leafgate put into the request: it is not the client's to know.
    pub(super) fn keep_back(&mut self, credential: &Credential) {
        let Credential::Fixed { value, scheme, .. } = credential else {
            return;
        };
        let Some(key) = told_by(value.expose(), *scheme) else {
            return;
        };
        let finder = memchr::memmem::Finder::new(key);
        // A name was written in lower case here, however the host wrote it.
        let lower = key.to_ascii_lowercase();
        let in_name = memchr::memmem::Finder::new(&lower);
        let held: Vec<HeaderName> = self
            .headers
            .iter()
            // The length was read as a number, and is the answer's framing.
            .filter(|(name, value)| {
                *name != CONTENT_LENGTH
                    && (finder.find(value.as_bytes()).is_some()
                        || in_name.find(name.as_str().as_bytes()).is_some())
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in held {
            self.headers.remove(name);
        }
    }
}

/// What of a credential's value tells it: the secret without the scheme, and without the scheme that somebody wrote into the secret itself. Each is an end of the
/// one before, so that whatever holds a longer one holds the shortest; of those the shortest that does not stand anywhere by chance.
fn told_by(whole: &[u8], scheme: usize) -> Option<&[u8]> {
    let secret = whole.get(scheme..)?;
    let behind_blank = memchr::memchr(b' ', secret).and_then(|at| secret.get(at + 1..));
    [behind_blank, Some(secret), Some(whole)]
        .into_iter()
        .flatten()
        .find(|part| part.len() >= LEAST_KEY)
}

/// Finds the end of a head across reads, and refuses early what cannot become one.
#[derive(Debug, Default)]
pub(super) struct Scan {
    at: usize,
    line: usize,
}

impl Scan {
    /// The head's length, where its end is there.
    fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Bad> {
        let known = bytes.len().min(7);
        if bytes.get(..known) != b"HTTP/1.".get(..known) {
            return Err(Bad::Malformed);
        }
        while let Some(found) = bytes
            .get(self.at..)
            .and_then(|rest| memchr::memchr(b'\n', rest))
        {
            let lf = self.at + found;
            let line = bytes.get(self.line..lf).unwrap_or_default();
            let Some((b'\r', text)) = line.split_last() else {
                return Err(Bad::Malformed);
            };
            if memchr::memchr2(b'\r', 0, text).is_some() || lf >= MOST_BYTES {
                return Err(Bad::Malformed);
            }
            self.at = lf + 1;
            self.line = lf + 1;
            if text.is_empty() {
                return Ok(Some(lf + 1));
            }
        }
        self.at = bytes.len();
        if bytes.len() >= MOST_BYTES {
            return Err(Bad::Malformed);
        }
        Ok(None)
    }

    /// Reads what stands at the beginning of `bytes`, which only grew since the last time.
    pub(super) fn read(&mut self, bytes: &[u8], method: &Method) -> Result<Found, Bad> {
        let Some(len) = self.end(bytes)? else {
            return Ok(Found::Partial);
        };
        *self = Scan::default();
        parse(bytes.get(..len).unwrap_or_default(), method)
    }
}

fn parse(bytes: &[u8], method: &Method) -> Result<Found, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Ok(httparse::Status::Complete(_) | httparse::Status::Partial) | Err(_) => {
            return Err(Bad::Malformed);
        }
    }
    let (Some(version), Some(code)) = (response.version, response.code) else {
        return Err(Bad::Malformed);
    };
    let facts = Facts::of(response.headers)?;
    match code {
        // Step 4. A length, a coding or a change of protocol in an interim answer is a trap.
        101 => return Err(Bad::Malformed),
        100..=199 if facts.length.is_some() || facts.chunked => return Err(Bad::Malformed),
        100..=199 => return Ok(Found::Interim(bytes.len())),
        // Step 5.
        300..=399 => return Err(Bad::Redirect(code)),
        200..=599 => {}
        _ => return Err(Bad::Malformed),
    }
    let status = StatusCode::from_u16(code).map_err(|_| Bad::Malformed)?;
    // Step 6.
    let bodyless = *method == Method::HEAD || status == StatusCode::NO_CONTENT;
    let framing = match (facts.chunked, facts.length) {
        (true, Some(_)) => return Err(Bad::Malformed),
        (true, None) if version == 0 || bodyless => return Err(Bad::Malformed),
        (false, Some(1..)) if status == StatusCode::NO_CONTENT => return Err(Bad::Malformed),
        (_, _) if bodyless => Framing::length(0),
        (true, None) => Framing::chunked(),
        (false, Some(length)) => Framing::length(length),
        (false, None) => Framing::until_close(),
    };
    let keep = version == 1 && !facts.close && !framing.ends_with_close();
    Ok(Found::Final(
        bytes.len(),
        Box::new(Head {
            status,
            headers: relayed(response.headers, framing.is_length() && !bodyless)?,
            framing,
            keep,
        }),
    ))
}

/// What the fields say about framing.
struct Facts {
    length: Option<u64>,
    chunked: bool,
    close: bool,
}

impl Facts {
    fn of(fields: &[httparse::Header<'_>]) -> Result<Facts, Bad> {
        let mut facts = Facts {
            length: None,
            chunked: false,
            close: false,
        };
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                // Two, even equal ones, are two.
                if facts.length.is_some() {
                    return Err(Bad::Malformed);
                }
                facts.length = Some(digits(field.value)?);
            } else if is("transfer-encoding") {
                if facts.chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Bad::Malformed);
                }
                facts.chunked = true;
            } else if is("connection") {
                facts.close |= field
                    .value
                    .split(|b| *b == b',')
                    .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
        }
        Ok(facts)
    }
}

fn digits(value: &[u8]) -> Result<u64, Bad> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Bad::Malformed);
    }
    Ok(value
        .iter()
        .fold(0, |all, digit| all * 10 + u64::from(digit - b'0')))
}

/// Step 7.
fn relayed(fields: &[httparse::Header<'_>], by_length: bool) -> Result<HeaderMap, Bad> {
    let mut headers = HeaderMap::with_capacity(8);
    for field in fields {
        let Some(once) = listed(field.name, by_length) else {
            continue;
        };
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Bad::Malformed)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Bad::Malformed)?;
        if once && headers.contains_key(&name) {
            return Err(Bad::Malformed);
        }
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether a field is relayed, and then whether it may stand once only.
fn listed(name: &str, by_length: bool) -> Option<bool> {
    const ONCE: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, RETRY_AFTER];
    const PREFIXES: [&str; 3] = ["openai-", "anthropic-", "x-ratelimit-"];
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is(CONTENT_LENGTH.as_str()) {
        return by_length.then_some(true);
    }
    if ONCE.iter().any(|once| is(once.as_str())) || is("request-id") || is("x-request-id") {
        return Some(true);
    }
    PREFIXES
        .iter()
        .any(|prefix| {
            name.get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
        .then_some(false)
}
