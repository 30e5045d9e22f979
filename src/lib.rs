//! # leafgate
//!
//! An egress-enforcing forwarding proxy for model evaluations. Every call carries a card; a fixed tree gives one of three
//! leaves: **hold** (nothing leaves), **split** (four values leave) or **release** (the body leaves byte for byte, to the pinned
//! host only). Every decision is durable in a hash-chained ledger before a byte leaves.
//!
//! ## The promise, by construction
//!
//! ```text
//! bytes of the call ──► card ─► tree::classify ─► admit ─► ledger.commit ─► egress::send ─► answer
//!                         │           │             │            │
//!                         └── Hold ◄──┴── Refusal ◄─┘            └─ cannot be made durable ⇒ Refusal
//! ```
//!
//! One direction of arrows: `ingress` → `card` → `tree` → `admit` → `ledger` → `egress`. Each arrow is a value with private fields and one
//! maker. A [`tree::Hold`] has nothing that could be sent; an [`admit::Plan`] contains the exact bytes that would leave and is
//! made by `admit` alone; a [`ledger::Cleared`] is made by the ledger alone, once the decision is durable; [`egress`] alone can open it.
//! `docs/architecture.md` walks one call through the files.

pub mod admin;
pub mod admit;
pub mod card;
pub mod certs;
pub mod cli;
pub mod egress;
mod files;
pub mod fixture;
pub mod ingress;
pub mod ledger;
pub mod metrics;
pub mod oracle;
pub mod policy;
pub mod terms;
pub mod tree;
pub mod vocabulary;
