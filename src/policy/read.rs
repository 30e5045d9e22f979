//! A small typed reader over spanned TOML that gathers every fault.
//!
//! Promises: no key is passed over (a table is opened with the keys it may have), no value is coerced, and no fault quotes a value, nor a name that may be a secret in the wrong place.
//! A reading method that returns `None` has noted a fault, so a caller may go on with a default: the policy is not made.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::Fault;
use crate::terms::{HIDDEN_NAME, did_you_mean, shown_name};

/// What every reader shares: where the text came from, and the faults so far.
pub(super) struct Context<'a> {
    pub(super) file: String,
    pub(super) text: &'a str,
    /// The folder that relative paths start from.
    pub(super) base: PathBuf,
    pub(super) environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether a secret's file that this user may not read is no fault.
    pub(super) closed: bool,
    pub(super) faults: RefCell<Vec<(usize, Fault)>>,
    /// Every path that was read so far, with its key.
    pub(super) paths: RefCell<Vec<(String, PathBuf)>>,
}

impl<'a> Context<'a> {
    pub(super) fn fault(&self, at: usize, key: &str, what: impl Into<String>) {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let fault = Fault {
            file: self.file.clone(),
            line: memchr::memchr_iter(b'\n', before).count() + 1,
            column: before.len() - line_start + 1,
            key: key.to_owned(),
            what: what.into(),
        };
        self.faults.borrow_mut().push((at, fault));
    }

    /// Every fault, in the order of the file.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|(at, _)| *at);
        faults.into_iter().map(|(_, fault)| fault).collect()
    }

    pub(super) fn root(&'a self, table: &'a DeTable<'a>, known: &[&str]) -> Table<'a> {
        let table = Table {
            context: self,
            table,
            key: String::new(),
            at: 0,
        };
        table.refuse_unknown(known);
        table
    }
}

/// One table.
pub(super) struct Table<'a> {
    context: &'a Context<'a>,
    table: &'a DeTable<'a>,
    key: String,
    at: usize,
}

impl<'a> Table<'a> {
    fn refuse_unknown(&self, known: &[&str]) {
        for key in self.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let near = did_you_mean(key.get_ref(), known.iter().copied());
                let shown = shown_name(key.get_ref(), known.iter().copied());
                self.context.fault(
                    key.span().start,
                    &join(&self.key, shown),
                    format!("unknown key; remove it or correct its spelling{near}"),
                );
            }
        }
    }

    /// The value of a key, where it is there.
    pub(super) fn get(&self, name: &str) -> Option<Value<'a>> {
        self.table.get_key_value(name).map(|(key, value)| Value {
            context: self.context,
            value: value.get_ref(),
            key: join(&self.key, name),
            at: key.span().start,
        })
    }

    /// The value of a key; a fault where it is absent.
    pub(super) fn need(&self, name: &str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() {
            self.context
                .fault(self.at, &join(&self.key, name), "missing; add this key");
        }
        value
    }

    /// Every entry: for tables whose keys are names. A fault shows those that are `usual`.
    pub(super) fn entries(
        &self,
        usual: fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.table.iter().map(move |(key, value)| {
            let name = key.get_ref().as_ref();
            let name = if usual(name) {
                name
            } else {
                shown_name(name, [])
            };
            let value = Value {
                context: self.context,
                value: value.get_ref(),
                key: join(&self.key, name),
                at: key.span().start,
            };
            (key.get_ref().as_ref(), value)
        })
    }

    pub(super) fn fault(&self, what: impl Into<String>) {
        self.context.fault(self.at, &self.key, what);
    }
}

/// One value and the key it stands under.
pub(super) struct Value<'a> {
    context: &'a Context<'a>,
    value: &'a DeValue<'a>,
    key: String,
    at: usize,
}

impl<'a> Value<'a> {
    pub(super) fn fault(&self, what: impl Into<String>) {
        self.context.fault(self.at, &self.key, what);
    }

    pub(super) fn context(&self) -> &'a Context<'a> {
        self.context
    }

    /// The dotted key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn raw(&self) -> &'a DeValue<'a> {
        self.value
    }

    pub(super) fn wrong_type(&self, wanted: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.fault(format!("wrong type: {found}; write {wanted}"));
    }

    pub(super) fn string(&self) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.wrong_type("a string");
        }
        text
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.wrong_type("true or false");
        }
        value
    }

    /// An integer from `least` to `most`.
    pub(super) fn integer(&self, least: u64, most: u64) -> Option<u64> {
        let Some(integer) = self.value.as_integer() else {
            self.wrong_type("an integer");
            return None;
        };
        let value = u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|value| (least..=most).contains(value));
        if value.is_none() {
            self.fault(format!(
                "out of range; write an integer from {least} to {most}"
            ));
        }
        value
    }

    /// A table with no key but these.
    pub(super) fn table(&self, known: &[&str]) -> Option<Table<'a>> {
        let table = self.names()?;
        table.refuse_unknown(known);
        Some(table)
    }

    /// A table whose keys are names, not words of the policy.
    pub(super) fn names(&self) -> Option<Table<'a>> {
        let DeValue::Table(table) = self.value else {
            self.wrong_type("a table");
            return None;
        };
        Some(Table {
            context: self.context,
            table,
            key: self.key.clone(),
            at: self.at,
        })
    }

    /// An array, each item read by `read`; an item that stands twice is a fault.
    pub(super) fn list<T: PartialEq>(
        &self,
        read: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let DeValue::Array(array) = self.value else {
            self.wrong_type("an array");
            return None;
        };
        let mut items = Vec::with_capacity(array.len());
        for (place, item) in array.iter().enumerate() {
            let value = Value {
                context: self.context,
                value: item.get_ref(),
                key: format!("{}[{place}]", self.key),
                at: item.span().start,
            };
            match read(&value) {
                Some(item) if items.contains(&item) => value.fault("stands twice; remove one"),
                Some(item) => items.push(item),
                None => {}
            }
        }
        Some(items)
    }

    /// As `list`; an empty array is a fault, for it must not come to mean "everything".
    pub(super) fn full_list<T: PartialEq>(
        &self,
        read: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        if matches!(self.value, DeValue::Array(array) if array.is_empty()) {
            self.fault("empty; name at least one, or leave the key out for its default");
            return None;
        }
        self.list(read)
    }

    /// One of these words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        let chosen = words.iter().find(|(word, _)| *word == text);
        if chosen.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.fault(format!(
                "not a known word; write one of {}{}",
                words.join(", "),
                did_you_mean(text, words.iter().copied())
            ));
        }
        chosen.map(|(_, value)| *value)
    }

    /// A path, relative to the policy file.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.beside(self.string()?)
    }

    /// A path that is part of the value, relative to the policy file.
    pub(super) fn beside(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() || text.contains('\0') {
            self.fault("not a path; name a file or folder");
            return None;
        }
        let path = self.context.base.join(Path::new(text));
        let named = (self.key.clone(), path.clone());
        self.context.paths.borrow_mut().push(named);
        Some(path)
    }
}

/// `table.key`, the key quoted where TOML asks for it, cut where it is absurdly long.
fn join(table: &str, key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let bare = key == HIDDEN_NAME || (!key.is_empty() && key.bytes().all(plain));
    let mut shown = if bare {
        key.to_owned()
    } else {
        format!("\"{}\"", key.escape_default())
    };
    if shown.len() > 260 {
        shown.truncate(256);
        shown.push('…');
    }
    if table.is_empty() {
        shown
    } else {
        format!("{table}.{shown}")
    }
}
