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
use super::body::{Bounds, HeldBytes, Unread, declared_too_large, keep};
use super::log::{self, End};
use super::path::{Path, split_path};
use super::reply::{Reply, Share};
use super::state::{Live, Shared};
use super::wire::Wire;
use crate::admit::{
    Admitted, CallHead, CallId, Eligible, Plan, Refusal, SealedBody, Target, check_head,
};
use crate::card::attach;
use crate::egress::Answer;
use crate::policy::{Host, Policy};
use crate::terms::{Reason, Verdict};
use crate::tree::{self, Decision, Ruling};

/// Bytes of a body from which on it is long.
const LONG: u64 = 64 * 1024;

/// The client is not there any more: hyper closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the client closed before its request ended")]
pub(super) struct Gone;

/// How a connection came to leafgate.
#[derive(Debug, Clone, Default)]
pub(super) struct Via {
    /// The user at the other end of the Unix socket.
    pub(super) peer_uid: Option<u32>,
    /// The host of the tunnel that it came through.
    pub(super) tunnel: Option<Arc<Host>>,
}

/// What one call is handled with.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) live: Arc<Live>,
    pub(super) wire: Arc<Wire>,
    pub(super) via: Via,
    pub(super) id: CallId,
    pub(super) began: Instant,
}

/// Handles one request.
pub(super) async fn handle(
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    via: Via,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Gone> {
    let live = shared.live.load_full();
    let id = shared.next_call();
    let call = Call {
        shared,
        live,
        wire,
        via,
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
    pub(super) fn policy(&self) -> &Arc<Policy> {
        &self.live.policy
    }

    async fn judge(
        self,
        parts: Parts,
        body: Incoming,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let expects = parts.headers.contains_key(EXPECT);
        if !self.shared.may_ask(&parts.headers) {
            let hint = "the client showed no valid leafgate-token; send it as the policy's listen.token_env says";
            return self
                .not_a_call(Reason::ClientNotAllowed, hint, body, expects, share)
                .await;
        }
        let path_and_query = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let (target, card_name) = match (parts.uri.authority(), split_path(path_and_query)) {
            _ if self.wire.fragment() => (Target::Fragment, None),
            // Through a tunnel a path is a path of its host, as in the absolute form.
            _ if let Some(tunnel) = &self.via.tunnel => (
                Target::Absolute {
                    authority: &tunnel.base.authority,
                    path: path_and_query,
                },
                None,
            ),
            (Some(authority), _) => (
                Target::Absolute {
                    authority: authority.as_str(),
                    path: path_and_query,
                },
                None,
            ),
            (None, Path::Api { rest, card }) => (Target::Origin(rest), card),
            (None, Path::Elsewhere) => {
                let base = self.shared.base_url();
                let base = match base.strip_suffix("/v1") {
                    Some(root) if parts.uri.path().starts_with("/card/") => {
                        format!("{root}/card/NAME/v1")
                    }
                    Some(_) | None => base,
                };
                let hint = format!("there is nothing at this path; the base URL is {base}");
                return self
                    .not_a_call(Reason::NotFound, &hint, body, expects, share)
                    .await;
            }
        };
        let attached = attach(&parts.headers, card_name, &self.live.cards);
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
            peer_uid: self.via.peer_uid,
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
                    Ok(sealed) => match finish(admitted, sealed) {
                        Err(refusal) => self.refuse(*refusal, false, share).await,
                        Ok(plan) => self.forward(plan, share.holding(held)).await,
                    },
                }
            }
        }
    }

    pub(super) fn bounds(&self) -> Bounds<'_> {
        let limits = &self.live.policy.limits;
        Bounds {
            wire: &self.wire,
            most: limits.body,
            time: limits.client_body,
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
                log::call(&facts, End::of(own.verdict, own.reason), self.began);
                return Ok(self.answer(own, Some(share)));
            }
        };
        self.shared.metrics.decision(self.began.elapsed());
        let egress = &self.shared.egress;
        let Some(sent) = super::reply::unless_gone(&self.wire, egress.send(cleared)).await else {
            let end = End::failed(&facts, egress.dropped_by());
            log::call(&facts, end, self.began);
            return Err(Gone);
        };
        match sent {
            Err(failed) => {
                log::call(
                    &facts,
                    End::failed(&facts, failed.reason.code()),
                    self.began,
                );
                Ok(self.answer(
                    Own::failed(
                        self.id,
                        ruling,
                        facts.host.as_deref(),
                        &failed,
                        self.policy().refused_status,
                    ),
                    Some(share),
                ))
            }
            Ok(answer) => {
                log::call(&facts, End::of(Verdict::Forward, ruling.reason), self.began);
                self.shared
                    .metrics
                    .call(Some(ruling.leaf), Verdict::Forward, ruling.reason);
                Ok(relayed(
                    answer,
                    self.id,
                    ruling,
                    self.wire.clone(),
                    Some(share),
                ))
            }
        }
    }
}

/// Step 4. While a long body is checked, which a hostile one can make last for more than a second, other calls go on in another thread.
fn finish(admitted: Admitted, sealed: SealedBody) -> Result<Plan, Box<Refusal>> {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let many = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if sealed.facts().len >= LONG && many() {
        tokio::task::block_in_place(|| admitted.finish(sealed))
    } else {
        admitted.finish(sealed)
    }
}

/// The host's answer as the client gets it.
pub(super) fn relayed(
    answer: Answer,
    call: CallId,
    ruling: Ruling,
    wire: Arc<Wire>,
    share: Option<Share>,
) -> Response<Reply> {
    let mut response = Response::new(Reply::relay(answer.body, wire, share));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    answer::mark_forwarded(response.headers_mut(), call, ruling);
    response
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
