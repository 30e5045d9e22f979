//! The variables that decide where a client sends its calls.

use http::Uri;

use super::Finding;
use crate::files::shell_word;
use crate::policy::{Policy, ProxyAddress};
use crate::terms::CardName;

/// Variables that name a proxy for `http://` URLs; a client that reads them sends the whole call, key and body, to that proxy.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Base URLs by other names than `…_BASE_URL`.
const BASES: [&str; 6] = [
    "OPENAI_API_BASE",
    "OPENAI_API_BASE_URL",
    "OPENAI_API_HOST",
    "ANTHROPIC_API_URL",
    "AZURE_OPENAI_ENDPOINT",
    "OLLAMA_HOST",
];
/// Keys with which a client that misses its base URL reaches a host.
pub(in crate::cli) const KEYS: [&str; 10] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
];

pub(super) fn findings(
    variables: &[(String, String)],
    policy: &Policy,
    tunnel_to: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let listener = &policy.listen.proxy;
    let value = |name: &str| {
        let found = variables.iter().find(|(own, _)| own == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    };
    let mut found = proxies(&value, listener);
    // Where the client's proxy for https is leafgate, a base URL of a host with a tunnel leads to it.
    let tunnels = ["HTTPS_PROXY", "https_proxy"]
        .iter()
        .any(|name| value(name).is_some_and(|url| is_listener(url, listener)));
    found.extend(bases(variables, listener, &|url| {
        tunnels && authority(url).is_some_and(|authority| tunnel_to(&authority))
    }));
    if policy.intercept.is_some() {
        let hosts: Vec<&str> = policy
            .hosts
            .values()
            .filter(|host| host.base.tls)
            .map(|host| host.base.host.as_str())
            .collect();
        found.extend(past_the_tunnel(&value, listener, &hosts));
    }
    found.extend(paths(variables, policy));
    found.extend(keys(&value));
    found
}

/// With `[intercept]`: what leads a client's `https` calls for the policy's hosts past leafgate.
fn past_the_tunnel<'a>(
    value: &impl Fn(&str) -> Option<&'a str>,
    listener: &ProxyAddress,
    hosts: &[&str],
) -> Vec<Finding> {
    let own = origin(listener);
    let mut found = Vec::new();
    for name in ["HTTPS_PROXY", "https_proxy"] {
        if value(name).is_some_and(|url| !is_listener(url, listener)) {
            found.push(Finding::new(
                format!("{name} is not leafgate"),
                "an https:// call for a host of the policy goes to that proxy, and [intercept] never sees it",
                format!("export {name}={own}"),
            ));
        }
    }
    for name in ["NO_PROXY", "no_proxy"] {
        let items = value(name).map(|list| list.split(',').map(str::trim));
        let excepted = |item: &str| {
            let item = item.trim_start_matches("*.").trim_start_matches('.');
            let under = |host: &&str| {
                host.strip_suffix(item)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            item == "*" || !item.is_empty() && hosts.iter().any(under)
        };
        if items.into_iter().flatten().any(excepted) {
            found.push(Finding::new(
                format!("{name} excepts a host of the policy"),
                "an https:// call for it goes there straight, and [intercept] never sees it",
                format!("take the policy's hosts out of {name}"),
            ));
        }
    }
    found
}

fn proxies<'a>(value: &impl Fn(&str) -> Option<&'a str>, listener: &ProxyAddress) -> Vec<Finding> {
    let excepted = ["NO_PROXY", "no_proxy"]
        .iter()
        .any(|name| value(name).is_some_and(|list| is_excepted(list, listener)));
    if excepted {
        return Vec::new();
    }
    let host = host(listener);
    // A proxy variable that names leafgate itself is its forward-proxy mode.
    let elsewhere = |name: &&&str| value(name).is_some_and(|url| !is_listener(url, listener));
    let named = PROXIES.iter().filter(elsewhere);
    named
        .map(|name| {
            Finding::new(
                format!("{name} is set"),
                "most Python clients send an http:// call, key and body in clear, to that proxy, also where the base URL is on loopback: leafgate never sees it",
                format!("unset {name}, or export NO_PROXY={host},localhost (the exact host of the base URL; a network is not enough)"),
            )
        })
        .collect()
}

/// The host of a base URL that names the listener.
fn host(listener: &ProxyAddress) -> String {
    listener
        .tcp()
        .map_or_else(|| "localhost".to_owned(), |tcp| tcp.ip().to_string())
}

/// Whether a `NO_PROXY` list names both spellings of the listener that a base URL may have.
fn is_excepted(list: &str, listener: &ProxyAddress) -> bool {
    let items: Vec<&str> = list.split(',').map(str::trim).collect();
    items.contains(&"*") || items.contains(&host(listener).as_str())
}

/// `http://127.0.0.1:8484`; a socket has no address, and a base URL over it says `localhost`.
fn origin(listener: &ProxyAddress) -> String {
    listener.tcp().map_or_else(
        || "http://localhost".to_owned(),
        |tcp| format!("http://{tcp}"),
    )
}

