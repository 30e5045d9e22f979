//! The tree (contract, section 2): the card in, the leaf out. Total and pure: no clock, no file, no policy.
//!
//! Walk in order; the first step that matches wins.
//!
//! | step | matches when | leaf | reason |
//! | --- | --- | --- | --- |
//! | 0 | no card, two cards, or a malformed one | hold | `card_missing`, `card_ambiguous`, `card_malformed` |
//! | 0 | a required field is absent | hold | `field_missing` |
//! | 1 | `egress_class` is `machine-local` | hold | `machine_local` |
//! | 2 | `residue` is not empty | hold | `residue_present` |
//! | 3 | `host_pin`, `fixture_hash`, `replay_window`, `fixture_id` or `writable_surface` is blank | hold | `field_blank` |
//! | 4 | `egress_class` is `redacted-metadata` | split | `redacted_metadata` |
//! | 5 | `egress_class` is `public-fixture` | release | `public_fixture` |
//! | 6 | anything else, a typo included | hold | `class_unknown` |
//!
//! A [`Hold`] has no field that could carry a payload, and no room takes one to send it:
//!
//! ```compile_fail
//! # async fn f(hold: leafgate::tree::Hold, ledger: leafgate::ledger::Ledger) {
//! ledger.commit(hold).await; // a hold is no plan
//! # }
//! ```
//!
//! Its twin, a plan, compiles:
//!
//! ```no_run
//! # async fn f(plan: leafgate::admit::Plan, ledger: leafgate::ledger::Ledger) {
//! let _ = ledger.commit(plan).await;
//! # }
//! ```

use std::sync::Arc;

use crate::card::{Card, CardFault, Reading};
use crate::terms::{EgressClass, Field, Leaf, Reason, Step, is_blank};

/// The order in which step 3 looks for a blank.
const BLANK_ORDER: [Field; 5] = [
    Field::HostPin,
    Field::FixtureHash,
    Field::ReplayWindow,
    Field::FixtureId,
    Field::WritableSurface,
];

/// What the tree says: leaf, step, reason, and the field that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// The leaf.
    pub leaf: Leaf,
    /// The step that matched.
    pub step: Step,
    /// Why.
    pub reason: Reason,
    /// The field that decided, where one did.
    pub field: Option<Field>,
}

/// The tree's decision. Made by [`classify`] alone.
#[derive(Debug)]
pub enum Decision {
    /// Refused outright.
    Hold(Hold),
    /// Eligible to leave as four values.
    Split(Split),
    /// Eligible to leave byte for byte.
    Release(Release),
}

/// A refusal by the tree. It carries no payload and nothing that could become one.
#[derive(Debug)]
pub struct Hold {
    ruling: Ruling,
    fault: Option<CardFault>,
    card: Option<Arc<Card>>,
}

/// A card that may be split, if admission agrees.
#[derive(Debug)]
pub struct Split {
    ruling: Ruling,
    card: Arc<Card>,
}

/// A card that may be released, if admission agrees.
#[derive(Debug)]
pub struct Release {
    ruling: Ruling,
    card: Arc<Card>,
}

impl Decision {
    /// Leaf, step, reason and field.
    pub fn ruling(&self) -> Ruling {
        match self {
            Decision::Hold(hold) => hold.ruling,
            Decision::Split(split) => split.ruling,
            Decision::Release(release) => release.ruling,
        }
    }
}

impl Hold {
    /// Leaf, step, reason and field.
    pub fn ruling(&self) -> Ruling {
        self.ruling
    }

    /// What was wrong with a malformed card.
    pub fn fault(&self) -> Option<CardFault> {
        self.fault
    }

    /// The card, where there was one.
    pub fn card(&self) -> Option<&Arc<Card>> {
        self.card.as_ref()
    }
}

impl Split {
    /// Leaf, step and reason.
    pub fn ruling(&self) -> Ruling {
        self.ruling
    }

    /// The card.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }
}

impl Release {
    /// Leaf, step and reason.
    pub fn ruling(&self) -> Ruling {
        self.ruling
    }

    /// The card.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }
}

/// Walks the tree.
///
/// ```
/// use leafgate::{card::Reading, terms::Leaf, tree::classify};
/// assert_eq!(classify(&Reading::Missing).ruling().leaf, Leaf::Hold);
/// ```
pub fn classify(reading: &Reading) -> Decision {
    // Step 0: no card, two cards, or a malformed one.
    let card = match reading {
        Reading::Missing => return hold(None, None, Step::S0, Reason::CardMissing, None),
        Reading::Ambiguous => return hold(None, None, Step::S0, Reason::CardAmbiguous, None),
        Reading::Malformed(fault) => {
            return hold(
                None,
                Some(*fault),
                Step::S0,
                Reason::CardMalformed,
                fault.field(),
            );
        }
        Reading::Card(card) => card,
    };
    let held = |step, reason, field| hold(Some(card), None, step, reason, Some(field));
    // Step 0: a required field is absent.
    if let Some(field) = Field::REQUIRED.into_iter().find(|field| !card.has(*field)) {
        return held(Step::S0, Reason::FieldMissing, field);
    }
    let class = card.text(Field::EgressClass).and_then(EgressClass::parse);
    // Step 1: machine-local.
    if class == Some(EgressClass::MachineLocal) {
        return held(Step::S1, Reason::MachineLocal, Field::EgressClass);
    }
    // Step 2: residue is not empty.
    if card.residue().is_none_or(|residue| !residue.is_empty()) {
        return held(Step::S2, Reason::ResiduePresent, Field::Residue);
    }
    // Step 3: a field is blank.
    if let Some(field) = BLANK_ORDER
        .into_iter()
        .find(|field| card.text(*field).is_none_or(is_blank))
    {
        return held(Step::S3, Reason::FieldBlank, field);
    }
    let ruling = |leaf, step, reason| Ruling {
        leaf,
        step,
        reason,
        field: Some(Field::EgressClass),
    };
    match class {
        // Step 4: redacted-metadata.
        Some(EgressClass::RedactedMetadata) => Decision::Split(Split {
            ruling: ruling(Leaf::Split, Step::S4, Reason::RedactedMetadata),
            card: card.clone(),
        }),
        // Step 5: public-fixture.
        Some(EgressClass::PublicFixture) => Decision::Release(Release {
            ruling: ruling(Leaf::Release, Step::S5, Reason::PublicFixture),
            card: card.clone(),
        }),
        // Step 6: anything else (step 1 took machine-local).
        Some(EgressClass::MachineLocal) | None => {
            held(Step::S6, Reason::ClassUnknown, Field::EgressClass)
        }
    }
}

fn hold(
    card: Option<&Arc<Card>>,
    fault: Option<CardFault>,
    step: Step,
    reason: Reason,
    field: Option<Field>,
) -> Decision {
    Decision::Hold(Hold {
        ruling: Ruling {
            leaf: Leaf::Hold,
            step,
            reason,
            field,
        },
        fault,
        card: card.cloned(),
    })
}
