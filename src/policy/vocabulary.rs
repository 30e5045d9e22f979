//! `vocabulary` of a host: parameters that its bodies may name besides those of the API.
//!
//! Promises: what is written is added or is a fault; nothing is added where it would have no effect. The language is that of the room `vocabulary`.

use super::model::{Bind, Route};
use super::read::Table;
use crate::terms::is_plain_word;
use crate::vocabulary::{Adding, Vocabularies};

/// `bind` is `None` where it could not be told: that is a fault already.
pub(super) fn vocabulary(
    table: &Table<'_>,
    bind: Option<Bind>,
    routes: &[Route],
) -> Option<Vocabularies> {
    let Some(value) = table.get("vocabulary") else {
        return Some(Vocabularies::default());
    };
    let names = value.names()?;
    if names.entries(is_plain_word).next().is_none() {
        value.fault("empty; name at least one parameter, or leave the key out");
    }
    if bind.is_some_and(|bind| bind != Bind::Cover) {
        value.fault("has no effect: only bind = \"cover\" reads a body's parameters; write that, or remove this");
    }
    let posts = routes
        .iter()
        .filter(|route| route.method == http::Method::POST);
    let Some(mut adding) = Adding::new(posts.map(|route| route.path.as_str())) else {
        // No route at all: what was written is a fault already.
        if !routes.is_empty() {
            value.fault("has no effect: no route of this host has a shipped vocabulary to add to; correct routes, or remove this");
        }
        return None;
    };
    for (name, value) in names.entries(is_plain_word) {
        let Some(text) = value.raw().as_str() else {
            value.wrong_type("a type as a string, like \"number\"");
            continue;
        };
        if let Err(fault) = adding.add(name, text) {
            value.fault(fault.to_string());
        }
    }
    Some(adding.finish())
}
