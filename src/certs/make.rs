//! Makes an authority that can vouch for a list of names alone.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _,
};
use sha2::{Digest as _, Sha256};

use super::{Name, date, seconds};

/// How long an authority lives. Each client is told of it by hand, so days would be too short; a key on a disk that can vouch for the policy's hosts is worth
/// changing, so a year is too long.
pub const LIFE: Duration = Duration::from_secs(180 * 86_400);

/// It is valid from a little before it was made: a client's clock may be behind.
const BEFORE: u64 = 3_600;

/// A new authority.
pub struct Made {
    /// The certificate, PEM.
    pub ca: String,
    /// Its private key, PEM (PKCS #8).
    pub key: String,
    /// Until when it is valid.
    pub until: SystemTime,
}

/// Why none was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// An authority for no name would have no limit.
    #[error("no name to vouch for")]
    NoName,
    /// The library or the system's random bytes.
    #[error("the certificate could not be made")]
    Rcgen(#[from] rcgen::Error),
}

/// Makes an authority for these names, valid from now on.
///
/// # Errors
/// Where there is no name, or the system gives no random bytes.
pub fn make(names: &[Name], now: SystemTime) -> Result<Made, MakeError> {
    if names.is_empty() {
        return Err(MakeError::NoName);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let begin = seconds(now);
    let end = begin + LIFE.as_secs();
    let mut params = CertificateParams::default();
    params.not_before = date!(begin.saturating_sub(BEFORE));
    params.not_after = date!(end);
    // Two authorities in one store are told apart by their names.
    let tag = Sha256::digest(key.subject_public_key_info());
    let tag: String = tag.iter().take(4).map(|b| format!("{b:02x}")).collect();
    let name = format!("leafgate interception {tag}");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(constraints(names));
    let ca = params.self_signed(&key)?.pem();
    Ok(Made {
        ca,
        key: key.serialize_pem(),
        until: SystemTime::UNIX_EPOCH + Duration::from_secs(end),
    })
}

/// A constraint limits names of its own kind alone (RFC 5280, section 4.2.1.10), so each kind gets one: host names without an entry are all excluded, and so
/// are addresses; those of IPv4 and IPv6 each, since clients differ in whether an entry for the one limits the other.
fn constraints(names: &[Name]) -> NameConstraints {
    let mut permitted = Vec::new();
    let (mut host_names, mut v4, mut v6) = (false, false, false);
    for name in names {
        match name {
            Name::Dns(name) => {
                host_names = true;
                permitted.push(GeneralSubtree::DnsName(name.clone()));
            }
            Name::Address(IpAddr::V4(address)) => {
                v4 = true;
                let whole = CidrSubnet::V4(address.octets(), [0xff; 4]);
                permitted.push(GeneralSubtree::IpAddress(whole));
            }
            Name::Address(IpAddr::V6(address)) => {
                v6 = true;
                let whole = CidrSubnet::V6(address.octets(), [0xff; 16]);
                permitted.push(GeneralSubtree::IpAddress(whole));
            }
        }
    }
    let mut excluded = Vec::new();
    if !host_names {
        excluded.push(GeneralSubtree::DnsName(String::new()));
    }
    if !v4 {
        excluded.push(GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])));
    }
    if !v6 {
        excluded.push(GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])));
    }
    NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: excluded,
    }
}
