//! Every URL, host name and label of four public suites (`tests/host_strings`) as a pin, and as the name of a host in a policy.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use leafgate::admit::{CallHead, CallId, Eligible, Target, check_head};
use leafgate::card::{Card, Reading};
use leafgate::fixture::Registry;
use leafgate::policy::Policy;
use leafgate::terms::fits_pin;
use leafgate::tree::{Decision, classify};
use serde_json::json;

use crate::support::{Gate, Host, b64, body, card};

/// Hosts of the policy. All stand among the strings, each beside many that look like it.
const CONFIGURED: [&str; 8] = [
    "127.0.0.1",
    "example.com",
    "example.org",
    "fass.de",
    "foo",
    "localhost",
    "xn--fa-hia.de",
    "xn--n3h",
];

fn strings() -> Vec<String> {
    include_str!("../host_strings/strings.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The string, and what a reader might take for the same host.
fn variants(text: &str) -> [String; 8] {
    [
        text.to_owned(),
        text.to_uppercase(),
        text.to_lowercase() + ".",
        format!("{text}:443"),
        format!("https://{text}"),
        format!("{text}/"),
        format!("x@{text}"),
        format!(" {text}"),
    ]
}

fn hosts(port: u16) -> String {
    let host = |name: &str| {
        format!(
            "[hosts.\"{name}\"]\nbase_url = \"http://{name}:{port}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"\n"
        )
    };
    CONFIGURED.map(host).concat()
}

fn loaded(dir: &Path, text: &str) -> Result<Policy, Vec<leafgate::policy::Fault>> {
    let file = dir.join("policy.toml");
    std::fs::write(&file, format!("version = 1\n{text}")).unwrap();
    Policy::load(&file)
}

/// What a card with this pin ends in: the reason, or nothing where it is admitted.
async fn judged(pin: &str, policy: &Arc<Policy>, fixtures: &Registry) -> Option<&'static str> {
    let text = card(json!({"host_pin": pin})).to_string();
    let reading = match Card::parse(text.as_bytes()) {
        Ok(card) => Reading::Card(Arc::new(card)),
        Err(fault) => Reading::Malformed(fault),
    };
    let release = match classify(&reading) {
        Decision::Release(release) => release,
        other @ (Decision::Hold(_) | Decision::Split(_)) => {
            return Some(other.ruling().reason.code());
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let head = CallHead {
        call: CallId::new(0, [0; 10]),
        attach: None,
        method: &Method::POST,
        target: Target::Origin("/chat/completions"),
        headers: &headers,
        peer_uid: None,
    };
    let now = jiff::Timestamp::now();
    let release = Eligible::Release(release);
    let checked = check_head(release, head, policy, fixtures, now).await;
    checked.err().map(|refusal| refusal.reason.code())
}

#[test]
fn no_string_but_the_configured_name_is_a_pin() {
    let dir = tempfile::tempdir().unwrap();
    let policy = Arc::new(loaded(dir.path(), &hosts(1)).unwrap());
    let fixtures = Registry::load(&policy.fixtures).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let strings = strings();
    let (mut tried, mut taken, mut held) = (0, BTreeSet::new(), 0);
    runtime.block_on(async {
        for text in &strings {
            for pin in variants(text) {
                tried += 1;
                let reason = judged(&pin, &policy, &fixtures).await;
                if CONFIGURED.contains(&pin.as_str()) {
                    assert_eq!(reason, None, "{pin:?}");
                    taken.insert(pin);
                    continue;
                }
                // A hold where the pin is blank or makes the card too long; else nobody's name.
                let expected = match reason {
                    Some("field_blank") => !pin.chars().any(|c| c.is_ascii_graphic()),
                    Some("card_malformed") => pin.len() > 4_000,
                    reason => reason == Some("pin_unknown"),
                };
                assert!(expected, "{pin:?}: {reason:?}");
                held += usize::from(reason != Some("pin_unknown"));
            }
        }
    });
    // The twins: each configured name stood among them.
    assert_eq!(taken.len(), CONFIGURED.len(), "{taken:?}");
    println!(
        "{} strings, {tried} pins, {held} of them held",
        strings.len()
    );
    assert!(strings.len() > 8_000 && tried > 70_000);
}

#[test]
fn what_fits_the_grammar_of_a_pin_and_names_no_host_reaches_nobody() {
    let host = Host::ok();
    let gate = Gate::with(
        &hosts(host.address.port()),
        "[resolver]\nservers = [\"127.0.0.1:9\"]\n",
    );
    let mut refused = 0;
    for (place, text) in strings().iter().enumerate() {
        // The rest is judged above; of it a sample goes all the way.
        if CONFIGURED.contains(&text.as_str()) || (!fits_pin(text) && place % 40 != 0) {
            continue;
        }
        let card = card(json!({"host_pin": text})).to_string();
        let payload = body();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nleafgate-card: {}\r\n\r\n",
            gate.address,
            payload.len(),
            b64(card.as_bytes())
        );
        let reply = gate.raw(&[head.as_bytes(), &payload].concat());
        assert_eq!(reply.status, 422, "{text:?}: {reply:?}");
        assert!(
            ["pin_unknown", "field_blank", "card_malformed"].contains(&reply.reason()),
            "{text:?}: {reply:?}"
        );
        refused += 1;
    }
    assert_eq!((host.accepts(), gate.of_kind("outcome").len()), (0, 0));
    assert_eq!(gate.of_kind("decision").len(), refused);
    println!("{refused} pins sent");
    assert!(refused > 2_000);
    for name in CONFIGURED {
        let reply = gate.call(&card(json!({"host_pin": name})), &body());
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
    }
    assert_eq!(host.seen().len(), CONFIGURED.len());
}

/// A TOML string of these characters.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || ".-".contains(c) {
            out.push(c);
        } else {
            write!(out, "\\U{:08x}", u32::from(c)).unwrap();
        }
    }
    out + "\""
}

