//! Who may ask the admin listener: a client that named this listener itself, and no page of another origin.

use std::net::SocketAddr;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Request};

/// Says why a request gets nothing.
///
/// # Errors
/// One line for the person: `Host` is absent, stands twice or is not this listener's; the target is in absolute form; `Origin` is another;
/// `Sec-Fetch-Site` says that another site asked.
pub(super) fn check<B>(request: &Request<B>, bound: SocketAddr) -> Result<(), &'static str> {
    let names = names(bound);
    let own = |value: &str| names.iter().any(|name| value.eq_ignore_ascii_case(name));
    if request.uri().authority().is_some() {
        return Err("leafgate: this is no proxy; ask with the path alone\n");
    }
    let host = only(request.headers(), &HOST);
    if !matches!(host, One(value) if own(value)) {
        return Err(
            "leafgate: Host is not this listener's; use its address, or localhost, with the port\n",
        );
    }
    match only(request.headers(), &ORIGIN) {
        None => {}
        One(origin) if origin.strip_prefix("http://").is_some_and(own) => {}
        One(_) | Many => {
            return Err("leafgate: Origin is another; nothing is shown to other pages\n");
        }
    }
    match only(
        request.headers(),
        &HeaderName::from_static("sec-fetch-site"),
    ) {
        None | One("none" | "same-origin") => Ok(()),
        One(_) | Many => Err("leafgate: another site asked; open the address yourself\n"),
    }
}

fn names(bound: SocketAddr) -> [String; 4] {
    let port = bound.port();
    [
        bound.to_string(),
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ]
}

enum Only<'a> {
    None,
    One(&'a str),
    /// Two, or one that is no visible ASCII.
    Many,
}
use Only::{Many, None, One};

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Only<'a> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Option::None, _) => None,
        (Some(value), Option::None) => value.to_str().map_or(Many, One),
        (Some(_), Some(_)) => Many,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(
            &request.body(()).unwrap(),
            "127.0.0.1:8485".parse().unwrap(),
        )
        .is_ok()
    }

    #[test]
    fn its_own_names_pass_and_every_other_is_refused() {
        for host in [
            "127.0.0.1:8485",
            "localhost:8485",
            "LOCALHOST:8485",
            "[::1]:8485",
        ] {
            assert!(asked("/", &[("host", host)]), "{host}");
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:8484",
            "evil.example:8485",
            "localhost",
            "",
        ] {
            assert!(!asked("/", &[("host", host)]), "{host}");
        }
        assert!(!asked("/", &[]));
        assert!(!asked(
            "/",
            &[("host", "localhost:8485"), ("host", "localhost:8485")]
        ));
        assert!(!asked(
            "http://localhost:8485/",
            &[("host", "localhost:8485")]
        ));
    }

    #[test]
    fn another_origin_is_refused_and_its_own_passes() {
        let host = ("host", "localhost:8485");
        assert!(asked("/", &[host, ("origin", "http://localhost:8485")]));
        assert!(asked("/", &[host, ("sec-fetch-site", "same-origin")]));
        for origin in [
            "https://evil.example",
            "null",
            "https://localhost:8485",
            "http://localhost:1",
        ] {
            assert!(!asked("/", &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "x"] {
            assert!(!asked("/", &[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
