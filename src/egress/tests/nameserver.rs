//! A name server for these tests: over UDP and TCP on one port of loopback, it says what a test has it say.

#![allow(clippy::disallowed_methods, reason = "a name server for these tests")]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::kit::*;
use crate::policy::Addresses;

/// What the name server says.
#[derive(Clone)]
pub(super) enum Says {
    Addresses(Vec<IpAddr>),
    /// Each question gets the next.
    InTurn(Vec<Vec<IpAddr>>),
    Alias(Vec<IpAddr>),
    Code(ResponseCode),
    Silence,
    /// An empty answer, changed.
    Made(fn(&mut Message)),
    /// An empty answer, and the datagrams that come of it.
    Datagrams(fn(Message) -> Vec<Vec<u8>>),
    /// Over UDP an answer that is cut short; over TCP these bytes, behind their length or not.
    Tcp(fn(Message) -> Vec<u8>),
}

pub(super) type Asked = Arc<Mutex<Vec<String>>>;

pub(super) async fn name_server(says: Says) -> (SocketAddr, Asked) {
    // Over UDP what is long is cut short; over TCP, at the same port, it is whole. Both must be free at once.
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            break (listener, socket);
        }
    };
    let address = socket.local_addr().unwrap();
    let asked = Asked::default();
    let log = asked.clone();
    let mut turns = 0;
    tokio::spawn(async move {
        let mut buf = [0; 4096];
        loop {
            tokio::select! {
                got = socket.recv_from(&mut buf) => {
                    let (len, from) = got.unwrap();
                    let Some(answer) = answer(&says, &buf[..len], &log, &mut turns) else {
                        continue;
                    };
                    if let Says::Datagrams(make) = &says {
                        for datagram in make(answer) {
                            socket.send_to(&datagram, from).await.unwrap();
                        }
                        continue;
                    }
                    let mut bytes = answer.to_vec().unwrap();
                    if bytes.len() > 1232 {
                        let mut cut = answer.clone();
                        cut.answers.truncate(2);
                        cut.metadata.truncation = true;
                        bytes = cut.to_vec().unwrap();
                    }
                    socket.send_to(&bytes, from).await.unwrap();
                }
                got = listener.accept() => {
                    let (mut tcp, _) = got.unwrap();
                    let len = tcp.read_u16().await.unwrap();
                    let mut question = vec![0; usize::from(len)];
                    tcp.read_exact(&mut question).await.unwrap();
                    let mut answer = answer(&says, &question, &log, &mut turns).unwrap();
                    if let Says::Tcp(make) = &says {
                        answer.metadata.truncation = false;
                        tcp.write_all(&make(answer)).await.unwrap();
                        continue;
                    }
                    let bytes = answer.to_vec().unwrap();
                    tcp.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
                    tcp.write_all(&bytes).await.unwrap();
                }
            }
        }
    });
    (address, asked)
}

fn answer(says: &Says, question: &[u8], log: &Asked, turns: &mut usize) -> Option<Message> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    log.lock().unwrap().push(format!(
        "{} {}",
        query.query_type(),
        query.name().to_string().to_lowercase()
    ));
    let mut answer = Message::response(question.metadata.id, OpCode::Query);
    answer.add_query(query.clone());
    let mut name = query.name().clone();
    let addresses = match says {
        Says::Silence => return None,
        Says::Made(make) => {
            make(&mut answer);
            return Some(answer);
        }
        Says::Datagrams(_) => return Some(answer),
        Says::Tcp(_) => {
            answer.metadata.truncation = true;
            return Some(answer);
        }
        Says::Code(code) => {
            answer.metadata.response_code = *code;
            Vec::new()
        }
        Says::Addresses(addresses) => addresses.clone(),
        Says::InTurn(all) => {
            *turns += 1;
            // A and AAAA of one look-up are one turn.
            all[((*turns - 1) / 2).min(all.len() - 1)].clone()
        }
        Says::Alias(addresses) => {
            let alias = Name::from_ascii("metadata.test.").unwrap();
            answer.add_answer(Record::from_rdata(
                name.clone(),
                0,
                RData::CNAME(CNAME(alias.clone())),
            ));
            name = alias;
            addresses.clone()
        }
    };
    for ip in addresses {
        if let Some(record) = record(&answer, &name, ip) {
            answer.add_answer(record);
        }
    }
    Some(answer)
}

/// An address of this name, where it is of the kind that was asked for.
fn record(answer: &Message, name: &Name, ip: IpAddr) -> Option<Record> {
    let data = match (ip, answer.queries[0].query_type()) {
        (IpAddr::V4(ip), RecordType::A) => RData::A(A(ip)),
        (IpAddr::V6(ip), RecordType::AAAA) => RData::AAAA(AAAA(ip)),
        (IpAddr::V4(_) | IpAddr::V6(_), _) => return None,
    };
    Some(Record::from_rdata(name.clone(), 0, data))
}

/// Puts an address under a name into an answer, where it is of the kind that was asked for.
pub(super) fn address(answer: &mut Message, name: &str, ip: &str) {
    let name = Name::from_ascii(name).unwrap();
    if let Some(record) = record(answer, &name, ip.parse().unwrap()) {
        answer.add_answer(record);
    }
}

/// Puts an alias into an answer.
pub(super) fn alias(answer: &mut Message, from: &str, to: &str) {
    let [from, to] = [from, to].map(|name| Name::from_ascii(name).unwrap());
    answer.add_answer(Record::from_rdata(from, 0, RData::CNAME(CNAME(to))));
}

pub(super) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(super) async fn way_by(says: Says, addresses: Addresses, port: u16) -> (Way, Asked) {
    let (server, asked) = name_server(says).await;
    let mut policy = policy();
    policy.resolvers = vec![server];
    let mut host = named("models.test", port);
    host.addresses = addresses;
    (Way::by(policy, host), asked)
}

pub(super) async fn listening() -> Scripted {
    Scripted::plays(vec![vec![Step::Request, say(OK), Step::Hold]]).await
}
