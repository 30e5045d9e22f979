use std::fs;
use std::net::IpAddr;

use super::*;
use crate::terms::HostPin;

const MINIMAL: &str = "version = 1\n";
const EXAMPLE: &str = "[hosts.\"models.example.org\"]\nbase_url = \"https://models.example.org/v1\"\nbind = \"exact\"\n";

fn environment(name: &str) -> Option<OsString> {
    match name {
        "UNSET" => None,
        "EMPTY" => Some(OsString::new()),
        "TWO_LINES" => Some("hush\r\nx: y".into()),
        "T" | "LEAFGATE_TOKEN" => Some("hush-0123456789a".into()),
        "T15" => Some("hush-0123456789".into()),
        _ => Some("hush".into()),
    }
}

/// A folder with every file that the tests name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("cards")).unwrap();
    fs::create_dir(at("certs")).unwrap();
    for (name, mode) in [
        ("open", 0o777),
        ("open/below", 0o700),
        ("team", 0o770),
        ("sticky", 0o1777),
    ] {
        use std::os::unix::fs::PermissionsExt as _;
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let made = rcgen::generate_simple_self_signed(vec!["gate.internal".to_owned()]).unwrap();
    for name in ["gate.pem", "clients-ca.pem", "example-ca.pem"] {
        fs::write(at("certs").join(name), made.cert.pem()).unwrap();
    }
    fs::write(at("certs/gate-key.pem"), made.signing_key.serialize_pem()).unwrap();
    authority(&folder, "ca.pem", "ca-key.pem", "models.example.org");
    authority(&folder, "other-ca.pem", "other-key.pem", "example.net");
    fs::write(at("fixtures.lock"), "version = 1\n").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("newline"), "\n").unwrap();
    fs::write(at("secret"), "hush\n").unwrap();
    fs::write(at("secret-two"), "hush\n\n").unwrap();
    fs::write(at("token"), "hush-0123456789a\n").unwrap();
    fs::write(at("token15"), "hush-0123456789\n").unwrap();
    fs::write(
        at("broken.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    folder
}

/// An authority for one host, with its key.
fn authority(folder: &tempfile::TempDir, ca: &str, key: &str, host: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let names = [crate::certs::Name::of(host)];
    let made = crate::certs::make(&names, std::time::SystemTime::now()).unwrap();
    let at = |name: &str| folder.path().join("certs").join(name);
    fs::write(at(ca), made.ca).unwrap();
    fs::write(at(key), made.key).unwrap();
    fs::set_permissions(at(key), fs::Permissions::from_mode(0o600)).unwrap();
}

fn load_in(folder: &tempfile::TempDir, text: &str) -> Result<Policy, Vec<Fault>> {
    let file = folder.path().join("policy.toml");
    fs::write(&file, text).unwrap();
    Policy::load_with(&file, &environment)
}

fn load(text: &str) -> Result<Policy, Vec<Fault>> {
    load_in(&folder(), text)
}

/// Loads, or shows why not.
fn good(text: &str) -> Policy {
    load(text).unwrap_or_else(|faults| panic!("{text}\n{faults:#?}"))
}

/// `LINE KEY` of each fault; every text must have a fault.
fn places(text: &str) -> Vec<String> {
    let faults = load(text).map(|_| ()).expect_err(text);
    for fault in &faults {
        assert!(!fault.to_string().contains("hush"), "{fault}");
        assert!(!fault.to_string().contains('\n'), "{fault}");
    }
    faults
        .iter()
        .map(|fault| format!("{} {}", fault.line, fault.key))
        .collect()
}

/// A host with these lines after `base_url` and `bind`.
fn host_with(lines: &str) -> String {
    format!("{MINIMAL}{EXAMPLE}{lines}\n")
}

#[test]
fn the_embedded_default_is_the_contracts() {
    let policy = Policy::embedded();
    assert_eq!(policy.file, None);
    assert_eq!(policy.listen.proxy.to_string(), "127.0.0.1:8484");
    assert_eq!(policy.listen.admin.to_string(), "127.0.0.1:8485");
    assert_eq!(policy.cards_dir, Path::new("cards"));
    assert!(!policy.cards_named && !policy.fixtures.lock_named);
    assert_eq!(policy.limits.body, 16 << 20);
    assert_eq!(policy.refused_status, 422);
    assert_eq!(policy.placeholders, ["free-server", "local-builder"]);
    let host = &policy.hosts["local"];
    assert_eq!(host.base.authority, "127.0.0.1:11434");
    assert_eq!(host.addresses, Addresses::Loopback);
    assert_eq!((host.bind, host.bind_written), (Bind::None, false));
    assert!(!host.checks_fixture());
    assert_eq!(host.routes.len(), 6);
    assert_eq!(host.headers.len(), 1);
}

#[test]
fn a_socket_lies_beside_the_policy_and_is_shown_as_it_is_written() {
    let folder = folder();
    let text = "version = 1\n[listen]\nproxy = \"unix:gate.sock\"\n";
    let policy = load_in(&folder, text).unwrap();
    let path = folder.path().join("gate.sock");
    assert_eq!(policy.listen.proxy.unix(), Some(path.as_path()));
    assert_eq!(policy.effective()["listen"]["proxy"], "unix:gate.sock");
    // A socket that stands there already is no fault: serve is running, or was killed.
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(load_in(&folder, text).is_ok());
    drop(listener);
    let long = format!(
        "version = 1\n[listen]\nproxy = \"unix:{}\"\n",
        "x".repeat(110)
    );
    let faults = load_in(&folder, &long).unwrap_err();
    assert!(faults[0].to_string().contains("shorter"), "{faults:?}");
}

#[test]
fn the_example_loads_where_its_files_are_and_not_where_they_are_missing() {
    let text = include_str!("../../policies/example.toml");
    let policy = good(text);
    assert_eq!(policy.hosts.len(), 3);
    let host = &policy.hosts["models.example.org"];
    assert_eq!(
        policy.listen.token.as_ref().unwrap().expose(),
        b"hush-0123456789a"
    );
    match &host.credential {
        Credential::Fixed {
            header,
            value,
            scheme,
        } => {
            assert_eq!(header, "authorization");
            assert_eq!(value.expose(), b"Bearer hush");
            assert_eq!(&value.expose()[*scheme..], b"hush");
        }
        Credential::None | Credential::Client => panic!("{:?}", host.credential),
    }
    assert!(policy.hosts["plain.example.org"].clear_text);
    let copy = policy.ledger.checkpoint_copy.as_deref();
    assert!(copy.is_some_and(|copy| copy.is_absolute() && copy.ends_with("kept/checkpoint")));
    assert_eq!(
        policy.effective()["ledger"]["checkpoint_copy"],
        "kept/checkpoint"
    );
    let shown = policy.effective().to_string();
    assert!(!shown.contains("hush") && !format!("{policy:?}").contains("hush"));
    assert!(
        shown.contains(r#"{"env":"EXAMPLE_KEY","header":"authorization","scheme":"Bearer"}"#),
        "{shown}"
    );
    assert!(shown.contains(r#""hmac_key":{"env":"LEAFGATE_HMAC_KEY"}"#));

    let empty = tempfile::tempdir().unwrap();
    let faults = load_in(&empty, text)
        .map(|_| ())
        .expect_err("no files there");
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "listen.tls.cert",
            "listen.tls.key",
            "listen.tls.client_ca",
            "cards.dir",
            "fixtures.lock",
            "intercept.ca",
            "intercept.key",
            "hosts.\"models.example.org\".ca"
        ]
    );
}

#[test]
fn interception_needs_an_authority_for_these_hosts_whose_key_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let loaded =
        |intercept: &str, hosts: &str| load_in(&folder, &format!("{MINIMAL}{intercept}\n{hosts}"));
    let faults = |intercept: &str, hosts: &str| -> Vec<String> {
        let faults = loaded(intercept, hosts).map(drop).expect_err(intercept);
        faults
            .iter()
            .map(|f| format!("{} {}", f.key, f.what))
            .collect()
    };
    let files = |ca: &str, key: &str| format!("[intercept]\nca = \"{ca}\"\nkey = \"{key}\"");
    let good = files("certs/ca.pem", "certs/ca-key.pem");
    let policy = loaded(&good, EXAMPLE).unwrap();
    assert!(policy.tunnel_to("models.example.org:443").is_some());
    assert!(!format!("{policy:?}").contains("PRIVATE KEY"));
    let local = "[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let both = text("certs/ca.pem") + &text("certs/ca-key.pem");
    fs::write(folder.path().join("certs/both.pem"), both).unwrap();
    for (intercept, hosts, fault) in [
        (
            files("certs/none.pem", "certs/ca-key.pem"),
            EXAMPLE,
            "intercept.ca the file cannot be read",
        ),
        (
            files("certs", "certs/ca-key.pem"),
            EXAMPLE,
            "intercept.ca the file is a folder",
        ),
        (
            files("certs/ca.pem", "certs/none.pem"),
            EXAMPLE,
            "intercept.key the file cannot be read",
        ),
        (
            files("certs/both.pem", "certs/ca-key.pem"),
            EXAMPLE,
            "intercept.ca the file holds a private key too",
        ),
        (
            files("certs/ca.pem", "certs/gate-key.pem"),
            EXAMPLE,
            "intercept.key the file has mode 0",
        ),
        (
            files("certs/ca.pem", "certs/other-key.pem"),
            EXAMPLE,
            "intercept.key the file is not the key",
        ),
        (
            files("certs/gate.pem", "certs/ca-key.pem"),
            EXAMPLE,
            "intercept.ca the file is no authority",
        ),
        (
            files("certs/other-ca.pem", "certs/other-key.pem"),
            EXAMPLE,
            "intercept.ca the file does not vouch for the host models.example.org",
        ),
        (
            good.clone(),
            local,
            "intercept no host has an https base_url",
        ),
        (
            "[intercept]\nca = \"certs/ca.pem\"".to_owned(),
            EXAMPLE,
            "intercept.key missing",
        ),
        (
            format!("{good}\nhosts = []"),
            EXAMPLE,
            "intercept.hosts unknown key; remove it or correct its spelling",
        ),
        (
            "intercept = true".to_owned(),
            EXAMPLE,
            "intercept wrong type",
        ),
    ] {
        let found = faults(&intercept, hosts);
        assert!(
            found.len() == 1 && found[0].starts_with(fault),
            "{fault}: {found:?}"
        );
    }
    for mode in [0o644, 0o640, 0o602, 0o700, 0o4600] {
        let key = folder.path().join("certs/ca-key.pem");
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        assert!(faults(&good, EXAMPLE)[0].contains("chmod 0600"), "{mode:o}");
    }
    fs::set_permissions(
        folder.path().join("certs/ca-key.pem"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    loaded(&good, EXAMPLE).unwrap();
    // For `certs init` alone: the files it is to make are not there yet.
    let file = folder.path().join("policy.toml");
    let text = |intercept: &str| fs::write(&file, format!("{MINIMAL}{intercept}\n{EXAMPLE}"));
    text(&files("certs/none.pem", "certs/none.pem")).unwrap();
    let policy = Policy::load_without_intercept(&file).unwrap();
    assert!(policy.intercept.is_none() && policy.hosts.len() == 1);
    text("intercpt = 1").unwrap();
    assert!(Policy::load_without_intercept(&file).is_err());
}

#[test]
fn every_key_of_the_policy_stands_in_the_example() {
    let text = include_str!("../../policies/example.toml");
    let effective = good(text).effective();
    let tables = effective.as_object().unwrap();
    for (name, table) in tables.iter().filter(|(name, _)| *name != "hosts") {
        for key in table.as_object().into_iter().flatten().map(|(key, _)| key) {
            let key = if key == "token" { "token_env" } else { key };
            assert!(text.contains(&format!("\n{key} = ")), "{name}.{key}");
        }
    }
    for key in tables["hosts"]["local"].as_object().unwrap().keys() {
        let derived = key == "checks_fixture";
        assert!(
            derived || text.contains(&format!("\n{key} = ")),
            "hosts.*.{key}"
        );
    }
}

#[test]
fn every_preset_loads_and_none_claims_to_be_confirmed() {
    let mut count = 0;
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/policies/hosts")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let policy = good(&format!("{MINIMAL}{text}"));
        assert_eq!(policy.hosts.len(), 1, "{}", path.display());
        for host in policy.hosts.values() {
            assert_eq!(host.copied_at, None, "{}", path.display());
            assert_eq!(
                host.source.is_some(),
                !host.on_loopback(),
                "{}",
                path.display()
            );
            assert_eq!(host.base.tls, !host.on_loopback());
            assert!(host.on_loopback() || host.checks_fixture());
        }
        assert!(
            text.contains("# Host string: ") && text.contains("# Data terms: "),
            "{}",
            path.display()
        );
        count += 1;
    }
    assert_eq!(count, 14);
}

#[test]
fn every_fault_comes_at_once_in_the_order_of_the_file() {
    let text = "version = 2\nextra = 1\n[listen]\nadmin = \"0.0.0.0:1\"\nproxy = 7\n\n[limits]\nhead = \"0KiB\"\n[hosts.local]\nbase_url = \"http://10.0.0.1/v1\"\nbnd = 1\n";
    assert_eq!(
        places(text),
        [
            "1 version",
            "2 extra",
            "4 listen.admin",
            "5 listen.proxy",
            "8 limits.head",
            "10 hosts.local.base_url",
            "11 hosts.local.bnd"
        ]
    );
}

#[test]
fn a_fault_has_file_line_column_and_key_in_its_line() {
    let folder = folder();
    let faults = load_in(&folder, "version = 1\n[hosts.\"a.b\"]\n  ca = \"no\"\n").unwrap_err();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0]
            .to_string()
            .ends_with("policy.toml:2: hosts.\"a.b\".base_url: missing; add this key")
    );
    assert_eq!(
        (faults[1].line, faults[1].column, faults[1].caret().as_str()),
        (3, 3, "  ^")
    );
}

