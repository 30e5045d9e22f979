//! Where leafgate is, seen from outside and from inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::super::out::Failure;
use crate::policy::Listen;

/// The one way out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Where the real listener is, and the address of the one inside: the same, so that `Host`, certificates and base URLs stay true.
    pub(super) address: SocketAddr,
    /// `https`, and the certificate that clients may trust where nothing else is named.
    pub(super) tls: Option<PathBuf>,
}

impl Way {
    pub(super) fn of(listen: &Listen) -> Result<Way, Failure> {
        let Some(bound) = listen.proxy.tcp() else {
            return Err(Failure::new(
                "run needs a TCP listener; listen.proxy is a Unix socket, which run masks like every other: write an address and a port, such as \"127.0.0.1:8484\"",
            ));
        };
        if bound.port() == 0 {
            return Err(Failure::new(
                "listen.proxy has port 0, which is another port at each start of serve; write the port that serve shall have",
            ));
        }
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        let address = SocketAddr::new(ip, bound.port());
        if ip != bound.ip() && !listen.names.contains(&address.to_string()) {
            return Err(Failure::new(format!(
                "listen.proxy is every address, and leafgate would refuse the Host of the base URL in there; add \"{address}\" to listen.names"
            )));
        }
        Ok(Way {
            address,
            tls: listen.tls.as_ref().map(|tls| tls.cert.clone()),
        })
    }

    /// `http://127.0.0.1:8484`, with the card where there is one; without `/v1`.
    pub(super) fn base(&self, card: Option<&str>) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let card = card.map_or_else(String::new, |card| format!("/card/{card}"));
        format!("{scheme}://{}{card}", self.address)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::policy::ProxyAddress;

    fn listen(proxy: &str, names: &[&str]) -> Listen {
        Listen {
            proxy: proxy
                .parse()
                .map_or_else(|_| ProxyAddress::Unix(proxy.into()), ProxyAddress::Tcp),
            admin: "127.0.0.1:8485".parse().unwrap(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            tls: None,
            token: None,
        }
    }

    #[test]
    fn the_address_inside_is_the_one_outside() {
        for (proxy, base) in [
            ("127.0.0.1:8484", "http://127.0.0.1:8484"),
            ("[::1]:8484", "http://[::1]:8484"),
            ("10.0.0.5:80", "http://10.0.0.5:80"),
        ] {
            let way = Way::of(&listen(proxy, &[])).unwrap();
            assert_eq!(way.base(None), base);
            assert_eq!(way.base(Some("a")), format!("{base}/card/a"));
        }
    }

    #[test]
    fn every_address_needs_a_name_that_leafgate_takes() {
        assert!(Way::of(&listen("0.0.0.0:8484", &[])).is_err());
        let way = Way::of(&listen("0.0.0.0:8484", &["127.0.0.1:8484"])).unwrap();
        assert_eq!(way.address, "127.0.0.1:8484".parse().unwrap());
        assert!(Way::of(&listen("127.0.0.1:0", &[])).is_err());
    }

    #[test]
    fn a_unix_socket_is_no_way() {
        let fault = Way::of(&listen("/run/gate.sock", &[])).unwrap_err();
        assert!(format!("{fault:?}").contains("run needs a TCP listener"));
    }
}
