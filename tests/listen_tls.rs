//! TLS and client certificates on the proxy's own listener.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test's client opens its own sockets"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use support::{Gate, Host, body, card, entry};

struct Issued {
    cert: CertificateDer<'static>,
    cert_pem: String,
    key: KeyPair,
}

fn authority() -> (Issuer<'static, KeyPair>, CertificateDer<'static>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let (der, pem) = (cert.der().clone(), cert.pem());
    (Issuer::new(params, key), der, pem)
}

fn issue(issuer: &Issuer<'static, KeyPair>, name: &str) -> Issued {
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, issuer).unwrap();
    Issued {
        cert: cert.der().clone(),
        cert_pem: cert.pem(),
        key,
    }
}

/// One call over TLS; `None` where the handshake or the connection fails.
fn call(gate: &Gate, root: &CertificateDer<'static>, client: Option<&Issued>) -> Option<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let key = PrivateKeyDer::try_from(issued.key.serialize_der()).unwrap();
            builder
                .with_client_auth_cert(vec![issued.cert.clone()], key)
                .unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = rustls::StreamOwned::new(
        rustls::ClientConnection::new(Arc::new(config), name).unwrap(),
        TcpStream::connect(gate.address).unwrap(),
    );
    let payload = body();
    let head = gate.head(
        &card(json!({})),
        &format!(
            "Connection: close\r\nContent-Length: {}\r\n\r\n",
            payload.len()
        ),
    );
    tls.write_all(&[head.as_bytes(), &payload].concat()).ok()?;
    let mut answer = Vec::new();
    let _ = tls.read_to_end(&mut answer);
    (!answer.is_empty()).then(|| String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn a_client_certificate_is_asked_for_where_the_policy_names_its_roots() {
    let host = Host::ok();
    let (issuer, root, root_pem) = authority();
    let (stranger, _, _) = authority();
    let server = issue(&issuer, "localhost");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cert.pem"), &server.cert_pem).unwrap();
    std::fs::write(dir.path().join("key.pem"), server.key.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("ca.pem"), root_pem).unwrap();
    let gate = Gate::built_in(
        dir,
        &entry(&host, ""),
        "",
        "tls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"ca.pem\" }",
    );
    assert_eq!(call(&gate, &root, None), None);
    assert_eq!(call(&gate, &root, Some(&issue(&stranger, "client"))), None);
    let refused = gate.wait("refused", 2);
    assert!(
        refused.len() == 2 && refused.iter().all(|r| r["reason"] == "client_not_allowed"),
        "{refused:?}"
    );
    assert_eq!(host.accepts(), 0);
    let answer = call(&gate, &root, Some(&issue(&issuer, "client"))).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Clear text on the port is no message at all.
    let plain = gate.raw(b"GET /v1/models HTTP/1.1\r\n\r\n");
    assert_eq!(plain.status, 0);
    assert_eq!(host.seen().len(), 1);
}
