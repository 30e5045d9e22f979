//! The policy: strict TOML, typed, every fault at once.
//!
//! Promises: a [`Policy`] value is whole and without contradiction; what the file did not say has the contract's default; a
//! secret is in a [`Secret`](crate::terms::Secret) and in no `Debug` output. Makers: [`Policy::load`] and [`Policy::embedded`]. It reads `terms` and nobody else.

mod model;

pub use model::*;
