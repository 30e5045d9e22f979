//! An authority that was read from its files, and what it signs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::{Name, date, limits, seconds};

/// How long a host's certificate lives. It is made in memory and dies with the process: a day is enough, and a copy is soon worth nothing.
const LEAF_LIFE: u64 = 86_400;
/// It is valid from a little before it was made: a client's clock may be behind.
const BEFORE: u64 = 3_600;
/// What to do with one that is wider than it may be.
const AGAIN: &str = "make one for this policy with leafgate certs init";

/// What is wrong, as a clause, and in which of the two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The certificate.
    Ca(String),
    /// The private key.
    Key(&'static str),
}

/// An authority with its key.
#[derive(Debug)]
pub struct Authority {
    /// Its `Debug` leaves the key out.
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// Seconds since 1970.
    until: u64,
}

/// A host's certificate and key.
pub struct Leaf {
    /// The certificate alone: the client has its authority.
    pub certificate: CertificateDer<'static>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
    /// Until when it is valid.
    pub until: SystemTime,
}

impl Authority {
    /// Reads an authority from PEM, valid at `now`, that vouches for each of `names`, and is limited to them as [`make`](super::make()) limits it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(
        ca: &[u8],
        key: &[u8],
        names: &[Name],
        now: SystemTime,
    ) -> Result<Authority, Unfit> {
        let certificate = one_certificate(ca)?;
        let until = checked(&certificate, seconds(now))?;
        let key = std::str::from_utf8(key)
            .ok()
            .and_then(|pem| KeyPair::from_pem(pem).ok())
            .ok_or(Unfit::Key(
                "holds no private key that leafgate can use; it must be PKCS #8 in PEM, as leafgate certs init writes it",
            ))?;
        let public = key.subject_public_key_info();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| unreadable())?;
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| unreadable())?;
        if parsed.public_key().raw != public {
            return Err(Unfit::Key("is not the key of the certificate in ca"));
        }
        let authority = Authority {
            issuer,
            certificate,
            until,
        };
        authority.covers(names, now)?;
        let (_, parsed) =
            X509Certificate::from_der(&authority.certificate).map_err(|_| unreadable())?;
        limits::names(&parsed, names).map_err(|wide| Unfit::Ca(format!("{wide}; {AGAIN}")))?;
        Ok(authority)
    }

    /// Until when it is valid.
    pub fn until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.until)
    }

    /// Signs a certificate for this name: ECDSA P-256, valid for a day, never longer than the authority.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn leaf(&self, name: &Name, now: SystemTime) -> Result<Leaf, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let begin = seconds(now);
        let end = (begin + LEAF_LIFE).min(self.until);
        let mut params = CertificateParams::default();
        params.not_before = date!(begin.saturating_sub(BEFORE));
        params.not_after = date!(end);
        params.subject_alt_names = vec![name.alternative()?];
        params.distinguished_name = rcgen::DistinguishedName::new();
        // With a blank in it nobody takes it for a host name.
        let subject = "leafgate interception";
        params.distinguished_name.push(DnType::CommonName, subject);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.der().clone();
        Ok(Leaf {
            certificate,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            until: SystemTime::UNIX_EPOCH + Duration::from_secs(end),
        })
    }

    /// Tries it as a client would: webpki follows the name constraints.
    fn covers(&self, names: &[Name], now: SystemTime) -> Result<(), Unfit> {
        let mut roots = RootCertStore::empty();
        roots
            .add(self.certificate.clone())
            .map_err(|_| unreadable())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_| unreadable())?;
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds(now)));
        let vouches = |host: &str| {
            let name = ServerName::try_from(host.to_owned()).ok()?;
            let leaf = self.leaf(&Name::of(host), now).ok()?;
            let verified = verifier.verify_server_cert(&leaf.certificate, &[], &name, &[], at);
            Some(verified.is_ok())
        };
        for name in names {
            let host = match name {
                Name::Dns(name) => name.clone(),
                Name::Address(address) => address.to_string(),
            };
            if vouches(&host) != Some(true) {
                return Err(Unfit::Ca(format!(
                    "does not vouch for the host {host}: its name constraints leave it out; {AGAIN}"
                )));
            }
        }
        Ok(())
    }
}

fn unreadable() -> Unfit {
    Unfit::Ca("holds a certificate that cannot be read".to_owned())
}

fn one_certificate(pem: &[u8]) -> Result<CertificateDer<'static>, Unfit> {
    let mut all = CertificateDer::pem_slice_iter(pem);
    match (all.next(), all.next()) {
        (Some(Ok(_)), None) if memchr::memmem::find(pem, b"PRIVATE KEY-----").is_some() => {
            Err(Unfit::Ca(
                "holds a private key too, and clients are given this file; leave the certificate alone in it, and where others have read it make a new pair with leafgate certs init".to_owned(),
            ))
        }
        (Some(Ok(certificate)), None) => Ok(certificate),
        (None, _) => Err(Unfit::Ca(
            "holds no certificate; name the ca.pem that leafgate certs init wrote".to_owned(),
        )),
        (Some(Err(_)), _) => Err(Unfit::Ca("is not well-formed PEM".to_owned())),
        (Some(Ok(_)), Some(_)) => Err(Unfit::Ca(
            "holds more than one certificate; name the authority alone".to_owned(),
        )),
    }
}

/// What the certificate itself says; gives the end of its time.
fn checked(certificate: &CertificateDer<'_>, now: u64) -> Result<u64, Unfit> {
    let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    if !rest.is_empty() {
        return Err(unreadable());
    }
    let signs = parsed
        .key_usage()
        .map_err(|_| unreadable())?
        .is_some_and(|usage| usage.value.key_cert_sign());
    let moment = |at: i64| u64::try_from(at).unwrap_or(0);
    let until = moment(parsed.validity().not_after.timestamp());
    let fault = if !parsed.is_ca() || !signs {
        "is no authority: it may not sign certificates"
    } else if until <= now {
        "has expired; make a new one with leafgate certs init, and give it to the clients"
    } else if moment(parsed.validity().not_before.timestamp()) > now {
        "is not valid yet; look at this machine's clock"
    } else {
        let wide = |wide| Unfit::Ca(format!("{wide}; {AGAIN}"));
        return limits::purpose(&parsed).map(|()| until).map_err(wide);
    };
    Err(Unfit::Ca(fault.to_owned()))
}
