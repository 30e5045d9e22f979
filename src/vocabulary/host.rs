//! What one host adds to the shipped vocabularies: parameters of the body, named in the policy.
//!
//! Promises: a host adds and never redefines; what it adds stands at the top of the body and nowhere else. The merged vocabularies are made
//! once, when the policy is loaded; a host that adds nothing uses the shipped ones as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::expression::{self, TypeFault, Writer};
use super::{Type, Vocabulary, same, shipped};

/// A parameter's name has at most this many bytes.
const NAME: usize = 64;

/// The vocabularies that the bodies for one host are held against: the shipped ones, with what the policy adds. A clone shares them.
#[derive(Clone, Default)]
pub struct Vocabularies(Option<Arc<Merged>>);

struct Merged {
    added: BTreeMap<String, String>,
    vocabularies: Vec<Vocabulary>,
}

impl Vocabularies {
    /// The vocabulary of a route (`/chat/completions`), where there is one.
    pub(crate) fn for_route(&self, route: &str) -> Option<&Vocabulary> {
        let merged = self.0.as_deref().and_then(|merged| {
            let mut own = merged.vocabularies.iter();
            own.find(|vocabulary| vocabulary.serves(route))
        });
        merged.or_else(|| shipped(route))
    }

    /// What the policy adds: names with their types as written.
    pub fn added(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|merged| &merged.added)
            .map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

/// What is added, by name: the shipped part is in the files.
impl fmt::Debug for Vocabularies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.added()).finish()
    }
}

/// Why a parameter cannot be added. Nothing of the policy's text is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddFault {
    #[error("not a parameter name; write 1 to 64 bytes of [A-Za-z0-9_.-]")]
    Name,
    #[error(
        "not a type that a host may add: {0}; write number, boolean, null, text, 'word', [text] or ['word'], more than one with | between"
    )]
    Type(TypeFault),
    #[error(
        "the vocabulary has this parameter on every route of the host, and a host only adds; remove it here"
    )]
    Known,
    #[error(
        "POST {route} has this parameter already, as {written}, and a host only adds; write that type, remove it here, or take the route off routes"
    )]
    Redefines { route: String, written: String },
}

/// Vocabularies in the making: the shipped ones of a host's routes, to which parameters are added one by one.
///
/// A host's type is `text`, `number`, `boolean`, `null`, `'word'`, an array of `text` and words, or more than one of these with `|` between. An array of anything
/// else would be a text in disguise, and what has a shape of its own belongs in a shipped file.
#[derive(Debug)]
pub(crate) struct Adding {
    added: BTreeMap<String, String>,
    /// Each with the route of the host that it is for.
    vocabularies: Vec<(String, Vocabulary)>,
}

impl Adding {
    /// For a host with these routes; `None` where none of them has a vocabulary.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = &'a str>) -> Option<Adding> {
        let vocabularies: Vec<_> = routes
            .filter_map(|route| {
                let mut vocabulary = shipped(route)?.clone();
                vocabulary.part_body();
                Some((route.to_owned(), vocabulary))
            })
            .collect();
        (!vocabularies.is_empty()).then_some(Adding {
            added: BTreeMap::new(),
            vocabularies,
        })
    }

    /// Adds a parameter to each vocabulary that does not have it. One that has it must have it with this very type.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> Result<(), AddFault> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !(1..=NAME).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(AddFault::Name);
        }
        let mut types: Vec<Type> = Vec::new();
        let id = expression::read(text, Writer::Host, &mut types).map_err(AddFault::Type)?;
        let known = |vocabulary: &Vocabulary| vocabulary.written.contains_key(name);
        if self.vocabularies.iter().all(|(_, own)| known(own)) {
            return Err(AddFault::Known);
        }
        for (route, own) in &self.vocabularies {
            if let (Some(written), Some((_, theirs))) =
                (own.written.get(name), own.member(own.body, name))
                && !same((&types, id), (&own.types, theirs))
            {
                return Err(AddFault::Redefines {
                    route: route.clone(),
                    written: written.clone(),
                });
            }
        }
        for (_, own) in &mut self.vocabularies {
            if !own.written.contains_key(name) {
                own.add(name, text).map_err(AddFault::Type)?;
            }
        }
        self.added.insert(name.to_owned(), text.to_owned());
        Ok(())
    }

    /// The vocabularies with all that was added, each with its hash.
    pub(crate) fn finish(self) -> Vocabularies {
        if self.added.is_empty() {
            return Vocabularies::default();
        }
        // Names and types are ASCII, so this is `jq -cS` of what `policy check --json` shows.
        let text = serde_json::json!(self.added).to_string();
        let vocabularies = self.vocabularies.into_iter().map(|(_, mut own)| {
            own.seal(&text);
            own
        });
        Vocabularies(Some(Arc::new(Merged {
            vocabularies: vocabularies.collect(),
            added: self.added,
        })))
    }
}
