//! How a call ends that forwards nothing: its body is forgotten, its decision recorded, its answer given.

use http::Response;
use hyper::body::Incoming;

use super::answer::Own;
use super::body::{Unread, declared_too_large, discard};
use super::call::{Call, Gone};
use super::log::{self, End};
use super::reply::{Reply, Share};
use crate::admit::{BodyFacts, CallFacts, Refusal};
use crate::card::Attach;
use crate::terms::{Field, Reason, Verdict};
use crate::tree::Hold;

/// What became of a body that will not leave.
pub(super) enum Forgot {
    /// Read to its end.
    Whole(BodyFacts),
    /// The client waits for a 100, and gets the refusal instead.
    Unasked,
    Unread(Unread),
}

impl Call {
    /// Reads what will not leave: to its end or its cap; not at all where the client waits for a 100 or declares too much.
    pub(super) async fn forget(&self, body: Incoming, expects: bool) -> Forgot {
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
    pub(super) async fn hold(
        self,
        hold: &Hold,
        place: Option<Attach>,
        body: Incoming,
        expects: bool,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let host = hold
            .card()
            .and_then(|card| self.policy().hosts.get(card.text(Field::HostPin)?).cloned());
        let mut refusal = Refusal::hold(hold, self.id, place, self.via.tunnel.is_some(), host);
        refusal.facts.peer_uid = self.via.peer_uid;
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
    pub(super) async fn refused_at_head(
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
    pub(super) async fn unread(
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
    pub(super) async fn refuse(
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
        log::call(&refusal.facts, End::of(own.verdict, own.reason), self.began);
        if early {
            return Ok(self.answer_early(own, Some(share)));
        }
        Ok(self.answer(own, Some(share)))
    }

    /// A message that is no call leaves a `refused` record.
    pub(super) async fn not_a_call(
        self,
        reason: Reason,
        hint: &str,
        body: Incoming,
        expects: bool,
        share: Share,
    ) -> Result<Response<Reply>, Gone> {
        let forgot = self.forget(body, expects).await;
        let bytes = if let Forgot::Whole(facts) = &forgot {
            facts.len
        } else {
            0
        };
        self.shared.metrics.refused_message(reason);
        let recorded = self
            .shared
            .ledger
            .message_refused_from(reason, bytes, self.via.peer_uid)
            .await;
        let own = match recorded {
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

    /// An answer to a request that was read to its end.
    pub(super) fn answer(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        self.shared.metrics.call(
            own.ruling.map(|ruling| ruling.leaf),
            own.verdict,
            own.reason,
        );
        self.reply(own, share)
    }

    /// An answer before the request's end: what still comes is drained, and the connection closes.
    pub(super) fn answer_early(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        self.wire.set_drain();
        self.answer(own.closing(true), share)
    }

    pub(super) fn reply(&self, own: Own, share: Option<Share>) -> Response<Reply> {
        if own.verdict == Verdict::Refuse {
            self.wire.set_refused();
        }
        own.into_response()
            .map(|body| Reply::own(body, self.wire.clone(), share))
    }
}
