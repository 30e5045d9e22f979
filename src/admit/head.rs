//! The checks that the head of a call decides (contract, section 3), one function for each, in order.
//!
//! 1. [`route`] · 2. [`hash`] and [`id`] · 3. [`placeholder`] · 4. [`known`] · 5. [`fresh`] · (`GET /models` is answered here) ·
//! 6. [`fixture`] · 7. [`media`], on a release that has a body. What the body decides follows in `body`.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method};
use jiff::Timestamp;

use super::{Admitted, CallFacts, CallId, Denied, Refusal, headers};
use crate::card::{Attach, Card};
use crate::fixture::{Fixture, Registry};
use crate::policy::{Bind, Host, Policy, Route};
use crate::terms::{Field, FixtureHash, FixtureId, HostPin, Reason, Verdict};
use crate::tree::{Release, Ruling, Split};

/// A leaf that is eligible to leave: only the tree makes the two.
#[derive(Debug)]
pub enum Eligible {
    /// As four values.
    Split(Split),
    /// Byte for byte.
    Release(Release),
}

impl Eligible {
    fn ruling(&self) -> Ruling {
        match self {
            Eligible::Split(split) => split.ruling(),
            Eligible::Release(release) => release.ruling(),
        }
    }

    fn card(&self) -> &Arc<Card> {
        match self {
            Eligible::Split(split) => split.card(),
            Eligible::Release(release) => release.card(),
        }
    }
}

/// Where the client aimed the call.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// Origin form: what follows the API root, `/chat/completions`, query included.
    Origin(&'a str),
    /// Absolute form: authority and path, query included.
    Absolute {
        /// As in the request line.
        authority: &'a str,
        /// As in the request line.
        path: &'a str,
    },
    /// A target with a fragment, which no route has.
    Fragment,
}

/// The head of a call, as far as admission needs it.
#[derive(Debug, Clone, Copy)]
pub struct CallHead<'a> {
    /// The call's id.
    pub call: CallId,
    /// Where the card was attached.
    pub attach: Option<Attach>,
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub target: Target<'a>,
    /// The client's headers.
    pub headers: &'a HeaderMap,
    /// The user at the other end of the Unix socket, where the call came by one.
    pub peer_uid: Option<u32>,
}

/// Runs every check that the head decides.
///
/// # Errors
/// The [`Refusal`] of the first check that fails, or the `local` answer of `GET /models`.
pub async fn check_head(
    eligible: Eligible,
    head: CallHead<'_>,
    policy: &Arc<Policy>,
    fixtures: &Registry,
    now: Timestamp,
) -> Result<Admitted, Box<Refusal>> {
    let card = eligible.card().clone();
    let mut facts = CallFacts {
        call: head.call,
        attach: head.attach,
        ruling: eligible.ruling(),
        route: None,
        host: None,
        failure_label: None,
        body: None,
        peer_uid: head.peer_uid,
        card: Some(card.clone()),
    };
    let pin = card.text(Field::HostPin).unwrap_or_default();
    facts.host = policy.hosts.get(pin).cloned();
    let checked = async {
        let route = route(&head, facts.host.as_deref())?;
        facts.route = Some(format!("{} {}", route.method, route.path));
        let hash = hash(&card)?;
        let id = id(&card)?;
        placeholder(pin, policy)?;
        let host = known(facts.host.as_ref(), policy)?;
        fresh(host, policy, now)?;
        if route.method == Method::GET && route.path == "/models" {
            return Ok(Passed {
                host: host.clone(),
                route,
                id,
                hash,
                fixture: None,
                local: true,
            });
        }
        let fixture = fixture(&id, &hash, host, policy, fixtures).await?;
        if let (Eligible::Release(_), &Method::POST) = (&eligible, head.method) {
            media(head.headers)?;
        }
        Ok(Passed {
            host: host.clone(),
            route,
            id,
            hash,
            fixture,
            local: false,
        })
    }
    .await;
    match checked {
        Err(denied) => Err(Box::new(Refusal::denied(facts, denied))),
        Ok(passed) if passed.local => Err(Box::new(Refusal {
            reason: facts.ruling.reason,
            facts,
            verdict: Verdict::Local,
            field: None,
            hint: String::new(),
        })),
        Ok(passed) => Ok(Admitted {
            policy: policy.clone(),
            facts,
            sent_headers: headers::for_host(
                head.headers,
                &passed.host,
                matches!(eligible, Eligible::Release(_)),
            ),
            split: matches!(eligible, Eligible::Split(_)),
            passed,
        }),
    }
}

/// What the head's checks found out.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) host: Arc<Host>,
    pub(super) route: Route,
    pub(super) id: FixtureId,
    pub(super) hash: FixtureHash,
    pub(super) fixture: Option<Arc<Fixture>>,
    local: bool,
}

