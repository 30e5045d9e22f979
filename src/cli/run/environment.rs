//! The environment of the command: where leafgate is, and nothing that points elsewhere.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::doctor;
use super::way::Way;
use crate::policy::{Origin, Policy};

/// Where a client library looks for its base URL, and whether `/v1` is part of it.
const BASES: [(&str, &str); 3] = [
    ("OPENAI_BASE_URL", "/v1"),
    ("OPENAI_API_BASE", "/v1"),
    ("ANTHROPIC_BASE_URL", ""),
];
/// Client libraries do not start without one of these.
const NEEDED: [&str; 2] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
/// Where client libraries look for roots.
const ROOTS: [&str; 3] = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"];

/// One change: set, or removed.
pub(super) type Change = (OsString, Option<OsString>);

/// The variables that hold leafgate's own secrets; without the token, which is the client's as well.
pub(super) fn secret(policy: &Policy) -> BTreeSet<&OsStr> {
    let own = policy
        .secrets
        .iter()
        .filter(|&(key, _)| key != "listen.token");
    own.filter_map(|(_, secret)| match &secret.origin {
        Origin::Env(name) => Some(OsStr::new(name)),
        Origin::File(_) => None,
    })
    .collect()
}

/// The keys of hosts.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    /// `--keep-env`: they stay.
    pub(super) keep: bool,
    /// Variables that hold one, whatever it looks like.
    pub(super) secret: BTreeSet<&'a OsStr>,
}

/// What to change in this environment.
pub(super) fn changes(
    variables: &[(OsString, OsString)],
    way: &Way,
    card: Option<&str>,
    ca: Option<&Path>,
    keys: &Keys<'_>,
) -> Vec<Change> {
    let secret = |name: &OsStr| !keys.keep && keys.secret.contains(name);
    let mut changes: Vec<Change> = Vec::new();
    let mut set = |name: &str, value: &OsStr| changes.push((name.into(), Some(value.into())));
    let base = way.base(card);
    for (name, path) in BASES {
        set(name, format!("{base}{path}").as_ref());
    }
    // The listener has the address in there, whatever it is.
    let excepted = format!("{},localhost", way.address.ip());
    for name in ["NO_PROXY", "no_proxy"] {
        set(name, excepted.as_ref());
    }
    let value = |name: &str| variables.iter().find(|(own, _)| own == name);
    if let Some(own) = &way.tls {
        for name in ROOTS {
            match ca {
                Some(ca) => set(name, ca.as_os_str()),
                // What the user has set is right more often than the chain itself, which is a root only where it signed itself.
                None if value(name).is_none() => set(name, own.as_os_str()),
                None => {}
            }
        }
    }
    for name in NEEDED {
        let kept = value(name).is_some_and(|(_, value)| {
            let text = value.to_string_lossy();
            // A card in the key would be the second of the call.
            let second = card.is_some() && text.starts_with("card:");
            !text.is_empty()
                && !second
                && !secret(name.as_ref())
                && (keys.keep || !doctor::is_key(&text))
        });
        if !kept {
            set(name, "unused".as_ref());
        }
    }
    for (name, value) in variables {
        let text = name.to_string_lossy();
        let proxy = text.to_ascii_lowercase().ends_with("_proxy");
        let key = !keys.keep
            && doctor::KEYS.contains(&&*text)
            && doctor::is_key(&value.to_string_lossy());
        let set = changes.iter().any(|(own, _)| own == name);
        if !set && (proxy || key || secret(name)) {
            changes.push((name.clone(), None));
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KEY: &str = "sk-0123456789abcdef0123";

    fn after(
        before: &[(&str, &str)],
        card: Option<&str>,
        tls: bool,
        keep: bool,
    ) -> BTreeMap<String, String> {
        let variables: Vec<(OsString, OsString)> = before
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect();
        let way = Way {
            address: "127.0.0.1:8484".parse().unwrap(),
            tls: tls.then(|| "/own.pem".into()),
        };
        let mut all: BTreeMap<String, String> = before
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let keys = Keys {
            keep,
            secret: ["EXAMPLE_KEY", "ANTHROPIC_API_KEY"].map(OsStr::new).into(),
        };
        for (name, value) in changes(&variables, &way, card, None, &keys) {
            let name = name.into_string().unwrap();
            match value {
                Some(value) => all.insert(name, value.into_string().unwrap()),
                None => all.remove(&name),
            };
        }
        all
    }

    #[test]
    fn base_urls_point_here_and_proxies_are_gone() {
        let proxies = ["http_proxy", "HTTPS_PROXY", "ALL_PROXY", "ftp_proxy"];
        let mut before: Vec<_> = proxies.map(|name| (name, "http://p:1")).to_vec();
        before.extend([("OPENAI_BASE_URL", "https://elsewhere"), ("PATH", "/bin")]);
        let all = after(&before, None, false, false);
        assert_eq!(all["OPENAI_BASE_URL"], "http://127.0.0.1:8484/v1");
        assert_eq!(all["ANTHROPIC_BASE_URL"], "http://127.0.0.1:8484");
        assert_eq!(all["no_proxy"], "127.0.0.1,localhost");
        assert_eq!(all["PATH"], "/bin");
        assert!(proxies.iter().all(|&name| !all.contains_key(name)));
        assert!(!all.contains_key("SSL_CERT_FILE"));
        let all = after(&before, Some("seed-04"), false, false);
        assert_eq!(
            all["OPENAI_API_BASE"],
            "http://127.0.0.1:8484/card/seed-04/v1"
        );
    }

    #[test]
    fn keys_stay_outside_unless_asked_for() {
        let before = [("OPENAI_API_KEY", KEY), ("GROQ_API_KEY", KEY)];
        let all = after(&before, None, false, false);
        assert_eq!(all["OPENAI_API_KEY"], "unused");
        assert_eq!(all["ANTHROPIC_API_KEY"], "unused");
        assert!(!all.contains_key("GROQ_API_KEY"));
        let all = after(&before, None, false, true);
        assert_eq!((&*all["OPENAI_API_KEY"], &*all["GROQ_API_KEY"]), (KEY, KEY));
    }

    #[test]
    fn what_the_policy_names_as_a_secret_stays_outside_however_short() {
        let before = [("EXAMPLE_KEY", "short"), ("ANTHROPIC_API_KEY", "short")];
        let all = after(&before, None, false, false);
        assert!(!all.contains_key("EXAMPLE_KEY"));
        assert_eq!(all["ANTHROPIC_API_KEY"], "unused");
        let all = after(&before, None, false, true);
        assert!(before.iter().all(|&(name, value)| all[name] == value));
    }

    #[test]
    fn a_call_gets_no_second_card() {
        let before = [("OPENAI_API_KEY", "card:other")];
        assert_eq!(
            after(&before, None, false, false)["OPENAI_API_KEY"],
            "card:other"
        );
        for keep in [false, true] {
            let all = after(&before, Some("seed-04"), false, keep);
            assert_eq!(all["OPENAI_API_KEY"], "unused");
        }
    }

    #[test]
    fn roots_are_named_only_where_leafgate_speaks_tls() {
        let all = after(&[("SSL_CERT_FILE", "/mine.pem")], None, true, false);
        assert_eq!(all["SSL_CERT_FILE"], "/mine.pem");
        assert_eq!(all["NODE_EXTRA_CA_CERTS"], "/own.pem");
        assert_eq!(all["OPENAI_BASE_URL"], "https://127.0.0.1:8484/v1");
    }
}
