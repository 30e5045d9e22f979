//! Whether a certificate is limited as `certs init` limits it: for these names, to servers, and to no further authority.
//!
//! Promises: what passes has each limit critical where a client may pass over it otherwise, and permits a name or address only where it is one of the policy's;
//! what cannot be read whole does not pass. A clause names what is wider, and never shows what the file says.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName, GeneralSubtree};

use super::Name;

/// A keyUsage with the bit of keyCertSign and no other.
const CERT_SIGN_ALONE: u16 = 1 << 5;

/// What an authority may do beside vouching for names. The error is a clause.
pub(super) fn purpose(certificate: &X509Certificate<'_>) -> Result<(), &'static str> {
    let unread = |_| "has an extension twice, or one that cannot be read";
    let basic = certificate.basic_constraints().map_err(unread)?;
    if !basic.is_some_and(|b| b.critical && b.value.ca && b.value.path_len_constraint == Some(0)) {
        return Err(
            "may make further authorities: its basicConstraints are not critical with pathlen 0",
        );
    }
    let usage = certificate.key_usage().map_err(unread)?;
    if !usage.is_some_and(|usage| usage.critical && usage.value.flags == CERT_SIGN_ALONE) {
        return Err(
            "may do more than sign certificates: its keyUsage is not critical with keyCertSign alone",
        );
    }
    let extended = certificate.extended_key_usage().map_err(unread)?;
    if !extended.is_some_and(|extended| servers_alone(extended.value)) {
        return Err(
            "may vouch for more than servers: its extendedKeyUsage is not serverAuth alone",
        );
    }
    Ok(())
}

fn servers_alone(usage: &ExtendedKeyUsage<'_>) -> bool {
    let more = [
        usage.any,
        usage.client_auth,
        usage.code_signing,
        usage.email_protection,
        usage.time_stamping,
        usage.ocsp_signing,
        !usage.other.is_empty(),
    ];
    usage.server_auth && !more.contains(&true)
}

/// Whether the name constraints permit these names and nothing else. The error is a clause. The parser passes over what a subtree has behind its name
/// (`minimum`, `maximum`); webpki, which the authority was tried with before, does not take such a one.
pub(super) fn names(certificate: &X509Certificate<'_>, own: &[Name]) -> Result<(), String> {
    const UNREAD: &str =
        "has name constraints that cannot be read, or of other kinds than host names and addresses";
    let found = certificate.name_constraints().map_err(|_| UNREAD)?;
    let constraints = found
        .filter(|found| found.critical)
        .ok_or("has no critical name constraints: its key could vouch for every host there is")?
        .value;
    let permitted = subtrees(constraints.permitted_subtrees.as_ref()).ok_or(UNREAD)?;
    let excluded = subtrees(constraints.excluded_subtrees.as_ref()).ok_or(UNREAD)?;
    for (place, subtree) in permitted.iter().enumerate() {
        if !own.iter().any(|name| subtree.is(name)) {
            let kind = match subtree {
                Subtree::Dns(_) => "a host name",
                Subtree::Address(_) => "an address or network",
            };
            let place = place + 1;
            return Err(format!(
                "can vouch for names that are not the policy's: permitted subtree {place} of its name constraints is {kind} that no https base_url has"
            ));
        }
    }
    // A kind of name without an entry is not limited at all (RFC 5280, section 4.2.1.10). Clients differ in whether the two kinds of address are one.
    let kinds = [
        ("host names", Subtree::Dns("")),
        ("IPv4 addresses", Subtree::Address(&[0; 8])),
        ("IPv6 addresses", Subtree::Address(&[0; 32])),
    ];
    for (kind, all) in kinds {
        if !permitted.iter().any(|one| one.same_kind(&all)) && !excluded.contains(&all) {
            return Err(format!(
                "can vouch for names that are not the policy's: its name constraints neither permit {kind} by name nor exclude them all"
            ));
        }
    }
    Ok(())
}

/// A subtree of a kind that leafgate writes.
#[derive(PartialEq)]
enum Subtree<'a> {
    /// A host name, and those below it.
    Dns(&'a str),
    /// An address and its mask.
    Address(&'a [u8]),
}

impl Subtree<'_> {
    /// Whether it stands for this name, and of addresses for this one alone.
    fn is(&self, name: &Name) -> bool {
        match (self, name) {
            (Subtree::Dns(dns), Name::Dns(name)) => dns.eq_ignore_ascii_case(name),
            (Subtree::Address(bytes), Name::Address(address)) => {
                let whole = match address {
                    IpAddr::V4(address) => [address.octets().as_slice(), &[0xff; 4]].concat(),
                    IpAddr::V6(address) => [address.octets().as_slice(), &[0xff; 16]].concat(),
                };
                *bytes == whole
            }
            (Subtree::Dns(_), Name::Address(_)) | (Subtree::Address(_), Name::Dns(_)) => false,
        }
    }

    fn same_kind(&self, other: &Subtree<'_>) -> bool {
        match (self, other) {
            (Subtree::Dns(_), Subtree::Dns(_)) => true,
            (Subtree::Address(one), Subtree::Address(other)) => one.len() == other.len(),
            (Subtree::Dns(_), Subtree::Address(_)) | (Subtree::Address(_), Subtree::Dns(_)) => {
                false
            }
        }
    }
}

/// `None` where one is of another kind.
fn subtrees<'a>(all: Option<&'a Vec<GeneralSubtree<'a>>>) -> Option<Vec<Subtree<'a>>> {
    let read = |subtree: &'a GeneralSubtree<'a>| {
        if let GeneralName::DNSName(dns) = &subtree.base {
            Some(Subtree::Dns(dns))
        } else if let GeneralName::IPAddress(bytes) = &subtree.base {
            Some(Subtree::Address(bytes))
        } else {
            None
        }
    };
    all.into_iter().flatten().map(read).collect()
}
