//! The policy: strict TOML, typed, every fault at once.
//!
//! Promises: a [`Policy`] value is whole and without contradiction; what the file did not say has the contract's default; a
//! secret is in a [`Secret`](crate::terms::Secret) and in no `Debug` output. Makers: [`Policy::load`], [`Policy::load_with`] and
//! [`Policy::embedded`]. It reads `terms`, `vocabulary` and `certs`, nobody else.

mod addresses;
mod apart;
mod confirm;
mod effective;
mod fault;
mod host;
mod host_calls;
mod intercept;
mod model;
mod read;
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
mod told;
mod units;
mod url;
mod vocabulary;

pub use confirm::{ConfirmError, confirm_pin};
pub use fault::Fault;
pub use model::*;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use toml::de::DeTable;

use crate::terms::fits_pin;

/// The text of the embedded default policy.
pub const DEFAULT: &str = include_str!("../../policies/default.toml");

/// A policy file has at most this many bytes.
pub(crate) const POLICY_BYTES: u64 = 1 << 20;

const TABLES: [&str; 12] = [
    "version",
    "listen",
    "cards",
    "fixtures",
    "ledger",
    "pins",
    "split",
    "answers",
    "limits",
    "resolver",
    "intercept",
    "hosts",
];

/// Whether `[intercept]` is read. It names files that `certs init` makes for this very policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Everything,
    NoIntercept,
    /// What another user's leafgate alone may read is taken to be as it must be.
    AsClient,
}

impl Policy {
    /// Loads a policy file. The environment is read where the policy names a variable, and nowhere else.
    ///
    /// # Errors
    /// Every fault, in the order of the file.
    pub fn load(file: &Path) -> Result<Policy, Vec<Fault>> {
        Policy::load_with(file, &|name| std::env::var_os(name))
    }

    /// Loads a policy file without its `[intercept]`: for `certs init`, which makes the files that it names, and for a policy whose authority has expired.
    ///
    /// # Errors
    /// Every other fault, in the order of the file.
    pub fn load_without_intercept(file: &Path) -> Result<Policy, Vec<Fault>> {
        read_in(file, &|name| std::env::var_os(name), Reads::NoIntercept)
    }

    /// Loads a policy file with another environment than the process's own.
    ///
    /// # Errors
    /// Every fault, in the order of the file.
    pub fn load_with(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Policy, Vec<Fault>> {
        read_in(file, environment, Reads::Everything)
    }

    /// Loads a policy file as a client of leafgate, who uses none of its secrets: a variable that is not set here is no fault, nor is a secret's file that is
    /// closed to this user. Where the key of `[intercept]` is closed, there is no `[intercept]`.
    ///
    /// # Errors
    /// Every other fault, in the order of the file.
    pub fn load_as_client(file: &Path) -> Result<Policy, Vec<Fault>> {
        let any = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            Some(value.unwrap_or_else(|| OsString::from("not-in-this-shell")))
        };
        read_in(file, &any, Reads::AsClient)
    }

    /// The embedded default (`policies/default.toml`); relative paths are relative to the working directory.
    #[allow(
        clippy::expect_used,
        reason = "a constant text that names no file and no variable; a test loads it"
    )]
    pub fn embedded() -> Policy {
        build(DEFAULT, None, &|_| None, Reads::Everything).expect("the embedded policy is constant")
    }
}

fn read_in(
    file: &Path,
    environment: &dyn Fn(&str) -> Option<OsString>,
    reads: Reads,
) -> Result<Policy, Vec<Fault>> {
    let unread = |what: String| {
        vec![Fault {
            file: file.display().to_string(),
            line: 0,
            column: 1,
            key: "policy".to_owned(),
            what,
        }]
    };
    let bytes =
        secrets::read_file(file, POLICY_BYTES).map_err(|why| unread(format!("the file {why}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let mut fault = unread("not UTF-8; save the file as UTF-8".to_owned());
        for fault in &mut fault {
            fault.line = 1 + memchr::memchr_iter(b'\n', before).count();
        }
        fault
    })?;
    build(&text, Some(file), environment, reads)
}

fn build(
    text: &str,
    file: Option<&Path>,
    environment: &dyn Fn(&str) -> Option<OsString>,
    reads: Reads,
) -> Result<Policy, Vec<Fault>> {
    let context = read::Context {
        file: file.map_or_else(
            || "(embedded policy)".to_owned(),
            |file| file.display().to_string(),
        ),
        text,
        base: file
            .and_then(Path::parent)
            .map(Path::to_owned)
            .unwrap_or_default(),
        environment,
        closed: matches!(reads, Reads::AsClient),
        faults: RefCell::new(Vec::new()),
        paths: RefCell::new(Vec::new()),
    };
    let policy = match DeTable::parse(text) {
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            // The parser's message names what it expected; its `Display` would quote the line, so it is not used.
            context.fault(
                at,
                "toml",
                format!("not TOML: {}", error.message().replace('\n', " ")),
            );
            None
        }
        Ok(table) => Some(typed(&context, table.get_ref(), file, reads)),
    };
    match policy {
        Some(mut policy) if context.faults.borrow().is_empty() => {
            policy.hash = policy.effective_hash();
            Ok(policy)
        }
        Some(_) | None => Err(context.into_faults()),
    }
}

/// The typed policy; only good where no fault was noted.
fn typed(
    context: &read::Context<'_>,
    table: &DeTable<'_>,
    file: Option<&Path>,
    reads: Reads,
) -> Policy {
    let root = context.root(table, &TABLES);
    if let Some(value) = root.need("version")
        && value
            .raw()
            .as_integer()
            .is_none_or(|version| version.as_str() != "1")
    {
        value.fault("not a version that this leafgate reads; write version = 1");
    }
    let base = context.base.as_path();
    let mut secrets = BTreeMap::new();
    let (cards_dir, cards_named) = settings::cards(&root, base);
    let (pin_max_age, placeholders) = settings::pins(&root);
    let mut hosts = BTreeMap::new();
    if let Some(table) = root.get("hosts").and_then(|value| value.names()) {
        for (key, value) in table.entries(fits_pin) {
            if let Some(host) = host::host(key, &value, &placeholders, &mut secrets) {
                hosts.insert(host.pin.clone(), Arc::new(host));
            }
        }
    }
    let policy = Policy {
        file: file.map(Path::to_owned),
        text_sha256: Sha256::digest(context.text).into(),
        hash: String::new(),
        listen: settings::listen(&root, &mut secrets),
        cards_dir,
        cards_named,
        fixtures: settings::fixtures(&root, base, &mut secrets),
        ledger: settings::ledger(&root, base),
        pin_max_age,
        placeholders,
        failure_labels: settings::failure_labels(&root),
        refused_status: settings::refused_status(&root),
        limits: settings::limits(&root),
        resolvers: settings::resolvers(&root),
        intercept: match reads {
            Reads::Everything | Reads::AsClient => intercept::intercept(&root, &hosts),
            Reads::NoIntercept => None,
        },
        hosts,
        secrets,
    };
    apart::copy(context, &root, &policy);
    policy
}
