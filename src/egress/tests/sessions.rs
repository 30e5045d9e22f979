//! Nothing of one TLS session serves another, nothing is shown that was not configured, and a chain is whole or it is none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::kit::*;
use super::tls::*;
use crate::ledger::Sent;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(ca: &Ca) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let pem = rustls::pki_types::CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap();
    roots.add(pem).unwrap();
    Arc::new(roots)
}

/// A host that gives tickets, remembers sessions and would take early data.
fn welcoming(leaf: Leaf, version: &'static SupportedProtocolVersion) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(leaf.chain, leaf.key)
        .unwrap();
    config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    config.max_early_data_size = 16_384;
    config.send_half_rtt_data = true;
    config
}

#[tokio::test]
async fn two_hosts_at_one_address_share_nothing() {
    let ca = ca("root");
    let file = written(&ca.pem);
    let names = ["one.test", "two.test"];
    // Connections that are kept between the calls, and connections that are not.
    let closing = String::from_utf8(OK.to_vec()).unwrap();
    let closing = closing.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let closing = vec![Step::Request, say(closing)];
    for (version, kept) in BOTH
        .iter()
        .flat_map(|version| [(version, true), (version, false)])
    {
        let script = if kept { answers() } else { closing.clone() };
        let params = CertificateParams::new(names.map(str::to_owned)).unwrap();
        let (port, seen) = serve_by(welcoming(leaf_with(&ca, params), version), script).await;
        let [one, two] = names.map(|name| {
            let mut host = tls_host(port, file.path());
            host.base.host = name.to_owned();
            host.base.authority = format!("{name}:{port}");
            host
        });
        let one = Way::to(one);
        let two = Way {
            host: Arc::new(two),
            ..one.clone()
        };
        let connections = if kept { 1 } else { 2 };
        for round in 1..=2 {
            for way in [&one, &two, &one, &two] {
                way.call().await.ok(b"{}");
            }
            let seen = seen.lock().unwrap();
            let spoken: Vec<_> = seen.hellos.iter().map(|(sni, _)| sni.as_deref()).collect();
            let expected = names.map(Some).repeat(round * connections);
            assert_eq!(spoken, expected, "each host has its own connections");
            drop(seen);
            // A policy that takes over.
            one.egress.close_kept();
        }
        let seen = seen.lock().unwrap();
        let text = String::from_utf8_lossy(&seen.bytes);
        for name in names {
            let line = format!("\r\nhost: {name}:{port}\r\n");
            assert_eq!(text.matches(&line).count(), 4, "{name}");
        }
        let resumed = |end: &(HandshakeKind, bool)| end.0 == HandshakeKind::Resumed;
        assert_eq!(seen.ends.len(), 4 * connections);
        assert!(!seen.ends.iter().any(resumed), "{:?}", seen.ends);
    }
}

/// The twin: this host does resume for a client that asks for it.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a client that is not leafgate")]
async fn the_host_of_these_tests_would_resume() {
    let ca = ca("root");
    for version in BOTH {
        let (port, seen) = serve_by(welcoming(leaf(&ca, NAME), version), answers()).await;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(BOTH)
            .unwrap()
            .with_root_certificates(roots(&ca))
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        for _ in 0..2 {
            let tcp = tokio::net::TcpStream::connect((loopback(), port))
                .await
                .unwrap();
            let name = ServerName::try_from(NAME).unwrap();
            let mut tls = connector.connect(name, tcp).await.unwrap();
            tls.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            tls.read_exact(&mut [0; 20]).await.unwrap();
        }
        let ends = seen.lock().unwrap().ends.clone();
        assert_eq!(ends[1].0, HandshakeKind::Resumed, "{ends:?}");
    }
}

/// A host with a thread of its own, whose tickets follow the handshake without a turn of the runtime between.
#[allow(clippy::disallowed_methods, reason = "a host that is not leafgate")]
fn at_once(config: ServerConfig, answer: &'static [u8]) -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let mut end = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut tls = rustls::Stream::new(&mut end, &mut tcp);
            let (mut buf, mut len) = ([0; 4096], 0);
            while !buf[..len].ends_with(b"}") {
                match tls.read(&mut buf[len..]) {
                    Ok(read) if read > 0 => len += read,
                    Ok(_) | Err(_) => break,
                }
            }
            let _ = tls.write_all(answer);
            end.send_close_notify();
            let _ = end.write_tls(&mut tcp);
        }
    });
    port
}

/// Tickets that come behind the handshake, whenever they come, are no answer before the question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_waits_for_no_ticket_and_trips_over_none() {
    let ca = ca("root");
    let file = written(&ca.pem);
    let closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    for tickets in [0, 2, 40] {
        let mut config = welcoming(leaf(&ca, NAME), &rustls::version::TLS13);
        config.send_tls13_tickets = tickets;
        let way = Way::to(tls_host(at_once(config, closing), file.path()));
        for _ in 0..60 {
            way.call().await.ok(b"{}");
        }
    }
    // The twin: a host that does answer before it was asked.
    let early = vec![say(closing), Step::Hold];
    let (port, _) = serve(leaf(&ca, NAME), BOTH, &[], early).await;
    let done = Way::to(tls_host(port, file.path())).call().await;
    assert!(matches!(done.reason, None | Some("connect_failed")));
}

