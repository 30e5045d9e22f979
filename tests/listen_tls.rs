//! TLS and client certificates on the proxy's own listener.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test's client opens its own sockets"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, HandshakeKind, StreamOwned};
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

/// A client's TLS, with a certificate or without. It takes a session up again wherever it can.
fn client(
    root: &CertificateDer<'static>,
    issued: Option<&Issued>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(versions)
    .unwrap()
    .with_root_certificates(roots);
    Arc::new(match issued {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let key = PrivateKeyDer::try_from(issued.key.serialize_der()).unwrap();
            builder
                .with_client_auth_cert(vec![issued.cert.clone()], key)
                .unwrap()
        }
    })
}

fn connect(
    config: &Arc<rustls::ClientConfig>,
    to: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(
        ClientConnection::new(config.clone(), name).unwrap(),
        TcpStream::connect(to).unwrap(),
    )
}

/// One call over TLS; `None` where the handshake or the connection fails.
fn call(gate: &Gate, root: &CertificateDer<'static>, issued: Option<&Issued>) -> Option<String> {
    called(gate, &client(root, issued, rustls::ALL_VERSIONS)).map(|(answer, _)| answer)
}

/// The same, with what kind of handshake it was.
fn called(
    gate: &Gate,
    config: &Arc<rustls::ClientConfig>,
) -> Option<(String, Option<HandshakeKind>)> {
    let mut tls = connect(config, gate.address);
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
    let kind = tls.conn.handshake_kind();
    (!answer.is_empty()).then(|| (String::from_utf8_lossy(&answer).into_owned(), kind))
}

/// A listener with this certificate, for clients with one of these roots.
fn gate(host: &Host, server: &Issued, root_pem: &str) -> Gate {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cert.pem"), &server.cert_pem).unwrap();
    std::fs::write(dir.path().join("key.pem"), server.key.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("ca.pem"), root_pem).unwrap();
    Gate::built_in(
        dir,
        &entry(host, ""),
        "",
        "tls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"ca.pem\" }",
    )
}

#[test]
fn a_client_certificate_is_asked_for_where_the_policy_names_its_roots() {
    let host = Host::ok();
    let (issuer, root, root_pem) = authority();
    let (stranger, _, _) = authority();
    let gate = gate(&host, &issue(&issuer, "localhost"), &root_pem);
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

/// A server as rustls makes it, which says one byte to each of two clients.
fn plain_server(server: &Issued) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(server.key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![server.cert.clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming().take(2) {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut tls = StreamOwned::new(connection, tcp.unwrap());
            tls.write_all(b"!").unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
            let _ = tls.read(&mut [0]);
        }
    });
    address
}

#[test]
fn no_session_is_taken_up_again() {
    let host = Host::ok();
    let (issuer, root, root_pem) = authority();
    let server = issue(&issuer, "localhost");
    let gate = gate(&host, &server, &root_pem);
    let issued = issue(&issuer, "client");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        // A certificate that expires between two calls would still be good for the second.
        let config = client(&root, Some(&issued), &[version]);
        for _ in 0..3 {
            let (answer, kind) = called(&gate, &config).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert_eq!(kind, Some(HandshakeKind::Full), "{version:?}");
        }
        // The twin: this very client takes up what another server offers.
        let (address, config) = (plain_server(&server), client(&root, None, &[version]));
        let kinds = [(); 2].map(|()| {
            let mut tls = connect(&config, address);
            let _ = tls.read_to_end(&mut Vec::new());
            tls.conn.handshake_kind()
        });
        assert_eq!(
            kinds,
            [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)],
            "{version:?}"
        );
    }
}
