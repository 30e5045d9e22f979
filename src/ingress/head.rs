//! The strict check of a raw request head (contract, section 6, `http_malformed`; RFC 9110 and 9112).
//!
//! It stands in front of hyper for every request of a connection, because hyper forgives what two parsers may read differently:
//! a bare LF, a length beside `chunked`. Promises: a head that passes is read by everybody in one way. Pure: bytes in, facts or fault out.

use std::net::{IpAddr, SocketAddr};

use http::{Method, Uri};

use super::connect::{connect_line, is_connect};
use crate::policy::BaseUrl;
use crate::terms::Reason;

/// How many header lines a head may have.
pub(crate) const MAX_LINES: usize = 100;

/// What the HTTP library takes of a header name and of a target, in bytes; it would refuse longer ones by itself, with no record. Of a value it takes any length.
const NAME_MOST: usize = u16::MAX as usize;
const TARGET_MOST: usize = u16::MAX as usize - 1;

/// Methods that exist; which of them a call may use is the policy's routes' matter. CONNECT is not among them.
const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::TRACE,
];

/// Why a head was refused: the reason and one clause for the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadFault {
    /// `http_malformed` or `head_too_large`.
    pub reason: Reason,
    /// What is wrong and what to do; never the client's bytes.
    pub hint: &'static str,
}

pub(super) const fn malformed(hint: &'static str) -> HeadFault {
    HeadFault {
        reason: Reason::HttpMalformed,
        hint,
    }
}

const fn too_large(hint: &'static str) -> HeadFault {
    HeadFault {
        reason: Reason::HeadTooLarge,
        hint,
    }
}

/// How the body of a request is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes; zero where the head names none.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// What the check found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadFacts {
    /// The body's framing.
    pub framing: Framing,
    /// The target had a fragment, which the HTTP library would cut off in silence.
    pub fragment: bool,
}

/// The `Host` values that are this listener's.
#[derive(Debug, Clone)]
pub struct Names {
    own: Vec<String>,
    /// In a tunnel the target is a path: its host stands already.
    in_tunnel: bool,
}

impl Names {
    /// The names of a listener bound to `bound`, and those the policy adds.
    pub fn new(bound: SocketAddr, tls: bool, more: &[String]) -> Names {
        let mut names = vec![bound.to_string()];
        let mut hosts = vec![match bound.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        }];
        if bound.ip().is_loopback() {
            hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        names.extend(hosts.iter().map(|host| format!("{host}:{}", bound.port())));
        if bound.port() == if tls { 443 } else { 80 } {
            names.extend(hosts);
        }
        names.extend(more.iter().cloned());
        Names::of(names)
    }

    fn of(own: Vec<String>) -> Names {
        Names {
            own,
            in_tunnel: false,
        }
    }

    /// The names in a tunnel to this host: its authority, with the port or, where it is the scheme's own, without.
    pub(super) fn of_tunnel(to: &BaseUrl) -> Names {
        Names {
            own: vec![to.with_port(), to.authority.clone()],
            in_tunnel: true,
        }
    }

    /// The names of a Unix socket: `localhost`, and those the policy adds.
    pub fn of_socket(more: &[String]) -> Names {
        let own = std::iter::once("localhost".to_owned());
        Names::of(own.chain(more.iter().cloned()).collect())
    }

    fn has(&self, host: &[u8]) -> bool {
        self.own
            .iter()
            .any(|name| name.as_bytes().eq_ignore_ascii_case(host))
    }
}

/// Looks at what has come of a head so far, from `from` on (the byte before it was looked at already). Gives the length of the head where
/// it is complete. What cannot become a clean head is refused at once, without waiting for its end.
///
/// # Errors
/// `http_malformed` at the first byte that no head has.
pub fn scan(bytes: &[u8], from: usize) -> Result<Option<usize>, HeadFault> {
    scan_for(bytes, from, false)
}