#[tokio::test]
async fn a_host_that_asks_for_a_certificate_gets_none() {
    let ca = ca("root");
    let file = written(&ca.pem);
    for version in BOTH {
        for needed in [false, true] {
            let asks = WebPkiClientVerifier::builder_with_provider(roots(&ca), provider());
            let asks = if needed {
                asks
            } else {
                asks.allow_unauthenticated()
            };
            let leaf = leaf(&ca, NAME);
            let config = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_client_cert_verifier(asks.build().unwrap())
                .with_single_cert(leaf.chain, leaf.key)
                .unwrap();
            let (port, seen) = serve_by(config, answers()).await;
            let done = Way::to(tls_host(port, file.path())).call().await;
            let seen = seen.lock().unwrap();
            if !needed {
                done.ok(b"{}");
                assert_eq!(seen.ends, [(HandshakeKind::Full, false)]);
                continue;
            }
            // In TLS 1.3 the client is through before the host looks: the verified host got the call and closed on it, or closed before.
            let tls13 = version.version == rustls::ProtocolVersion::TLSv1_3;
            let end = (done.reason.unwrap(), done.outcome().sent);
            if tls13 {
                let ends = [
                    ("host_malformed", Sent::All),
                    ("connect_failed", Sent::None),
                ];
                assert!(ends.contains(&end), "{end:?}");
            } else {
                assert_eq!(end, ("tls_failed", Sent::None));
            }
            assert!(seen.ends.is_empty() && seen.bytes.is_empty());
        }
    }
}

/// An authority below another.
fn below(above: &Ca, params: CertificateParams) -> (Ca, Leaf) {
    let made = leaf_with(above, params.clone());
    let key = KeyPair::try_from(&made.key).unwrap();
    let ca = Ca {
        params,
        key,
        pem: String::new(),
    };
    (ca, made)
}

fn between() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "between");
    params
}

#[tokio::test]
async fn a_chain_is_whole_or_it_is_none() {
    let root = ca("root");
    let file = written(&root.pem);
    let mut plain = CertificateParams::new(vec!["plain.test".to_owned()]).unwrap();
    plain.distinguished_name.push(DnType::CommonName, "plain");
    let mut expired = between();
    expired.not_after = date_time_ymd(2021, 1, 1);
    let mut narrow = between();
    narrow.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("other.test".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    for (what, params, sent, reason) in [
        ("whole", between(), true, None),
        ("not sent", between(), false, Some("tls_failed")),
        (
            "a host that signs for others",
            plain,
            true,
            Some("tls_failed"),
        ),
        ("expired between", expired, true, Some("tls_failed")),
        ("for other names", narrow, true, Some("tls_failed")),
    ] {
        let (ca, link) = below(&root, params);
        let mut leaf = leaf(&ca, NAME);
        if sent {
            leaf.chain.extend(link.chain);
        }
        let (port, seen) = serve(leaf, BOTH, &[], answers()).await;
        let done = Way::to(tls_host(port, file.path())).call().await;
        assert_eq!(done.reason, reason, "{what}");
        assert_eq!(
            seen.lock().unwrap().bytes.is_empty(),
            reason.is_some(),
            "{what}"
        );
    }
    // Two authorities in a row where the upper one may have none below it.
    let mut last = between();
    last.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    for (params, reason) in [(between(), None), (last, Some("tls_failed"))] {
        let (upper, first) = below(&root, params);
        let mut lower = between();
        lower
            .distinguished_name
            .push(DnType::OrganizationName, "lower");
        let (lower, second) = below(&upper, lower);
        let mut leaf = leaf(&lower, NAME);
        leaf.chain
            .extend(second.chain.into_iter().chain(first.chain));
        let (port, _) = serve(leaf, BOTH, &[], answers()).await;
        let done = Way::to(tls_host(port, file.path())).call().await;
        assert_eq!(done.reason, reason);
    }
}

#[tokio::test]
async fn a_ca_that_became_another_file_is_read_at_once_or_not() {
    let ca = ca("root");
    let (port, seen) = serve(leaf(&ca, NAME), BOTH, &[], answers()).await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, mode, 0).unwrap();
    std::fs::write(
        at("long"),
        [ca.pem.as_bytes(), &vec![b'\n'; 9 << 20]].concat(),
    )
    .unwrap();
    std::fs::write(at("broken"), ca.pem.replace("MII", "MMM")).unwrap();
    std::fs::write(at("good"), &ca.pem).unwrap();
    for gone in [
        &at("fifo"),
        &at("long"),
        &at("broken"),
        Path::new("/dev/zero"),
        dir.path(),
    ] {
        let began = Instant::now();
        let done = Way::to(tls_host(port, gone)).call().await;
        assert_eq!(done.reason, Some("tls_failed"), "{}", gone.display());
        assert_eq!(done.outcome().sent, Sent::None);
        // Sooner than `limits.connect` would have ended it.
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{}",
            gone.display()
        );
    }
    assert!(seen.lock().unwrap().bytes.is_empty());
    Way::to(tls_host(port, &at("good"))).call().await.ok(b"{}");
}

