//! `CONNECT` with interception: what a client gets through a tunnel, and what it does not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test's client and host open their own sockets"
)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use leafgate::certs::{Name, make};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use support::{
    FIXTURE, Gate, HOST, Reply, body, card, fixture_hash, ok_response, read_reply, split_card,
};

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A host with TLS and an authority of its own, which records what it is sent.
struct TlsHost {
    address: SocketAddr,
    ca: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl TlsHost {
    fn start() -> TlsHost {
        let made = rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TlsHost {
            address: listener.local_addr().unwrap(),
            ca: made.cert.pem(),
            seen: Arc::default(),
        };
        let seen = host.seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tls = ServerConnection::new(config.clone()).unwrap();
                let mut tls = StreamOwned::new(tls, stream);
                let seen = seen.clone();
                std::thread::spawn(move || {
                    while let Some(request) = request(&mut tls) {
                        seen.lock().unwrap().push(request);
                        let _ = tls.write_all(&ok_response());
                        let _ = tls.flush();
                    }
                });
            }
        });
        host
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// One request with a `content-length`, whole.
fn request(stream: &mut impl Read) -> Option<String> {
    let head = head(stream)?;
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}

/// Up to the empty line, and not a byte more.
fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn private(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// leafgate with interception in front of this host.
fn gate(host: &TlsHost) -> Gate {
    listening(host, "")
}

fn listening(host: &TlsHost, listen: &str) -> Gate {
    let dir = tempfile::tempdir().unwrap();
    let made = make(&[Name::of(HOST)], SystemTime::now()).unwrap();
    std::fs::write(dir.path().join("ca.pem"), made.ca).unwrap();
    private(&dir.path().join("ca-key.pem"), &made.key);
    std::fs::write(dir.path().join("host-ca.pem"), &host.ca).unwrap();
    std::fs::write(dir.path().join("token"), "open-sesame-open-sesame").unwrap();
    let hosts = format!(
        "[hosts.\"{HOST}\"]\nbase_url = \"https://{HOST}:{}/v1\"\nresolve = [\"127.0.0.1\"]\naddresses = \"loopback\"\nca = \"host-ca.pem\"\nmodels = [\"tiny\"]\nbind = \"cover\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:11434/v1\"\n",
        host.address.port()
    );
    let intercept = "[intercept]\nca = \"ca.pem\"\nkey = \"ca-key.pem\"\n";
    Gate::built_in(dir, &hosts, intercept, listen)
}

fn client(gate: &Gate, protocols: &[&str], sni: bool) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(gate.path("ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    config.enable_sni = sni;
    Arc::new(config)
}

fn session(gate: &Gate, protocols: &[&str], name: Option<&str>) -> ClientConnection {
    let config = client(gate, protocols, name.is_some());
    let name = ServerName::try_from(name.unwrap_or(HOST).to_owned()).unwrap();
    ClientConnection::new(config, name).unwrap()
}

fn connect_head(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: test\r\n\r\n")
}

/// The stream behind an answered `CONNECT`.
fn connected(gate: &Gate, host: &TlsHost) -> TcpStream {
    let mut stream = gate.connect();
    let target = format!("{HOST}:{}", host.address.port());
    stream.write_all(connect_head(&target).as_bytes()).unwrap();
    let answer = head(&mut stream).unwrap();
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\n");
    stream
}

fn tunnel(gate: &Gate, host: &TlsHost) -> Tls {
    StreamOwned::new(session(gate, &[], Some(HOST)), connected(gate, host))
}

/// A request inside a tunnel: request line, `Host`, card and body.
fn inside(line: &str, host: &str, card: &Value, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nleafgate-card: {card}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn ask(tls: &mut Tls, bytes: &[u8]) -> Reply {
    tls.write_all(bytes).unwrap();
    read_reply(tls)
}

const CHAT: &str = "POST /v1/chat/completions";

#[test]
fn a_request_in_a_tunnel_is_a_call_like_any_other() {
    let host = TlsHost::start();
    let mut gate = gate(&host);
    let authority = format!("{HOST}:{}", host.address.port());
    let mut tls = tunnel(&gate, &host);
    let mut call =
        |line: &str, card: Value| ask(&mut tls, &inside(line, &authority, &card, &body()));

    // Five calls, one tunnel.
    let released = call(CHAT, card(json!({})));
    assert_eq!(
        (released.status, released.reason()),
        (200, "public_fixture")
    );
    let held = call(CHAT, card(json!({"residue": ["names"]})));
    assert_eq!((held.status, held.reason()), (422, "residue_present"));
    let split = call(CHAT, split_card(json!({})));
    assert_eq!((split.status, split.reason()), (200, "redacted_metadata"));
    // The card pins another host than the tunnel's; the path is not the host's; the path of a base URL with a card is leafgate's own.
    let twice = "/v1 stands twice in the path";
    for (line, pin, hint) in [
        (CHAT, "local", "the card pins another host"),
        (CHAT, "nowhere", "the card pins none of the policy"),
        (
            "POST /v1/v1/chat/completions",
            "local",
            "the card pins another host",
        ),
        ("POST /v1/v1/chat/completions", HOST, twice),
        ("POST /v1/files", HOST, "method and path are not on"),
        ("POST /v1/chat/completions#x", HOST, "no fragment"),
        (
            "POST /chat/completions",
            HOST,
            "not below the pinned host's base_url",
        ),
        ("POST /card/seed-04/v1/chat/completions", HOST, "not below"),
        ("POST /v1/chat/completions?x=1", HOST, "no query"),
    ] {
        let refused = call(line, card(json!({"host_pin": pin})));
        assert_eq!(refused.reason(), "route_not_allowed", "{line}");
        let text = String::from_utf8(refused.body).unwrap();
        assert!(text.contains(hint), "{line}: {text}");
        assert_eq!(text.contains(twice), hint == twice, "{line}: {text}");
    }
    let seen = host.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
    assert!(seen[0].contains(&format!("host: {authority}\r\n")));
    assert!(seen[0].as_bytes().ends_with(&body()));
    assert!(seen[1].ends_with(&format!(
        "{{\"fixture_id\":\"doc-17\",\"fixture_hash\":\"{}\",\"egress_class\":\"redacted-metadata\",\"failure_label\":\"wrong-answer\"}}",
        fixture_hash()
    )));
    assert!(!seen[1].contains(&FIXTURE[..20]));
    drop(tls);
    assert_eq!(gate.wait("outcome", 2).len(), 2);
    assert_eq!(gate.of_kind("decision").len(), 12);
    assert!(gate.of_kind("refused").is_empty());
    gate.stop();
    let report = leafgate::ledger::verify(&gate.path("ledger"), &mut |_, _| {}).unwrap();
    assert!(report.problem.is_none(), "{:?}", report.problem);
}

#[test]
fn an_api_key_names_the_card_inside_and_a_missing_one_holds() {
    let host = TlsHost::start();
    let gate = gate(&host);
    let authority = format!("{HOST}:{}", host.address.port());
    let mut tls = tunnel(&gate, &host);
    let mut with = |header: &str| {
        let payload = body();
        let head = format!(
            "{CHAT} HTTP/1.1\r\nHost: {authority}\r\n{header}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            payload.len()
        );
        let reply = ask(&mut tls, &[head.as_bytes(), &payload].concat());
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        (reply.status, reply.reason().to_owned(), told)
    };
    let (status, reason, _) = with("Authorization: Bearer card:seed-04\r\n");
    assert_eq!((status, &*reason), (200, "public_fixture"));
    let (status, reason, told) = with("");
    assert_eq!((status, &*reason), (422, "card_missing"));
    // A path with a card does not exist here.
    assert!(
        told.contains("leafgate-card header") && told.contains("card:NAME"),
        "{told}"
    );
    assert!(!told.contains("/card/"), "{told}");
    assert_eq!(host.seen().len(), 1);
    assert!(!host.seen()[0].contains("card:"));
}

#[test]
fn no_other_name_gets_a_tunnel() {
    let host = TlsHost::start();
    let gate = gate(&host);
    let port = host.address.port();
    // What stands behind the head of a refused CONNECT is never read as a request.
    let behind = format!("GET /v1/models HTTP/1.1\r\nHost: {}\r\n\r\n", gate.address);
    let own = format!("{HOST}:{port}");
    let with = |more: &str| format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n{more}\r\n");
    let heads = [
        connect_head("example.org:443"),
        connect_head(&format!("{HOST}:443")),
        connect_head(&format!("other.{HOST}:{port}")),
        connect_head(&format!("{}:{port}", HOST.to_uppercase())),
        connect_head(&format!("{HOST}.:{port}")),
        connect_head("127.0.0.1:11434"),
        connect_head(&format!("127.0.0.1:{port}")),
        connect_head(HOST),
        connect_head(&format!("https://{own}/")),
        connect_head(&format!("user@{own}")),
        connect_head(&format!("{HOST}:0{port}")),
        format!("CONNECT {own} HTTP/1.0\r\nHost: {own}\r\n\r\n"),
        format!("CONNECT {own} HTTP/1.1\r\n\r\n"),
        format!("CONNECT {own} HTTP/1.1\r\nHost: {}\r\n\r\n", gate.address),
        format!("connect {own} HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        with(&format!("leafgate-card: {}\r\n", card(json!({})))),
        with("Authorization: Bearer card:seed-04\r\n"),
        with("x-api-key: card:seed-04\r\n"),
        with("Content-Length: 0\r\n"),
        with("Transfer-Encoding: chunked\r\n"),
        with("Expect: 100-continue\r\n"),
        with("Origin: https://example.org\r\n"),
        with("Upgrade: h2c\r\n"),
        with("Host: other\r\n"),
        with("bad header: x\r\n"),
    ];
    for head in &heads {
        let reply = gate.raw(format!("{head}{behind}").as_bytes());
        assert_eq!(
            (reply.status, reply.reason()),
            (400, "http_malformed"),
            "{head}"
        );
        let answers = String::from_utf8_lossy(&reply.raw)
            .matches("HTTP/1.1 4")
            .count();
        assert_eq!(answers, 1, "{head}");
    }
    let refused = gate.wait("refused", heads.len());
    assert_eq!(refused.len(), heads.len());
    assert!(
        refused
            .iter()
            .all(|record| record["reason"] == "http_malformed")
    );
    assert!(gate.of_kind("decision").is_empty() && host.seen().is_empty());
    // The twin: other headers do not matter.
    let mut stream = gate.connect();
    let good = with("Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n");
    stream.write_all(good.as_bytes()).unwrap();
    assert!(head(&mut stream).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn without_interception_every_connect_is_refused() {
    let host = support::Host::ok();
    let gate = Gate::in_front_of(&host);
    let own = format!("{HOST}:{}", host.address.port());
    let reply = gate.raw(connect_head(&own).as_bytes());
    assert_eq!((reply.status, reply.reason()), (400, "http_malformed"));
    assert_eq!(gate.wait("refused", 1).len(), 1);
}

#[test]
fn what_is_no_clean_request_of_the_tunnels_host_is_refused_inside_it() {
    let host = TlsHost::start();
    let gate = gate(&host);
    let authority = format!("{HOST}:{}", host.address.port());
    let good = card(json!({}));
    let cases = [
        inside(CHAT, &gate.address.to_string(), &good, &body()),
        inside(CHAT, HOST, &good, &body()),
        inside(CHAT, "example.org", &good, &body()),
        inside(
            &format!("POST https://{authority}/v1/chat/completions"),
            &authority,
            &good,
            &body(),
        ),
        inside(
            "POST http://127.0.0.1:11434/v1/chat/completions",
            "127.0.0.1:11434",
            &good,
            &body(),
        ),
        connect_head(&authority).into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET /v1/models HTTP/1.1\nHost: x\n\n".to_vec(),
    ];
    for bytes in &cases {
        let mut tls = tunnel(&gate, &host);
        let reply = ask(&mut tls, bytes);
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(
            (reply.status, reply.reason()),
            (400, "http_malformed"),
            "{shown}"
        );
    }
    assert_eq!(gate.wait("refused", cases.len()).len(), cases.len());
    assert!(gate.of_kind("decision").is_empty() && host.seen().is_empty());
}

#[test]
fn a_handshake_names_the_tunnels_host_and_speaks_http_1_1() {
    let host = TlsHost::start();
    let gate = gate(&host);
    let fails = |protocols: &[&str], name: Option<&str>| {
        let mut tls = StreamOwned::new(session(&gate, protocols, name), connected(&gate, &host));
        let request = inside(CHAT, HOST, &card(json!({})), &body());
        let written = tls.write_all(&request).and_then(|()| tls.read(&mut [0]));
        assert!(written.is_err(), "{protocols:?} {name:?}");
    };
    fails(&[], Some("other.example.org"));
    fails(&[], Some("example.org"));
    fails(&[], None);
    fails(&["h2"], Some(HOST));
    // A client that does not trust the authority says so.
    let stranger = rustls::RootCertStore::empty();
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(stranger)
        .with_no_client_auth();
    let name = ServerName::try_from(HOST).unwrap();
    let mut tls = StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        connected(&gate, &host),
    );
    assert!(tls.write_all(b"GET").is_err());
    drop(tls);
    // Plain text, where TLS must be.
    let mut plain = connected(&gate, &host);
    plain
        .write_all(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/"), "an alert at most");
    let refused = gate.wait("refused", 6);
    assert_eq!(refused.len(), 6);
    assert!(
        refused
            .iter()
            .all(|r| r["reason"] == "http_malformed" && r["bytes"].as_u64() > Some(0))
    );
    assert!(gate.of_kind("decision").is_empty() && host.seen().is_empty());
    // A client that offers both gets HTTP/1.1.
    let both = session(&gate, &["h2", "http/1.1"], Some(HOST));
    let mut tls = StreamOwned::new(both, connected(&gate, &host));
    let authority = format!("{HOST}:{}", host.address.port());
    let reply = ask(
        &mut tls,
        &inside(CHAT, &authority, &card(json!({})), &body()),
    );
    assert_eq!(reply.status, 200);
    assert_eq!(tls.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn a_client_that_does_not_wait_for_the_200_and_one_that_says_nothing_behind_it() {
    let host = TlsHost::start();
    let gate = gate(&host);
    let authority = format!("{HOST}:{}", host.address.port());
    // A call first, on the same connection; then CONNECT and the first flight in one write.
    let mut session = session(&gate, &[], Some(HOST));
    let mut stream = gate.connect();
    let first = gate.head(
        &card(json!({"residue": ["names"]})),
        "Content-Length: 0\r\n\r\n",
    );
    stream.write_all(first.as_bytes()).unwrap();
    assert_eq!(read_reply(&mut stream).reason(), "residue_present");
    let mut bytes = connect_head(&authority).into_bytes();
    session.write_tls(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
    assert!(head(&mut stream).unwrap().starts_with("HTTP/1.1 200 "));
    let mut tls = StreamOwned::new(session, stream);
    let reply = ask(
        &mut tls,
        &inside(CHAT, &authority, &card(json!({})), &body()),
    );
    assert_eq!((reply.status, reply.reason()), (200, "public_fixture"));
    // Plain requests glued behind the CONNECT are bytes of the tunnel, so no handshake.
    let mut stream = gate.connect();
    let glued = format!(
        "{}GET /v1/models HTTP/1.1\r\nHost: {}\r\n\r\n",
        connect_head(&authority),
        gate.address
    );
    stream.write_all(glued.as_bytes()).unwrap();
    assert!(head(&mut stream).unwrap().starts_with("HTTP/1.1 200 "));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/"));
    assert_eq!(gate.wait("refused", 1).len(), 1);
    // Nobody there: nothing to record.
    drop(connected(&gate, &host));
    drop(tunnel(&gate, &host));
    drop(gate.connect());
    assert_eq!(
        gate.call(&card(json!({"residue": ["x"]})), b"{}").status,
        422
    );
    assert_eq!(gate.of_kind("refused").len(), 1);
}

#[test]
fn the_listeners_token_is_asked_for_on_each_request_inside() {
    let host = TlsHost::start();
    let gate = listening(&host, "token_file = \"token\"");
    let authority = format!("{HOST}:{}", host.address.port());
    let mut tls = tunnel(&gate, &host);
    let bare = inside(CHAT, &authority, &card(json!({})), &body());
    let refused = ask(&mut tls, &bare);
    assert_eq!(
        (refused.status, refused.reason()),
        (422, "client_not_allowed")
    );
    let shown = String::from_utf8(bare).unwrap().replacen(
        "\r\nleafgate-card",
        "\r\nleafgate-token: open-sesame-open-sesame\r\nleafgate-card",
        1,
    );
    let released = ask(&mut tls, shown.as_bytes());
    assert_eq!(
        (released.status, released.reason()),
        (200, "public_fixture")
    );
    assert!(host.seen().len() == 1 && !host.seen()[0].contains("sesame"));
}
