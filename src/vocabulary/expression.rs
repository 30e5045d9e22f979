//! The small language of types, read once for the shipped files and for what a host adds in the policy.
//!
//! Promises: nothing of the text is in a fault, for a policy's faults show nothing of the file; a host's type has no array that could carry numbers.

use std::collections::HashMap;

use super::{ANY, Names, Type, TypeId};

/// A host's own closed value has at most this many bytes.
const WORD: usize = 64;

/// What is wrong with a type's text, and the byte where it was seen (0 is the first).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}, at byte {at}")]
pub(crate) struct TypeFault {
    what: &'static str,
    at: usize,
}

/// Who writes the type.
#[derive(Debug, Clone, Copy)]
pub(super) enum Writer<'a> {
    /// A shipped file: all of the language, with its shapes by name.
    File(&'a HashMap<String, usize>),
    /// A policy: `text`, `number`, `boolean`, `null`, closed values, and arrays of text and closed values.
    Host,
}

/// Reads the text of a type into `types`.
pub(super) fn read(
    text: &str,
    writer: Writer<'_>,
    types: &mut Vec<Type>,
) -> Result<TypeId, TypeFault> {
    let mut expression = Expression {
        text,
        rest: text,
        writer,
        types,
    };
    expression.read(None)
}

struct Expression<'a> {
    text: &'a str,
    rest: &'a str,
    writer: Writer<'a>,
    types: &'a mut Vec<Type>,
}

impl Expression<'_> {
    fn fault(&self, what: &'static str) -> TypeFault {
        TypeFault {
            what,
            at: self.text.len() - self.rest.len(),
        }
    }

    /// A fault where a policy writes what only a shipped file may.
    fn for_files(&self) -> Result<(), TypeFault> {
        match self.writer {
            Writer::File(_) => Ok(()),
            Writer::Host => Err(self.fault(
                "any, model, data_url, base64, @NAME and {TYPE} are for the shipped vocabularies alone",
            )),
        }
    }

    fn read(&mut self, close: Option<char>) -> Result<TypeId, TypeFault> {
        let mut all = Type::default();
        let mut is_any = false;
        loop {
            self.rest = self.rest.trim_ascii_start();
            match self.rest.chars().next() {
                Some('[') => self.array(close, &mut all)?,
                Some('{') => {
                    self.for_files()?;
                    self.rest = &self.rest[1..];
                    let value = self.read(Some('}'))?;
                    self.object(&mut all, Names::Free(value))?;
                }
                Some('\'') => all.words.push(self.closed()?.into()),
                Some(_) | None => is_any |= self.word(&mut all, close)?,
            }
            self.rest = self.rest.trim_ascii_start();
            match (self.rest.chars().next(), close) {
                (Some('|'), _) => self.rest = &self.rest[1..],
                (None, None) => break,
                (Some(c), Some(wanted)) if c == wanted => {
                    self.rest = &self.rest[1..];
                    break;
                }
                (None, Some(_)) => return Err(self.fault("a bracket is not closed")),
                (Some(_), _) => return Err(self.fault("stray text after a type")),
            }
        }
        if is_any {
            return Ok(ANY);
        }
        self.types.push(all);
        Ok(self.types.len() - 1)
    }

    fn array(&mut self, close: Option<char>, all: &mut Type) -> Result<(), TypeFault> {
        if close.is_some() {
            self.item_of_a_host("an array of arrays is a text in disguise")?;
        }
        self.rest = &self.rest[1..];
        let item = self.read(Some(']'))?;
        if all.array.replace(item).is_some() {
            return Err(self.fault("two kinds of array"));
        }
        Ok(())
    }

    /// What a host's array may not hold: any text can be spelt as a list of it.
    fn item_of_a_host(&self, what: &'static str) -> Result<(), TypeFault> {
        match self.writer {
            Writer::File(_) => Ok(()),
            Writer::Host => Err(self.fault(what)),
        }
    }

    fn object(&self, all: &mut Type, names: Names) -> Result<(), TypeFault> {
        if all.object.replace(names).is_some() {
            return Err(self.fault("two kinds of object"));
        }
        Ok(())
    }

    /// A closed value, without its quotes.
    fn closed(&mut self) -> Result<String, TypeFault> {
        let rest = &self.rest[1..];
        let end = rest
            .find('\'')
            .ok_or_else(|| self.fault("a word without its closing quote"))?;
        let word = &rest[..end];
        let plain = (1..=WORD).contains(&end) && word.bytes().all(|b| (0x20..=0x7e).contains(&b));
        if matches!(self.writer, Writer::Host) && !plain {
            return Err(self.fault("a word has 1 to 64 bytes of printable ASCII"));
        }
        self.rest = &rest[end + 1..];
        Ok(word.to_owned())
    }

    /// A word of the language. Returns whether it is `any`.
    fn word(&mut self, all: &mut Type, close: Option<char>) -> Result<bool, TypeFault> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '@')))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        match word {
            "number" | "boolean" | "null" if close.is_some() => self
                .item_of_a_host("numbers, booleans and nulls in an array are a text in disguise")?,
            "any" | "model" | "data_url" | "base64" => self.for_files()?,
            _ if word.starts_with('@') => self.for_files()?,
            _ => {}
        }
        match word {
            // A covered string may stand anywhere; the word says so to a reader.
            "text" => {}
            "model" => all.model = true,
            "data_url" => all.data_url = true,
            "base64" => all.base64 = true,
            "number" => all.number = true,
            "boolean" => all.boolean = true,
            "null" => all.null = true,
            "any" => {}
            "" => return Err(self.fault("a type is missing")),
            _ => self.shape(word, all)?,
        }
        self.rest = rest;
        Ok(word == "any")
    }

    fn shape(&self, word: &str, all: &mut Type) -> Result<(), TypeFault> {
        let shape = match (word.strip_prefix('@'), self.writer) {
            (Some(name), Writer::File(names)) => names.get(name).copied(),
            (Some(_), Writer::Host) | (None, _) => None,
        };
        let shape = shape.ok_or_else(|| self.fault("unknown word"))?;
        self.object(all, Names::Shape(shape))
    }
}
