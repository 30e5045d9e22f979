//! From a host to the addresses that may be dialled.
//!
//! 1. `resolve` in the policy: those addresses, no look-up.
//! 2. `base_url` names an address: that one.
//! 3. `localhost` and names below it: 127.0.0.1 and ::1, no look-up (RFC 6761, section 6.3).
//! 4. `resolver.servers`: see `ask.rs`; no hosts file.
//! 5. Else the system: its hosts file, then its resolver, asked once, by the absolute name.
//!
//! Then, whichever it was, the whole answer must lie in the host's `addresses`: one address outside refuses all.
//! Promises nothing about the truth of an answer; TLS answers for that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Failed;
use super::ask::{self, Found};
use crate::files;
use crate::policy::{Host, Policy};
use crate::terms::Reason;

/// Look-ups of the system's resolver at the same time: each holds a thread, also after its call gave up.
const AT_ONCE: usize = 32;
/// A hosts file is read up to here.
const HOSTS_FILE_BYTES: u64 = 1 << 20;

/// Asks for names. Keeps no answer.
pub(super) struct Resolver {
    threads: Arc<Semaphore>,
}

impl Default for Resolver {
    fn default() -> Self {
        Resolver {
            threads: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Resolver {
    /// The checked addresses of a host, at least one. The caller bounds the time.
    pub(super) async fn addresses(
        &self,
        policy: &Policy,
        host: &Host,
    ) -> Result<Vec<IpAddr>, Failed> {
        let found = self.find(policy, host).await?;
        if !found.all().all(|ip| host.addresses.contains(ip)) {
            return Err(Failed::new(
                Reason::AddressRefused,
                "the host's name resolved to an address outside its addresses class, nothing was sent; check the name server or the policy's addresses",
            ));
        }
        if found.own.is_empty() {
            return Err(Failed::new(
                Reason::ConnectFailed,
                "the host's name has no address; check base_url and the resolver",
            ));
        }
        Ok(found.own)
    }

    async fn find(&self, policy: &Policy, host: &Host) -> Result<Found, Failed> {
        let name = host.base.host.as_str();
        // 1. Fixed addresses.
        if !host.resolve.is_empty() {
            return Ok(Found::only(host.resolve.clone()));
        }
        // 2. An address.
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Ok(Found::only(vec![ip]));
        }
        // 3. This machine.
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(Found::only(vec![
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ]));
        }
        // 4. and 5.: a question.
        let answer = if policy.resolvers.is_empty() {
            self.ask_system(name).await.map(Found::only)
        } else {
            ask::ask(&policy.resolvers, name, policy.limits.connect).await
        };
        answer.ok_or_else(|| {
            Failed::new(
                Reason::ConnectFailed,
                "the host's name could not be resolved; check base_url and the resolver",
            )
        })
    }

    async fn ask_system(&self, name: &str) -> Option<Vec<IpAddr>> {
        let permit = self.threads.clone().acquire_owned().await.ok()?;
        let name = name.to_owned();
        // The permit goes with the thread: a look-up that outlives its call still counts.
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let listed = from_hosts_file(&name);
            if listed.is_empty() {
                look_up(&name)
            } else {
                Some(listed)
            }
        })
        .await
        .ok()?
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "egress resolves names, once for each call"
)]
fn look_up(name: &str) -> Option<Vec<IpAddr>> {
    use std::net::ToSocketAddrs;
    // The final dot makes the name absolute: no search domain is tried.
    let found = (format!("{name}."), 0_u16).to_socket_addrs().ok()?;
    Some(found.map(|address| address.ip()).collect())
}

/// The system's resolver does not find an absolute name in the hosts file, so it is read here: all addresses of the name.
fn from_hosts_file(name: &str) -> Vec<IpAddr> {
    use std::io::Read;
    if cfg!(not(unix)) {
        return Vec::new();
    }
    let mut text = Vec::new();
    // A machine without the file has no such names; the resolver is asked then.
    if let Ok(file) = files::open(Path::new("/etc/hosts")) {
        let _ = file.take(HOSTS_FILE_BYTES).read_to_end(&mut text);
    }
    listed(&String::from_utf8_lossy(&text), name)
}

fn listed(hosts: &str, name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in hosts.lines() {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_gives_all_addresses_of_the_whole_name() {
        let text = "127.0.0.1 localhost\n# 10.9.9.9 llm.internal\n10.0.0.5\tllm.internal llm # note\nfd00::5 LLM.internal\nnonsense llm.internal\n10.0.0.5 llm.internal\n";
        assert_eq!(
            listed(text, "llm.internal"),
            ["10.0.0.5", "fd00::5"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert_eq!(listed(text, "internal"), Vec::<IpAddr>::new());
    }
}