fn is_base(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    BASES.contains(&upper.as_str()) || upper.ends_with("_BASE_URL") || upper.ends_with("_API_BASE")
}

/// Base URLs that lead to the listener, and there to no place or to a card that is not in the folder.
fn paths(variables: &[(String, String)], policy: &Policy) -> Vec<Finding> {
    let listener = &policy.listen.proxy;
    let origin = origin(listener);
    let here = variables
        .iter()
        .filter(|(name, value)| is_base(name) && is_listener(value, listener));
    here.filter_map(|(name, value)| {
        let uri: Uri = value.trim().parse().ok()?;
        let parts: Vec<&str> = uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        // Anthropic's clients add /v1 themselves.
        let adds = name.to_ascii_uppercase().starts_with("ANTHROPIC");
        let (card, rest) = match parts.as_slice() {
            ["card", card, rest @ ..] => (Some(*card), rest),
            rest => (None, rest),
        };
        let right = if adds {
            rest.is_empty()
        } else {
            rest.first() == Some(&"v1")
        };
        if !right {
            let v1 = if adds { "" } else { "/v1" };
            return Some(Finding::new(
                format!("the path of {name} is no base URL of leafgate"),
                "each call of a client that reads it ends 404 or route_not_allowed",
                format!("export {name}={origin}{v1}, or {origin}/card/NAME{v1}"),
            ));
        }
        let card = CardName::parse(card?)?;
        let file = policy.cards_dir.join(format!("{card}.json"));
        (!file.exists()).then(|| {
            Finding::new(
                format!(
                    "{name} names the card {card}, and {} is not there",
                    file.display()
                ),
                "each call of a client that reads it ends card_missing",
                format!("leafgate card new --out {}", shell_word(&file)),
            )
        })
    })
    .collect()
}

/// `host:port` of an https URL.
fn authority(url: &str) -> Option<String> {
    let uri: Uri = url.trim().parse().ok()?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?;
    Some(format!("{host}:{}", uri.port_u16().unwrap_or(443)))
}

fn bases(
    variables: &[(String, String)],
    listener: &ProxyAddress,
    tunnelled: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let elsewhere = variables.iter().filter(|(name, value)| {
        is_base(name) && !value.is_empty() && !is_listener(value, listener) && !tunnelled(value)
    });
    let base = format!("{}/card/NAME/v1", origin(listener));
    let over = listener
        .unix()
        .map_or("", |_| ", over the socket of listen.proxy");
    elsewhere
        .map(|(name, value)| {
            Finding::new(
                format!("{name} points to {}, not to leafgate", place(value)),
                "a client that reads it sends its calls there: no card, no decision, no record",
                format!(
                    "export {name}={base} (without /v1 for clients that add it){over}, or unset it"
                ),
            )
        })
        .collect()
}

/// Host and port of a web URL, never its user part or query; nothing of what is no web URL: it may be a key.
fn place(url: &str) -> String {
    let uri: Option<Uri> = url.trim().parse().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let host = uri.as_ref().and_then(|uri| {
        let port = uri
            .port()
            .map_or_else(String::new, |port| format!(":{port}"));
        uri.host().map(|host| format!("{host}{port}"))
    });
    host.unwrap_or_else(|| "something that is no URL".to_owned())
}

fn is_listener(url: &str, listener: &ProxyAddress) -> bool {
    let Ok(uri) = url.trim().parse::<Uri>() else {
        return false;
    };
    let port = uri.port_u16().unwrap_or(80);
    let Some(host) = uri.host() else { return false };
    let host = host.trim_matches(['[', ']']);
    let local = host.eq_ignore_ascii_case("localhost");
    let Some(own) = listener.tcp() else {
        return local && port == 80;
    };
    let same = host.parse::<std::net::IpAddr>().map_or_else(
        |_| local && own.ip().is_loopback(),
        |ip| ip == own.ip() || (own.ip().is_unspecified() && ip.is_loopback()),
    );
    same && port == own.port()
}

/// `card:NAME` is an attachment, and `unused` and its like open no door; a short value is no key.
pub(in crate::cli) fn is_key(value: &str) -> bool {
    !value.starts_with("card:") && value.len() >= 16
}

