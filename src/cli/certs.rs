//! `certs init`: an authority for interception, limited to the policy's hosts.
//!
//! Promises: it writes over nothing; the key is at mode 0600 from its first byte; the authority can vouch for the policy's TLS hosts and no other.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use jiff::Timestamp;

use super::custody;
use super::out::{Done, Failure, Out, Tone, safe};
use crate::certs::{self, Made, Name};
use crate::files::shell_word;
use crate::policy::{Policy, ProxyAddress};

const CA_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca-key.pem";

/// Make the authority for interception.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate certs init certs --policy leafgate.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(Init),
}

/// Make an authority that can vouch for the policy's https hosts and no other.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate certs init certs --policy leafgate.toml

Writes ca.pem and ca-key.pem (mode 0600) into DIR, over nothing that is there, and says what to put into the policy and
how to tell the clients. It is valid for 180 days. Run it again, with another DIR, before it expires or when the policy
has a new https host.")]
struct Init {
    /// The folder; it is made where it is not there
    dir: PathBuf,
    /// The policy file, whose https hosts the authority is for
    #[arg(long, value_name = "F")]
    policy: PathBuf,
}

pub(super) fn run(args: Args, out: &mut Out) -> Result<Done, Failure> {
    let Command::Init(init) = args.command;
    let policy = Policy::load_without_intercept(&init.policy)
        .map_err(|faults| Failure::Lines(faults.iter().map(ToString::to_string).collect()))?;
    let hosts = hosts(&policy);
    if hosts.is_empty() {
        return Err(Failure::new(
            "--policy: it has no host with an https base_url, so there is nothing to intercept; add one first",
        ));
    }
    let names: Vec<Name> = hosts.iter().map(|host| Name::of(host)).collect();
    let made = certs::make(&names, SystemTime::now()).map_err(|error| Failure::of(&error))?;
    write(&init.dir, &made)?;
    for finding in custody::on_the_way(&init.dir.join(KEY_FILE)) {
        super::complain(&[format!("warning: {}", finding.line())]);
    }
    tell(&init, &policy, &hosts, &made, out)
}

/// The hosts that have TLS, each once.
fn hosts(policy: &Policy) -> BTreeSet<String> {
    let with_tls = policy.hosts.values().filter(|host| host.base.tls);
    with_tls.map(|host| host.base.host.clone()).collect()
}

/// The date, UTC.
pub(super) fn day(moment: SystemTime) -> String {
    // RFC 3339: the first ten characters are the date.
    let text = Timestamp::try_from(moment).map(|at| at.to_string());
    text.ok()
        .and_then(|text| text.get(..10).map(str::to_owned))
        .unwrap_or_default()
}

/// Both files, or none.
fn write(dir: &Path, made: &Made) -> Result<(), Failure> {
    let (ca, key) = (dir.join(CA_FILE), dir.join(KEY_FILE));
    for file in [&ca, &key] {
        if file.symlink_metadata().is_ok() {
            let file = file.display();
            return Err(Failure::new(format!(
                "{file} is there already; nothing was written: name another folder, or move it away"
            )));
        }
    }
    fs::create_dir_all(dir).map_err(|error| Failure::file(dir, &error))?;
    put(&key, &made.key, 0o600)?;
    put(&ca, &made.ca, 0o644).inspect_err(|_| {
        // A key without its certificate is of no use, and would stand in the way.
        let _ = fs::remove_file(&key);
    })
}

/// Writes a file that is not there yet.
fn put(file: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file)
        .and_then(|mut to| to.write_all(text.as_bytes()))
        .map_err(|error| Failure::file(file, &error))
}

fn tell(
    init: &Init,
    policy: &Policy,
    hosts: &BTreeSet<String>,
    made: &Made,
    out: &mut Out,
) -> Result<Done, Failure> {
    let whole = |name: &str| {
        let file = init.dir.join(name);
        file.canonicalize().unwrap_or(file)
    };
    let (ca, key) = (whole(CA_FILE), whole(KEY_FILE));
    let shown = |path: &Path| safe(&path.display().to_string()).into_owned();
    let all: Vec<&str> = hosts.iter().map(String::as_str).collect();
    out.line(format!(
        "written  {}  the authority: until {} it can vouch for {}, and for no other name",
        shown(&ca),
        day(made.until),
        all.join(", ")
    ))?;
    out.line(format!(
        "written  {}  its key, mode 0600: whoever has it can pass for these hosts with the clients below",
        shown(&key)
    ))?;
    out.line("")?;
    out.line("in the policy")?;
    let text = |path: &Path| toml::Value::from(in_policy(path, &init.policy)).to_string();
    out.line("  [intercept]")?;
    out.line(format!("  ca = {}", text(&ca)))?;
    out.line(format!("  key = {}", text(&key)))?;
    out.line("")?;
    out.line("in the client's shell, and nowhere else")?;
    let proxy = match &policy.listen.proxy {
        ProxyAddress::Tcp(address) => format!("export HTTPS_PROXY=http://{address}"),
        ProxyAddress::Unix(_) => {
            "# HTTPS_PROXY cannot name a Unix socket: give listen.proxy an address and a port"
                .to_owned()
        }
    };
    out.line(out.paint(Tone::Strong, &format!("  {proxy}"), 0))?;
    for (name, who) in [
        (
            "SSL_CERT_FILE",
            "httpx and the SDKs on it, Go, curl (which takes CURL_CA_BUNDLE or SSL_CERT_DIR first, where it is set): this authority in place of the others",
        ),
        (
            "REQUESTS_CA_BUNDLE",
            "requests: this authority in place of the others",
        ),
        ("NODE_EXTRA_CA_CERTS", "Node: beside its own"),
    ] {
        out.line(format!(
            "  export {name}={}  # {who}",
            safe(&shell_word(&ca))
        ))?;
    }
    out.line("  the client keeps the host's own base URL; the card goes in the header leafgate-card, or as the API key card:NAME")?;
    Ok(Done::Yes)
}

