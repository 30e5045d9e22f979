//! One call, from the head that passed the gate to the answer.
//!
//! 1. Who asks, and what for: `client_not_allowed`, `not_found` (no call yet: a `refused` record).
//! 2. The card, and the tree.
//! 3. A hold: the body is read and forgotten, the decision recorded, the refusal answered.
//! 4. Else admission on the head, the body, admission on the body: a refusal, or a plan.
//! 5. The plan is recorded; what comes back is cleared; egress sends it.
//! 6. The host's answer streams on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::header::EXPECT;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;

use super::answer::{self, Own};
use super::body::{Bounds, HeldBytes, Unread, declared_too_large, discard, keep};
use super::gate::Wire;
use super::log;
use super::reply::{Reply, Share};
use super::state::{Live, Shared};
use crate::admit::{CallFacts, CallHead, CallId, Eligible, Plan, Refusal, Target, check_head};
use crate::card::{Attach, attach};
use crate::policy::Policy;
use crate::terms::{Reason, Verdict};
use crate::tree::{self, Decision, Hold};

/// The client is not there any more: hyper closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the client closed before its request ended")]
pub(super) struct Gone;

/// What one call is handled with.
pub(super) struct Call {
    shared: Arc<Shared>,
    live: Arc<Live>,
    wire: Arc<Wire>,
    id: CallId,
    began: Instant,
}

/// How the path names the API.
enum Path<'a> {
    Api {
        rest: &'a str,
        card: Option<&'a str>,
    },
    Elsewhere,
}

