//! The vocabularies: what an API's request may name, as data in `policies/vocabulary/*.toml`, one file for each API, and what a host adds in the policy.
//!
//! Promises: a member name, a closed value or a type that is neither in the file nor added by the host is not in the `Vocabulary`; what the file has, no
//! host can change. It reads nobody. The language of a file:
//!
//! - `[shape.NAME]` is an object; each key is a member name, each value its type. `request` is the body.
//! - a type is one or more of these with `|` between: `text` (any covered string), `model` (one of the host's models),
//!   `data_url` (a picture whose bytes are one of the fixture's files, as a data URL), `base64` (the same, bare), `number`, `boolean`, `null`, `'word'` (a closed value), `@NAME` (an object of that shape), `[TYPE]` (an array), `{TYPE}` (an object whose
//!   names are free, so must be covered), `any` (covered strings, and arrays and objects of `any`: no number, boolean or null, which are data there and no parameters).
//!
//! A string may be covered wherever it stands, closed values or not; that is the checker's matter. A host's types are fewer: see `Adding`.

mod expression;
mod host;

pub(crate) use host::Adding;
pub use host::Vocabularies;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use expression::{TypeFault, Writer};

/// Index of a type.
pub(crate) type TypeId = usize;

/// What an object may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// The members of a shape.
    Shape(usize),
    /// Free names, values of this type.
    Free(TypeId),
}

/// What may stand at a place.
#[derive(Debug, Default, Clone)]
pub(crate) struct Type {
    pub(crate) words: Vec<Box<str>>,
    pub(crate) model: bool,
    pub(crate) data_url: bool,
    pub(crate) base64: bool,
    pub(crate) number: bool,
    pub(crate) boolean: bool,
    pub(crate) null: bool,
    pub(crate) array: Option<TypeId>,
    pub(crate) object: Option<Names>,
}

/// One API's vocabulary.
#[derive(Debug, Clone)]
pub(crate) struct Vocabulary {
    types: Vec<Type>,
    shapes: Vec<HashMap<Box<str>, TypeId>>,
    routes: Vec<String>,
    /// Over the file; what a host adds is hashed after it.
    hasher: Sha256,
    sha256: String,
    /// The shape of the body, and its type.
    body: usize,
    request: TypeId,
    /// The body's parameters with their types as the file writes them.
    written: BTreeMap<String, String>,
}

/// The type of a place the vocabulary does not name: a covered string and nothing else.
pub(crate) const COVERED: TypeId = 0;
/// The type `any`.
pub(crate) const ANY: TypeId = 1;

/// The files, as they are shipped.
pub(crate) const FILES: [(&str, &str); 5] = [
    (
        "openai-chat.toml",
        include_str!("../../policies/vocabulary/openai-chat.toml"),
    ),
    (
        "openai-completions.toml",
        include_str!("../../policies/vocabulary/openai-completions.toml"),
    ),
    (
        "openai-responses.toml",
        include_str!("../../policies/vocabulary/openai-responses.toml"),
    ),
    (
        "openai-embeddings.toml",
        include_str!("../../policies/vocabulary/openai-embeddings.toml"),
    ),
    (
        "anthropic-messages.toml",
        include_str!("../../policies/vocabulary/anthropic-messages.toml"),
    ),
];

// A file that does not parse would bind nothing on its route; a test reads each one.
static ALL: LazyLock<Vec<Vocabulary>> = LazyLock::new(|| {
    FILES
        .iter()
        .filter_map(|(_, text)| Vocabulary::parse(text).ok())
        .collect()
});

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[allow(dead_code, reason = "read by people; a test asks that it is there")]
    api: String,
    #[allow(dead_code, reason = "read by people; a test asks that it is there")]
    date: String,
    #[allow(dead_code, reason = "read by people; a test asks that it is there")]
    source: String,
    routes: Vec<String>,
    shape: BTreeMap<String, BTreeMap<String, String>>,
}