#[test]
fn toml_that_cannot_be_read_is_one_fault_with_its_line() {
    for (text, line) in [
        ("version = 1\nversion = 1\n", 2),
        ("version = 1\n[cards]\n[cards]\n", 3),
        ("version = 1\nx = \"hush\n", 2),
        ("version = 1\n\n= hush\n", 3),
    ] {
        let places = places(text);
        assert_eq!(places, [format!("{line} toml")], "{text}");
    }
    assert_eq!(places(""), ["1 version"]);
    assert_eq!(places("version = \"1\""), ["1 version"]);
    let missing = Policy::load(Path::new("/nowhere/policy.toml")).unwrap_err();
    assert!(
        missing[0]
            .to_string()
            .starts_with("/nowhere/policy.toml: policy: ")
    );
    assert_eq!((missing[0].line, missing[0].key.as_str()), (0, "policy"));
}

#[test]
fn settings_take_the_good_and_refuse_its_twin() {
    for (good_lines, bad_lines, key) in [
        (
            "[cards]\ndir = \"cards\"",
            "[cards]\ndir = \"no\"",
            "cards.dir",
        ),
        (
            "[cards]\ndir = \"cards\"",
            "[cards]\ndir = \"secret\"",
            "cards.dir",
        ),
        (
            "[fixtures]\nlock = \"fixtures.lock\"",
            "[fixtures]\nlock = \"no\"",
            "fixtures.lock",
        ),
        (
            "[fixtures]\nlock = \"fixtures.lock\"",
            "[fixtures]\nlock = \"cards\"",
            "fixtures.lock",
        ),
        (
            "[fixtures]\nhmac_key = { env = \"K\" }",
            "[fixtures]\nhmac_key = { env = \"UNSET\" }",
            "fixtures.hmac_key.env",
        ),
        (
            "[fixtures]\nhmac_key = { file = \"secret\" }",
            "[fixtures]\nhmac_key = { file = \"empty\" }",
            "fixtures.hmac_key.file",
        ),
        (
            "[fixtures]\nhmac_key = { file = \"secret\" }",
            "[fixtures]\nhmac_key = { file = \"newline\" }",
            "fixtures.hmac_key.file",
        ),
        (
            "[fixtures]\nhmac_key = { file = \"secret\" }",
            "[fixtures]\nhmac_key = { file = \"no\" }",
            "fixtures.hmac_key.file",
        ),
        (
            "[fixtures]\nhmac_key = { env = \"K\" }",
            "[fixtures]\nhmac_key = { env = \"EMPTY\" }",
            "fixtures.hmac_key.env",
        ),
        (
            "[fixtures]\nhmac_key = { env = \"K\" }",
            "[fixtures]\nhmac_key = { env = \"K\", file = \"secret\" }",
            "fixtures.hmac_key.file",
        ),
        (
            "[fixtures]\nhmac_key = { env = \"K\" }",
            "[fixtures]\nhmac_key = {}",
            "fixtures.hmac_key",
        ),
        (
            "[fixtures]\nhmac_key = { env = \"K\" }",
            "[fixtures]\nhmac_key = \"hush\"",
            "fixtures.hmac_key",
        ),
        (
            "[ledger]\nsegment_bytes = 65536",
            "[ledger]\nsegment_bytes = 0",
            "ledger.segment_bytes",
        ),
        (
            "[ledger]\nsegment_bytes = \"1GiB\"",
            "[ledger]\nsegment_bytes = \"1GB\"",
            "ledger.segment_bytes",
        ),
        (
            "[ledger]\nsegment_bytes = \"1GiB\"",
            "[ledger]\nsegment_bytes = \"99999999999999TiB\"",
            "ledger.segment_bytes",
        ),
        (
            "[ledger]\ncheckpoint_every = \"10ms\"",
            "[ledger]\ncheckpoint_every = \"0s\"",
            "ledger.checkpoint_every",
        ),
        (
            "[ledger]\ndir = \"l\"\ncheckpoint_copy = \"l2\"",
            "[ledger]\ndir = \"l\"\ncheckpoint_copy = \"l/copy\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"ledger/../kept\"",
            "[ledger]\ncheckpoint_copy = \"./x/../ledger/copy\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ndir = \"/a/b\"\ncheckpoint_copy = \"/a/copy\"",
            "[ledger]\ndir = \"/a/b\"\ncheckpoint_copy = \"/a/../a/b\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"kept\"",
            "[ledger]\ncheckpoint_copy = \"kept/..\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"fixtures.lock.copy\"",
            "[ledger]\ncheckpoint_copy = \"fixtures.lock\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"policy\"",
            "[ledger]\ncheckpoint_copy = \"policy.toml\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"./certs/../policy.kept\"",
            "[ledger]\ncheckpoint_copy = \"./certs/../policy.toml\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"cards2\"",
            "[ledger]\ncheckpoint_copy = \"cards/ticket.json\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"card\"",
            "[ledger]\ncheckpoint_copy = \"certs/../cards/new/x\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[fixtures]\nhmac_key = { file = \"secret\" }\n[ledger]\ncheckpoint_copy = \"other.lock.copy\"",
            "[fixtures]\nhmac_key = { file = \"secret\" }\n[ledger]\ncheckpoint_copy = \"fixtures.lock\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[fixtures]\nhmac_key = { file = \"secret\" }\n[ledger]\ncheckpoint_copy = \"secret.copy\"",
            "[fixtures]\nhmac_key = { file = \"secret\" }\n[ledger]\ncheckpoint_copy = \"./secret\"",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\ncheckpoint_copy = \"kept\"",
            "[ledger]\ncheckpoint_copy = true",
            "ledger.checkpoint_copy",
        ),
        (
            "[ledger]\nsync = \"interval\"",
            "[ledger]\nsync = \"never\"",
            "ledger.sync",
        ),
        (
            "[pins]\nmax_age = \"7d\"",
            "[pins]\nmax_age = \"7 d\"",
            "pins.max_age",
        ),
        (
            "[pins]\nmax_age = \"7d\"",
            "[pins]\nmax_age = 7",
            "pins.max_age",
        ),
        (
            "[pins]\nplaceholders = [\"x\"]",
            "[pins]\nplaceholders = [\"x\", \"x\"]",
            "pins.placeholders[1]",
        ),
        (
            "[split]\nfailure_labels = [\"a\"]",
            "[split]\nfailure_labels = []",
            "split.failure_labels",
        ),
        (
            "[split]\nfailure_labels = [\"a\"]",
            "[split]\nfailure_labels = [\"a b\"]",
            "split.failure_labels[0]",
        ),
        (
            "[answers]\nrefused = 451",
            "[answers]\nrefused = 400",
            "answers.refused",
        ),
        (
            "[answers]\nrefused = 403",
            "[answers]\nrefused = \"403\"",
            "answers.refused",
        ),
        (
            "[limits]\nin_flight = 1",
            "[limits]\nin_flight = 0",
            "limits.in_flight",
        ),
        (
            "[limits]\nin_flight = 1",
            "[limits]\nin_flight = -1",
            "limits.in_flight",
        ),
        (
            "[limits]\nbody = \"1MiB\"",
            "[limits]\nbody = \"0MiB\"",
            "limits.body",
        ),
        (
            "[limits]\nin_flight_bytes = \"16MiB\"",
            "[limits]\nin_flight_bytes = \"15MiB\"",
            "limits.in_flight_bytes",
        ),
        (
            "[limits]\nidle = \"5m\"",
            "[limits]\nidle = \"-5m\"",
            "limits.idle",
        ),
        (
            "[limits]\nidle = \"24h\"",
            "[limits]\nidle = \"25h\"",
            "limits.idle",
        ),
        (
            "[resolver]\nservers = [\"127.0.0.1:53\"]",
            "[resolver]\nservers = []",
            "resolver.servers",
        ),
        (
            "[resolver]\nservers = [\"127.0.0.1:53\"]",
            "[resolver]",
            "resolver.servers",
        ),
        (
            "[resolver]\nservers = [\"[::1]:53\"]",
            "[resolver]\nservers = [\"dns:53\"]",
            "resolver.servers[0]",
        ),
        (
            "[listen]\nproxy = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"",
            "[listen]\nadmin = \"127.0.0.1:8484\"",
            "listen.admin",
        ),
        (
            "[listen]\nproxy = \"unix:gate.sock\"",
            "[listen]\nproxy = \"unix:\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:certs/gate.sock\"",
            "[listen]\nproxy = \"unix:nowhere/gate.sock\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:team/gate.sock\"",
            "[listen]\nproxy = \"unix:open/gate.sock\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:sticky/gate.sock\"",
            "[listen]\nproxy = \"unix:open/below/gate.sock\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:gate.sock\"",
            "[listen]\nproxy = \"unix:secret\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:gate.sock\"",
            "[listen]\nproxy = \"unix:gate.sock/\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"unix:gate.sock\"\ntoken_env = \"T\"",
            "[listen]\nproxy = \"unix:gate.sock\"\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate-key.pem\" }",
            "listen.tls",
        ),
        (
            "[listen]\nproxy = \"unix:gate.sock\"",
            "[listen]\nadmin = \"unix:gate.sock\"",
            "listen.admin",
        ),
        (
            "[listen]\nproxy = \"127.0.0.2:9\"",
            "[listen]\nproxy = \"/run/x\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"0.0.0.0:9\"\ntoken_env = \"T\"",
            "[listen]\nproxy = \"0.0.0.0:9\"",
            "listen.proxy",
        ),
        (
            "[listen]\nproxy = \"0.0.0.0:9\"\ntoken_file = \"token\"",
            "[listen]\nproxy = \"[::]:9\"",
            "listen.proxy",
        ),
        (
            "[listen]\ntoken = { file = \"token\" }",
            "[listen]\ntoken_env = \"TWO_LINES\"",
            "listen.token_env",
        ),
        (
            "[listen]\ntoken_file = \"token\"",
            "[listen]\ntoken_file = \"secret-two\"",
            "listen.token_file",
        ),
        (
            "[listen]\ntoken_env = \"T\"",
            "[listen]\ntoken_env = \"T15\"",
            "listen.token_env",
        ),
        (
            "[listen]\ntoken_file = \"token\"",
            "[listen]\ntoken_file = \"token15\"",
            "listen.token_file",
        ),
        (
            "[listen]\ntoken = { env = \"T\" }",
            "[listen]\ntoken = { env = \"T15\" }",
            "listen.token",
        ),
        (
            "[listen]\ntoken_env = \"T\"",
            "[listen]\ntoken_env = \"T\"\ntoken_file = \"token\"",
            "listen.token_file",
        ),
        (
            "[listen]\nproxy = \"0.0.0.0:9\"\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate-key.pem\", client_ca = \"certs/clients-ca.pem\" }",
            "[listen]\nproxy = \"0.0.0.0:9\"\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate-key.pem\" }",
            "listen.proxy",
        ),
        (
            "[listen]\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate-key.pem\" }",
            "[listen]\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate.pem\" }",
            "listen.tls.key",
        ),
        (
            "[listen]\ntls = { cert = \"certs/gate.pem\", key = \"certs/gate-key.pem\" }",
            "[listen]\ntls = { cert = \"broken.pem\", key = \"certs/gate-key.pem\" }",
            "listen.tls.cert",
        ),
        (
            "[listen]\nnames = [\"gate.internal:8484\"]",
            "[listen]\nnames = [\"Gate.internal\"]",
            "listen.names[0]",
        ),
        (
            "[listen]\nnames = [\"[::1]:1\", \"a\"]",
            "[listen]\nnames = [\"a:\"]",
            "listen.names[0]",
        ),
    ] {
        good(&format!("{MINIMAL}{good_lines}\n"));
        let places = places(&format!("{MINIMAL}{bad_lines}\n"));
        assert_eq!(places.len(), 1, "{bad_lines}: {places:?}");
        assert!(
            places[0].ends_with(&format!(" {key}")),
            "{bad_lines}: {places:?}"
        );
    }
}