/// Handles one request.
pub(super) async fn handle(
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Gone> {
    let live = shared.live.load_full();
    let id = shared.next_call();
    let call = Call {
        shared,
        live,
        wire,
        id,
        began: Instant::now(),
    };
    let Some(share) = Share::take(&call.shared, call.live.policy.limits.in_flight) else {
        call.shared.ledger.count_unrecorded(Reason::Overloaded);
        let own = Own::unrecorded(Reason::Overloaded, call.policy().refused_status);
        return Ok(call.answer_early(own, None));
    };
    let (parts, body) = request.into_parts();
    call.judge(parts, body, share).await
}

impl Call {
    fn policy(&self) -> &Arc<Policy> {
        &self.live.policy
    }

    async fn judge(
        self,
        parts: Parts,
        body: Incoming,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        if !self.shared.may_ask(&parts.headers) {
            let hint = "the client showed no valid leafgate-token; send it as the policy's listen.token_env says";
            return self
                .not_a_call(Reason::ClientNotAllowed, hint, body, share)
                .await;
        }
        let path_and_query = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let (target, card_name) = match (parts.uri.authority(), split_path(path_and_query)) {
            _ if self.wire.fragment() => (Target::Fragment, None),
            (Some(authority), _) => (
                Target::Absolute {
                    authority: authority.as_str(),
                    path: path_and_query,
                },
                None,
            ),
            (None, Path::Api { rest, card }) => (Target::Origin(rest), card),
            (None, Path::Elsewhere) => {
                let hint = format!(
                    "there is nothing at this path; the base URL is {}",
                    self.shared.base_url()
                );
                return self.not_a_call(Reason::NotFound, &hint, body, share).await;
            }
        };
        let attached = attach(&parts.headers, card_name, &self.live.cards);
        let expects = parts.headers.contains_key(EXPECT);
        let eligible = match tree::classify(&attached.reading) {
            Decision::Hold(hold) => {
                return self.hold(&hold, attached.place, body, expects, share).await;
            }
            Decision::Split(split) => Eligible::Split(split),
            Decision::Release(release) => Eligible::Release(release),
        };
        let head = CallHead {
            call: self.id,
            attach: attached.place,
            method: &parts.method,
            target,
            headers: &parts.headers,
        };
        match check_head(
            eligible,
            head,
            self.policy(),
            &self.live.fixtures,
            self.shared.now(),
        )
        .await
        {
            Err(refusal) => self.refused_at_head(*refusal, body, expects, share).await,
            Ok(admitted) => {
                let limits = &self.policy().limits;
                let mut held =
                    HeldBytes::new(self.shared.in_flight_bytes.clone(), limits.in_flight_bytes);
                let read = if declared_too_large(&body, limits.body) {
                    Err(Unread::TooLarge)
                } else {
                    keep(body, &self.bounds(), &mut held).await
                };
                match read {
                    Err(unread) => self.unread(admitted.facts().clone(), unread, share).await,
                    Ok(sealed) => match admitted.finish(sealed) {
                        Err(refusal) => self.refuse(*refusal, false, share).await,
                        Ok(plan) => self.forward(plan, share.holding(held)).await,
                    },
                }
            }
        }
    }

    fn bounds(&self) -> Bounds<'_> {
        let limits = &self.live.policy.limits;
        Bounds {
            wire: &self.wire,
            most: limits.body,
            time: limits.client_body,
        }
    }

    /// Reads what will not leave: to its end or its cap; not at all where the client waits for a 100 or declares too much.
    async fn forget(&self, body: Incoming, expects: bool) -> Forgot {
        if declared_too_large(&body, self.live.policy.limits.body) {
            return Forgot::Unread(Unread::TooLarge);
        }
        if expects {
            return Forgot::Unasked;
        }
        match discard(body, &self.bounds()).await {
            Ok(facts) => Forgot::Whole(facts),
            Err(unread) => Forgot::Unread(unread),
        }
    }

    /// Step 3: a hold wins over 408 and 413, not over a body that is no clean message.
    async fn hold(
        self,
        hold: &Hold,
        place: Option<Attach>,
        body: Incoming,
        expects: bool,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let host = hold.card().and_then(|card| {
            self.policy()
                .hosts
                .get(card.text(crate::terms::Field::HostPin)?)
                .cloned()
        });
        let mut refusal = Refusal::hold(hold, self.id, place, host);
        match self.forget(body, expects).await {
            Forgot::Whole(facts) => {
                refusal.facts.body = Some(facts);
                self.refuse(refusal, false, share).await
            }
            Forgot::Unread(Unread::Malformed) => {
                self.unread(refusal.facts, Unread::Malformed, share).await
            }
            Forgot::Unread(Unread::Gone) => {
                let _ = self.refuse(refusal, true, share).await;
                Err(Gone)
            }
            Forgot::Unasked | Forgot::Unread(_) => self.refuse(refusal, true, share).await,
        }
    }

    /// A refusal that the head decided: 408 and 413 win over it.
    async fn refused_at_head(
        self,
        mut refusal: Refusal,
        body: Incoming,
        expects: bool,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        match self.forget(body, expects).await {
            Forgot::Whole(facts) => {
                refusal.facts.body = Some(facts);
                self.refuse(refusal, false, share).await
            }
            Forgot::Unasked => self.refuse(refusal, true, share).await,
            Forgot::Unread(unread) => self.unread(refusal.facts, unread, share).await,
        }
    }

    /// The body did not come to its end: the call's decision says so, or, over the bytes in flight, there is none.
    async fn unread(
        self,
        facts: CallFacts,
        unread: Unread,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        if unread == Unread::Overloaded {
            self.shared.ledger.count_unrecorded(Reason::Overloaded);
            let own = Own::unrecorded(Reason::Overloaded, self.policy().refused_status);
            return Ok(self.answer_early(own, Some(share)));
        }
        let answered = self
            .refuse(
                Refusal::limit(facts, unread.reason(), unread.hint()),
                true,
                share,
            )
            .await;
        if unread == Unread::Gone {
            Err(Gone)
        } else {
            answered
        }
    }

    /// Records a decision that forwards nothing, then answers.
    async fn refuse(
        &self,
        refusal: Refusal,
        early: bool,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let recorded = self.shared.ledger.refuse(&refusal).await;
        self.shared.metrics.decision(self.began.elapsed());
        let own = match (recorded, refusal.verdict) {
            (Err(unrecorded), _) => {
                Own::unrecorded(unrecorded.reason, self.policy().refused_status)
            }
            (Ok(_), Verdict::Local) => match &refusal.facts.host {
                Some(host) => Own::models(&refusal, host),
                None => Own::refusal(&refusal, self.policy().refused_status),
            },
            (Ok(_), Verdict::Refuse | Verdict::Forward) => {
                Own::refusal(&refusal, self.policy().refused_status)
            }
        };
        log::call(&refusal.facts, own.verdict, own.reason, self.began);
        if early {
            return Ok(self.answer_early(own, Some(share)));
        }
        Ok(self.answer(own, Some(share)))
    }

    /// A message that is no call leaves a `refused` record.
    async fn not_a_call(
        self,
        reason: Reason,
        hint: &str,
        body: Incoming,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let forgot = self.forget(body, false).await;
        let bytes = if let Forgot::Whole(facts) = &forgot {
            facts.len
        } else {
            0
        };
        self.shared.metrics.refused_message(reason);
        let own = match self.shared.ledger.message_refused(reason, bytes).await {
            Ok(_) => Own::message(reason, hint, self.policy().refused_status),
            Err(unrecorded) => Own::unrecorded(unrecorded.reason, self.policy().refused_status),
        };
        match forgot {
            Forgot::Unread(Unread::Gone) => Err(Gone),
            Forgot::Whole(_) => Ok(self.reply(own, Some(share))),
            Forgot::Unasked | Forgot::Unread(_) => {
                self.wire.set_drain();
                Ok(self.reply(own.closing(true), Some(share)))
            }
        }
    }

    /// Steps 5 and 6: recorded, sent once, relayed.
    async fn forward(self, plan: Plan, share: Share) -> Result<Response<Reply>, Gone> {
        let facts = plan.facts().clone();
        let ruling = facts.ruling;
        let cleared = match self.shared.ledger.commit(plan).await {
            Ok(cleared) => cleared,
            Err(unrecorded) => {
                let own = Own::unrecorded(unrecorded.reason, self.policy().refused_status);
                log::call(&facts, own.verdict, own.reason, self.began);
                return Ok(self.answer(own, Some(share)));
            }
        };
        self.shared.metrics.decision(self.began.elapsed());
        let sent = super::reply::unless_gone(&self.wire, self.shared.egress.send(cleared))
            .await
            .ok_or(Gone)?;
        match sent {
            Err(failed) => {
                log::call(&facts, Verdict::Refuse, failed.reason, self.began);
                Ok(self.answer(
                    Own::failed(self.id, ruling, &failed, self.policy().refused_status),
                    Some(share),
                ))
            }
            Ok(answer) => {
                log::call(&facts, Verdict::Forward, ruling.reason, self.began);
                self.shared
                    .metrics
                    .call(Some(ruling.leaf), Verdict::Forward, ruling.reason);
                let mut response =
                    Response::new(Reply::relay(answer.body, self.wire.clone(), share));
                *response.status_mut() = answer.status;
                *response.headers_mut() = answer.headers;
                answer::mark_forwarded(response.headers_mut(), self.id, ruling);
                Ok(response)
            }
        }
    }

    /// An answer to a request that was read to its end.
    fn answer(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        self.shared.metrics.call(
            own.ruling.map(|ruling| ruling.leaf),
            own.verdict,
            own.reason,
        );
        self.reply(own, share)
    }

    /// An answer before the request's end: what still comes is drained, and the connection closes.
    fn answer_early(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        self.wire.set_drain();
        self.answer(own.closing(true), share)
    }

    fn reply(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        own.into_response()
            .map(|body| Reply::own(body, self.wire.clone(), share))
    }
}

