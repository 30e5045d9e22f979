//! TLS hosts that are none, and clear text where nobody allowed it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leafgate::policy::Policy;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ConnectionTrafficSecrets, ServerConfig, ServerConnection};
use serde_json::json;

use crate::Built;
use crate::kit::own;
use crate::support::{Gate, HOST, Host, body, card, entry, lay_out, ok_response};

pub const CASES: &[Built] = &[
    ("TLS-04", old_versions_and_weak_suites),
    ("TLS-06", a_host_that_renegotiates),
    ("TLS-11", what_a_hello_says),
    ("TLS-12", clear_text_off_loopback),
];

/// A host behind one of its own certificates.
pub struct Secure {
    pub ca: String,
    pub config: Arc<ServerConfig>,
}

impl Secure {
    pub fn new() -> Secure {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(params, ca_key)).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut provider = rustls::crypto::ring::default_provider();
        // One suite of TLS 1.2 whose records are easily made by hand, and all of TLS 1.3.
        provider.cipher_suites.retain(|suite| {
            suite.tls13().is_some() || *suite == TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        });
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.enable_secret_extraction = true;
        Secure {
            ca,
            config: Arc::new(config),
        }
    }

    /// The host at this address, in a policy.
    pub fn entry(address: SocketAddr, more: &str) -> String {
        format!(
            "[hosts.\"{HOST}\"]\nbase_url = \"https://{HOST}:{}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"\nmodels = [\"tiny\"]\nbind = \"cover\"\n{more}",
            address.port()
        )
    }

    /// A leafgate whose host is at this address.
    fn gate(&self, address: SocketAddr) -> Gate {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), &self.ca).unwrap();
        let host = Secure::entry(address, "ca = \"ca.pem\"\n");
        Gate::built_in(dir, &host, "[limits]\nconnect = \"3s\"\n", "")
    }
}

/// What a raw host saw, one entry for each connection.
pub type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// A port that hands each connection to `play`, which says what it heard.
pub fn port(play: impl Fn(TcpStream) -> Vec<u8> + Send + Sync + 'static) -> (SocketAddr, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Heard::default();
    let log = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            let bytes = play(stream);
            log.lock().unwrap().push(bytes);
        }
    });
    (address, heard)
}

/// One good call; it comes out as `tls_failed` with nothing sent.
fn fails(id: &str, gate: &Gate) {
    own(id, &gate.call(&card(json!({})), &body()), 422, "tls_failed");
    let outcome = gate.wait("outcome", 1).pop().unwrap();
    assert_eq!(
        (outcome["sent"].as_str(), outcome["error"].as_str()),
        (Some("none"), Some("tls_failed")),
        "{id}"
    );
}

/// A TLS host that answers well, once for each connection.
pub fn answers(mut stream: TcpStream, config: &Arc<ServerConfig>) {
    let mut conn = ServerConnection::new(config.clone()).unwrap();
    let mut tls = rustls::Stream::new(&mut conn, &mut stream);
    let mut request = vec![0; 65_536];
    let mut len = 0;
    // Head and body may come apart.
    while !request[..len].ends_with(b"}") {
        let read = tls.read(&mut request[len..]).unwrap_or(0);
        if read == 0 {
            return;
        }
        len += read;
    }
    let answer = String::from_utf8(ok_response())
        .unwrap()
        .replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    tls.write_all(answer.as_bytes()).unwrap();
    conn.send_close_notify();
    let _ = conn.write_tls(&mut stream);
}

/// A ServerHello that chooses this version and this suite, with these extensions.
fn server_hello(version: u16, suite: u16, extensions: &[u8]) -> Vec<u8> {
    let length = 38
        + if extensions.is_empty() {
            0
        } else {
            2 + extensions.len()
        };
    let mut hello = vec![2, 0, 0, u8::try_from(length).unwrap()];
    hello.extend(version.to_be_bytes());
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend(suite.to_be_bytes());
    hello.push(0);
    if !extensions.is_empty() {
        hello.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        hello.extend(extensions);
    }
    let mut record = vec![22, 3, 1, 0, u8::try_from(hello.len()).unwrap()];
    record.extend(hello);
    record
}