#[test]
fn host_keys_take_the_good_and_refuse_their_twin() {
    for (good_line, bad_line, key) in [
        (
            "source = \"https://example.org\"",
            "source = \"\"",
            "source",
        ),
        (
            "copied_at = 2026-01-01T00:00:00Z",
            "copied_at = 2026-01-01T00:00:00",
            "copied_at",
        ),
        (
            "copied_at = 2026-01-01T00:00:00+02:00",
            "copied_at = 2999-01-01T00:00:00Z",
            "copied_at",
        ),
        (
            "copied_at = 2026-01-01T00:00:00Z",
            "copied_at = \"2026-01-01T00:00:00Z\"",
            "copied_at",
        ),
        ("max_age = \"7d\"", "max_age = \"0d\"", "max_age"),
        (
            "credential = \"client\"",
            "credential = \"hush\"",
            "credential",
        ),
        (
            "credential = { env = \"K\" }",
            "credential = { env = \"UNSET\" }",
            "credential.env",
        ),
        (
            "credential = { env = \"K\" }",
            "credential = { env = \"TWO_LINES\" }",
            "credential",
        ),
        (
            "credential = { file = \"secret\" }",
            "credential = { file = \"secret-two\" }",
            "credential",
        ),
        (
            "credential = { env = \"K\", header = \"x-api-key\" }",
            "credential = { env = \"K\", header = \"host\" }",
            "credential.header",
        ),
        (
            "credential = { env = \"K\", scheme = \"Bearer\" }",
            "credential = { env = \"K\", scheme = \"a b\" }",
            "credential.scheme",
        ),
        (
            "addresses = [\"203.0.113.0/24\"]",
            "addresses = []",
            "addresses",
        ),
        (
            "addresses = [\"203.0.113.0/24\"]",
            "addresses = [\"203.0.113.1/24\"]",
            "addresses[0]",
        ),
        (
            "addresses = [\"fd00::/8\"]",
            "addresses = [\"0.0.0.0/0\"]",
            "addresses[0]",
        ),
        (
            "addresses = \"private\"",
            "addresses = \"any\"",
            "addresses",
        ),
        (
            "addresses = \"private\"\nresolve = [\"10.0.0.1\"]",
            "resolve = [\"10.0.0.1\"]",
            "resolve[0]",
        ),
        ("resolve = [\"8.8.8.8\"]", "resolve = []", "resolve"),
        ("ca = \"certs/example-ca.pem\"", "ca = \"empty\"", "ca"),
        ("ca = \"certs/example-ca.pem\"", "ca = \"broken.pem\"", "ca"),
        (
            "ca = \"certs/example-ca.pem\"",
            "ca = \"certs/gate-key.pem\"",
            "ca",
        ),
        (
            "spki = [\"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
            "spki = [\"sha256/AAAA\"]",
            "spki[0]",
        ),
        (
            "spki = [\"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
            "spki = []",
            "spki",
        ),
        ("routes = [\"POST /a/b\"]", "routes = []", "routes"),
        (
            "routes = [\"POST /a/b\"]",
            "routes = [\"PUT /a/b\"]",
            "routes[0]",
        ),
        (
            "routes = [\"GET /a\", \"POST /a\"]",
            "routes = [\"GET /a\", \"GET /a\"]",
            "routes[1]",
        ),
        (
            "routes = [\"GET /a.b\"]",
            "routes = [\"GET /a/../b\"]",
            "routes[0]",
        ),
        (
            "routes = [\"GET /a\"]",
            "routes = [\"GET /a%2e\"]",
            "routes[0]",
        ),
        (
            "routes = [\"GET /a\"]",
            "routes = [\"GET /a?b\"]",
            "routes[0]",
        ),
        (
            "routes = [\"GET /a\"]",
            "routes = [\"GET /a/\"]",
            "routes[0]",
        ),
        ("headers = {}", "headers = []", "headers"),
        (
            "headers = { x-a = \"a|b\" }",
            "headers = { x-a = \"a)|(?:b\" }",
            "headers.x-a",
        ),
        (
            "headers = { x-a = \"a\" }",
            "headers = { X-A = \"a\" }",
            "headers.X-A",
        ),
        (
            "split = { envelope = \"chat\", model = \"m\" }",
            "split = { envelope = \"chat\" }",
            "split.model",
        ),
        (
            "split = { route = \"POST /x\" }",
            "split = { route = \"GET /x\" }",
            "split.route",
        ),
        (
            "split = { envelope = \"bare\" }",
            "split = { model = \"m\" }",
            "split.model",
        ),
        (
            "split = { envelope = \"chat\", model = \"m\", max_tokens = 64 }",
            "split = { envelope = \"chat\", model = \"m\", max_tokens = 0 }",
            "split.max_tokens",
        ),
        (
            "models = [\"m\", \"n\"]",
            "models = [\"m\", \"m\"]",
            "models[1]",
        ),
        ("models = [\"m\"]", "models = [\"m\\u00e9\"]", "models[0]"),
        ("clear_text = false", "clear_text = true", "clear_text"),
        ("clear_text = false", "clear_text = \"no\"", "clear_text"),
    ] {
        good(&host_with(good_line));
        let places = places(&host_with(bad_line));
        assert_eq!(places.len(), 1, "{bad_line}: {places:?}");
        assert!(
            places[0].ends_with(&format!("models.example.org\".{key}")),
            "{bad_line}: {places:?}"
        );
    }
    for name in [
        "leafgate-card",
        "cookie",
        "host",
        "authorization",
        "x-api-key",
        "content-type",
        "content-length",
        "connection",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "forwarded",
    ] {
        assert_eq!(
            places(&host_with(&format!("headers = {{ {name} = \".\" }}"))),
            [format!("5 hosts.\"models.example.org\".headers.{name}")]
        );
    }
    assert_eq!(
        places(&host_with(
            "credential = { env = \"K\", header = \"x-key\" }\nheaders = { x-key = \".\" }"
        ))
        .len(),
        1
    );
}

