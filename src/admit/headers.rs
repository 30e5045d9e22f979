//! Which headers of the client go to the host, and which stay (contract, section 4).

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::Dropped;
use crate::card::is_card_key;
use crate::policy::{Credential, Host};

/// A listed header's value may have at most this many bytes.
const MAX_VALUE_BYTES: usize = 128;

/// The API key header beside `authorization`.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Headers that the message itself is made of, or that leafgate takes for itself: neither sent nor dropped.
const CONSUMED: [&str; 8] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "expect",
    "leafgate-card",
    "leafgate-token",
];

/// Header names that the record may show. A name outside this list is a place to hide bytes in, so it is only counted. Sorted.
const KNOWN: [&str; 62] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "api-key",
    "authorization",
    "b3",
    "baggage",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-md5",
    "cookie",
    "date",
    "dnt",
    "forwarded",
    "from",
    "http-referer",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "max-forwards",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "pragma",
    "prefer",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "sec-fetch-mode",
    "sec-fetch-site",
    "te",
    "traceparent",
    "tracestate",
    "user-agent",
    "via",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-goog-api-key",
    "x-http-method-override",
    "x-original-url",
    "x-promptfoo-version",
    "x-request-id",
    "x-rewrite-url",
    "x-stainless-arch",
    "x-stainless-async",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-title",
];

/// What goes to the host and what stays here.
#[derive(Debug)]
pub(super) struct SentHeaders {
    pub(super) send: Vec<(HeaderName, HeaderValue)>,
    pub(super) dropped: Dropped,
}

/// Sorts the client's headers. On a split nothing of the client's goes, and no credential of the client's either.
pub(super) fn for_host(client: &HeaderMap, host: &Host, release: bool) -> SentHeaders {
    let mut send = Vec::new();
    match &host.credential {
        Credential::None => {}
        Credential::Fixed { header, value, .. } => {
            // The policy checked at load that the secret is a legal header value.
            if let Ok(mut value) = HeaderValue::from_bytes(value.expose()) {
                value.set_sensitive(true);
                send.push((header.clone(), value));
            }
        }
        Credential::Client if release => {
            send.extend([AUTHORIZATION, API_KEY].into_iter().filter_map(|name| {
                let value = single(client, &name)
                    .filter(|value| !is_card_key(value.as_bytes()))?
                    .clone();
                Some((name, value))
            }));
        }
        Credential::Client => {}
    }
    if release {
        send.extend(host.headers.iter().filter_map(|rule| {
            let value = single(client, &rule.name)?;
            let passes = value.len() <= MAX_VALUE_BYTES && rule.pattern.is_match(value.as_bytes());
            passes.then(|| (rule.name.clone(), value.clone()))
        }));
    }
    let dropped = dropped(client, &send);
    SentHeaders { send, dropped }
}

/// The value of a header that stands exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn dropped(client: &HeaderMap, sent: &[(HeaderName, HeaderValue)]) -> Dropped {
    let mut dropped = Dropped::default();
    for (name, value) in client {
        let stays = !CONSUMED.contains(&name.as_str())
            && !sent
                .iter()
                .any(|(other, same)| other == name && same == value);
        match KNOWN.binary_search(&name.as_str()) {
            _ if !stays => {}
            Ok(known) => dropped.names.push(KNOWN[known]),
            Err(_) => dropped.other += 1,
        }
    }
    dropped.names.sort_unstable();
    dropped.names.dedup();
    dropped
}

#[cfg(test)]
mod tests {
    use super::KNOWN;

    #[test]
    fn known_names_are_sorted() {
        assert!(KNOWN.is_sorted());
    }
}
