//! Whom the program trusts where its environment says otherwise.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::own;
use crate::network::{Secure, answers, port};
use crate::process::Process;
use crate::support::{body, card, lay_out, records_in};

/// One call of a program that was started in this environment.
fn call(secure: &Secure, more: &str, environment: &str, reason: Option<&str>) {
    let config = secure.config.clone();
    let (address, _) = port(move |stream| {
        answers(stream, &config);
        Vec::new()
    });
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("ca.pem"), &secure.ca).unwrap();
    std::fs::create_dir(at("hashed")).unwrap();
    std::fs::write(at("hashed/0a1b2c3d.0"), &secure.ca).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, mode, 0).unwrap();
    let limits = "[limits]\nconnect = \"3s\"\n";
    lay_out(dir.path(), &Secure::entry(address, more), limits, "");
    let environment = environment.replace("@DIR", &dir.path().display().to_string());
    let mut process = Process::start(dir, &environment);
    let began = Instant::now();
    let reply = process.call(&card(json!({})), &body()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{environment}");
    match reason {
        Some(reason) => own(&environment, &reply, 422, reason),
        None => assert_eq!(reply.status, 200, "{environment}: {reply:?}"),
    }
    assert!(process.most_memory() < 128 << 10, "{environment}");
    assert_eq!(process.end(), Some(0), "{environment}");
    let records = records_in(&process.ledger());
    let outcome = records.iter().find(|one| one["t"] == "outcome").unwrap();
    let sent = if reason.is_some() { "none" } else { "all" };
    assert_eq!(
        (outcome["sent"].as_str(), outcome["error"].as_str()),
        (Some(sent), reason),
        "{environment}"
    );
}

#[test]
fn no_variable_names_an_authority() {
    let secure = Secure::new();
    for environment in [
        "export SSL_CERT_FILE=@DIR/ca.pem SSL_CERT_DIR=@DIR/hashed",
        "export SSL_CERT_FILE=@DIR/fifo SSL_CERT_DIR=@DIR/fifo",
        "export SSL_CERT_FILE=/dev/zero SSL_CERT_DIR=/dev/zero",
        "export SSL_CERT_FILE=@DIR/hashed SSL_CERT_DIR=@DIR/ca.pem",
        "export SSL_CERT_FILE=@DIR/none SSL_CERT_DIR=/proc/1/root/none",
        "export REQUESTS_CA_BUNDLE=@DIR/ca.pem CURL_CA_BUNDLE=@DIR/ca.pem NODE_EXTRA_CA_CERTS=@DIR/ca.pem SSLKEYLOGFILE=@DIR/keys",
    ] {
        // Neither trusted nor waited for; and a host that names its own authority goes on as before.
        call(&secure, "", environment, Some("tls_failed"));
        call(&secure, "ca = \"ca.pem\"\n", environment, None);
    }
}
