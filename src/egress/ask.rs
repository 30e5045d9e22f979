//! The policy's own name servers (`resolver.servers`): one question for A and one for AAAA, absolute, no search domain, no cache.
//!
//! Promises: every address record of an answer is checked; those that may be dialled are the name's own, by the aliases that stand in the
//! same answer. An alias is never asked after. Both questions must be answered without error, and where one answer is that there is no such
//! name, that stands. Not promised: that the answer is true.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::{DnsHandle, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequestOptions, Message, MessageType, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The addresses in an answer.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The name's own: one of these is dialled.
    pub(super) own: Vec<IpAddr>,
    /// Under names that nobody asked for: never dialled, and checked all the same.
    pub(super) beside: Vec<IpAddr>,
    /// The server says that there is no such name: an answer, and no other server is asked for a better one.
    missing: bool,
}

impl Found {
    pub(super) fn only(own: Vec<IpAddr>) -> Found {
        Found {
            own,
            ..Found::default()
        }
    }

    /// Every address that the answer held.
    pub(super) fn all(&self) -> impl Iterator<Item = IpAddr> {
        self.own.iter().chain(&self.beside).copied()
    }
}

/// The addresses of an absolute name. The servers are asked in order until one answers; each has its share of `limit`.
pub(super) async fn ask(servers: &[SocketAddr], name: &str, limit: Duration) -> Option<Found> {
    let name = Name::from_ascii(format!("{name}.")).ok()?;
    let share = limit / u32::try_from(servers.len()).ok()?.max(1);
    for server in servers {
        if let Ok(Some(found)) = timeout(share, ask_one(*server, &name, share)).await {
            return Some(found);
        }
    }
    None
}

async fn ask_one(server: SocketAddr, name: &Name, limit: Duration) -> Option<Found> {
    let (four, six) = tokio::join!(
        question(server, name, RecordType::A, limit),
        question(server, name, RecordType::AAAA, limit),
    );
    // Where either says that there is no such name, what the other says of it is not dialled.
    let (four, six) = (four?, six?);
    let missing = four.missing || six.missing;
    let [mut own, mut beside] = [
        [four.own, six.own].concat(),
        [four.beside, six.beside].concat(),
    ];
    if missing {
        beside.append(&mut own);
    }
    Some(Found {
        own,
        beside,
        missing,
    })
}

async fn question(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
    limit: Duration,
) -> Option<Found> {
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
    let code = answer.metadata.response_code;
    let missing = code == ResponseCode::NXDomain;
    let whole = answer.metadata.message_type == MessageType::Response
        && (missing || code == ResponseCode::NoError)
        && !answer.metadata.truncation;
    whole.then(|| Found {
        missing,
        ..sorted(&answer, name)
    })
}

/// Tells the name's own addresses from those beside them.
fn sorted(answer: &Message, name: &Name) -> Found {
    let mut aliases: HashMap<&Name, Vec<&Name>> = HashMap::new();
    for record in &answer.answers {
        if let (RData::CNAME(to), DNSClass::IN) = (&record.data, record.dns_class) {
            aliases.entry(&record.name).or_default().push(&to.0);
        }
    }
    // Each name is gone on from once: aliases that lead back end nothing and cost nothing.
    let mut names = HashSet::from([name]);
    let mut next = vec![name];
    while let Some(from) = next.pop() {
        for to in aliases.get(from).into_iter().flatten() {
            if names.insert(to) {
                next.push(to);
            }
        }
    }
    let mut found = Found::default();
    for record in &answer.answers {
        let Some(ip) = record.data.ip_addr() else {
            continue;
        };
        if record.dns_class == DNSClass::IN && names.contains(&record.name) {
            found.own.push(ip);
        } else {
            found.beside.push(ip);
        }
    }
    found
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
