//! The authority for interception: making it, reading it, and the certificates it signs (contract, sections 5 and 10).
//!
//! Promises: what [`make`] makes can vouch for the names it was given and no other (name constraints, critical; path length 0; server certificates alone);
//! an [`Authority`] is one that was read, is valid now, whose key is its own, and that is limited to its names in the same way; its key is in no `Debug` output.
//! Makers: `leafgate certs init` and the policy. Takers: the tunnels of ingress.

mod authority;
mod limits;
mod make;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::SystemTime;

pub use authority::{Authority, Leaf, Unfit};
pub use make::{LIFE, Made, MakeError, make};

/// Whom a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A host name.
    Dns(String),
    /// An address in place of one.
    Address(IpAddr),
}

impl Name {
    /// The host of a `base_url`, without brackets.
    pub fn of(host: &str) -> Name {
        host.parse()
            .map_or_else(|_| Name::Dns(host.to_owned()), Name::Address)
    }

    /// The name in a certificate's subjectAltName.
    fn alternative(&self) -> Result<rcgen::SanType, rcgen::Error> {
        Ok(match self {
            Name::Dns(name) => rcgen::SanType::DnsName(name.as_str().try_into()?),
            Name::Address(address) => rcgen::SanType::IpAddress(*address),
        })
    }
}

/// Seconds since 1970; none before it.
fn seconds(moment: SystemTime) -> u64 {
    moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The moment, as certificates have it. The type is of the crate behind `rcgen`.
macro_rules! date {
    ($seconds:expr) => {
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs($seconds)
    };
}
use date;