#[test]
fn a_header_pattern_stands_for_the_whole_value() {
    let policy = good(&host_with("headers = { x-a = \"a|b\" }"));
    let pattern = &policy.hosts["models.example.org"].headers[0].pattern;
    assert!(pattern.is_match(b"a") && pattern.is_match(b"b"));
    assert!(!pattern.is_match(b"ab") && !pattern.is_match(b"a\n") && !pattern.is_match(b""));
}

#[test]
fn the_pin_is_the_host_name_and_local_is_loopback() {
    let host = |key: &str, url: &str, more: &str| {
        format!("{MINIMAL}[hosts.\"{key}\"]\nbase_url = \"{url}\"\nbind = \"exact\"\n{more}\n")
    };
    for (key, url, more) in [
        ("local", "http://localhost:1234/v1", ""),
        ("local", "http://[::1]:1234", ""),
        ("local", "http://gpu:1234/v1/", "addresses = \"loopback\""),
        ("localhost", "http://localhost:1/v1", ""),
        ("127.0.0.1", "http://127.0.0.1:1/v1", ""),
        ("a.example", "https://a.example:8443/v1", ""),
        ("a.example", "http://a.example/v1", "clear_text = true"),
        ("10.0.0.1", "https://10.0.0.1/v1", "addresses = \"private\""),
    ] {
        good(&host(key, url, more));
    }
    for (key, url, more) in [
        ("local", "https://a.example/v1", ""),
        (
            "local",
            "http://127.0.0.1:1/v1",
            "addresses = [\"127.0.0.0/8\"]",
        ),
        ("b.example", "https://a.example/v1", ""),
        ("a.example", "https://A.example/v1", ""),
        ("a.example", "https://a.example./v1", ""),
        ("a.example", "https://u:hush@a.example/v1", ""),
        ("a.example", "https://a.example/v1?x", ""),
        ("a.example", "https://a.example/v1#x", ""),
        ("a.example", "https://a.example/a//b", ""),
        ("a.example", "https://a.example/v1//", ""),
        ("a.example", "https://a.example/../v1", ""),
        ("a.example", "https://a.example/%76", ""),
        ("a.example", "https://a.example:0/v1", ""),
        ("a.example", "https://a.example:/v1", ""),
        ("a.example", "https://a.example:65536/v1", ""),
        ("a.example", "ftp://a.example/v1", ""),
        ("a.example", "HTTPS://a.example/v1", ""),
        ("a.example", "http://a.example/v1", ""),
        ("127.1", "http://127.1/v1", ""),
        ("0x7f.0x1", "http://0x7f.0x1/v1", "clear_text = true"),
        ("10.0.0.1", "https://10.0.0.1/v1", ""),
        (
            "localhost",
            "https://localhost/v1",
            "addresses = \"public\"",
        ),
        ("free-server", "https://free-server/v1", ""),
        ("A.example", "https://a.example/v1", ""),
        (
            "local",
            "http://127.0.0.1:1/v1",
            "ca = \"certs/example-ca.pem\"",
        ),
    ] {
        assert!(
            !places(&host(key, url, more)).is_empty(),
            "{key} {url} {more}"
        );
    }
    let base = &good(&host("a.example", "https://a.example:443/v1/", "")).hosts["a.example"].base;
    assert_eq!(
        (base.authority.as_str(), base.path.as_str(), base.port),
        ("a.example", "/v1", 443)
    );
    assert_eq!(
        good(&host("local", "http://[::1]:1234", "")).hosts["local"]
            .base
            .authority,
        "[::1]:1234"
    );
}