/// As [`scan`], where a `CONNECT` may pass.
pub(super) fn scan_for(
    bytes: &[u8],
    from: usize,
    connects: bool,
) -> Result<Option<usize>, HeadFault> {
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        match byte {
            b'\n' if before != Some(b'\r') => {
                return Err(malformed("a line ends in a bare LF; end lines in CRLF"));
            }
            _ if before == Some(b'\r') && *byte != b'\n' => {
                return Err(malformed("a bare CR stands in the head; end lines in CRLF"));
            }
            b'\n' if bytes[..=at].ends_with(b"\r\n\r\n") => return Ok(Some(at + 1)),
            b'\n' => {
                if memchr::memchr(b'\n', bytes) == Some(at) {
                    let line = &bytes[..at - 1];
                    if connects && is_connect(line) {
                        connect_line(line)?;
                    } else {
                        request_line(line)?;
                    }
                }
            }
            b'\r' | b'\t' | 0x20..=0x7e | 0x80..=0xff => {}
            0..=0x1f | 0x7f => {
                return Err(malformed(
                    "a control character stands in the head; this port speaks HTTP/1.1",
                ));
            }
        }
    }
    Ok(None)
}

/// Checks a whole head, its last empty line included.
///
/// # Errors
/// The first fault, `http_malformed` or `head_too_large`.
pub fn check(head: &[u8], names: &Names) -> Result<HeadFacts, HeadFault> {
    let mut lines = lines(head)?;
    let (method, target) = request_line(lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    for (count, line) in lines.enumerate() {
        let (name, value) = header(line, count)?;
        fields.take(name, value)?;
    }
    fields.host_is_ours(&target, names)?;
    let framing = fields.framing()?;
    if framing != Framing::Length(0) && (method == Method::GET || method == Method::HEAD) {
        return Err(malformed("a GET has a body; send it without one"));
    }
    Ok(HeadFacts {
        framing,
        fragment: target.fragment,
    })
}

struct RawTarget {
    uri: Uri,
    fragment: bool,
}

/// The method and the target of a request line; `form` where it has not three parts.
pub(super) fn halves(line: &[u8], form: HeadFault) -> Result<(&[u8], &[u8]), HeadFault> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(form);
    };
    if version != b"HTTP/1.1" {
        return Err(malformed("the version is not HTTP/1.1; speak HTTP/1.1"));
    }
    Ok((method, target))
}

/// `METHOD SP target SP HTTP/1.1` (RFC 9112 section 3).
fn request_line(line: &[u8]) -> Result<(Method, RawTarget), HeadFault> {
    const FORM: HeadFault = malformed("the request line is not METHOD, target and HTTP/1.1");
    let (method, target) = halves(line, FORM)?;
    let method = METHODS
        .into_iter()
        .find(|known| known.as_str().as_bytes() == method);
    let method = method.ok_or(malformed(
        "the method is unknown, or CONNECT; aim the client's base URL at leafgate",
    ))?;
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(FORM);
    }
    if target.len() > TARGET_MOST {
        return Err(too_large(
            "the target has more than 65,534 bytes; send a shorter one",
        ));
    }
    let fragment = target.contains(&b'#');
    let uri = Uri::try_from(target)
        .map_err(|_| malformed("the target is no path and no absolute URL"))?;
    let whole =
        uri.path().starts_with('/') && (uri.scheme().is_some() == uri.authority().is_some());
    if whole {
        Ok((method, RawTarget { uri, fragment }))
    } else {
        Err(malformed("the target is no path and no absolute URL"))
    }
}

/// The lines of a whole head, without their ends.
pub(super) fn lines(head: &[u8]) -> Result<impl Iterator<Item = &[u8]>, HeadFault> {
    let text = head
        .strip_suffix(b"\r\n\r\n")
        .ok_or(malformed("the head has no end"))?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
}