/// Check 1: method and path are on the pinned host's routes, or on the default list where the pin names no host. A route of
/// the policy is clean, so equality leaves no room for a query, a dot segment, an empty segment or a percent sign.
fn route(head: &CallHead<'_>, host: Option<&Host>) -> Result<Route, Denied> {
    let refused = || Denied::new(Reason::RouteNotAllowed, Field::Route, off_route(head, host));
    let path = match (head.target, host) {
        (Target::Origin(path), _) => path,
        (Target::Absolute { authority, path }, Some(host)) => {
            under(authority, path, host).ok_or_else(refused)?
        }
        (Target::Absolute { .. }, None) | (Target::Fragment, _) => return Err(refused()),
    };
    let on = |route: &&Route| route.method == *head.method && route.path == path;
    let found = match host {
        Some(host) => host.routes.iter().find(on).cloned(),
        None => Route::defaults().iter().find(on).cloned(),
    };
    found.ok_or_else(refused)
}

/// What to do where method and path are on no route: the routes, and what a base URL that is one part off looks like. The path itself is not quoted.
fn off_route(head: &CallHead<'_>, host: Option<&Host>) -> String {
    let routes = match host {
        Some(host) => host.routes.as_slice(),
        None => Route::defaults(),
    };
    let routes: Vec<String> = routes
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    let what = match (head.target, host) {
        // What the path looks like says nothing where it is a path of another host.
        (Target::Absolute { .. }, None) => {
            "the call names its host and the card pins none of the policy; correct host_pin"
        }
        (Target::Absolute { authority, .. }, Some(host)) if !names(authority, host) => {
            "the card pins another host than the one that the call is aimed at; pin that one, or call the pinned one"
        }
        (Target::Absolute { path, .. }, Some(host)) => match below(path, host) {
            Some(path) => off_path(path),
            None => "the path is not below the pinned host's base_url",
        },
        (Target::Origin(path), _) => off_path(path),
        (Target::Fragment, _) => {
            "a path on the host's routes has no fragment; send it without # and what follows"
        }
    };
    format!("{what}; the routes are {}", routes.join(", "))
}

/// The same for a path below the base URL.
fn off_path(path: &str) -> &'static str {
    if path.starts_with("/v1/") {
        "/v1 stands twice in the path: give the client the base URL without it"
    } else if path.is_empty() || path == "/" {
        "the path ends at the base URL: this client wants the whole address, such as /v1/chat/completions"
    } else if path.contains(['?', '%']) {
        "a path on the host's routes has no query and no percent-encoding"
    } else {
        "method and path are not on the pinned host's routes"
    }
}

/// The path relative to `base_url`, where authority and path lie under it.
fn under<'a>(authority: &str, path: &'a str, host: &Host) -> Option<&'a str> {
    names(authority, host).then_some(())?;
    below(path, host)
}

/// Whether the authority is that of `base_url`.
fn names(authority: &str, host: &Host) -> bool {
    let base = &host.base;
    // As the policy writes it, or with the port; a name in brackets is no name (they are for IPv6 alone).
    authority == base.authority || authority == base.with_port()
}

/// What of the path is below that of `base_url`.
fn below<'a>(path: &'a str, host: &Host) -> Option<&'a str> {
    path.strip_prefix(host.base.path.as_str())
        .filter(|rest| rest.starts_with('/'))
}

/// Check 2: the hash fits its grammar.
fn hash(card: &Card) -> Result<FixtureHash, Denied> {
    card.text(Field::FixtureHash).and_then(FixtureHash::parse).ok_or_else(|| {
        Denied::new(
            Reason::HashMalformed,
            Field::FixtureHash,
            "fixture_hash is not sha256: or hmac-sha256: and 64 lower-case hex digits; make it with leafgate hash FILE".to_owned(),
        )
    })
}

/// Check 2: the id fits its grammar.
fn id(card: &Card) -> Result<FixtureId, Denied> {
    card.text(Field::FixtureId).and_then(FixtureId::parse).ok_or_else(|| {
        Denied::new(
            Reason::IdMalformed,
            Field::FixtureId,
            "fixture_id is not 1 to 64 letters, digits, dots, underscores or hyphens; give the fixture such an id".to_owned(),
        )
    })
}

/// Check 3: the pin is not a placeholder.
fn placeholder(pin: &str, policy: &Policy) -> Result<(), Denied> {
    if !policy
        .placeholders
        .iter()
        .any(|placeholder| placeholder == pin)
    {
        return Ok(());
    }
    Err(Denied::new(
        Reason::PinPlaceholder,
        Field::HostPin,
        "host_pin is a placeholder and names no host; write the host's name as the policy has it"
            .to_owned(),
    ))
}