#[test]
fn cover_needs_models() {
    let host = |more: &str| {
        format!("{MINIMAL}[hosts.\"a.example\"]\nbase_url = \"https://a.example/v1\"\n{more}\n")
    };
    assert_eq!(places(&host("")), ["2 hosts.\"a.example\""]);
    assert_eq!(
        places(&host("models = []")),
        ["4 hosts.\"a.example\".models"]
    );
    assert_eq!(
        good(&host("models = [\"m\"]")).hosts["a.example"].bind,
        Bind::Cover
    );
    let local = format!("{MINIMAL}[hosts.local]\nbase_url = \"http://127.0.0.1:1/v1\"\n");
    assert_eq!(
        places(&format!("{local}bind = \"cover\"")),
        ["4 hosts.local.bind"]
    );
    let host = &good(&format!("{local}bind = \"cover\"\nmodels = [\"m\"]")).hosts["local"];
    assert!(host.bind_written && host.checks_fixture());
}

/// A host under `cover`, with these lines at its end.
fn cover_with(lines: &str) -> String {
    format!(
        "{MINIMAL}[hosts.\"a.example\"]\nbase_url = \"https://a.example/v1\"\nmodels = [\"m\"]\n{lines}\n"
    )
}

#[test]
fn a_vocabulary_adds_parameters_and_each_fault_has_its_place() {
    let text = "top_k = \"number\", min_p = \"number | null\", guided_choice = \"[text]\", mode = \"'a' | ['b'|'c'] | boolean\", \"x.y\" = \"text\"";
    let policy = good(&cover_with(&format!("vocabulary = {{ {text} }}")));
    let own = &policy.hosts["a.example"].vocabularies;
    let names: Vec<_> = own.added().map(|(name, _)| name).collect();
    assert_eq!(names, ["guided_choice", "min_p", "mode", "top_k", "x.y"]);
    let shown = &policy.effective()["hosts"]["a.example"]["vocabulary"];
    assert_eq!(shown["mode"], "'a' | ['b'|'c'] | boolean");
    assert_eq!(shown.as_object().unwrap().len(), 5);

    let long = "n".repeat(64);
    let word = "w".repeat(64);
    let files = "for the shipped vocabularies alone";
    let rows: [(&str, String, String, &str); 26] = [
        (
            "own = \"number\"",
            "own = 7".into(),
            "own".into(),
            "wrong type: an integer",
        ),
        (
            "own = \"number\"",
            "own = { a = \"number\" }".into(),
            "own".into(),
            "wrong type: a table",
        ),
        (
            "own = \"number\"",
            "own = \"numbers\"".into(),
            "own".into(),
            "unknown word, at byte 0",
        ),
        (
            "own = \"number\"",
            "own = \"\"".into(),
            "own".into(),
            "a type is missing",
        ),
        (
            "own = \"number\"",
            "own = \"number |\"".into(),
            "own".into(),
            "a type is missing, at byte 8",
        ),
        (
            "own = \"number | null\"",
            "own = \"number null\"".into(),
            "own".into(),
            "stray text",
        ),
        (
            "own = \"[text]\"",
            "own = \"[text\"".into(),
            "own".into(),
            "not closed",
        ),
        (
            "own = \"[text]\"",
            "own = \"[text] | ['a']\"".into(),
            "own".into(),
            "two kinds of array",
        ),
        (
            "own = \"[text]\"",
            "own = \"[number]\"".into(),
            "own".into(),
            "in disguise",
        ),
        (
            "own = \"['a']\"",
            "own = \"['a' | boolean]\"".into(),
            "own".into(),
            "in disguise",
        ),
        (
            "own = \"[text] | null\"",
            "own = \"[text | null]\"".into(),
            "own".into(),
            "in disguise",
        ),
        (
            "own = \"[text]\"",
            "own = \"[[text]]\"".into(),
            "own".into(),
            "in disguise",
        ),
        (
            "own = \"text\"",
            "own = \"any\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"text\"",
            "own = \"model\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"text\"",
            "own = \"[data_url]\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"text\"",
            "own = \"base64\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"text\"",
            "own = \"@message\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"text\"",
            "own = \"{text}\"".into(),
            "own".into(),
            files,
        ),
        (
            "own = \"'a'\"",
            "own = \"'a\"".into(),
            "own".into(),
            "closing quote",
        ),
        (
            "own = \"'a'\"",
            "own = \"''\"".into(),
            "own".into(),
            "1 to 64 bytes",
        ),
        (
            "own = \"'a'\"",
            "own = \"'\u{e9}'\"".into(),
            "own".into(),
            "1 to 64 bytes",
        ),
        (
            "own = \"'a'\"",
            format!("own = \"'{word}w'\""),
            "own".into(),
            "1 to 64 bytes",
        ),
        (
            "own = \"number\"",
            "\"o n\" = \"number\"".into(),
            "(a key)".into(),
            "not a parameter name",
        ),
        (
            "own = \"number\"",
            format!("{long}n = \"number\""),
            "(a key)".into(),
            "not a parameter name",
        ),
        (
            "own = \"number\"",
            "model = \"text\"".into(),
            "model".into(),
            "on every route of the host",
        ),
        (
            "seed = \"number | null\"",
            "seed = \"number\"".into(),
            "seed".into(),
            "POST /chat/completions has this parameter already, as number | null",
        ),
    ];
    good(&cover_with(&format!(
        "vocabulary = {{ {long} = \"'{word}'\" }}"
    )));
    for (good_line, bad_line, key, what) in rows {
        good(&cover_with(&format!("vocabulary = {{ {good_line} }}")));
        let text = cover_with(&format!(
            "[hosts.\"a.example\".vocabulary]\nfine = \"number\"\n{bad_line}"
        ));
        let faults = load(&text).map(|_| ()).expect_err(&text);
        let [fault] = &faults[..] else {
            panic!("{bad_line}: {faults:?}")
        };
        let place = format!("hosts.\"a.example\".vocabulary.{key}");
        assert_eq!(
            (fault.line, fault.key.as_str()),
            (7, place.as_str()),
            "{bad_line}"
        );
        assert!(fault.what.contains(what), "{bad_line}: {fault}");
    }
    // A hostile depth is a fault, not a deep call.
    let deep = format!("vocabulary = {{ own = \"{}\" }}", "[".repeat(500_000));
    assert_eq!(places(&cover_with(&deep)).len(), 1);
    // What the file says is in no fault.
    let fault = &load(&cover_with("vocabulary = { own = \"'a' secret\" }"))
        .map(|_| ())
        .unwrap_err()[0];
    assert!(!fault.to_string().contains("secret"), "{fault}");
}

