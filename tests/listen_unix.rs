//! The Unix socket listener, with a client that writes raw bytes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test's client opens its own sockets"
)]

mod support;

use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Gate, Host, Reply, body, card, entry, read_reply};

fn gate(host: &Host, listen: &str) -> Gate {
    let dir = tempfile::tempdir().unwrap();
    Gate::listening(dir, "unix:gate.sock", &entry(host, ""), "", listen)
}

fn connect(gate: &Gate) -> UnixStream {
    let stream = UnixStream::connect(gate.path("gate.sock")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(8)))
        .unwrap();
    stream
}

fn raw(gate: &Gate, bytes: &[u8]) -> Reply {
    let mut stream = connect(gate);
    stream.write_all(bytes).unwrap();
    read_reply(&mut stream)
}

fn call(gate: &Gate, host: &str, card: &Value) -> Reply {
    let payload = body();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nleafgate-card: {card}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        payload.len()
    );
    raw(gate, &[head.as_bytes(), &payload].concat())
}

#[test]
fn a_call_by_the_socket_is_like_any_other_and_its_record_names_the_user() {
    let host = Host::ok();
    let mut gate = gate(&host, "names = [\"gate.internal\"]");
    let found = std::fs::symlink_metadata(gate.path("gate.sock")).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o7777, 0o600);
    let uid = u64::from(found.uid());

    let released = call(&gate, "localhost", &card(json!({})));
    assert_eq!(
        (released.status, released.reason()),
        (200, "public_fixture")
    );
    let held = call(&gate, "gate.internal", &card(json!({"residue": ["names"]})));
    assert_eq!((held.status, held.reason()), (422, "residue_present"));
    let denied = call(&gate, "localhost", &card(json!({"host_pin": "nobody"})));
    assert_eq!((denied.status, denied.reason()), (422, "pin_unknown"));
    // The Host of a TCP listener is not the socket's.
    for bad in ["127.0.0.1:8484", "localhost:80", "models.example.org"] {
        let refused = call(&gate, bad, &card(json!({})));
        assert_eq!((refused.status, refused.reason()), (400, "http_malformed"));
    }
    let lost = raw(&gate, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((lost.status, lost.reason()), (404, "not_found"));
    assert!(String::from_utf8_lossy(&lost.body).contains("http://localhost/v1"));
    assert_eq!(host.seen().len(), 1);

    let (decisions, refused) = (gate.wait("decision", 3), gate.wait("refused", 4));
    assert_eq!((decisions.len(), refused.len()), (3, 4));
    for record in decisions.iter().chain(&refused) {
        assert_eq!(record["peer_uid"], uid, "{record}");
    }
    assert!(
        gate.wait("outcome", 1)
            .iter()
            .all(|o| o["peer_uid"].is_null())
    );
    gate.stop();
    assert!(!gate.path("gate.sock").exists());
    let report = leafgate::ledger::verify(&gate.path("ledger"), &mut |_, _| {}).unwrap();
    assert!(report.problem.is_none(), "{:?}", report.problem);
}

#[test]
fn a_call_by_a_port_names_no_user() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    assert_eq!(gate.raw(b"GET /\n").status, 400);
    for kind in ["decision", "refused"] {
        assert!(gate.wait(kind, 1)[0]["peer_uid"].is_null());
    }
}
