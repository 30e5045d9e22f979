//! The program itself, started and ended as a machine does it.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leafgate::ledger::verify;
use leafgate::policy::Policy;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Host, Reply, entry, lay_out, read_reply};

/// `leafgate serve` over a scratch folder.
pub struct Process {
    pub child: Child,
    pub dir: TempDir,
    pub address: SocketAddr,
}

impl Process {
    /// `limits` is shell text that runs before, such as `ulimit -n 64`.
    pub fn start(dir: TempDir, limits: &str) -> Process {
        let policy = dir.path().join("policy.toml");
        let address = Policy::load(&policy).unwrap().listen.proxy.tcp().unwrap();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(dir.path().join("log"))
            .unwrap();
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("{limits}\nexec \"$0\" serve --policy \"$1\""))
            .arg(env!("CARGO_BIN_EXE_leafgate"))
            .arg(&policy)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut process = Process {
            child,
            dir,
            address,
        };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "it did not start: {}", process.log());
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "it does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    pub fn laid_out(host: &Host, more: &str, limits: &str) -> Process {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path(), &entry(host, ""), more, "");
        Process::start(dir, limits)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub fn ledger(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    pub fn bytes(&self, card: &Value, payload: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nleafgate-card: {card}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            payload.len()
        );
        [head.as_bytes(), payload].concat()
    }

    /// One call on a connection of its own; `None` where the process was not there to its end.
    pub fn call(&self, card: &Value, payload: &[u8]) -> Option<Reply> {
        call(self.address, &self.bytes(card, payload))
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
    }

    /// SIGTERM, and the exit status.
    pub fn end(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().unwrap().code()
    }

    /// User and system time so far, in clock ticks (1/100 s).
    pub fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// The most memory it has held, in KiB.
    pub fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn call(address: SocketAddr, bytes: &[u8]) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .ok()?;
    let _ = stream.write_all(bytes);
    let reply = read_reply(&mut stream);
    (reply.status != 0).then_some(reply)
}

pub fn whole(id: &str, ledger: &Path) {
    let report = verify(ledger, &mut |_, _| ()).unwrap();
    assert_eq!(
        report.problem.map(|problem| problem.to_string()),
        None,
        "{id}"
    );
}
