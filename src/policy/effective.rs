//! The effective policy as JSON, and its hash.
//!
//! Promises: every value after defaults is in it under the name that the policy file uses; a secret is not, only where it comes from. Paths
//! are shown as the policy writes them, so the same policy has the same hash wherever it stands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::host_calls::pattern_text;
use super::model::{
    Addresses, Credential, Envelope, Host, Origin, Policy, ProxyAddress, SecretSource,
};
use super::units::duration_text;

impl Policy {
    /// The effective policy as JSON, no secret in it: what `policy check` prints and `hash` is made of.
    pub fn effective(&self) -> Value {
        let limits = &self.limits;
        let hosts: Map<String, Value> = self
            .hosts
            .iter()
            .map(|(pin, host)| (pin.as_str().to_owned(), self.effective_host(host)))
            .collect();
        json!({
            "version": 1,
            "listen": self.effective_listen(),
            "cards": { "dir": self.shown(&self.cards_dir) },
            "fixtures": {
                "lock": self.shown(&self.fixtures.lock),
                "hmac_key": self.secret("fixtures.hmac_key"),
            },
            "ledger": {
                "dir": self.shown(&self.ledger.dir),
                "segment_bytes": self.ledger.segment_bytes,
                "checkpoint_every": duration_text(self.ledger.checkpoint_every),
                "checkpoint_copy": self.ledger.checkpoint_copy.as_deref().map(|path| self.shown(path)),
                "sync": self.ledger.sync.name(),
            },
            "pins": { "max_age": duration_text(self.pin_max_age), "placeholders": self.placeholders },
            "split": {
                "failure_labels": self.failure_labels.iter().map(|label| label.as_str()).collect::<Vec<_>>(),
            },
            "answers": { "refused": self.refused_status },
            "limits": {
                "head": limits.head,
                "body": limits.body,
                "in_flight": limits.in_flight,
                "in_flight_bytes": limits.in_flight_bytes,
                "client_head": duration_text(limits.client_head),
                "client_body": duration_text(limits.client_body),
                "connect": duration_text(limits.connect),
                "first_byte": duration_text(limits.first_byte),
                "idle": duration_text(limits.idle),
                "shutdown": duration_text(limits.shutdown),
            },
            "resolver": { "servers": self.resolvers.iter().map(ToString::to_string).collect::<Vec<_>>() },
            "intercept": self.intercept.as_ref().map(|intercept| {
                json!({ "ca": self.shown(&intercept.ca), "key": self.shown(&intercept.key) })
            }),
            "hosts": hosts,
        })
    }

    fn effective_listen(&self) -> Value {
        let listen = &self.listen;
        let tls = listen.tls.as_ref().map(|tls| {
            json!({
                "cert": self.shown(&tls.cert),
                "key": self.shown(&tls.key),
                "client_ca": tls.client_ca.as_deref().map(|path| self.shown(path)),
            })
        });
        json!({
            "proxy": match &listen.proxy {
                ProxyAddress::Tcp(address) => address.to_string(),
                ProxyAddress::Unix(path) => format!("unix:{}", self.shown(path)),
            },
            "admin": listen.admin.to_string(),
            "names": listen.names,
            "tls": tls,
            "token": self.secret("listen.token"),
        })
    }

    fn effective_host(&self, host: &Host) -> Value {
        let scheme = if host.base.tls { "https" } else { "http" };
        let headers: Map<String, Value> = host
            .headers
            .iter()
            .map(|rule| {
                (
                    rule.name.as_str().to_owned(),
                    pattern_text(&rule.pattern).into(),
                )
            })
            .collect();
        let spki = |key: &[u8; 32]| {
            format!(
                "sha256/{}",
                base64::engine::general_purpose::STANDARD.encode(key)
            )
        };
        json!({
            "base_url": format!("{scheme}://{}{}", host.base.authority, host.base.path),
            "source": host.source,
            "copied_at": host.copied_at.map(|moment| moment.to_string()),
            "max_age": host.max_age.map(duration_text),
            "credential": self.effective_credential(host),
            "addresses": addresses(&host.addresses),
            "resolve": host.resolve.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "ca": host.ca.as_deref().map(|path| self.shown(path)),
            "spki": host.spki.iter().map(spki).collect::<Vec<_>>(),
            "routes": host.routes.iter().map(|route| format!("{} {}", route.method, route.path)).collect::<Vec<_>>(),
            "headers": headers,
            "split": split(host),
            "models": host.models,
            "bind": host.bind.name(),
            "vocabulary": host.vocabularies.added().collect::<BTreeMap<_, _>>(),
            // Written `cover` or `exact` turns the fixture checks on (contract, section 3), so it is a value of its own.
            "checks_fixture": host.checks_fixture(),
            "clear_text": host.clear_text,
        })
    }

    fn effective_credential(&self, host: &Host) -> Value {
        match &host.credential {
            Credential::None => Value::Null,
            Credential::Client => "client".into(),
            Credential::Fixed { header, .. } => {
                let key = credential_key(host);
                let mut source = self.secret(&key);
                if let Value::Object(map) = &mut source {
                    map.insert("header".to_owned(), header.as_str().into());
                    if let Some(scheme) = self.secrets.get(&key).and_then(|s| s.scheme.clone()) {
                        map.insert("scheme".to_owned(), scheme.into());
                    }
                }
                source
            }
        }
    }

    fn secret(&self, key: &str) -> Value {
        self.secrets
            .get(key)
            .map_or(Value::Null, |source| self.origin(source))
    }

    fn origin(&self, source: &SecretSource) -> Value {
        match &source.origin {
            Origin::Env(name) => json!({ "env": name }),
            Origin::File(path) => json!({ "file": self.shown(path) }),
        }
    }

    /// The path as the policy writes it: relative to the policy's folder where it was.
    fn shown(&self, path: &Path) -> String {
        let base = self.file.as_deref().and_then(Path::parent);
        let path = base
            .and_then(|base| path.strip_prefix(base).ok())
            .unwrap_or(path);
        path.to_string_lossy().into_owned()
    }

    /// SHA-256, lower-case hex, of the canonical effective policy.
    pub(super) fn effective_hash(&self) -> String {
        let mut text = String::new();
        canonical(&self.effective(), &mut text);
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(text.as_bytes()) {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }
}

/// The dotted key of a host's credential, quoted as a fault quotes it.
fn credential_key(host: &Host) -> String {
    let pin = host.pin.as_str();
    if pin.contains('.') {
        format!("hosts.\"{pin}\".credential")
    } else {
        format!("hosts.{pin}.credential")
    }
}

fn addresses(addresses: &Addresses) -> Value {
    match addresses {
        Addresses::Public => "public".into(),
        Addresses::Loopback => "loopback".into(),
        Addresses::Private => "private".into(),
        Addresses::Networks(networks) => networks
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .into(),
    }
}

fn split(host: &Host) -> Value {
    let route = format!("POST {}", host.split.path);
    match &host.split.envelope {
        Envelope::Bare => json!({ "envelope": "bare", "route": route }),
        Envelope::Chat { model, max_tokens } => {
            json!({ "envelope": "chat", "route": route, "model": model, "max_tokens": max_tokens })
        }
    }
}

/// Compact, keys in byte order, whatever order the map type keeps.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_bytes());
            out.push('{');
            for (place, (key, value)) in entries.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}
