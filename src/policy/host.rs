//! One host of `[hosts]`: who it is, where its addresses lie, how it is reached.
//!
//! Promises: the key is the host's identity (the host name in `base_url`, or `local` on loopback), and its values do not contradict
//! one another. What a call to it may carry is read in `host_calls`.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use toml::de::DeValue;

use super::addresses::is_loopback;
use super::model::{Addresses, BaseUrl, Bind, Host, Network};
use super::read::{Table, Value};
use super::settings::Sources;
use super::units::{DAY, duration};
use super::{host_calls, secrets, url, vocabulary};
use crate::terms::HostPin;

const KEYS: [&str; 16] = [
    "base_url",
    "source",
    "copied_at",
    "max_age",
    "credential",
    "addresses",
    "resolve",
    "ca",
    "spki",
    "routes",
    "headers",
    "split",
    "models",
    "bind",
    "vocabulary",
    "clear_text",
];
/// How far ahead of this machine's clock `copied_at` may be.
const AHEAD: Duration = Duration::from_secs(300);

pub(super) fn host(
    key: &str,
    value: &Value<'_>,
    placeholders: &[String],
    sources: &mut Sources,
) -> Option<Host> {
    let table = value.table(&KEYS)?;
    let pin = HostPin::parse(key);
    if pin.is_none() {
        value.fault("not a host pin; write [a-z0-9][a-z0-9.-]{0,252}, the host name in base_url");
    }
    if placeholders.iter().any(|placeholder| placeholder == key) {
        value.fault("a placeholder cannot name a host; use the host's own name, or take it off pins.placeholders");
    }
    let base = table.need("base_url").and_then(|value| base_url(&value));
    let written = table.get("addresses");
    let addresses = match (&written, &base) {
        (Some(value), _) => addresses(value),
        (None, Some(base)) if names_loopback(&base.host) => Some(Addresses::Loopback),
        (None, Some(_)) => Some(Addresses::Public),
        (None, None) => None,
    };
    if let (Some(base), Some(addresses), Some(at)) = (&base, &addresses, table.get("base_url")) {
        agree(key, base, addresses, &at, written.as_ref());
    }
    // A `local` off loopback is a fault by now; what follows from it needs no faults of its own.
    let addresses = addresses.map(|class| {
        if key == "local" {
            Addresses::Loopback
        } else {
            class
        }
    });
    let clear_text = clear_text(&table, base.as_ref(), addresses.as_ref());
    let credential = host_calls::credential(&table, sources);
    let headers = host_calls::headers(&table, &credential);
    let models = host_calls::models(&table);
    let (bind, bind_written) = bind(&table, value, addresses.as_ref(), &models);
    let resolve = addresses
        .as_ref()
        .map_or_else(Vec::new, |class| resolve(&table, class));
    let routes = host_calls::routes(&table);
    let vocabularies = vocabulary::vocabulary(&table, bind, &routes);
    let split = host_calls::split(&table);
    let tls_only = |name: &str| tls_only(&table, name, base.as_ref());
    let ca = tls_only("ca").and_then(|value| secrets::certificates(&value));
    let spki = tls_only("spki").and_then(|value| value.full_list(spki));
    Some(Host {
        source: table.get("source").and_then(|value| source(&value)),
        copied_at: table.get("copied_at").and_then(|value| copied_at(&value)),
        max_age: table
            .get("max_age")
            .and_then(|value| duration(&value, DAY * 366)),
        pin: pin?,
        base: base?,
        credential,
        addresses: addresses?,
        resolve,
        ca,
        spki: spki.unwrap_or_default(),
        routes,
        headers,
        split: split?,
        models,
        bind: bind?,
        bind_written,
        vocabularies: vocabularies?,
        clear_text,
    })
}

fn base_url(value: &Value<'_>) -> Option<BaseUrl> {
    match url::base_url(value.string()?) {
        Ok(base) => Some(base),
        Err(why) => {
            value.fault(why);
            None
        }
    }
}

/// A loopback address, or the name that RFC 6761, section 6.3 keeps for it.
fn names_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// Key, `base_url` and `addresses` must say the same.
fn agree(
    key: &str,
    base: &BaseUrl,
    addresses: &Addresses,
    at: &Value<'_>,
    written: Option<&Value<'_>>,
) {
    let class_at = written.unwrap_or(at);
    if key == "local" {
        if *addresses != Addresses::Loopback {
            class_at.fault("local must have loopback addresses; name a loopback address in base_url, or use the host's own name as the key");
        }
    } else if base.host != key {
        at.fault("the host name differs from the key; the pin is an identity: make the key the host name in base_url");
    }
    let outside = match base.host.parse::<IpAddr>() {
        Ok(address) => !addresses.contains(address),
        // An explicit list may hold loopback networks; the look-up is checked against it.
        Err(_) => {
            base.host == "localhost" && matches!(addresses, Addresses::Public | Addresses::Private)
        }
    };
    if outside && !(key == "local" && *addresses != Addresses::Loopback) {
        class_at
            .fault("base_url names an address that addresses does not allow; change one of them");
    }
}

