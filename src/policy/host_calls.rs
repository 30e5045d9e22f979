//! What a call to a host may carry: credential, routes, headers, models, and the shape of a split.
//!
//! Promises: no header that leafgate or the connection owns can be let through; a pattern always stands for the whole value.

use http::{HeaderName, Method};
use regex::bytes::{Regex, RegexBuilder};
use toml::de::DeValue;

use super::model::{Credential, Envelope, HeaderRule, Route, SecretSource, SplitRoute};
use super::read::{Table, Value};
use super::settings::Sources;
use super::{secrets, url};
use crate::terms::is_plain_word;

const ROUTES: [&str; 6] = [
    "POST /chat/completions",
    "POST /completions",
    "POST /responses",
    "POST /embeddings",
    "POST /messages",
    "GET /models",
];
const SPLIT_ROUTE: &str = "/chat/completions";
/// The default of `headers`.
const ANTHROPIC_VERSION: &str = "[0-9]{4}-[0-9]{2}-[0-9]{2}";
const PATTERN_BYTES: usize = 1 << 20;

/// Names that no table may let through: framing and hop-by-hop (RFC 9110, section 7.6.1), routing, credentials, and what leafgate writes itself.
const OWNED: [&str; 27] = [
    "accept",
    "accept-encoding",
    "alt-svc",
    "authorization",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "origin",
    "range",
    "referer",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
];
const OWNED_PREFIXES: [&str; 5] = ["leafgate-", "content-", "proxy-", "sec-", "x-forwarded-"];
/// Of those, the names a credential may go in.
const FOR_CREDENTIALS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