/// Check 4: the pin is the name of a host in the policy, byte for byte.
fn known<'a>(host: Option<&'a Arc<Host>>, policy: &Policy) -> Result<&'a Arc<Host>, Denied> {
    host.ok_or_else(|| {
        let names: Vec<&str> = policy.hosts.keys().map(HostPin::as_str).take(4).collect();
        let more = match policy.file {
            None => "this is the built-in policy; leafgate serve --policy FILE takes another".to_owned(),
            Some(_) => format!("leafgate pin list{} shows those of the file; where it shows this one, its reload was refused: leafgate policy check {} says why", policy.flag(), policy.told_file()),
        };
        Denied::new(
            Reason::PinUnknown,
            Field::HostPin,
            format!("host_pin is not the name of a host in the policy, byte for byte; known: {} ({more})", names.join(", ")),
        )
    })
}

/// Check 5: off loopback, or where the host sets `max_age`, the host string was copied not longer ago than that.
fn fresh(host: &Host, policy: &Policy, now: Timestamp) -> Result<(), Denied> {
    if host.on_loopback() && host.max_age.is_none() {
        return Ok(());
    }
    let most = host.max_age.unwrap_or(policy.pin_max_age);
    let stale = |what: &str| {
        Denied::new(
            Reason::PinStale,
            Field::HostPin,
            format!(
                "the pin {} {what}; read the host's page again, then run leafgate pin confirm {}{}",
                host.pin,
                host.pin,
                policy.flag()
            ),
        )
    };
    let copied_at = host.copied_at.ok_or_else(|| stale("was never confirmed"))?;
    // A date ahead of the clock has no age; the policy refused one that is more than minutes ahead.
    let age = std::time::Duration::try_from(now.duration_since(copied_at)).unwrap_or_default();
    if age > most {
        Err(stale("was copied too long ago"))
    } else {
        Ok(())
    }
}

/// Check 6: the fixture is registered under the card's hash, and its files still have it.
async fn fixture(
    id: &FixtureId,
    hash: &FixtureHash,
    host: &Host,
    policy: &Policy,
    fixtures: &Registry,
) -> Result<Option<Arc<Fixture>>, Denied> {
    if !host.checks_fixture() {
        return Ok(None);
    }
    // Who waits for a first reading holds a place in flight: no longer than one who sends its body.
    let most = policy.limits.client_body;
    let Ok(admitted) = tokio::time::timeout(most, fixtures.admit(id, hash)).await else {
        let hint = format!(
            "fixture {id} is still being read for the first time, and limits.client_body is over; send the call again later"
        );
        return Err(Denied::new(
            Reason::FixtureChanged,
            Field::FixtureHash,
            hint,
        ));
    };
    admitted.map(Some).map_err(|reason| {
        let (field, hint) = if reason == Reason::FixtureUnknown {
            (Field::FixtureId, "is not in fixtures.lock; register its file with")
        } else if reason == Reason::FixtureMismatch {
            (Field::FixtureHash, "is registered under another hash; hash the file again, and correct the card or run")
        } else {
            (Field::FixtureHash, "no longer has its recorded hash on disk; restore the file or run")
        };
        let add = match fixtures.entry(id) {
            Some(entry) => policy.fixture_add_again(
                id.as_str(),
                &entry.paths,
                entry.format.name(),
                entry.glue.as_deref(),
            ),
            None => policy.fixture_add(id.as_str()),
        };
        Denied::new(reason, field, format!("fixture {id} {hint} {add}"))
    })
}

/// Check 7: a release's body is `application/json`, without a charset or in UTF-8, and not encoded.
fn media(headers: &HeaderMap) -> Result<(), Denied> {
    let plain = headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| is_json(value.as_bytes()))
        && !headers.contains_key(CONTENT_ENCODING);
    if plain {
        return Ok(());
    }
    Err(Denied::new(
        Reason::MediaNotAllowed,
        Field::Media,
        "a release needs Content-Type: application/json (no charset, or UTF-8) and no Content-Encoding; send the body plain".to_owned(),
    ))
}

/// `application/json`, alone or with one `charset` of UTF-8 (RFC 9110 section 8.3.1: type, parameter name and charset have no case).
fn is_json(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let json = parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case(b"application/json"));
    let charset = match (parts.next(), parts.next()) {
        (None, _) => true,
        (Some(parameter), None) => {
            parameter.eq_ignore_ascii_case(b"charset=utf-8")
                || parameter.eq_ignore_ascii_case(b"charset=\"utf-8\"")
        }
        (Some(_), Some(_)) => false,
    };
    json && charset
}

impl Passed {
    pub(super) fn binds(&self) -> bool {
        self.host.bind != Bind::None && self.route.method == Method::POST
    }
}