fn clear_text(table: &Table<'_>, base: Option<&BaseUrl>, addresses: Option<&Addresses>) -> bool {
    let written = table.get("clear_text");
    let clear = written.as_ref().and_then(Value::boolean).unwrap_or(false);
    let (Some(base), Some(addresses)) = (base, addresses) else {
        return clear;
    };
    if base.tls
        && clear
        && let Some(value) = &written
    {
        value.fault("contradicts https in base_url; remove it");
    }
    if !base.tls
        && !clear
        && *addresses != Addresses::Loopback
        && let Some(value) = table.get("base_url")
    {
        value.fault("http:// off loopback travels in the clear; write https://, or clear_text = true, which the record repeats");
    }
    clear
}

/// A key that would be without effect, and give false comfort, over http.
fn tls_only<'a>(table: &Table<'a>, name: &str, base: Option<&BaseUrl>) -> Option<Value<'a>> {
    let value = table.get(name)?;
    if base.is_some_and(|base| !base.tls) {
        value.fault(
            "contradicts http in base_url: there is no TLS to check; remove it or write https://",
        );
    }
    Some(value)
}

fn addresses(value: &Value<'_>) -> Option<Addresses> {
    match value.raw() {
        DeValue::String(_) => {
            let words = [("public", 0), ("loopback", 1), ("private", 2)];
            value.choice(&words).map(|class| match class {
                0 => Addresses::Public,
                1 => Addresses::Loopback,
                _ => Addresses::Private,
            })
        }
        DeValue::Array(array) => {
            let networks = value.full_list(network)?;
            // A bad item is a fault already; what is left must not stand for the list.
            (networks.len() == array.len()).then_some(Addresses::Networks(networks))
        }
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => {
            value.wrong_type("\"public\", \"loopback\", \"private\" or an array of networks");
            None
        }
    }
}

fn network(value: &Value<'_>) -> Option<Network> {
    let text = value.string()?;
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let plain = prefix.bytes().all(|b| b.is_ascii_digit())
            && (prefix.len() == 1 || !prefix.starts_with('0'));
        plain.then_some(())?;
        Some(Network {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
        })
    });
    match parsed {
        Some(network) if network.prefix == 0 => {
            value.fault("allows every address; write \"public\", or name the networks");
            None
        }
        Some(network) if network.is_clean() => Some(network),
        Some(_) => {
            value.fault("not a network: the prefix is too long, or bits after it are set");
            None
        }
        None => {
            value.fault("not a network; write ADDRESS/PREFIX, like \"203.0.113.0/24\"");
            None
        }
    }
}

fn resolve(table: &Table<'_>, class: &Addresses) -> Vec<IpAddr> {
    let list = table.get("resolve").and_then(|value| {
        value.full_list(|item| {
            let Ok(address) = item.string()?.parse::<IpAddr>() else {
                item.fault("not an IP address; write one like \"203.0.113.7\", without a port");
                return None;
            };
            if !class.contains(address) {
                item.fault("outside the host's addresses; change one of them");
                return None;
            }
            Some(address)
        })
    });
    list.unwrap_or_default()
}

fn bind(
    table: &Table<'_>,
    host: &Value<'_>,
    addresses: Option<&Addresses>,
    models: &[String],
) -> (Option<Bind>, bool) {
    let words = [
        ("cover", Bind::Cover),
        ("exact", Bind::Exact),
        ("none", Bind::None),
    ];
    let value = table.get("bind");
    let written = value.as_ref().and_then(|value| value.choice(&words));
    let default = match addresses {
        Some(Addresses::Loopback) => Some(Bind::None),
        Some(Addresses::Public | Addresses::Private | Addresses::Networks(_)) => Some(Bind::Cover),
        None => None,
    };
    // A bind that could not be read is a fault already; do not ask for models besides.
    let bind = if value.is_some() { written } else { default };
    if bind == Some(Bind::Cover) && models.is_empty() {
        let models_value = table.get("models");
        models_value.as_ref().or(value.as_ref()).unwrap_or(host).fault(
            "bind = \"cover\" needs models: name the models a release may carry, or write another bind",
        );
    }
    (bind, matches!(written, Some(Bind::Cover | Bind::Exact)))
}

fn source(value: &Value<'_>) -> Option<String> {
    let text = value.string()?;
    if crate::terms::is_blank(text) || text.len() > 2048 || text.chars().any(char::is_control) {
        value.fault("not a page; write its address on one line, at most 2048 bytes");
        return None;
    }
    Some(text.to_owned())
}

fn copied_at(value: &Value<'_>) -> Option<Timestamp> {
    let Some(moment) = value.raw().as_datetime() else {
        value.wrong_type("a date and time with offset, like 2026-11-30T08:00:00Z, without quotes");
        return None;
    };
    let whole = moment.date.is_some() && moment.time.is_some() && moment.offset.is_some();
    let Some(moment) = whole
        .then(|| moment.to_string().parse::<Timestamp>().ok())
        .flatten()
    else {
        value.fault("needs date, time and offset, like 2026-11-30T08:00:00Z");
        return None;
    };
    if moment.duration_since(Timestamp::now())
        > jiff::SignedDuration::try_from(AHEAD).unwrap_or_default()
    {
        value.fault("more than 5 minutes ahead of this machine's clock; correct it, or the clock");
        return None;
    }
    Some(moment)
}

fn spki(value: &Value<'_>) -> Option<[u8; 32]> {
    use base64::Engine as _;
    let digest = value
        .string()?
        .strip_prefix("sha256/")
        .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok());
    if digest.is_none() {
        value.fault("not a key pin; write \"sha256/\" and the base64 of 32 bytes");
    }
    digest
}
