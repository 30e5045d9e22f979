//! The policy's own name servers (`resolver.servers`): one question for A and one for AAAA, absolute, no search domain, no cache.
//!
//! Promises: every address record of an answer counts, whatever alias leads to it, and an alias is never asked after: what the answer
//! holds is what is checked. Both questions must be answered without error. Not promised: that the answer is true.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::tcp::TcpClientStream;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::{DnsExchange, DnsHandle, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequestOptions, DnsResponse, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::timeout;

/// The addresses of an absolute name. The servers are asked in order until one answers; each has its share of `limit`.
pub(super) async fn ask(
    servers: &[SocketAddr],
    name: &str,
    limit: Duration,
) -> Option<Vec<IpAddr>> {
    let name = Name::from_ascii(format!("{name}.")).ok()?;
    let share = limit / u32::try_from(servers.len()).ok()?.max(1);
    for server in servers {
        if let Ok(Some(found)) = timeout(share, ask_one(*server, &name, share)).await {
            return Some(found);
        }
    }
    None
}

async fn ask_one(server: SocketAddr, name: &Name, limit: Duration) -> Option<Vec<IpAddr>> {
    let (four, six) = tokio::join!(
        question(server, name, RecordType::A, limit),
        question(server, name, RecordType::AAAA, limit),
    );
    let mut found = four?;
    found.extend(six?);
    Some(found)
}

async fn question(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
    limit: Duration,
) -> Option<Vec<IpAddr>> {
    // A port of its own for each question; a lost datagram is repeated once.
    let udp = UdpClientStream::builder(server, TokioRuntimeProvider::default())
        .with_timeout(Some(limit))
        .with_max_retries(1)
        .exchange();
    let mut answer = put(&udp, name, kind).await?;
    if answer.metadata.truncation {
        let provider = TokioRuntimeProvider::default();
        let tcp = TcpClientStream::exchange(server, None, limit, None, provider)
            .await
            .ok()?;
        answer = put(&tcp, name, kind).await?;
    }
    if answer.metadata.response_code != ResponseCode::NoError || answer.metadata.truncation {
        return None;
    }
    Some(
        answer
            .answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::A(ip) => Some(IpAddr::V4(ip.0)),
                RData::AAAA(ip) => Some(IpAddr::V6(ip.0)),
                // No address: an alias, a signature. Not an enum of ours.
                #[allow(
                    clippy::wildcard_enum_match_arm,
                    reason = "DNS has many types, two are addresses"
                )]
                _ => None,
            })
            .collect(),
    )
}

async fn put(
    to: &DnsExchange<TokioRuntimeProvider>,
    name: &Name,
    kind: RecordType,
) -> Option<DnsResponse> {
    let query = Query::query(name.clone(), kind);
    to.lookup(query, DnsRequestOptions::default())
        .first_answer()
        .await
        .ok()
}
