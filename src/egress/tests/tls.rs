//! A host through TLS: verified, or not one byte of the request.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::kit::*;
use crate::ledger::Sent;
use crate::policy::Host;

pub(super) const NAME: &str = "models.test";

pub(super) struct Ca {
    pub(super) params: CertificateParams,
    pub(super) key: KeyPair,
    pub(super) pem: String,
}

pub(super) fn ca(name: &str) -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Ca { params, key, pem }
}

pub(super) struct Leaf {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    spki: [u8; 32],
    /// An OCSP answer, or nothing.
    staple: Vec<u8>,
}

pub(super) fn leaf_with(ca: &Ca, params: CertificateParams) -> Leaf {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&ca.params, &ca.key);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Leaf {
        chain: vec![certificate.der().clone()],
        spki: Sha256::digest(key.subject_public_key_info()).into(),
        key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        staple: Vec::new(),
    }
}

pub(super) fn leaf(ca: &Ca, name: &str) -> Leaf {
    leaf_with(ca, CertificateParams::new(vec![name.to_owned()]).unwrap())
}

/// What a TLS host saw: SNI and ALPN offers of each hello, of each handshake its kind and whether the client showed a certificate, and the
/// bytes after the handshakes.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) hellos: Vec<(Option<String>, Vec<Vec<u8>>)>,
    pub(super) ends: Vec<(HandshakeKind, bool)>,
    pub(super) bytes: Vec<u8>,
}

pub(super) async fn serve(
    leaf: Leaf,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&[u8]],
    script: Vec<Step>,
) -> (u16, Arc<Mutex<Seen>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert_with_ocsp(leaf.chain, leaf.key, leaf.staple)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    serve_by(config, script).await
}

pub(super) async fn serve_by(config: ServerConfig, script: Vec<Step>) -> (u16, Arc<Mutex<Seen>>) {
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let log = seen.clone();
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (config, log, script) = (config.clone(), log.clone(), script.clone());
            tokio::spawn(async move {
                let Ok(start) =
                    tokio_rustls::LazyConfigAcceptor::new(Default::default(), tcp).await
                else {
                    return;
                };
                {
                    let hello = start.client_hello();
                    log.lock().unwrap().hellos.push((
                        hello.server_name().map(str::to_owned),
                        hello
                            .alpn()
                            .map(|all| all.map(<[u8]>::to_vec).collect())
                            .unwrap_or_default(),
                    ));
                }
                if let Ok(mut stream) = start.into_stream(config).await {
                    let end = stream.get_ref().1;
                    let shown = end.peer_certificates().is_some();
                    let kind = end.handshake_kind().unwrap();
                    log.lock().unwrap().ends.push((kind, shown));
                    play(&mut stream, script, |bytes| {
                        log.lock().unwrap().bytes.extend_from_slice(bytes)
                    })
                    .await;
                }
            });
        }
    });
    (port, seen)
}

pub(super) fn answers() -> Vec<Step> {
    vec![Step::Request, say(OK), Step::Request, say(OK), Step::Hold]
}

pub(super) fn tls_host(port: u16, ca: &Path) -> Host {
    let mut host = named(NAME, port);
    host.base.tls = true;
    host.resolve = vec![loopback()];
    host.ca = Some(ca.to_owned());
    host
}