fn keys<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Vec<Finding> {
    KEYS.iter()
        .filter(|name| value(name).is_some_and(is_key))
        .map(|name| {
            Finding::new(
                format!("{name} holds a key in this shell"),
                "a client that misses its base URL reaches the host itself with it, past leafgate",
                format!("give the key to leafgate alone (credential = {{ env = \"{name}\" }} in the policy, set where serve runs) and {name}=card:NAME to the client"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(variables: &[(&str, &str)]) -> Vec<String> {
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut policy = Policy::embedded();
        policy.cards_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/no/such/folder").into();
        let found = findings(&variables, &policy, &|authority| {
            authority == "models.example.org:443"
        });
        for finding in &found {
            let text = format!("{finding:?}");
            assert!(!text.contains("sk-") && !text.contains("secret"), "{text}");
        }
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_proxy_is_found_unless_the_listener_is_excepted() {
        let proxy = ("HTTP_PROXY", "http://secret@proxy:3128");
        assert_eq!(whats(&[proxy]), ["HTTP_PROXY is set"]);
        assert_eq!(
            whats(&[("ALL_PROXY", "socks5://p:1"), ("http_proxy", "x")]),
            ["http_proxy is set", "ALL_PROXY is set"]
        );
        for good in ["127.0.0.1,localhost", "a, 127.0.0.1", "*"] {
            assert_eq!(whats(&[proxy, ("NO_PROXY", good)]), [""; 0], "{good}");
        }
        for bad in ["localhost", "127.0.0.0/8", "127.0.0.11", ""] {
            assert_eq!(whats(&[proxy, ("NO_PROXY", bad)]).len(), 1, "{bad}");
        }
        let own = ("HTTP_PROXY", "http://127.0.0.1:8484");
        assert_eq!(whats(&[own]), [""; 0], "leafgate is the proxy");
        // An https proxy is not used for an http base URL.
        assert_eq!(
            whats(&[("HTTPS_PROXY", "http://p:1"), ("HTTP_PROXY", "")]),
            [""; 0]
        );
    }

    #[test]
    fn a_base_url_that_points_elsewhere_is_found_by_host_alone() {
        for good in [
            "http://127.0.0.1:8484/v1",
            "http://localhost:8484/v1/",
            "http://127.0.0.1:8484/v1/chat/completions",
        ] {
            assert_eq!(
                whats(&[("OPENAI_BASE_URL", good), ("LEAF_BASE_URL", good)]),
                [""; 0]
            );
        }
        assert_eq!(
            whats(&[(
                "OPENAI_BASE_URL",
                "https://user:secret@api.openai.com/v1?k=sk-1"
            )]),
            ["OPENAI_BASE_URL points to api.openai.com, not to leafgate"]
        );
        assert_eq!(
            whats(&[
                ("GROQ_BASE_URL", "http://127.0.0.1:8485/v1"),
                ("OPENAI_API_BASE", "sk-1")
            ])
            .len(),
            2
        );
    }

    #[test]
    fn a_base_url_that_leads_to_no_place_or_card_here_is_found() {
        let at = |name, path: &str| whats(&[(name, &format!("http://127.0.0.1:8484{path}"))]);
        for path in ["", "/", "/card/a", "/V1", "/chat/completions"] {
            assert!(
                at("OPENAI_BASE_URL", path)[0].ends_with("is no base URL of leafgate"),
                "{path}"
            );
        }
        assert_eq!(at("ANTHROPIC_BASE_URL", ""), [""; 0]);
        assert_eq!(at("ANTHROPIC_BASE_URL", "/v1").len(), 1);
        assert!(at("OPENAI_BASE_URL", "/card/a/v1")[0].contains("names the card a, and "));
    }

    #[test]
    fn a_base_url_of_a_host_with_a_tunnel_is_none_where_leafgate_is_the_proxy() {
        let ours = ("HTTPS_PROXY", "http://127.0.0.1:8484");
        let base = ("OPENAI_BASE_URL", "https://models.example.org/v1");
        assert_eq!(whats(&[ours, base]), [""; 0]);
        assert_eq!(whats(&[base]).len(), 1, "it goes straight there");
        assert_eq!(whats(&[("https_proxy", "http://p:3128"), base]).len(), 1);
        for other in [
            "https://models.example.org:8443/v1",
            "http://models.example.org:443/v1",
            "https://example.org/v1",
        ] {
            assert_eq!(whats(&[ours, ("OPENAI_BASE_URL", other)]).len(), 1);
        }
    }

    #[test]
    fn with_tunnels_a_proxy_that_is_not_leafgate_and_an_exception_are_found() {
        let listener = Policy::embedded().listen.proxy;
        let whats = |variables: &[(&str, &'static str)]| -> Vec<String> {
            let value = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| *value)
            };
            past_the_tunnel(&value, &listener, &["models.example.org"])
                .into_iter()
                .map(|finding| finding.what)
                .collect()
        };
        let ours = ("HTTPS_PROXY", "http://127.0.0.1:8484");
        assert_eq!(whats(&[ours, ("NO_PROXY", "127.0.0.1,other.org")]), [""; 0]);
        assert_eq!(
            whats(&[("https_proxy", "http://p:3128")]),
            ["https_proxy is not leafgate"]
        );
        for list in [
            "models.example.org",
            "x, .example.org",
            "*",
            "*.example.org",
        ] {
            assert_eq!(
                whats(&[ours, ("NO_PROXY", list)]),
                ["NO_PROXY excepts a host of the policy"],
                "{list}"
            );
        }
        assert_eq!(whats(&[ours, ("no_proxy", "le.org")]), [""; 0]);
    }

    #[test]
    fn a_key_in_the_shell_is_found_and_never_shown() {
        assert_eq!(
            whats(&[("OPENAI_API_KEY", "sk-0123456789abcdef0123")]),
            ["OPENAI_API_KEY holds a key in this shell"]
        );
        for good in ["card:seed-04-and-a-long-name", "unused", "x"] {
            assert_eq!(whats(&[("OPENAI_API_KEY", good)]), [""; 0]);
        }
    }
}
