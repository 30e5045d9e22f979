//! The API root in a path (contract, section 5): `/v1`, or `/card/NAME/v1`.

/// How the path names the API.
pub(super) enum Path<'a> {
    Api {
        rest: &'a str,
        card: Option<&'a str>,
    },
    Elsewhere,
}

/// The API root is `/v1`, or `/card/NAME/v1`.
pub(super) fn split_path(path: &str) -> Path<'_> {
    let (card, rest) = match path.strip_prefix("/card/") {
        Some(named) => match named.split_once('/') {
            Some((name, _)) => (Some(name), &named[name.len()..]),
            None => return Path::Elsewhere,
        },
        None => (None, path),
    };
    match rest.strip_prefix("/v1") {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => Path::Api { rest, card },
        Some(_) | None => Path::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, split_path};

    #[test]
    fn the_api_root_is_found_and_nothing_beside_it() {
        for (path, want) in [
            ("/v1/chat/completions", Some(("/chat/completions", None))),
            (
                "/card/seed-04/v1/messages",
                Some(("/messages", Some("seed-04"))),
            ),
            ("/v1?x=1", Some(("?x=1", None))),
            ("/v1", Some(("", None))),
            ("/card//v1/models", Some(("/models", Some("")))),
            ("/chat/completions", None),
            ("/v1files", None),
            ("/card/a/b/v1/models", None),
            ("/card/v1", None),
            ("/%76%31/models", None),
            ("/", None),
        ] {
            let got = match split_path(path) {
                Path::Api { rest, card } => Some((rest, card)),
                Path::Elsewhere => None,
            };
            assert_eq!(got, want, "{path}");
        }
    }
}