#[test]
fn a_vocabulary_without_effect_is_a_fault() {
    let own = "vocabulary = { min_p = \"number\" }";
    for (lines, key) in [
        (format!("{own}\nbind = \"exact\""), Some("vocabulary")),
        (format!("{own}\nbind = \"none\""), Some("vocabulary")),
        (format!("{own}\nbind = \"cover\""), None),
        // A bind that cannot be read is a fault of its own, and one is enough.
        (format!("{own}\nbind = \"covers\""), Some("bind")),
        (
            format!("{own}\nroutes = [\"POST /audio\"]"),
            Some("vocabulary"),
        ),
        (
            format!("{own}\nroutes = [\"GET /chat/completions\"]"),
            Some("vocabulary"),
        ),
        (
            format!("{own}\nroutes = [\"POST /audio\", \"POST /completions\"]"),
            None,
        ),
        (format!("{own}\nroutes = []"), Some("routes")),
        ("vocabulary = {}".into(), Some("vocabulary")),
        ("vocabulary = [\"min_p\"]".into(), Some("vocabulary")),
        // Only where every route has it already is nothing left to add; another type is a fault where one route has it.
        ("vocabulary = { echo = \"boolean | null\" }".into(), None),
        ("vocabulary = { echo = \"null|boolean\" }".into(), None),
        (
            "vocabulary = { echo = \"boolean\" }".into(),
            Some("vocabulary.echo"),
        ),
        (
            "vocabulary = { echo = \"boolean\" }\nroutes = [\"POST /messages\"]".into(),
            None,
        ),
        (
            "vocabulary = { echo = \"boolean | null\" }\nroutes = [\"POST /completions\"]".into(),
            Some("vocabulary.echo"),
        ),
        (
            "vocabulary = { messages = \"[text]\" }".into(),
            Some("vocabulary.messages"),
        ),
        ("vocabulary = { stop = \"null | [text]\" }".into(), None),
        (
            "vocabulary = { stop = \"null | ['x']\" }".into(),
            Some("vocabulary.stop"),
        ),
        (
            "vocabulary = { stop = \"null | text\" }".into(),
            Some("vocabulary.stop"),
        ),
    ] {
        let text = cover_with(&lines);
        match key {
            None => drop(good(&text)),
            Some(key) => {
                let places = places(&text);
                assert_eq!(places.len(), 1, "{lines}: {places:?}");
                assert!(
                    places[0].ends_with(&format!("a.example\".{key}")),
                    "{lines}: {places:?}"
                );
            }
        }
    }
    let local = format!(
        "{MINIMAL}[hosts.local]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodels = [\"m\"]\n{own}\n"
    );
    assert_eq!(places(&local), ["5 hosts.local.vocabulary"]);
    good(&format!("{local}bind = \"cover\""));
}