fn old_versions_and_weak_suites(id: &str) {
    let secure = Secure::new();
    for says in [
        vec![21, 3, 1, 0, 2, 2, 70],
        server_hello(0x0300, 0x0005, &[]),
        server_hello(0x0301, 0xc013, &[]),
        server_hello(0x0302, 0xc013, &[]),
        server_hello(0x0303, 0x0005, &[]), // RC4
        server_hello(0x0303, 0x0003, &[]), // export RC4
        server_hello(0x0303, 0x0002, &[]), // no encryption
        server_hello(0x0303, 0x000a, &[]), // 3DES
        // A good suite, and h2, which was not offered.
        server_hello(0x0303, 0xcca9, &[0, 16, 0, 5, 0, 3, 2, b'h', b'2']),
    ] {
        let (address, heard) = port(move |mut stream| {
            let mut hello = [0; 4096];
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(&says);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            rest
        });
        let gate = secure.gate(address);
        fails(id, &gate);
        drop(gate);
        let heard = heard.lock().unwrap().clone();
        // After its hello the client says an alert, or nothing.
        assert!(
            heard.len() <= 1 && heard.concat().first().is_none_or(|kind| *kind == 21),
            "{id}: {heard:?}"
        );
    }
    good(id, &secure);
}

/// The twin: the same certificate on a host that behaves.
fn good(id: &str, secure: &Secure) {
    let config = secure.config.clone();
    let (address, _) = port(move |stream| {
        answers(stream, &config);
        Vec::new()
    });
    let gate = secure.gate(address);
    assert_eq!(
        gate.call(&card(json!({})), &body()).status,
        200,
        "the twin of {id}"
    );
}

/// Handshakes, sealed by hand, for a connection whose keys these are (RFC 5246, RFC 7905).
fn sealed_hello_request(secrets: &ConnectionTrafficSecrets, seq: u64) -> Vec<u8> {
    let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else {
        panic!("another suite was chosen")
    };
    let key = ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, key.as_ref()).unwrap();
    let key = ring::aead::LessSafeKey::new(key);
    let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
    for (byte, seq) in nonce[4..].iter_mut().zip(seq.to_be_bytes()) {
        *byte ^= seq;
    }
    let mut text = vec![0, 0, 0, 0];
    let bound = [&seq.to_be_bytes()[..], &[22, 3, 3, 0, 4]].concat();
    key.seal_in_place_append_tag(
        ring::aead::Nonce::assume_unique_for_key(nonce),
        ring::aead::Aad::from(bound),
        &mut text,
    )
    .unwrap();
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&[22, 3, 3][..], &length, &text].concat()
}