/// What became of a body that will not leave.
enum Forgot {
    /// Read to its end.
    Whole(crate::admit::BodyFacts),
    /// The client waits for a 100, and gets the refusal instead.
    Unasked,
    Unread(Unread),
}

/// The API root is `/v1`, or `/card/NAME/v1`.
fn split_path(path: &str) -> Path<'_> {
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

impl Shared {
    /// Whether the client showed the token that the policy asks for.
    fn may_ask(&self, headers: &http::HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let mut shown = headers.get_all("leafgate-token").iter();
        match (shown.next(), shown.next()) {
            (Some(value), None) => {
                let differ =
                    |a: &[u8], b: &[u8]| a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
                // The length may be told apart; the bytes may not.
                value.len() == token.expose().len()
                    && std::hint::black_box(differ(value.as_bytes(), token.expose())) == 0
            }
            (None, _) | (Some(_), Some(_)) => false,
        }
    }

    fn next_call(&self) -> CallId {
        let count = self.calls.fetch_add(1, Ordering::Relaxed);
        // Unique in this run by the count, across runs by the random start.
        let low = (self.random_start.wrapping_add(u128::from(count))).to_be_bytes();
        let mut random = [0; 10];
        random.copy_from_slice(&low[6..]);
        CallId::new(self.now().as_millisecond().max(0).unsigned_abs(), random)
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