#[test]
fn the_hash_is_of_the_values_and_not_of_the_place_or_the_secret() {
    let text = host_with("ca = \"certs/example-ca.pem\"\ncredential = { env = \"K\" }");
    let (one, other) = (good(&text), good(&format!("# a comment\n{text}")));
    assert_eq!(one.hash, other.hash);
    for change in [
        "models = [\"m\"]",
        "headers = {}",
        "copied_at = 2026-01-01T00:00:00Z",
        "max_age = \"1h\"",
    ] {
        assert_ne!(
            one.hash,
            good(&format!("{text}{change}\n")).hash,
            "{change}"
        );
    }
    assert_ne!(one.hash, good(&text.replace("\"K\"", "\"L\"")).hash);
    let own = |lines: &str| good(&cover_with(lines)).hash;
    let added = own("vocabulary = { min_p = \"number\" }");
    assert_ne!(added, own(""));
    assert_ne!(added, own("vocabulary = { min_p = \"number | null\" }"));
    assert_eq!(
        added,
        own("[hosts.\"a.example\".vocabulary]\nmin_p = \"number\"")
    );
    let written = format!("{MINIMAL}[limits]\nidle = \"5m\"\n");
    assert_eq!(good(&written).hash, good(MINIMAL).hash);
}

#[test]
fn confirming_a_pin_changes_one_value_and_nothing_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let file = folder.path().join("policy.toml");
    let before = "# head\nversion = 1 # one\n\n[hosts.\"models.example.org\"] # who\nbase_url   = \"https://models.example.org/v1\"\ncopied_at = 2020-01-01T00:00:00Z  # when\nbind = \"exact\" # how\n# tail\n";
    fs::write(&file, before).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let pin = HostPin::parse("models.example.org").unwrap();
    let moment = "2026-11-30T06:00:00.9Z".parse().unwrap();
    confirm_pin(&file, &pin, moment).unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        before.replace("2020-01-01T00:00:00Z", "2026-11-30T06:00:00Z")
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    let host = &Policy::load(&file).unwrap().hosts["models.example.org"];
    assert_eq!(
        host.copied_at,
        Some("2026-11-30T06:00:00Z".parse().unwrap())
    );

    for (text, line) in [
        (host_with(""), "copied_at = 2026-11-30T06:00:00Z\n"),
        (
            format!(
                "{MINIMAL}hosts.\"models.example.org\" = {{ base_url = \"https://models.example.org/v1\", bind = \"exact\" }}\n"
            ),
            "copied_at = 2026-11-30T06:00:00Z",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        confirm_pin(&file, &pin, moment).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains(line));
        assert!(
            Policy::load(&file).unwrap().hosts["models.example.org"]
                .copied_at
                .is_some()
        );
    }
    // Carriage returns are part of "everything else".
    let windows = before.replace('\n', "\r\n");
    fs::write(&file, &windows).unwrap();
    confirm_pin(&file, &pin, moment).unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        windows.replace("2020-01-01T00:00:00Z", "2026-11-30T06:00:00Z")
    );
    fs::write(&file, before).unwrap();
    let other = HostPin::parse("other.example").unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(matches!(
        confirm_pin(&file, &other, moment),
        Err(ConfirmError::NoHost { .. })
    ));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".new")
        })
        .collect();
    assert!(left.is_empty());
}

#[test]
fn an_address_is_in_one_class_or_in_none() {
    for (class, texts) in [
        (
            Some(Addresses::Public),
            "8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.0 100.63.255.255 100.128.0.0 192.0.1.0 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2a00::1 2001:200::1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1",
        ),
        (Some(Addresses::Loopback), "127.0.0.1 127.255.255.255 ::1"),
        (
            Some(Addresses::Private),
            "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 fc00::1 fd12::1",
        ),
        (
            None,
            "0.0.0.0 0.1.2.3 100.64.0.1 100.127.255.255 169.254.169.254 169.254.0.1 168.63.129.16 192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 \
             :: ::8.8.8.8 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::808:808 2002:7f00:1::1 2002:a00:1::1 2002:c0a8:1::1 \
             100::1 2001::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 3ffe::1 5f00::1 4000::1 fe80::1 fec0::1 fd00:ec2::254 ff02::1 2a00::5efe:7f00:1",
        ),
    ] {
        for text in texts.split_whitespace() {
            let address: IpAddr = text.parse().unwrap();
            for other in [Addresses::Public, Addresses::Loopback, Addresses::Private] {
                assert_eq!(
                    other.contains(address),
                    class.as_ref() == Some(&other),
                    "{text} in {other:?}"
                );
            }
        }
    }
}