#[test]
fn a_policy_takes_a_name_as_it_is_written_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let strings = strings();
    let entry = |text: &String| {
        let url = quoted(&format!("https://{text}/v1"));
        format!(
            "[hosts.{}]\nbase_url = {url}\nbind = \"none\"\nheaders = {{}}\n",
            quoted(text)
        )
    };
    let (mut kept, mut bad) = (0, 0);
    for some in strings.chunks(400) {
        // Each has four lines behind the first; those without a fault must load by themselves.
        let text: String = some.iter().map(entry).collect();
        let faults = loaded(dir.path(), &text).map(drop).expect_err("faults");
        let at: BTreeSet<usize> = faults.iter().map(|fault| (fault.line - 2) / 4).collect();
        for fault in &faults {
            let line = fault.to_string();
            assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line:?}");
        }
        let good: Vec<&String> = (0..some.len())
            .filter(|place| !at.contains(place))
            .map(|place| &some[place])
            .collect();
        let text: String = good.iter().map(|text| entry(text)).collect();
        let policy = loaded(dir.path(), &text).unwrap();
        let names: Vec<&str> = policy.hosts.keys().map(|pin| pin.as_str()).collect();
        let expected: BTreeSet<&str> = good.iter().map(|text| text.as_str()).collect();
        assert_eq!(names, expected.iter().copied().collect::<Vec<_>>());
        for (pin, host) in &policy.hosts {
            let name = pin.as_str();
            assert_eq!(
                (host.base.host.as_str(), host.base.authority.as_str()),
                (name, name)
            );
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
            assert!(name.bytes().all(plain) && !name.ends_with('.'), "{name:?}");
        }
        kept += good.len();
        bad += at.len();
    }
    println!(
        "{} names: {kept} kept as they are, {bad} refused",
        strings.len()
    );
    assert_eq!(kept + bad, strings.len());
    assert!(kept > 1_000 && bad > 5_000);
}