fn a_host_that_renegotiates(id: &str) {
    let secure = Secure::new();
    let config = secure.config.clone();
    let (address, heard) = port(move |mut stream| {
        let mut conn = ServerConnection::new(config.clone()).unwrap();
        while conn.is_handshaking() {
            while conn.wants_write() {
                conn.write_tls(&mut stream).unwrap();
            }
            conn.read_tls(&mut stream).unwrap();
            conn.process_new_packets().unwrap();
        }
        // The end of the handshake and two HelloRequests, in one write.
        let mut last = Vec::new();
        while conn.wants_write() {
            conn.write_tls(&mut last).unwrap();
        }
        let (seq, secrets) = conn.dangerous_extract_secrets().unwrap().tx;
        for more in 0..2 {
            last.extend(sealed_hello_request(&secrets, seq + more));
        }
        stream.write_all(&last).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    let gate = secure.gate(address);
    fails(id, &gate);
    drop(gate);
    std::thread::sleep(Duration::from_millis(100));
    let heard = heard.lock().unwrap().concat();
    // Alerts alone: no application data, and no second hello.
    let mut rest = &heard[..];
    while let [kind, _, _, high, low, more @ ..] = rest {
        assert_eq!(*kind, 21, "{id}: a record of kind {kind}");
        rest = &more[usize::from(u16::from_be_bytes([*high, *low]))..];
    }
    good(id, &secure);
}

/// The extensions of a ClientHello: kind and content.
fn extensions(hello: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut at = 5 + 4 + 2 + 32;
    let two = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    at += 1 + usize::from(hello[at]);
    at += 2 + two(at);
    at += 1 + usize::from(hello[at]);
    let end = at + 2 + two(at);
    at += 2;
    let mut found = Vec::new();
    while at < end {
        let length = two(at + 2);
        found.push((
            u16::try_from(two(at)).unwrap(),
            hello[at + 4..at + 4 + length].to_vec(),
        ));
        at += 4 + length;
    }
    found
}

fn what_a_hello_says(id: &str) {
    let secure = Secure::new();
    // TLS 1.3 with tickets, so that a session could be taken up again.
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(secure.config.cert_resolver.clone());
    config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    config.max_early_data_size = 16_384;
    let config = Arc::new(config);
    let (address, heard) = port(move |stream| {
        let mut hello = vec![0; 8192];
        let length = loop {
            let seen = stream.peek(&mut hello).unwrap();
            if seen > 5 && seen >= 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])) {
                break seen;
            }
        };
        hello.truncate(length);
        answers(stream, &config);
        hello
    });
    let gate = secure.gate(address);
    for _ in 0..3 {
        let reply = gate.call(&card(json!({})), &body());
        assert_eq!(reply.status, 200, "{id}: {reply:?}");
    }
    let hellos = heard.lock().unwrap().clone();
    assert!(hellos.len() >= 2, "{id}: {} connections", hellos.len());
    for hello in &hellos {
        let all = extensions(hello);
        let of = |kind: u16| {
            all.iter()
                .find(|one| one.0 == kind)
                .map(|one| one.1.clone())
        };
        // The name, byte for byte, and nothing behind it.
        assert!(
            of(0).is_some_and(|sni| sni.ends_with(HOST.as_bytes())),
            "{id}"
        );
        assert_eq!(
            of(16).as_deref(),
            Some(&b"\0\x09\x08http/1.1"[..]),
            "{id}: ALPN"
        );
        assert_eq!(of(41), None, "{id}: a session is taken up again");
        assert_eq!(of(42), None, "{id}: early data");
        assert!(
            of(35).is_none_or(|ticket| ticket.is_empty()),
            "{id}: a ticket"
        );
    }
}

fn clear_text_off_loopback(id: &str) {
    let host = Host::ok();
    let now = jiff::Timestamp::now();
    // Addresses that are a network of the policy's own, and not the class of this machine.
    let written = |addresses: &str, more: &str| {
        entry(
            &host,
            &format!("source = \"https://example.org/\"\ncopied_at = {now:.0}\n{more}"),
        )
        .replace(
            "addresses = \"loopback\"",
            &format!("addresses = {addresses}"),
        )
        .replace(
            "resolve = [\"127.0.0.1\"]\n",
            if addresses.contains("127") {
                "resolve = [\"127.0.0.1\"]\n"
            } else {
                ""
            },
        )
    };
    for addresses in ["\"public\"", "\"private\"", "[\"127.0.0.0/8\"]"] {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path(), &written(addresses, ""), "", "");
        let faults = Policy::load(&dir.path().join("policy.toml")).expect_err(id);
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(
            text.len() == 1 && text[0].contains("clear_text"),
            "{id}: {text:?}"
        );
    }
    let gate = Gate::with(&written("[\"127.0.0.0/8\"]", "clear_text = true"), "");
    let reply = gate.call(&card(json!({})), &body());
    assert_eq!(
        (reply.status, host.seen().len()),
        (200, 1),
        "{id}: {reply:?}"
    );
    assert_eq!(gate.of_kind("decision")[0]["clear_text"], true, "{id}");
}
