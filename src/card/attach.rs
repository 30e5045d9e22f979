//! Where a card is attached (contract, section 5): the `leafgate-card` header, the base URL, or the API key. Exactly one.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Card, CardFault, CardStore, Reading};

/// Which of the three places held the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// The `leafgate-card` header.
    Header,
    /// `/card/NAME/` in the base URL.
    Path,
    /// `card:NAME` as the API key.
    Key,
}

impl Attach {
    /// The word in the record.
    pub fn name(self) -> &'static str {
        match self {
            Attach::Header => "header",
            Attach::Path => "path",
            Attach::Key => "key",
        }
    }
}

/// What was attached, and where.
#[derive(Debug)]
pub struct Attached {
    /// The place, where exactly one was used.
    pub place: Option<Attach>,
    /// The card, or why there is none.
    pub reading: Reading,
}

/// The header that carries a card.
pub const CARD_HEADER: &str = "leafgate-card";

/// Finds the one card of a call. `path_name` is NAME where the path was `/card/NAME/…`.
pub fn attach(headers: &HeaderMap, path_name: Option<&str>, store: &CardStore) -> Attached {
    let mut in_header = headers.get_all(CARD_HEADER).iter();
    let header = in_header.next();
    let keys = card_keys(headers);
    let places = usize::from(header.is_some())
        + in_header.count()
        + usize::from(path_name.is_some())
        + keys.count;
    if places > 1 {
        return Attached {
            place: None,
            reading: Reading::Ambiguous,
        };
    }
    if let Some(value) = header {
        return Attached {
            place: Some(Attach::Header),
            reading: from_header(value.as_bytes(), store),
        };
    }
    if let Some(name) = path_name {
        return Attached {
            place: Some(Attach::Path),
            reading: store.get(name),
        };
    }
    match keys.name {
        Some(name) => Attached {
            place: Some(Attach::Key),
            reading: store.get(name),
        },
        // A key that begins with `card:` and is no text names no card.
        None if keys.count > 0 => Attached {
            place: Some(Attach::Key),
            reading: Reading::Missing,
        },
        None => Attached {
            place: None,
            reading: Reading::Missing,
        },
    }
}

/// Whether a header value is an API key that names a card, and so must never be sent on.
pub fn is_card_key(value: &[u8]) -> bool {
    // Wider than what names a card: a key that looks like one in another spelling is not sent on either.
    value.windows(5).enumerate().any(|(at, five)| {
        five.eq_ignore_ascii_case(b"card:") && (at == 0 || !value[at - 1].is_ascii_alphanumeric())
    })
}

struct Keys<'a> {
    count: usize,
    name: Option<&'a str>,
}

fn card_keys(headers: &HeaderMap) -> Keys<'_> {
    let tokens = headers
        .get_all(AUTHORIZATION)
        .iter()
        .filter_map(|value| bearer(value.as_bytes()));
    let keys = headers
        .get_all("x-api-key")
        .iter()
        .map(|value| value.as_bytes());
    let mut found = Keys {
        count: 0,
        name: None,
    };
    for name in tokens
        .chain(keys)
        .filter_map(|key| key.strip_prefix(b"card:"))
    {
        found.count += 1;
        found.name = std::str::from_utf8(name).ok();
    }
    found
}

/// The token of `Bearer TOKEN` (RFC 6750; the scheme's case is free, RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii_start())
}

/// Compact JSON, unpadded base64url of JSON, or `@NAME`.
fn from_header(value: &[u8], store: &CardStore) -> Reading {
    let parsed = match value {
        [b'@', name @ ..] => {
            return std::str::from_utf8(name).map_or(Reading::Missing, |name| store.get(name));
        }
        [b'{', ..] if value.is_ascii() => Card::parse(value),
        _ => URL_SAFE_NO_PAD
            .decode(value)
            .map_err(|_| CardFault::Encoding)
            .and_then(|json| Card::parse(&json)),
    };
    parsed.map_or_else(Reading::Malformed, |card| Reading::Card(Arc::new(card)))
}
