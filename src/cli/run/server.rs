//! Whose the listener is. A port is anybody's who comes first: where leafgate has gone, another user may have taken it, and would be sent what the command sends.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::doctor::{LISTEN, Socket, tcp_sockets};
use crate::files::shell_word;
use crate::ledger;
use crate::policy::Policy;

/// The kernel's table is not read in one piece, so a row may be missed once.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Where leafgate is, and as which users it may run.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    users: BTreeSet<u32>,
    /// Not where the user was named: who names it says that leafgate runs as that one.
    ledger: Option<PathBuf>,
}

impl Server {
    /// This user, root, the owner of the ledger (leafgate made it), and the one that was named.
    pub(super) fn of(policy: &Policy, address: SocketAddr, named: Option<u32>) -> Server {
        let ledger = std::fs::metadata(&policy.ledger.dir).map(|facts| facts.uid());
        let own = rustix::process::geteuid().as_raw();
        let users = [Some(own), Some(0), ledger.ok(), named];
        Server {
            address,
            users: users.into_iter().flatten().collect(),
            ledger: named.is_none().then(|| policy.ledger.dir.clone()),
        }
    }

    /// Whether a leafgate runs on the policy's ledger. What listens may be another program, or a leafgate with another policy, whose rules are not these. Where the
    /// lock may not be looked at (another user's ledger), whose the listener is has to do.
    pub(super) fn on_its_ledger(&self, policy: Option<&Path>) -> Result<(), String> {
        let Some(dir) = &self.ledger else {
            return Ok(());
        };
        let held = match ledger::in_use(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            looked => looked.unwrap_or(true),
        };
        if held {
            return Ok(());
        }
        let policy = policy.map_or_else(String::new, |file| {
            format!(" --policy {}", shell_word(file))
        });
        Err(format!(
            "what listens at {} is no leafgate with this policy: none runs on its ledger ({}). End it and start `leafgate serve{policy}`, or give listen.proxy another place",
            self.address,
            dir.display()
        ))
    }

    /// Whether a connection that is ours at this end was taken by one of these users, and nobody else listens there. Nothing was sent on it yet.
    pub(super) fn took(&self, own: SocketAddr) -> io::Result<()> {
        let mut doubt = None;
        for _ in 0..TRIES {
            let mut rows = tcp_sockets(&std::fs::read_to_string("/proc/net/tcp")?);
            // Not there where IPv6 is off.
            let six = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
            rows.extend(tcp_sockets(&six));
            match self.verdict(&rows, own) {
                None => return Ok(()),
                Some(why) => doubt = Some(why),
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::other(doubt.unwrap_or_default()))
    }

    /// Why not.
    fn verdict(&self, rows: &[Socket], own: SocketAddr) -> Option<String> {
        let address = self.address;
        let listeners = listeners(rows, address);
        let taken = rows.iter().find(|row| {
            (row.local, row.remote) == (plain(address), plain(own)) && row.state != LISTEN
        });
        let Some(taken) = taken.filter(|_| !listeners.is_empty()) else {
            return Some(format!(
                "the socket that listens at {address} is not seen in /proc/net/tcp; start serve in this network namespace"
            ));
        };
        // A connection that nobody has accepted yet has the user 0 on some kernels: then its listener says whose it is.
        let stranger = listeners
            .into_iter()
            .chain([taken])
            .find(|row| !self.users.contains(&row.uid))?;
        Some(format!(
            "a program of user {} listens at {address}, who is neither this user, root, nor the owner of ledger.dir: somebody else may have taken the port; where leafgate runs as that user, --served-by {}",
            stranger.uid, stranger.uid
        ))
    }
}

/// Who takes connections to an address: those that listen at it, else those at every address.
fn listeners(rows: &[Socket], address: SocketAddr) -> Vec<&Socket> {
    let at = |wanted: &dyn Fn(IpAddr) -> bool| -> Vec<&Socket> {
        rows.iter()
            .filter(|row| {
                row.state == LISTEN && row.local.port() == address.port() && wanted(row.local.ip())
            })
            .collect()
    };
    let exact = at(&|ip| ip == address.ip().to_canonical());
    if exact.is_empty() {
        at(&|ip| ip.is_unspecified())
    } else {
        exact
    }
}

/// As the table has it.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn table(rows: &[(&str, &str, &str, u32)]) -> Vec<Socket> {
        let rows = rows.iter().map(|(local, remote, state, uid)| {
            format!("   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 77 1 0 100 0 0 10 0\n")
        });
        tcp_sockets(&format!("{HEAD}{}", rows.collect::<String>()))
    }

    fn why(rows: &[(&str, &str, &str, u32)]) -> Option<String> {
        let server = Server {
            address: "127.0.0.1:8484".parse().unwrap_or_else(|_| unreachable!()),
            users: [0, 1000].into(),
            ledger: None,
        };
        let own = "127.0.0.1:4096".parse().unwrap_or_else(|_| unreachable!());
        server.verdict(&table(rows), own)
    }

    // 127.0.0.1:8484, 0.0.0.0:8484, 127.0.0.1:4096
    const AT: &str = "0100007F:2124";
    const EVERYWHERE: &str = "00000000:2124";
    const OWN: &str = "0100007F:1000";
    const NOBODY: &str = "00000000:0000";

    #[test]
    fn a_connection_is_leafgates_only_where_listener_and_taker_are_its_users() {
        for listener in [AT, EVERYWHERE] {
            let listening = |uid| (listener, NOBODY, "0A", uid);
            assert_eq!(why(&[listening(1000), (AT, OWN, "01", 1000)]), None);
            // Not accepted yet, as older kernels show it.
            assert_eq!(why(&[listening(1000), (AT, OWN, "01", 0)]), None);
            for rows in [
                [listening(7), (AT, OWN, "01", 0)],
                [listening(1000), (AT, OWN, "01", 7)],
            ] {
                assert!(why(&rows).is_some_and(|why| why.contains("user 7")));
            }
        }
        // Somebody's listener at every address takes nothing from the one at this.
        let rows = [
            (EVERYWHERE, NOBODY, "0A", 7),
            (AT, NOBODY, "0A", 1000),
            (AT, OWN, "01", 1000),
        ];
        assert_eq!(why(&rows), None);
    }

    #[test]
    fn what_is_not_seen_is_not_trusted() {
        for rows in [
            &[][..],
            &[(AT, NOBODY, "0A", 1000)],
            &[(AT, OWN, "01", 1000)],
            // Our own end of it.
            &[(AT, NOBODY, "0A", 1000), (OWN, AT, "01", 1000)],
        ] {
            assert!(why(rows).is_some_and(|why| why.contains("not seen")));
        }
    }
}