#[test]
fn a_network_holds_its_own_addresses_only() {
    let network = |text: &str| {
        let (address, prefix) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
        }
    };
    for (text, inside, outside) in [
        ("203.0.113.0/24", "203.0.113.255", "203.0.114.0"),
        ("203.0.113.7/32", "203.0.113.7", "203.0.113.6"),
        ("203.0.113.0/24", "203.0.113.1", "::ffff:203.0.113.1"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ("2001:db8::1/128", "2001:db8::1", "2001:db8::2"),
        ("128.0.0.0/1", "255.0.0.1", "127.0.0.1"),
    ] {
        let class = Addresses::Networks(vec![network(text)]);
        assert!(
            class.contains(inside.parse().unwrap()),
            "{inside} in {text}"
        );
        assert!(
            !class.contains(outside.parse().unwrap()),
            "{outside} not in {text}"
        );
    }
    let nat64 = vec![network("64:ff9b::/96")];
    assert!(Addresses::Networks(nat64.clone()).contains("64:ff9b::808:808".parse().unwrap()));
    assert!(!Addresses::Networks(nat64).contains("64:ff9b::a00:1".parse().unwrap()));
    assert!(!Addresses::Networks(Vec::new()).contains("8.8.8.8".parse().unwrap()));
}

#[test]
fn a_slip_in_a_key_or_a_word_is_met_with_the_word_that_was_meant() {
    let folder = folder();
    for (text, fault) in [
        (
            "[lsiten]\n",
            "lsiten: unknown key; remove it or correct its spelling; did you mean `listen`?",
        ),
        (
            "[listen]\nporxy = \"127.0.0.1:1\"\n",
            "listen.porxy: unknown key; remove it or correct its spelling; did you mean `proxy`?",
        ),
        (
            "[limits]\nin_fligth = 3\n",
            "limits.in_fligth: unknown key; remove it or correct its spelling; did you mean `in_flight`?",
        ),
        (
            "[ledger]\nsync = \"records\"\n",
            "ledger.sync: not a known word; write one of record, interval; did you mean `record`?",
        ),
        (
            "[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nbnid = \"none\"\n",
            "hosts.local.bnid: unknown key; remove it or correct its spelling; did you mean `bind`?",
        ),
        (
            "[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\nbind = \"non\"\n",
            "hosts.local.bind: not a known word; write one of cover, exact, none; did you mean `none`?",
        ),
        // A word that is known elsewhere is no help here, nor is one that is far from every other.
        (
            "[cards]\nproxy = 1\n",
            "cards.proxy: unknown key; remove it or correct its spelling",
        ),
        (
            "[ledger]\nsync = \"always\"\n",
            "ledger.sync: not a known word; write one of record, interval",
        ),
    ] {
        let faults = load_in(&folder, &format!("version = 1\n{text}")).unwrap_err();
        let told: Vec<String> = faults
            .iter()
            .map(|fault| format!("{}: {}", fault.key, fault.what))
            .collect();
        assert_eq!(told, [fault]);
    }
}

#[test]
fn a_name_that_may_be_a_secret_is_not_shown() {
    let host = "[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    // Each with the twin whose name can be shown.
    for (text, key) in [
        ("KEY = 1\n".to_owned(), "api_kez"),
        (format!("{host}KEY = 1\n"), "hosts.local.api_kez"),
        (
            format!("{host}headers = {{ KEY = \"(\" }}\n"),
            "hosts.local.headers.api_kez",
        ),
        (
            format!("{host}vocabulary = {{ KEY = \"?\" }}\n"),
            "hosts.local.vocabulary.api_kez",
        ),
        (
            format!("{host}credential = {{ KEY = \"?\" }}\n"),
            "hosts.local.credential.api_kez",
        ),
        ("[hosts.KEY]\nx = 1\n".to_owned(), "hosts.api_kez"),
    ] {
        for secret in ["sk-Key0123456789", "\"sk-Key 0123\"", "AKIAEXAMPLE"] {
            let text = format!("version = 1\n{}", text.replace("KEY", secret));
            let faults = load(&text).map(|_| ()).expect_err(&text);
            let shown = format!("{faults:?}");
            assert!(!shown.contains(secret.trim_matches('"')), "{shown}");
            let hidden = key.replace("api_kez", "(a key)");
            assert!(
                faults.iter().any(|fault| fault.key.starts_with(&hidden)),
                "{shown}"
            );
        }
        let text = format!("version = 1\n{}", text.replace("KEY", "api_kez"));
        let faults = load(&text).map(|_| ()).expect_err(&text);
        assert!(
            faults.iter().any(|fault| fault.key.starts_with(key)),
            "{faults:?}"
        );
    }
}

#[test]
fn a_variable_is_named_where_it_looks_like_one() {
    for (name, shown) in [
        ("OPENAI_API_KEY", true),
        ("KEY_2", true),
        ("AKIAEXAMPLEEXAMPLE00", false),
        ("A1B2C3D4E5F6", false),
        ("openai_key", false),
    ] {
        let text = format!(
            "version = 1\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\ncredential = {{ env = \"{name}\" }}\n"
        );
        let faults = build(&text, None, &|_| None, Reads::Everything)
            .map(|_| ())
            .expect_err(&text);
        assert_eq!(format!("{faults:?}").contains(name), shown, "{faults:?}");
    }
}

#[test]
fn the_checkpoints_copy_is_nothing_else_that_is_named_also_through_a_link_and_where_it_is_not_there()
 {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(folder.path(), at("link")).unwrap();
    std::os::unix::fs::symlink(at("secret"), at("alias")).unwrap();
    fs::remove_file(at("fixtures.lock")).unwrap();
    fs::remove_dir(at("cards")).unwrap();
    let more =
        "[listen]\nproxy = \"unix:gate.sock\"\n[fixtures]\nhmac_key = { file = \"secret\" }\n";
    let load = |copy: &str| {
        let ledger = format!("version = 1\n{more}[ledger]\ncheckpoint_copy = \"{copy}\"\n");
        load_in(&folder, &ledger)
    };
    let whole = |name: &str| folder.path().canonicalize().unwrap().join(name);
    for (copy, says) in [
        ("link/fixtures.lock", "fixtures.lock"),
        ("link/policy.toml", "the policy file"),
        ("cards/a.json", "cards.dir"),
        ("link/ledger", "ledger.dir"),
        ("alias", "fixtures.hmac_key.file"),
        ("link/secret", "fixtures.hmac_key.file"),
        ("gate.sock", "listen.proxy"),
        (whole("fixtures.lock").to_str().unwrap(), "fixtures.lock"),
    ] {
        let faults = load(copy).unwrap_err();
        assert_eq!(faults.len(), 1, "{copy}: {faults:?}");
        assert_eq!(faults[0].key, "ledger.checkpoint_copy");
        assert!(faults[0].what.contains(says), "{copy}: {}", faults[0].what);
    }
    for copy in ["link/kept", "secret.kept", "cards.kept", "certs/kept"] {
        assert!(load(copy).is_ok(), "{copy}");
    }
}