/// As the policy would write it: relative to its folder where the file lies in it.
fn in_policy(path: &Path, policy: &Path) -> String {
    let folder = policy.canonicalize().ok();
    let folder = folder.as_deref().and_then(Path::parent);
    let path = folder
        .and_then(|folder| path.strip_prefix(folder).ok())
        .unwrap_or(path);
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const POLICY: &str = "version = 1\n[hosts.\"models.example.org\"]\nbase_url = \"https://models.example.org:8443/v1\"\nbind = \"exact\"\n[hosts.\"203.0.113.7\"]\nbase_url = \"https://203.0.113.7/v1\"\naddresses = [\"203.0.113.0/24\"]\nbind = \"exact\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:9/v1\"\n";

    fn init(dir: &Path, policy: &Path) -> (Result<Done, Failure>, String) {
        let args = Args {
            command: Command::Init(Init {
                dir: dir.to_owned(),
                policy: policy.to_owned(),
            }),
        };
        let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        struct Said(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl std::io::Write for Said {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut out = Out::to(Said(said.clone()), false);
        let done = run(args, &mut out);
        let _ = out.flush();
        let text = String::from_utf8(said.lock().unwrap().clone()).unwrap();
        (done, text)
    }

    #[test]
    fn what_it_says_to_put_into_the_policy_loads() {
        let top = tempfile::tempdir().unwrap();
        let policy = top.path().join("leafgate.toml");
        fs::write(&policy, POLICY).unwrap();
        let (done, said) = init(&top.path().join("certs"), &policy);
        assert!(matches!(done, Ok(Done::Yes)), "{done:?}");
        let mode = |name: &str| {
            let found = fs::metadata(top.path().join("certs").join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!(mode(KEY_FILE), 0o600);
        assert!(said.contains("203.0.113.7, models.example.org, and for no other name"));
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let at = lines
            .iter()
            .position(|line| *line == "[intercept]")
            .unwrap();
        assert_eq!(
            lines[at + 1..at + 3],
            ["ca = \"certs/ca.pem\"", "key = \"certs/ca-key.pem\""]
        );
        fs::write(
            &policy,
            format!("{POLICY}{}\n", lines[at..at + 3].join("\n")),
        )
        .unwrap();
        let loaded = Policy::load(&policy).unwrap_or_else(|faults| panic!("{faults:?}"));
        assert_eq!(loaded.effective()["intercept"]["ca"], "certs/ca.pem");
        let to = |authority: &str| loaded.tunnel_to(authority).map(|host| host.pin.as_str());
        assert_eq!(to("models.example.org:8443"), Some("models.example.org"));
        assert_eq!(to("203.0.113.7:443"), Some("203.0.113.7"));
        for other in [
            "models.example.org:443",
            "models.example.org",
            "127.0.0.1:9",
        ] {
            assert_eq!(to(other), None);
        }
        // Again, for a policy whose authority no longer fits: over nothing, into another folder.
        let host = "[hosts.\"api.example.net\"]\nbase_url = \"https://api.example.net\"\nbind = \"exact\"\n";
        let grown = fs::read_to_string(&policy).unwrap() + host;
        fs::write(&policy, grown).unwrap();
        let faults = Policy::load(&policy).map(drop).unwrap_err();
        assert!(
            faults.len() == 1 && faults[0].to_string().contains("the host api.example.net"),
            "{faults:?}"
        );
        let before = fs::read(top.path().join("certs/ca.pem")).unwrap();
        let (again, _) = init(&top.path().join("certs"), &policy);
        assert!(
            matches!(again, Err(Failure::Lines(lines)) if lines[0].contains("nothing was written"))
        );
        assert_eq!(fs::read(top.path().join("certs/ca.pem")).unwrap(), before);
        let (done, _) = init(&top.path().join("new"), &policy);
        assert!(matches!(done, Ok(Done::Yes)));
    }

    #[test]
    fn half_a_pair_is_not_written_over_and_no_host_is_no_authority() {
        let top = tempfile::tempdir().unwrap();
        let policy = top.path().join("leafgate.toml");
        fs::write(&policy, POLICY).unwrap();
        for name in [CA_FILE, KEY_FILE] {
            let dir = top.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(name), "mine").unwrap();
            assert!(init(&dir, &policy).0.is_err());
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
            assert_eq!(fs::read(dir.join(name)).unwrap(), b"mine");
        }
        fs::write(&policy, "version = 1\n").unwrap();
        let dir = top.path().join("none");
        assert!(
            matches!(init(&dir, &policy).0, Err(Failure::Lines(lines)) if lines[0].contains("no host with an https"))
        );
        assert!(!dir.exists());
    }
}
