//! The policy's own name servers (`resolver.servers`): one question for A and one for AAAA, absolute, no search domain, no cache.
//!
//! Promises: every address record of an answer counts, whatever alias leads to it, and an alias is never asked after: what the answer
//! holds is what is checked. Both questions must be answered without error. Not promised: that the answer is true.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::{DnsHandle, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequestOptions, Message, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
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
    let query = Query::query(name.clone(), kind);
    let short = udp
        .lookup(query.clone(), DnsRequestOptions::default())
        .first_answer()
        .await
        .ok()?;
    let answer = if short.metadata.truncation {
        over_tcp(server, query).await?
    } else {
        short.into_message()
    };
    if answer.metadata.response_code != ResponseCode::NoError || answer.metadata.truncation {
        return None;
    }
    Some(
        answer
            .answers
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .collect(),
    )
}

/// The same question where the answer was too long for a datagram (RFC 7766): its length, then the message, both ways.
#[allow(
    clippy::disallowed_methods,
    reason = "egress asks the policy's name servers, and nobody else does"
)]
async fn over_tcp(server: SocketAddr, query: Query) -> Option<Message> {
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(query.clone());
    let bytes = question.to_vec().ok()?;
    let mut tcp = TcpStream::connect(server).await.ok()?;
    let mut framed = u16::try_from(bytes.len()).ok()?.to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    tcp.write_all(&framed).await.ok()?;
    let mut answer = vec![0; usize::from(tcp.read_u16().await.ok()?)];
    tcp.read_exact(&mut answer).await.ok()?;
    let answer = Message::from_vec(&answer).ok()?;
    let ours = answer.metadata.id == question.metadata.id && answer.queries == [query];
    ours.then_some(answer)
}
