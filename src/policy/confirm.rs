//! `leafgate pin confirm`: sets one host's `copied_at` in the policy file.
//!
//! Promises: everything else in the file stays as it was, comments and order too (but mixed line ends become LF); the file is replaced whole (written beside it, synced,
//! renamed) with the mode it had, or it is left alone.

use std::path::{Path, PathBuf};

use jiff::{Timestamp, Unit};
use toml_edit::{Datetime, DocumentMut, Item, TableLike, Value};

use super::secrets::read_file;
use crate::files::{self, shell_word};
use crate::terms::HostPin;

const POLICY_MOST: u64 = super::POLICY_BYTES;

/// Why a pin was not confirmed. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// The file cannot be read.
    #[error("{}: {why}", file.display())]
    Unread {
        /// The policy file.
        file: PathBuf,
        /// A clause.
        why: String,
    },
    /// The file is no TOML.
    #[error("{}: not TOML; run `leafgate policy check {}`", file.display(), shell_word(file))]
    NotToml {
        /// The policy file.
        file: PathBuf,
    },
    /// The policy has no such host.
    #[error("{}: no host {pin}; see `leafgate pin list --policy {}`", file.display(), shell_word(file))]
    NoHost {
        /// The policy file.
        file: PathBuf,
        /// The pin that was asked for.
        pin: HostPin,
    },
    /// The time has no place in a policy.
    #[error("the time cannot be written as a TOML date and time")]
    Moment,
    /// The new file cannot be written.
    #[error("{}: cannot be written", file.display())]
    Unwritten {
        /// The policy file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Sets `copied_at` of `pin` in the policy file to `moment`, to the second.
///
/// # Errors
/// [`ConfirmError`]; the file is then as it was.
pub fn confirm_pin(file: &Path, pin: &HostPin, moment: Timestamp) -> Result<(), ConfirmError> {
    let unread = |why: String| ConfirmError::Unread {
        file: file.to_owned(),
        why,
    };
    let not_toml = || ConfirmError::NotToml {
        file: file.to_owned(),
    };
    let bytes = read_file(file, POLICY_MOST).map_err(unread)?;
    let text = String::from_utf8(bytes).map_err(|_| not_toml())?;
    let mut document: DocumentMut = text.parse().map_err(|_| not_toml())?;
    // Rounded down: a confirmation must not lie ahead of the clock.
    let moment: Datetime = moment
        .round(
            jiff::TimestampRound::new()
                .smallest(Unit::Second)
                .mode(jiff::RoundMode::Floor),
        )
        .ok()
        .and_then(|moment| moment.to_string().parse().ok())
        .ok_or(ConfirmError::Moment)?;
    let host = document
        .get_mut("hosts")
        .and_then(Item::as_table_like_mut)
        .and_then(|hosts| hosts.get_mut(pin.as_str()))
        .and_then(Item::as_table_like_mut)
        .ok_or_else(|| ConfirmError::NoHost {
            file: file.to_owned(),
            pin: pin.clone(),
        })?;
    set(host, moment);
    let mut new = document.to_string();
    // The editor writes LF; a file that ended every line in CRLF keeps it.
    let line_ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    if line_ends > 0 && text.matches("\r\n").count() == line_ends {
        new = new.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    files::replace(file, new.as_bytes()).map_err(|source| ConfirmError::Unwritten {
        file: file.to_owned(),
        source,
    })
}

fn set(host: &mut dyn TableLike, moment: Datetime) {
    let mut new = Value::from(moment);
    if let Some(old) = host.get("copied_at").and_then(Item::as_value) {
        // Blanks and the comment on the line belong to the value.
        *new.decor_mut() = old.decor().clone();
    }
    match host.get_mut("copied_at") {
        Some(item) => *item = Item::Value(new),
        None => {
            host.insert("copied_at", Item::Value(new));
        }
    }
}