fn is_owned(name: &str) -> bool {
    OWNED.contains(&name) || OWNED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a fault may show it: plain words with a `-` between, each with a capital or without.
fn usual_header(name: &str) -> bool {
    let plain = |word: &str| {
        let first = word.chars().next().map(|c| c.to_ascii_lowercase());
        is_plain_word(
            &first
                .into_iter()
                .chain(word.chars().skip(1))
                .collect::<String>(),
        )
    };
    name.len() <= 64 && name.split('-').all(plain)
}

/// A header name in lower case.
fn header_name(text: &str) -> Option<HeaderName> {
    let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
    lower
        .then(|| HeaderName::from_bytes(text.as_bytes()).ok())
        .flatten()
}

pub(super) fn credential(table: &Table<'_>, sources: &mut Sources) -> Credential {
    let Some(value) = table.get("credential") else {
        return Credential::None;
    };
    if let DeValue::String(word) = value.raw() {
        if word.as_ref() == "client" {
            return Credential::Client;
        }
        // Not quoted: it may be the secret itself.
        value.fault("not a credential; write \"client\", { env = \"NAME\" } or { file = \"PATH\" }, never the secret");
        return Credential::None;
    }
    fixed_credential(&value, sources).unwrap_or(Credential::None)
}

fn fixed_credential(value: &Value<'_>, sources: &mut Sources) -> Option<Credential> {
    let table = value.table(&["env", "file", "header", "scheme"])?;
    let header = match table.get("header") {
        None => Some(http::header::AUTHORIZATION),
        Some(value) => {
            let name = header_name(value.string()?);
            let name = name.filter(|name| {
                !is_owned(name.as_str()) || FOR_CREDENTIALS.contains(&name.as_str())
            });
            if name.is_none() {
                value.fault("not a header a credential may go in; write a lower-case name like authorization or x-api-key");
            }
            name
        }
    };
    let scheme = match table.get("scheme") {
        None => None,
        Some(value) => {
            let text = value.string()?;
            // A token, RFC 9110, section 11.1; HeaderName has the same alphabet.
            if HeaderName::from_bytes(text.as_bytes()).is_err() {
                value.fault("not a scheme; write one word, like \"Bearer\"");
                return None;
            }
            Some(text.to_owned())
        }
    };
    let found = secrets::from_table(&table)?;
    let secret = secrets::header_value(value, &found, scheme.as_deref())?;
    let before = scheme.as_ref().map_or(0, |scheme| scheme.len() + 1);
    let source = SecretSource {
        origin: found.origin,
        scheme,
    };
    sources.insert(value.key().to_owned(), source);
    Some(Credential::Fixed {
        header: header?,
        value: secret,
        scheme: before,
    })
}

pub(super) fn headers(table: &Table<'_>, credential: &Credential) -> Vec<HeaderRule> {
    let Some(names) = table.get("headers") else {
        let default = pattern(ANTHROPIC_VERSION).map(|pattern| HeaderRule {
            name: HeaderName::from_static("anthropic-version"),
            pattern,
        });
        return default.into_iter().collect();
    };
    let Some(names) = names.names() else {
        return Vec::new();
    };
    let rule = |(name, value): (&str, Value<'_>)| {
        let Some(name) = header_name(name) else {
            value.fault("not a header name; write it in lower case");
            return None;
        };
        if is_owned(name.as_str()) {
            value.fault("a header that leafgate or the connection owns; it cannot be let through");
            return None;
        }
        if matches!(credential, Credential::Fixed { header, .. } if *header == name) {
            value.fault("contradicts credential, which goes in this header; remove one of them");
            return None;
        }
        let pattern = pattern(value.string()?);
        if pattern.is_none() {
            value.fault("not a regular expression (syntax of the regex crate, without Unicode classes), or too large");
        }
        Some(HeaderRule {
            name,
            pattern: pattern?,
        })
    };
    names.entries(usual_header).filter_map(rule).collect()
}

/// The pattern, for the whole value. It must stand by itself first, else `a)|(?:b` would step out of the anchors.
fn pattern(text: &str) -> Option<Regex> {
    let compile = |text: &str| {
        RegexBuilder::new(text)
            .unicode(false)
            .size_limit(PATTERN_BYTES)
            .build()
            .ok()
    };
    compile(text)?;
    compile(&format!(r"\A(?:{text})\z"))
}

/// The pattern as the policy writes it.
pub(super) fn pattern_text(pattern: &Regex) -> &str {
    let text = pattern.as_str();
    text.strip_prefix(r"\A(?:")
        .and_then(|text| text.strip_suffix(r")\z"))
        .unwrap_or(text)
}

fn route(value: &Value<'_>) -> Option<Route> {
    match url::route(value.string()?) {
        Ok(route) => Some(route),
        Err(why) => {
            value.fault(format!("not a route: {why}"));
            None
        }
    }
}

pub(super) fn routes(table: &Table<'_>) -> Vec<Route> {
    let default = || {
        ROUTES
            .iter()
            .filter_map(|text| url::route(text).ok())
            .collect()
    };
    match table.get("routes") {
        None => default(),
        Some(value) => value.full_list(route).unwrap_or_default(),
    }
}

pub(super) fn models(table: &Table<'_>) -> Vec<String> {
    let list = table.get("models").and_then(|value| {
        value.list(|item| {
            let text = item.string()?;
            if !is_model(text) {
                item.fault("not a model name; write 1 to 128 bytes of printable ASCII");
                return None;
            }
            Some(text.to_owned())
        })
    });
    list.unwrap_or_default()
}

fn is_model(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| (0x20..=0x7e).contains(&b))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
}

pub(super) fn split(table: &Table<'_>) -> Option<SplitRoute> {
    let Some(value) = table.get("split") else {
        return Some(SplitRoute {
            path: SPLIT_ROUTE.to_owned(),
            envelope: Envelope::Bare,
        });
    };
    let table = value.table(&["envelope", "route", "model", "max_tokens"])?;
    let path = match table.get("route") {
        None => SPLIT_ROUTE.to_owned(),
        Some(value) => {
            let route = route(&value)?;
            if route.method != Method::POST {
                value.fault("a split is sent with POST; write \"POST /…\"");
                return None;
            }
            route.path
        }
    };
    let chat = match table.get("envelope") {
        None => false,
        Some(value) => value.choice(&[("bare", false), ("chat", true)])?,
    };
    if !chat {
        for name in ["model", "max_tokens"] {
            if let Some(value) = table.get(name) {
                value.fault(
                    "contradicts envelope = \"bare\"; write envelope = \"chat\", or remove it",
                );
            }
        }
        return Some(SplitRoute {
            path,
            envelope: Envelope::Bare,
        });
    }
    let max_tokens = match table.get("max_tokens") {
        None => None,
        Some(value) => Some(value.integer(1, 1_000_000)?),
    };
    let model = table.need("model")?;
    let text = model.string()?;
    if !is_model(text) {
        model.fault("not a model name; write 1 to 128 bytes of printable ASCII");
        return None;
    }
    Some(SplitRoute {
        path,
        envelope: Envelope::Chat {
            model: text.to_owned(),
            max_tokens,
        },
    })
}
