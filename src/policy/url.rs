//! `base_url`, `Host` values and route paths, taken apart strictly.
//!
//! Promises: what is read has one spelling (lower-case ASCII, no percent-encoding, no dot or empty segment), so that comparing bytes is
//! comparing meaning (RFC 3986, section 6.2). An error is a clause that says what to write; it never quotes the text.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::Method;

use super::model::{BaseUrl, Route};

/// Reads `base_url`.
pub(super) fn base_url(text: &str) -> Result<BaseUrl, &'static str> {
    let (tls, rest) = if let Some(rest) = text.strip_prefix("https://") {
        (true, rest)
    } else if let Some(rest) = text.strip_prefix("http://") {
        (false, rest)
    } else {
        return Err("must begin with https:// or http://, in lower case");
    };
    if rest.contains('@') {
        return Err("must not hold a user name or password; use credential");
    }
    if rest.contains(['?', '#']) {
        return Err("must not hold a query or fragment");
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (host, port) = host_and_port(authority)?;
    let path = path.strip_suffix('/').unwrap_or(path);
    if !path.is_empty() {
        clean_path(path)?;
    }
    let shown = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    let usual = if tls { 443 } else { 80 };
    let port = port.unwrap_or(usual);
    Ok(BaseUrl {
        tls,
        authority: if port == usual {
            shown
        } else {
            format!("{shown}:{port}")
        },
        host,
        port,
        path: path.to_owned(),
    })
}

/// `host[:port]`; the host comes without brackets.
pub(super) fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest
            .split_once(']')
            .ok_or("an IPv6 address needs a closing bracket")?;
        let address: Ipv6Addr = inside.parse().map_err(|_| "not an IPv6 address")?;
        if address.to_string() != inside {
            return Err("write the IPv6 address in its shortest lower-case form (RFC 5952)");
        }
        let port = match after {
            "" => None,
            after => Some(
                after
                    .strip_prefix(':')
                    .ok_or("after an IPv6 address comes :PORT or nothing")?,
            ),
        };
        (inside, port)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if !text.starts_with('[') {
        host_name(host)?;
    }
    let port = match port {
        None => None,
        Some(port) => Some(port_number(port)?),
    };
    Ok((host.to_owned(), port))
}

fn port_number(text: &str) -> Result<u16, &'static str> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain
        .then(|| text.parse().ok())
        .flatten()
        .ok_or("the port must be a number from 1 to 65535, without leading zeros")
}

/// A host name (RFC 1123, section 2.1) or an IPv4 address in its usual form.
fn host_name(host: &str) -> Result<(), &'static str> {
    if host.is_empty() || host.len() > 253 {
        return Err("needs a host name of 1 to 253 characters");
    }
    if host.ends_with('.') {
        return Err("the host name must not end in a dot");
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if !host.split('.').all(label) {
        return Err(
            "the host name must be lower-case ASCII: letters, digits, hyphens and single dots",
        );
    }
    // What ends in a number is an address to some readers (127.1, 0x7f.1): one spelling only.
    let last = host.rsplit('.').next().unwrap_or(host);
    let number_like = last.bytes().all(|b| b.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if number_like && host.parse::<Ipv4Addr>().is_err() {
        return Err("a host that ends in a number must be an IPv4 address of four decimal parts");
    }
    Ok(())
}

/// An absolute path of at least one segment, in its one spelling.
pub(super) fn clean_path(path: &str) -> Result<(), &'static str> {
    let Some(segments) = path.strip_prefix('/') else {
        return Err("the path must begin with /");
    };
    for segment in segments.split('/') {
        if segment.is_empty() {
            return Err("the path must not hold an empty segment");
        }
        if segment == "." || segment == ".." {
            return Err("the path must not hold a dot segment");
        }
        let unreserved_or_delimiter =
            |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&b);
        if !segment.bytes().all(unreserved_or_delimiter) {
            return Err(
                "the path must be plain ASCII: nothing percent-encoded, no query or fragment",
            );
        }
    }
    Ok(())
}

/// `GET /x` or `POST /x`.
pub(super) fn route(text: &str) -> Result<Route, &'static str> {
    let (method, path) = text
        .split_once(' ')
        .ok_or("write METHOD, one space and the path, like \"POST /chat/completions\"")?;
    let method = match method {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => return Err("the method must be GET or POST"),
    };
    clean_path(path)?;
    Ok(Route {
        method,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::base_url;

    /// Every URL, host name and label of four public suites, as `tests/host_strings/README.md` says.
    const STRINGS: &str = include_str!("../../tests/host_strings/strings.jsonl");

    #[test]
    fn a_host_is_read_as_it_is_written_or_not_at_all() {
        let (mut taken, mut refused) = (0, 0);
        for line in STRINGS.lines() {
            let text: String = serde_json::from_str(line).unwrap();
            for url in [
                text.clone(),
                format!("https://{text}"),
                format!("https://{text}/v1"),
                format!("https://{text}:8443/v1"),
                format!("https://{}/v1", text.to_uppercase()),
                format!("https://{text}./v1"),
                format!("https://x@{text}/v1"),
                format!("https://example.org{text}/v1"),
                format!("https://{text}example.org/v1"),
            ] {
                let Ok(base) = base_url(&url) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                let rest = url.strip_prefix("https://").or(url.strip_prefix("http://"));
                let authority = rest.unwrap().split('/').next().unwrap();
                let (host, port) = match authority.strip_prefix('[') {
                    Some(inside) => inside.split_once(']').unwrap(),
                    None => match authority.find(':') {
                        Some(at) => authority.split_at(at),
                        None => (authority, ""),
                    },
                };
                assert_eq!(base.host, host, "{url:?}");
                let usual = if base.tls { 443 } else { 80 };
                let port = port
                    .strip_prefix(':')
                    .map_or(usual, |port| port.parse().unwrap());
                assert_eq!(base.port, port, "{url:?}");
                let plain =
                    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b);
                assert!(host.bytes().all(plain) && !host.ends_with('.'), "{url:?}");
                assert!(url.is_ascii(), "{url:?}");
            }
        }
        println!("{taken} taken as they are, {refused} refused");
        assert!(taken > 4_000 && refused > 60_000, "{taken} {refused}");
    }
}
