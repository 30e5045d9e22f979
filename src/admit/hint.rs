//! What a person is told of a hold: the field, and what to do next. Only values that fit their grammar are shown.

use crate::card::{Attach, Card};
use crate::terms::{Field, Reason, Step, fits_byte_class};
use crate::tree::Hold;

/// How many byte classes a message names.
const SHOWN: usize = 4;

/// `tunnel`: whether the call came through one, where a path is the host's and carries no card.
pub(super) fn for_hold(hold: &Hold, attach: Option<Attach>, tunnel: bool) -> String {
    let field = hold.ruling().field.map_or("the card", Field::name);
    match hold.ruling().step {
        Step::S0 => unread(hold, attach, tunnel, field),
        Step::S1 => "egress_class is machine-local; run this job against a model on this machine without leafgate".to_owned(),
        Step::S2 => residue(hold.card().map(std::sync::Arc::as_ref)),
        Step::S3 => format!("{field} is blank; write its value, a blank is not one"),
        // Steps 4 and 5 make no hold.
        Step::S4 | Step::S5 | Step::S6 => {
            "egress_class is none of machine-local, redacted-metadata, public-fixture; correct the spelling".to_owned()
        }
    }
}

/// Step 0: no card, two, a malformed one, or one without a field.
fn unread(hold: &Hold, attach: Option<Attach>, tunnel: bool, field: &str) -> String {
    let reason = hold.ruling().reason;
    if let Some(fault) = hold.fault() {
        return fault.to_string();
    }
    if reason == Reason::CardMissing && attach.is_some() {
        return "no card of this name is in the policy's card folder; write NAME.json there, or correct the name".to_owned();
    }
    if reason == Reason::CardMissing && tunnel {
        return "no card is attached; send one as the leafgate-card header, or as the API key card:NAME (in a tunnel the path is the host's own)".to_owned();
    }
    if reason == Reason::CardMissing {
        return "no card is attached; send one as the leafgate-card header, as /card/NAME/v1 in the base URL, or as the API key card:NAME".to_owned();
    }
    if reason == Reason::CardAmbiguous && tunnel {
        return "more than one card is attached; keep exactly one of header and API key".to_owned();
    }
    if reason == Reason::CardAmbiguous {
        return "more than one card is attached; keep exactly one of header, base URL and API key"
            .to_owned();
    }
    format!("{field} is missing; every card has it, fill it in with leafgate card new")
}

fn residue(card: Option<&Card>) -> String {
    let classes = card.and_then(Card::residue).unwrap_or_default();
    let mut shown: Vec<&str> = classes
        .iter()
        .map(AsRef::as_ref)
        .filter(|class| fits_byte_class(class))
        .take(SHOWN)
        .collect();
    let rest = classes.len() - shown.len();
    let more = format!("{rest} more");
    if rest > 0 {
        shown.push(&more);
    }
    format!(
        "residue names {}; a call that leaves residue stays here, take those bytes out of the fixture first",
        shown.join(", ")
    )
}
