//! Trust in a host: its `ca` alone, else the machine's own store at its fixed paths; and one of its `spki` keys, where it names any.
//!
//! Promises: certificate path, dates and name are always verified by webpki, a pin comes on top and never instead, nor does a staple; TLS 1.2 or 1.3; ALPN
//! `http/1.1` alone; no early data and no resumption, so no session is shared between hosts or outlives a verification; no environment
//! variable is read. The settings of one `Host` value are made when it is first dialled.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};

use super::{Failed, staple};
use crate::files;
use crate::policy::Host;
use crate::terms::Reason;

/// Where machines keep their roots; the first file that is there and holds a certificate counts. Fixed: `SSL_CERT_FILE` is not read.
const MACHINE_ROOTS: [&str; 9] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",   // older RHEL, CentOS
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/ssl/cert.pem",                  // Alpine, macOS, FreeBSD, OpenBSD
    "/usr/local/share/certs/ca-root-nss.crt", // FreeBSD, from ports
    "/usr/local/etc/ssl/cert.pem",        // FreeBSD, DragonFly
    "/etc/openssl/certs/ca-certificates.crt", // NetBSD
    "/etc/certs/ca-certificates.crt",     // Solaris, illumos
];

/// A host's `ca` is read up to here.
const MOST_CA_BYTES: u64 = 8 << 20;

/// TLS settings by host.
#[derive(Default)]
pub(super) struct Settings {
    made: Mutex<Vec<(Arc<Host>, Arc<ClientConfig>)>>,
    machine: Mutex<Option<Arc<RootCertStore>>>,
}

impl Settings {
    /// The settings of this host; reads its roots, off the runtime's threads, the first time.
    pub(super) async fn of(&self, host: &Arc<Host>) -> Result<Arc<ClientConfig>, Failed> {
        let known = self
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .find(|(of, _)| Arc::ptr_eq(of, host))
            .map(|(_, config)| config.clone());
        if let Some(config) = known {
            return Ok(config);
        }
        let machine = self
            .machine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let (ca, spki) = (host.ca.clone(), host.spki.clone());
        let (config, machine) = tokio::task::spawn_blocking(move || make(ca, spki, machine))
            .await
            .unwrap_or_else(|_| Err(no_roots()))?;
        if machine.is_some() {
            *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = machine;
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // A host that only this list still knows belongs to a policy that is gone.
        made.retain(|(of, _)| Arc::strong_count(of) > 1 && !Arc::ptr_eq(of, host));
        made.push((host.clone(), config.clone()));
        Ok(config)
    }

    /// A reload reads the roots again.
    pub(super) fn forget(&self) {
        self.made
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The settings, and the machine's roots where they were needed.
type Made = (Arc<ClientConfig>, Option<Arc<RootCertStore>>);

fn make(
    ca: Option<PathBuf>,
    spki: Vec<[u8; 32]>,
    machine: Option<Arc<RootCertStore>>,
) -> Result<Made, Failed> {
    let (roots, machine) = match ca {
        Some(file) => (Arc::new(own_roots(&file)?), None),
        None => {
            let roots = match machine {
                Some(roots) => roots,
                None => Arc::new(machine_roots()?),
            };
            (roots.clone(), Some(roots))
        }
    };
    let failed = |_| no_roots();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|_| no_roots())?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(failed)?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { inner, spki }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_early_data = false;
    config.resumption = Resumption::disabled();
    Ok((Arc::new(config), machine))
}

fn own_roots(file: &Path) -> Result<RootCertStore, Failed> {
    let mut roots = RootCertStore::empty();
    let unreadable = || {
        Failed::new(
            Reason::TlsFailed,
            "the file that the host's ca names is not there or holds no certificate any more, nothing was sent; mend it and reload",
        )
    };
    // It was read with the policy, and may be another file by now: one that never ends, or that nobody writes.
    let pem = files::read(file, MOST_CA_BYTES).map_err(|_| unreadable())?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| unreadable())?;
        roots.add(certificate).map_err(|_| unreadable())?;
    }
    if roots.is_empty() {
        return Err(unreadable());
    }
    Ok(roots)
}

fn machine_roots() -> Result<RootCertStore, Failed> {
    for file in MACHINE_ROOTS {
        let path = Path::new(file);
        if !path.is_file() {
            continue;
        }
        let found = rustls_native_certs::load_certs_from_paths(Some(path), None);
        let mut roots = RootCertStore::empty();
        // A machine's store may hold a root that webpki does not read; the others stand.
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added > 0 {
            return Ok(roots);
        }
    }
    Err(no_roots())
}

fn no_roots() -> Failed {
    Failed::new(
        Reason::TlsFailed,
        "this machine has no store of root certificates at the known paths, nothing was sent; install one or set the host's ca",
    )
}

/// webpki's verification, and then what comes on top of it: a staple of the right form, and one of the pinned keys, where there are any.
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    spki: Vec<[u8; 32]>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} keys)", self.spki.len())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        if !staple::is_whole(ocsp_response) {
            return Err(CertificateError::InvalidOcspResponse.into());
        }
        if self.spki.is_empty() {
            return Ok(verified);
        }
        let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let digest: [u8; 32] = Sha256::digest(&key).into();
        if self.spki.contains(&digest) {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
