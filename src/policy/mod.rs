//! The policy: strict TOML, typed, every fault at once.
//!
//! Promises: a [`Policy`] value is whole and without contradiction; what the file did not say has the contract's default; a
//! secret is in a [`Secret`](crate::terms::Secret) and in no `Debug` output. Makers: [`Policy::load`] and [`Policy::embedded`]. It reads `terms` and nobody else.

mod model;

pub use model::*;

use std::path::Path;

/// One fault of a policy. `Display` is `FILE:LINE: KEY: what is wrong, and what to do`; never the file's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {what}")]
pub struct Fault {
    /// The policy file as given.
    pub file: String,
    /// 1-based line.
    pub line: usize,
    /// Dotted key, `hosts."models.example.org".ca`.
    pub key: String,
    /// What is wrong and what to do next.
    pub what: String,
}

impl Policy {
    /// Loads a policy file.
    ///
    /// # Errors
    /// Every fault, in the order of the file.
    pub fn load(_file: &Path) -> Result<Policy, Vec<Fault>> {
        todo!()
    }

    /// The embedded default (`policies/default.toml`); relative paths are relative to the working directory.
    pub fn embedded() -> Policy {
        todo!()
    }

    /// The effective policy as JSON, no secret in it: what `policy check` prints and `hash` is made of.
    pub fn effective(&self) -> serde_json::Value {
        todo!()
    }
}