/// `name: value` (RFC 9112 section 5): a token, a colon right after it, a value without control characters. `count` lines stand before it.
pub(super) fn header(line: &[u8], count: usize) -> Result<(&[u8], &[u8]), HeadFault> {
    if count >= MAX_LINES {
        return Err(too_large(
            "the head has more than 100 header lines; send fewer",
        ));
    }
    if line.first().is_some_and(u8::is_ascii_whitespace) {
        return Err(malformed("a header line is folded; send it as one line"));
    }
    let colon = memchr::memchr(b':', line).ok_or(malformed("a header line has no colon"))?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        return Err(malformed(
            "a header name is no token, or a space stands before its colon",
        ));
    }
    if name.len() > NAME_MOST {
        return Err(too_large(
            "a header name has more than 65,535 bytes; send a shorter one",
        ));
    }
    if value
        .iter()
        .any(|byte| matches!(byte, 0..=8 | 10..=31 | 127))
    {
        return Err(malformed("a header value has a control character"));
    }
    Ok((name, value))
}

/// The header fields that decide how a message is read.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) length: Option<&'a [u8]>,
    pub(super) coding: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    pub(super) expect: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), HeadFault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let (slot, twice) = match name.len() {
            4 if is("host") => (&mut self.host, "Host stands twice; send one"),
            14 if is("content-length") => {
                (&mut self.length, "Content-Length stands twice; send one")
            }
            17 if is("transfer-encoding") => {
                (&mut self.coding, "Transfer-Encoding stands twice; send one")
            }
            12 if is("content-type") => (
                &mut self.content_type,
                "Content-Type stands twice; send one",
            ),
            6 if is("expect") => (&mut self.expect, "Expect stands twice; send one"),
            6 if is("origin") => {
                return Err(malformed(
                    "the request has an Origin; leafgate does not answer web pages",
                ));
            }
            7 if is("upgrade") => {
                return Err(malformed(
                    "the request asks for an upgrade; leafgate speaks HTTP/1.1 alone",
                ));
            }
            7 if is("trailer") => {
                return Err(malformed("the request announces trailers; send it without"));
            }
            14 if is("sec-fetch-site") && value != b"none" && value != b"same-origin" => {
                return Err(malformed(
                    "the request comes from a web page of another site; leafgate does not answer it",
                ));
            }
            _ => return Ok(()),
        };
        if slot.replace(value).is_some() {
            return Err(malformed(twice));
        }
        Ok(())
    }

    /// Origin form: `Host` is this listener's. Absolute form: it is the target's authority.
    fn host_is_ours(&self, target: &RawTarget, names: &Names) -> Result<(), HeadFault> {
        let host = self.host.ok_or(malformed("the request has no Host"))?;
        if names.in_tunnel && target.uri.authority().is_some() {
            return Err(malformed(
                "the target inside a tunnel is a whole URL; send the path alone",
            ));
        }
        let ours = match target.uri.authority() {
            Some(authority) => authority.as_str().as_bytes().eq_ignore_ascii_case(host),
            None => names.has(host),
        };
        if ours {
            Ok(())
        } else {
            Err(malformed(if names.in_tunnel {
                "Host is not the host of the tunnel"
            } else {
                "Host is not this listener's address; use the base URL that serve prints, or add the name to listen.names"
            }))
        }
    }

    /// RFC 9112 section 6, with every doubt an error.
    fn framing(&self) -> Result<Framing, HeadFault> {
        if self
            .expect
            .is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue"))
        {
            return Err(malformed("Expect is not 100-continue"));
        }
        match (self.length, self.coding) {
            (Some(_), Some(_)) => Err(malformed(
                "Content-Length stands beside Transfer-Encoding; send one of them",
            )),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (None, Some(_)) => Err(malformed("Transfer-Encoding is not chunked")),
            (None, None) => Ok(Framing::Length(0)),
            (Some(digits), None) => {
                let fits = !digits.is_empty()
                    && digits.len() <= 19
                    && digits.iter().all(u8::is_ascii_digit);
                let length = fits
                    .then(|| std::str::from_utf8(digits).ok()?.parse().ok())
                    .flatten();
                length.map(Framing::Length).ok_or(malformed(
                    "Content-Length is not one number of at most 19 digits",
                ))
            }
        }
    }
}