/// What a host of [`late`] sends of an answer that nobody asked for before the request, from its beginning or its end; the rest comes with the request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    Nothing,
    First(usize),
    AllBut(usize),
}

/// A host with a thread for each connection that answers each request, and sends a piece of another answer behind its first answer, or behind its handshake. Counts
/// its connections and the bytes that it was sent.
#[allow(clippy::disallowed_methods, reason = "a host that is not leafgate")]
fn late(config: ServerConfig, piece: Piece, at_first: bool) -> (u16, Arc<[AtomicUsize; 2]>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (config, counts) = (
        Arc::new(config),
        Arc::new([(); 2].map(|()| AtomicUsize::new(0))),
    );
    let seen = counts.clone();
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            seen[0].fetch_add(1, Ordering::SeqCst);
            let end = rustls::ServerConnection::new(config.clone()).unwrap();
            let seen = seen.clone();
            std::thread::spawn(move || {
                let _ = speak_late(tcp, end, piece, at_first, &seen[1]);
            });
        }
    });
    (port, counts)
}

fn speak_late(
    mut tcp: std::net::TcpStream,
    mut end: rustls::ServerConnection,
    piece: Piece,
    at_first: bool,
    bytes: &AtomicUsize,
) -> std::io::Result<()> {
    use std::io::{Read, Write};
    const STALE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"stale\":1}";
    let unasked =
        |end: &mut rustls::ServerConnection, out: &mut Vec<u8>| -> std::io::Result<Vec<u8>> {
            let mut record = Vec::new();
            if piece != Piece::Nothing {
                end.writer().write_all(STALE)?;
                end.write_tls(&mut record)?;
            }
            let cut = match piece {
                Piece::Nothing => 0,
                Piece::First(len) => len,
                Piece::AllBut(len) => record.len() - len,
            };
            let rest = record.split_off(cut);
            out.extend(record);
            Ok(rest)
        };
    tcp.set_nodelay(true)?;
    let mut rest = Vec::new();
    // The flight that lets the client through, and the piece behind it in one.
    while at_first && rest.is_empty() && piece != Piece::Nothing {
        end.read_tls(&mut tcp)?;
        end.process_new_packets().map_err(std::io::Error::other)?;
        let mut out = Vec::new();
        while end.wants_write() {
            end.write_tls(&mut out)?;
        }
        let half = end.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
        if half || !end.is_handshaking() {
            rest = unasked(&mut end, &mut out)?;
        }
        tcp.write_all(&out)?;
    }
    end.complete_io(&mut tcp)?;
    for round in 0.. {
        let (mut request, mut buf) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"}") {
            let len = rustls::Stream::new(&mut end, &mut tcp).read(&mut buf)?;
            if len == 0 {
                return Ok(());
            }
            bytes.fetch_add(len, Ordering::SeqCst);
            request.extend_from_slice(&buf[..len]);
        }
        if !rest.is_empty() {
            tcp.write_all(&rest)?;
        }
        // The answer and the piece behind it in one, so that the piece is there when the answer is.
        let mut out = Vec::new();
        end.writer().write_all(OK)?;
        end.write_tls(&mut out)?;
        rest = if round == 0 && !at_first {
            unasked(&mut end, &mut out)?
        } else {
            Vec::new()
        };
        tcp.write_all(&out)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_ends_in_the_next_call_is_no_answer_to_it() {
    let ca = ca("root");
    let file = written(&ca.pem);
    for version in BOTH {
        for (piece, connections) in [
            (Piece::First(1), 2),
            (Piece::First(4), 2),
            (Piece::First(5), 2),
            (Piece::AllBut(1), 2),
            (Piece::AllBut(0), 2),
            // The twin: the connection is kept.
            (Piece::Nothing, 1),
        ] {
            let (port, seen) = late(welcoming(leaf(&ca, NAME), version), piece, false);
            let way = Way::to(tls_host(port, file.path()));
            for _ in 0..2 {
                way.call().await.ok(b"{}");
            }
            assert_eq!(
                seen[0].load(Ordering::SeqCst),
                connections,
                "{version:?} {piece:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_begins_before_the_first_call_is_no_answer_to_it() {
    let ca = ca("root");
    let file = written(&ca.pem);
    for version in BOTH {
        for piece in [Piece::First(3), Piece::AllBut(1), Piece::Nothing] {
            let mut config = welcoming(leaf(&ca, NAME), version);
            // Nothing may come between a record's pieces.
            config.send_tls13_tickets = 0;
            let (port, seen) = late(config, piece, true);
            let way = Way::to(tls_host(port, file.path()));
            let done = way.call().await;
            if piece == Piece::Nothing {
                done.ok(b"{}");
            } else {
                assert_eq!(done.reason, Some("connect_failed"), "{version:?} {piece:?}");
                assert_eq!(seen[1].load(Ordering::SeqCst), 0, "no byte of the call");
            }
        }
    }
}
