//! TLS for clients (contract, section 7, `listen.tls`): rustls, HTTP/1.1 alone, client certificates where the policy names their roots.
//!
//! Promises: each connection is a whole handshake, so that a client's certificate was good when its connection was made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::policy::ListenTls;

/// Why the listener's TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file.
    #[error("listen.tls: {} cannot be used", .path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate, key or roots do not fit.
    #[error("listen.tls: the certificate, key or roots do not fit together")]
    Config(#[from] rustls::Error),
    /// The roots for client certificates.
    #[error("listen.tls: client_ca holds no usable root")]
    ClientCa(#[from] rustls::server::VerifierBuilderError),
}

/// The acceptor for the policy's listener.
///
/// # Errors
/// Names the file that cannot be used.
pub(super) fn acceptor(tls: &ListenTls) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root)?;
            }
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?,
            )
        }
    };
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|source| TlsError::Pem {
        path: tls.key.clone(),
        source,
    })?;
    let config = builder.with_single_cert(certificates(&tls.cert)?, key)?;
    Ok(TlsAcceptor::from(strict(config)))
}

/// What holds for every TLS server of leafgate: HTTP/1.1 alone, and no session that outlives its connection, for nothing looks at a certificate again where one is
/// taken up: not at a client's that has expired since.
pub(super) fn strict(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem {
        path: path.to_path_buf(),
        source,
    };
    CertificateDer::pem_file_iter(path)
        .map_err(pem)?
        .collect::<Result<_, _>>()
        .map_err(pem)
}
