//! What the body of a call decides, and the plan it ends with.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use sha2::{Digest, Sha256};

use super::head::Passed;
use super::headers::SentHeaders;
use super::{BindFacts, CallFacts, Denied, Departure, Plan, Refusal, SealedBody, split};
use crate::policy::Policy;
use crate::terms::{Field, Reason};

/// A call whose head passed. It waits for its body.
#[derive(Debug)]
pub struct Admitted {
    pub(super) policy: Arc<Policy>,
    pub(super) facts: CallFacts,
    pub(super) passed: Passed,
    pub(super) sent_headers: SentHeaders,
    pub(super) split: bool,
}

impl Admitted {
    /// What is known of the call so far.
    pub fn facts(&self) -> &CallFacts {
        &self.facts
    }

    /// Runs the checks that the body decides and makes the plan.
    ///
    /// # Errors
    /// `label_missing`, `label_unknown`, `payload_contradicts` on a split; `body_unbound` on a release.
    pub fn finish(mut self, body: SealedBody) -> Result<Plan, Box<Refusal>> {
        self.facts.body = Some(body.facts());
        let made = if self.split {
            self.split_parts(&body)
        } else {
            self.release_parts(&body)
        };
        let (bind, method, path, label) = match made {
            Ok(made) => made,
            Err(denied) => return Err(Box::new(Refusal::denied(self.facts, denied))),
        };
        let (bytes, sha256) = match &label {
            Some(label) => {
                let bytes = split::body(
                    &self.passed.id,
                    &self.passed.hash,
                    label,
                    &self.passed.host.split.envelope,
                );
                let sha256 = Sha256::digest(&bytes).into();
                (bytes, sha256)
            }
            None => body.open(),
        };
        self.facts.failure_label = label;
        Ok(self.plan(bind, method, path, bytes, sha256))
    }

    fn plan(
        self,
        bind: Option<BindFacts>,
        method: Method,
        path: String,
        body: Bytes,
        sha256: [u8; 32],
    ) -> Plan {
        let departure = Departure {
            policy: self.policy,
            host: self.passed.host,
            method,
            path,
            headers: self.sent_headers.send,
            body,
            sha256,
            split: self.split,
        };
        Plan::new(self.facts, bind, self.sent_headers.dropped, departure)
    }

    /// A split: the label, and no contradiction. The body is looked at here and dropped.
    fn split_parts(&self, body: &SealedBody) -> Result<Parts, Denied> {
        let card = self.facts.card.as_deref();
        let label = card
            .map(|card| split::label(card, body.look(), &self.policy.failure_labels))
            .transpose()?;
        let path = format!(
            "{}{}",
            self.passed.host.base.path, self.passed.host.split.path
        );
        // A split has a card: `classify` makes no eligible leaf without one. Without a label there is no split.
        let label = label.ok_or_else(|| {
            Denied::new(
                Reason::LabelMissing,
                Field::FailureLabel,
                "a split needs a failure_label".to_owned(),
            )
        })?;
        Ok((None, Method::POST, path, Some(label)))
    }

    /// A release: the body is bound as the host's `bind` says.
    fn release_parts(&self, body: &SealedBody) -> Result<Parts, Denied> {
        let host = &self.passed.host;
        let bind = if self.passed.binds() {
            // `bind` needs a registered fixture: without one nothing could be bound to it.
            let fixture = self.passed.fixture.as_ref().ok_or_else(|| {
                Denied::new(
                    Reason::BodyUnbound,
                    Field::Body,
                    format!(
                        "no fixture is registered for this card; register it with {}",
                        self.policy.fixture_add(self.passed.id.as_str())
                    ),
                )
            })?;
            fixture
                .bind(
                    host,
                    &self.passed.route.path,
                    body.look(),
                    &body.facts().sha256,
                )
                .map_err(|unbound| {
                    let place = if unbound.pointer.is_empty() {
                        "the body".to_owned()
                    } else {
                        format!("the body at {}", unbound.pointer)
                    };
                    Denied::new(
                        Reason::BodyUnbound,
                        Field::Body,
                        match (unbound.uncovered, unbound.hint_for(&self.policy.flag())) {
                            (0, hint) => format!("{place} is not bound to the fixture; {hint}"),
                            (count, hint) => format!(
                                "{place} is not bound to the fixture ({count} characters uncovered); {hint}"
                            ),
                        },
                    )
                })?
        } else {
            BindFacts {
                mode: crate::policy::Bind::None.name(),
                glue_sha256: None,
                vocabulary_sha256: None,
            }
        };
        let path = format!("{}{}", host.base.path, self.passed.route.path);
        Ok((Some(bind), self.passed.route.method.clone(), path, None))
    }
}

/// How it was bound, method, path on the host, and on a split the label.
type Parts = (
    Option<BindFacts>,
    Method,
    String,
    Option<crate::terms::FailureLabel>,
);