pub(super) fn written(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

pub(super) const BOTH: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

#[tokio::test]
async fn a_verified_host_gets_the_call_on_one_kept_connection() {
    let ca = ca("root");
    let file = written(&ca.pem);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        for alpn in [&[&b"http/1.1"[..]][..], &[]] {
            let (port, seen) = serve(leaf(&ca, NAME), versions, alpn, answers()).await;
            let way = Way::to(tls_host(port, file.path()));
            for _ in 0..2 {
                let done = way.call().await;
                done.ok(b"{}");
                assert_eq!(
                    (done.outcome().sent, done.outcome().sent_len),
                    (Sent::All, 7)
                );
            }
            let seen = seen.lock().unwrap();
            // One connection; SNI, `host` and the verified name are one; http/1.1 is all that is offered.
            assert_eq!(
                seen.hellos,
                [(Some(NAME.to_owned()), vec![b"http/1.1".to_vec()])]
            );
            assert!(
                String::from_utf8_lossy(&seen.bytes)
                    .contains(&format!("\r\nhost: {NAME}:{port}\r\n"))
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_verified_gets_no_byte() {
    let ca_good = ca("root");
    let ca_other = ca("other");
    let file = written(&ca_good.pem);
    let dated = |from: i32, to: i32| {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        params
    };
    let mut name_in_cn = CertificateParams::new(Vec::new()).unwrap();
    name_in_cn.distinguished_name.push(DnType::CommonName, NAME);
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![NAME.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        Leaf {
            chain: vec![certificate.der().clone()],
            spki: [0; 32],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            staple: Vec::new(),
        }
    };
    let missing_intermediate = {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "between");
        leaf(
            &Ca {
                params,
                key: KeyPair::generate().unwrap(),
                pem: String::new(),
            },
            NAME,
        )
    };
    let huge = {
        let mut leaf = leaf(&ca_good, NAME);
        let filler = leaf.chain[0].clone();
        leaf.chain.extend(std::iter::repeat_n(filler, 400));
        leaf
    };
    for (what, leaf) in [
        ("wrong name", leaf(&ca_good, "other.test")),
        ("wildcard at two levels", leaf(&ca_good, "*.*.test")),
        (
            "wildcard over the name itself",
            leaf(&ca_good, "*.models.test"),
        ),
        ("name only in CN", leaf_with(&ca_good, name_in_cn)),
        ("wildcard over a public suffix", leaf(&ca_good, "*.test")),
        ("expired", leaf_with(&ca_good, dated(2020, 2021))),
        ("not yet valid", leaf_with(&ca_good, dated(2090, 2091))),
        ("untrusted root", leaf(&ca_other, NAME)),
        ("self-signed", self_signed),
        ("missing intermediate", missing_intermediate),
        ("huge chain", huge),
    ] {
        let (port, seen) = serve(leaf, BOTH, &[], answers()).await;
        let done = Way::to(tls_host(port, file.path())).call().await;
        assert_eq!(done.reason, Some("tls_failed"), "{what}");
        let outcome = done.outcome();
        assert_eq!(
            (outcome.sent, outcome.error),
            (Sent::None, Some("tls_failed")),
            "{what}"
        );
        assert_eq!(outcome.peer.unwrap().port(), port);
        assert!(seen.lock().unwrap().bytes.is_empty(), "{what}");
        assert!(
            seen.lock().unwrap().hellos.len() <= 1,
            "{what}: one attempt"
        );
    }
    // The twins: a wildcard that does cover the name, and dates that are right.
    for (name, good) in [
        ("api.models.test", leaf(&ca_good, "*.models.test")),
        (NAME, leaf_with(&ca_good, dated(2020, 2090))),
    ] {
        let (port, _) = serve(good, BOTH, &[], answers()).await;
        let mut host = tls_host(port, file.path());
        host.base.host = name.to_owned();
        Way::to(host).call().await.ok(b"{}");
    }
}

#[tokio::test]
async fn the_machines_store_does_not_know_our_ca_and_a_lost_file_fails() {
    let ca = ca("root");
    let file = written(&ca.pem);
    let (port, seen) = serve(leaf(&ca, NAME), BOTH, &[], answers()).await;
    let mut host = tls_host(port, file.path());
    host.ca = None;
    assert_eq!(Way::to(host).call().await.reason, Some("tls_failed"));
    for gone in ["/nonexistent/ca.pem", "/dev/null"] {
        assert_eq!(
            Way::to(tls_host(port, Path::new(gone))).call().await.reason,
            Some("tls_failed")
        );
    }
    assert!(seen.lock().unwrap().bytes.is_empty());
    Way::to(tls_host(port, file.path())).call().await.ok(b"{}");
}

#[tokio::test]
async fn a_port_that_speaks_no_tls_or_another_protocol_or_nothing() {
    let ca = ca("root");
    let file = written(&ca.pem);
    // Plain text; silence; a close; a reset; an old version's alert.
    for script in [
        vec![say(OK), Step::Hold],
        vec![Step::Hold],
        vec![],
        vec![Step::Reset],
        vec![Step::Bytes(50), say([21, 3, 1, 0, 2, 2, 70]), Step::Hold],
    ] {
        let scripted = Scripted::plays(vec![script]).await;
        let done = Way::to(tls_host(scripted.port, file.path())).call().await;
        assert_eq!(done.reason, Some("tls_failed"));
        assert_eq!((done.outcome().sent, scripted.accepts()), (Sent::None, 1));
        let heard = scripted.heard().concat();
        assert!(!String::from_utf8_lossy(&heard).contains("Bearer"));
    }
    let (port, seen) = serve(leaf(&ca, NAME), BOTH, &[b"h2"], answers()).await;
    assert_eq!(
        Way::to(tls_host(port, file.path())).call().await.reason,
        Some("tls_failed")
    );
    assert!(seen.lock().unwrap().bytes.is_empty());
    // Nobody there at all is another reason.
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    assert_eq!(
        Way::to(tls_host(port, file.path())).call().await.reason,
        Some("connect_failed")
    );
}

#[tokio::test]
async fn a_pinned_key_comes_on_top_and_can_roll_over() {
    let ca_good = ca("root");
    let file = written(&ca_good.pem);
    let (old, new) = (leaf(&ca_good, NAME), leaf(&ca_good, NAME));
    let pins = vec![old.spki, new.spki];
    let stranger = leaf(&ca_good, NAME);
    let wrong_name = leaf(&ca_good, "other.test");
    let wrong_name_pins = vec![wrong_name.spki];
    for (leaf, pins, reason) in [
        (old, pins.clone(), None),
        (new, pins.clone(), None),
        (stranger, pins, Some("tls_failed")),
        (wrong_name, wrong_name_pins, Some("tls_failed")),
    ] {
        let (port, seen) = serve(leaf, BOTH, &[], answers()).await;
        let mut host = tls_host(port, file.path());
        host.spki = pins;
        assert_eq!(Way::to(host).call().await.reason, reason);
        assert_eq!(seen.lock().unwrap().bytes.is_empty(), reason.is_some());
    }
}

#[tokio::test]
async fn an_address_is_verified_as_one_and_gives_no_sni() {
    let ca_good = ca("root");
    let file = written(&ca_good.pem);
    // An address that stands among the names as text is a name, and no address.
    let mut as_text = CertificateParams::new(Vec::new()).unwrap();
    let text = "127.0.0.1".try_into().unwrap();
    as_text.subject_alt_names = vec![rcgen::SanType::DnsName(text)];
    for (leaf, reason) in [
        (leaf(&ca_good, "127.0.0.1"), None),
        (leaf(&ca_good, "127.0.0.2"), Some("tls_failed")),
        (leaf_with(&ca_good, as_text), Some("tls_failed")),
    ] {
        let (port, seen) = serve(leaf, BOTH, &[], answers()).await;
        let mut host = tls_host(port, file.path());
        host.base.host = "127.0.0.1".to_owned();
        assert_eq!(Way::to(host).call().await.reason, reason);
        assert_eq!(seen.lock().unwrap().hellos[0].0, None);
    }
}

#[tokio::test]
async fn a_staple_that_is_no_answer_is_refused() {
    let ca_good = ca("root");
    let file = written(&ca_good.pem);
    for (staple, reason) in [
        (&b"no answer"[..], Some("tls_failed")),
        (&[0x30, 3, 10, 1, 0], Some("tls_failed")),
        (&[0x30, 0x82, 0xff, 0xff, 10, 1, 0], Some("tls_failed")),
        // The authority's word that it has no answer is one, and so is no staple.
        (&[0x30, 3, 10, 1, 3], None),
        (&[], None),
    ] {
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let mut leaf = leaf(&ca_good, NAME);
            leaf.staple = staple.to_vec();
            let (port, seen) = serve(leaf, &[version], &[], answers()).await;
            let done = Way::to(tls_host(port, file.path())).call().await;
            assert_eq!(done.reason, reason, "{staple:?}");
            assert_eq!(seen.lock().unwrap().bytes.is_empty(), reason.is_some());
        }
    }
}

#[tokio::test]
async fn a_body_without_framing_that_tls_does_not_end_is_cut() {
    let ca_good = ca("root");
    let file = written(&ca_good.pem);
    // An orderly end has a close_notify; an attacker's does not.
    let (port, _) = serve(
        leaf(&ca_good, NAME),
        BOTH,
        &[],
        vec![Step::Request, say("HTTP/1.1 200 OK\r\n\r\nabc")],
    )
    .await;
    Way::to(tls_host(port, file.path())).call().await.ok(b"abc");
    let (port, _) = serve(
        leaf(&ca_good, NAME),
        BOTH,
        &[],
        vec![
            Step::Request,
            say("HTTP/1.1 200 OK\r\n\r\nabc"),
            Step::Wait(30),
            Step::Reset,
        ],
    )
    .await;
    let done = Way::to(tls_host(port, file.path())).call().await;
    assert_eq!(
        (done.body.as_slice(), done.cut),
        (&b"abc"[..], Some("host_malformed"))
    );
    assert_eq!(done.outcome().error, Some("host_cut"));
}

#[tokio::test]
async fn a_large_body_goes_and_comes_through_tls() {
    let ca_good = ca("root");
    let file = written(&ca_good.pem);
    let len = 3 << 20;
    let (port, _) = serve(
        leaf(&ca_good, NAME),
        BOTH,
        &[],
        vec![
            Step::Request,
            say(format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n")),
            say(vec![b'y'; len]),
            Step::Hold,
        ],
    )
    .await;
    let way = Way::to(tls_host(port, file.path()));
    let done = way.call_with(vec![b'x'; 5 << 20]).await;
    done.ok(&vec![b'y'; len]);
    assert_eq!(done.outcome().sent_len, 5 << 20);
    assert_eq!(way.egress.inner.kept.count(), 1);
}

/// A TLS session opens more than was asked for: what it holds behind an answer is no answer to the next call.
#[tokio::test]
async fn glued_answers_in_the_session_never_reach_the_next_call() {
    let ca = ca("root");
    let file = written(&ca.pem);
    let poison: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    for total in [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17] {
        let head = |len: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
        let len = total - head(total).len();
        let body = vec![b'a'; len];
        let answer = [head(len).as_bytes(), &body].concat();
        for (glued, connections) in [(poison, 2), (b"", 1)] {
            let script = vec![
                Step::Request,
                say([&answer, glued].concat()),
                Step::Request,
                say([&answer, glued].concat()),
                Step::Hold,
            ];
            let (port, seen) = serve(leaf(&ca, NAME), BOTH, &[], script).await;
            let way = Way::to(tls_host(port, file.path()));
            way.call().await.ok(&body);
            tokio::time::sleep(Duration::from_millis(50)).await;
            way.call().await.ok(&body);
            assert_eq!(seen.lock().unwrap().hellos.len(), connections, "{total}");
        }
    }
}
