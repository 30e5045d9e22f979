//! What went wrong at neighbouring projects, done to leafgate: the built program in the neighbour's place, a host that records, a trap that
//! nobody may reach; and the twin without the fault. `docs/threats.md` lists them, and is held to the tests that it names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests; clients and hosts open their own sockets"
)]

#[allow(dead_code, reason = "the attacks use all of it")]
#[path = "../attacks/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod decisions;
mod messages;
mod names;
mod page;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use process::Process;
use serde_json::Value;
use support::{Host, Reply, entry, lay_out, records_in};

/// The host's key; it lies in a file beside the policy, for those that name it.
pub const KEY: &str = "sk-host-5d1f0e77a9";

/// The built leafgate before a host that records.
pub struct Place {
    pub host: Host,
    pub process: Process,
}

impl Place {
    pub fn plain() -> Place {
        Place::before(Host::ok(), "", "")
    }

    /// `more_host` stands in the host's entry, `more` beside it.
    pub fn before(host: Host, more_host: &str, more: &str) -> Place {
        let hosts = entry(&host, more_host);
        Place::with(host, &hosts, more)
    }

    /// `hosts` is the policy's text about hosts.
    pub fn with(host: Host, hosts: &str, more: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        lay_out(dir.path(), hosts, more, "");
        std::fs::write(dir.path().join("key"), KEY).unwrap();
        let process = Process::start(dir, "");
        Place { host, process }
    }

    /// A message as it is; every answer until the connection ends, or until it is silent for a while.
    pub fn all_answers(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.process.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(700)))
            .unwrap();
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    pub fn call(&self, card: &Value, body: &[u8]) -> Reply {
        self.process.call(card, body).unwrap()
    }

    /// One message on a connection of its own, and its answer.
    pub fn ask(&self, bytes: &[u8]) -> Reply {
        process::call(self.process.address, bytes).unwrap()
    }

    pub fn records(&self, kind: &str) -> Vec<Value> {
        let mut all = records_in(&self.process.ledger());
        all.retain(|record| record["t"] == kind);
        all
    }

    /// Outcomes are queued, not waited for.
    pub fn outcomes(&self, count: usize) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(8);
        loop {
            let found = self.records("outcome");
            if found.len() >= count || Instant::now() > end {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Decisions and refused messages so far.
    pub fn judged(&self) -> usize {
        self.records("decision").len() + self.records("refused").len()
    }
}