/// The vocabulary of a route (`/chat/completions`), where one is shipped.
fn shipped(route: &str) -> Option<&'static Vocabulary> {
    ALL.iter().find(|vocabulary| vocabulary.serves(route))
}

fn hex(hasher: Sha256) -> String {
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

impl Vocabulary {
    /// Reads a file.
    pub(crate) fn parse(text: &str) -> Result<Vocabulary, String> {
        let mut file: File = toml::from_str(text).map_err(|fault| fault.message().to_owned())?;
        let names: HashMap<String, usize> = file.shape.keys().cloned().zip(0..).collect();
        // What stands in a tool's input is data and no parameter of the API: a number there can be anybody's card number.
        let any = Type {
            array: Some(ANY),
            object: Some(Names::Free(ANY)),
            ..Type::default()
        };
        let mut types = vec![Type::default(), any];
        let mut shapes = Vec::new();
        for (shape, members) in &file.shape {
            let mut map = HashMap::new();
            for (name, text) in members {
                let id = expression::read(text, Writer::File(&names), &mut types)
                    .map_err(|fault| format!("{shape}.{name}: {fault}"))?;
                map.insert(name.as_str().into(), id);
            }
            shapes.push(map);
        }
        let body = *names.get("request").ok_or("no shape `request`")?;
        let hasher = Sha256::new_with_prefix(text);
        let mut vocabulary = Vocabulary {
            sha256: hex(hasher.clone()),
            hasher,
            request: types.len(),
            types,
            shapes,
            routes: file.routes,
            body,
            written: file.shape.remove("request").unwrap_or_default(),
        };
        vocabulary.types.push(Type {
            object: Some(Names::Shape(body)),
            ..Type::default()
        });
        Ok(vocabulary)
    }

    /// The type; one that is not there allows nothing but a covered string.
    pub(crate) fn of(&self, id: TypeId) -> &Type {
        &self.types[id]
    }

    /// The type of a shape's member.
    pub(crate) fn member(&self, shape: usize, name: &str) -> Option<(&str, TypeId)> {
        self.shapes[shape]
            .get_key_value(name)
            .map(|(name, id)| (&**name, *id))
    }

    /// The type of the body.
    pub(crate) fn request(&self) -> TypeId {
        self.request
    }

    /// SHA-256, lower-case hex, of the file and of what the host adds to it (`docs/ledger.md`).
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    fn serves(&self, route: &str) -> bool {
        self.routes.iter().any(|own| own == route)
    }

    /// Adds a parameter to the body, its type as a host may write it.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> Result<(), TypeFault> {
        let id = expression::read(text, Writer::Host, &mut self.types)?;
        self.shapes[self.body].insert(name.into(), id);
        Ok(())
    }

    /// The shape of the body by itself, so that nothing below that has the same shape takes what is added.
    pub(crate) fn part_body(&mut self) {
        let body = self.shapes[self.body].clone();
        self.body = self.shapes.len();
        self.shapes.push(body);
        self.request = self.types.len();
        self.types.push(Type {
            object: Some(Names::Shape(self.body)),
            ..Type::default()
        });
    }

    /// Hashes what was added after the file.
    fn seal(&mut self, added: &str) {
        self.hasher.update(added);
        self.sha256 = hex(self.hasher.clone());
    }
}

/// Whether two types, the first without objects, allow the same.
fn same(a: (&[Type], TypeId), b: (&[Type], TypeId)) -> bool {
    let (left, right) = (&a.0[a.1], &b.0[b.1]);
    let kinds = |of: &Type| {
        (
            (of.model, of.data_url, of.base64),
            (of.number, of.boolean, of.null),
            of.object,
        )
    };
    let items = match (left.array, right.array) {
        (Some(left), Some(right)) => same((a.0, left), (b.0, right)),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let words = |of: &Type, other: &Type| of.words.iter().all(|word| other.words.contains(word));
    left.object.is_none()
        && kinds(left) == kinds(right)
        && items
        && words(left, right)
        && words(right, left)
}
