//! What a name server may say beside the truth: aliases, other names, other questions, half an answer.

#![allow(clippy::disallowed_methods, reason = "a name server for these tests")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RecordType};
use tokio::net::UdpSocket;

use super::kit::*;
use super::nameserver::*;
use crate::ledger::Sent;
use crate::policy::Addresses;

const NAME: &str = "models.test.";
const FAILED: Option<&str> = Some("connect_failed");
const REFUSED: Option<&str> = Some("address_refused");

/// Runs a call by this name server: its reason, where it went, and that nobody asked after another name.
async fn check(what: &str, says: Says, reason: Option<&str>) {
    let scripted = listening().await;
    let (way, asked) = way_by(says, Addresses::Loopback, scripted.port).await;
    let began = Instant::now();
    let done = way.call().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{what}");
    assert_eq!(done.reason, reason, "{what}");
    let outcome = done.outcome();
    if reason.is_none() {
        done.ok(b"{}");
        let dialled = SocketAddr::new(loopback(), scripted.port);
        assert_eq!(outcome.peer, Some(dialled), "{what}");
    } else {
        assert_eq!(
            (outcome.sent, outcome.error),
            (Sent::None, reason),
            "{what}"
        );
        assert_eq!((outcome.peer, scripted.accepts()), (None, 0), "{what}");
    }
    let asked = asked.lock().unwrap().clone();
    let known = |line: &String| line == "A models.test." || line == "AAAA models.test.";
    assert!(asked.iter().all(known), "{what}: {asked:?}");
    assert!((2..=4).contains(&asked.len()), "{what}: {asked:?}");
}

fn chain(answer: &mut Message, length: usize) {
    alias(answer, NAME, "n0.test.");
    for n in 1..length {
        alias(answer, &format!("n{}.test.", n - 1), &format!("n{n}.test."));
    }
    let end = format!("n{}.test.", length - 1);
    address(answer, &end, "127.0.0.1");
}

type Row = (&'static str, fn(&mut Message), Option<&'static str>);

#[tokio::test]
async fn aliases_are_followed_in_the_answer_and_never_asked_after() {
    let rows: [Row; 14] = [
        ("three in a row", |m| chain(m, 3), None),
        ("a thousand in a row, over TCP", |m| chain(m, 1000), None),
        (
            "backwards",
            |m| {
                address(m, "b.test.", "127.0.0.1");
                alias(m, "a.test.", "b.test.");
                alias(m, NAME, "a.test.");
            },
            None,
        ),
        (
            "in capitals",
            |m| {
                alias(m, "MODELS.test.", "A.test.");
                address(m, "a.TEST.", "127.0.0.1");
            },
            None,
        ),
        (
            "a loop",
            |m| {
                alias(m, NAME, "a.test.");
                alias(m, "a.test.", NAME);
            },
            FAILED,
        ),
        ("itself", |m| alias(m, NAME, NAME), FAILED),
        (
            "a loop with an address in it",
            |m| {
                alias(m, NAME, "a.test.");
                alias(m, "a.test.", NAME);
                address(m, "a.test.", "127.0.0.1");
            },
            None,
        ),
        ("to nothing", |m| alias(m, NAME, "other.test."), FAILED),
        (
            "to another whose address is outside",
            |m| {
                alias(m, NAME, "other.test.");
                address(m, "other.test.", "169.254.169.254");
            },
            REFUSED,
        ),
        (
            "to two, one of which is outside",
            |m| {
                alias(m, NAME, "a.test.");
                alias(m, NAME, "b.test.");
                address(m, "a.test.", "127.0.0.1");
                address(m, "b.test.", "10.0.0.1");
            },
            REFUSED,
        ),
        (
            "outside under the alias, inside under the name",
            |m| {
                alias(m, NAME, "a.test.");
                address(m, NAME, "127.0.0.1");
                address(m, "a.test.", "fd00::1");
            },
            REFUSED,
        ),
        (
            "another name alone",
            |m| address(m, "other.test.", "127.0.0.1"),
            FAILED,
        ),
        (
            "another name first",
            |m| {
                address(m, "other.test.", "127.0.0.9");
                address(m, NAME, "127.0.0.1");
            },
            None,
        ),
        (
            "another name, outside",
            |m| {
                address(m, NAME, "127.0.0.1");
                address(m, "other.test.", "10.0.0.1");
            },
            REFUSED,
        ),
    ];
    for (what, make, reason) in rows {
        check(what, Says::Made(make), reason).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_gives_no_address() {
    let rows: [Row; 9] = [
        (
            "no such name, and an address",
            |m| {
                m.metadata.response_code = ResponseCode::NXDomain;
                address(m, NAME, "127.0.0.1");
            },
            FAILED,
        ),
        (
            "no such name, and an address outside",
            |m| {
                m.metadata.response_code = ResponseCode::NXDomain;
                address(m, NAME, "10.0.0.1");
            },
            REFUSED,
        ),
        (
            "not implemented",
            |m| m.metadata.response_code = ResponseCode::NotImp,
            FAILED,
        ),
        (
            "not understood",
            |m| m.metadata.response_code = ResponseCode::FormErr,
            FAILED,
        ),
        (
            "a question",
            |m| {
                m.metadata.message_type = MessageType::Query;
                address(m, NAME, "127.0.0.1");
            },
            FAILED,
        ),
        (
            "another class",
            |m| {
                address(m, NAME, "127.0.0.1");
                for record in &mut m.answers {
                    record.dns_class = DNSClass::CH;
                }
            },
            FAILED,
        ),
        (
            "another class, outside, beside a good one",
            |m| {
                address(m, NAME, "10.0.0.1");
                for record in &mut m.answers {
                    record.dns_class = DNSClass::CH;
                }
                address(m, NAME, "127.0.0.1");
            },
            REFUSED,
        ),
        (
            "in the wrong section",
            |m| {
                address(m, NAME, "127.0.0.1");
                let records = std::mem::take(&mut m.answers);
                m.additionals.extend(records.clone());
                m.authorities.extend(records);
            },
            FAILED,
        ),
        ("the twin", |m| address(m, NAME, "127.0.0.1"), None),
    ];
    for (what, make, reason) in rows {
        check(what, Says::Made(make), reason).await;
    }
}

/// Whether an answer is to the question for IPv4 addresses.
fn four(m: &Message) -> bool {
    m.queries[0].query_type() == RecordType::A
}

#[tokio::test]
async fn both_questions_must_be_answered_and_both_answers_lie_inside() {
    let rows: [Row; 7] = [
        (
            "A inside, AAAA outside",
            |m| {
                address(m, NAME, "127.0.0.1");
                address(m, NAME, "2001:4860:4860::8888");
            },
            REFUSED,
        ),
        (
            "A outside, AAAA inside",
            |m| {
                address(m, NAME, "8.8.8.8");
                address(m, NAME, "::1");
            },
            REFUSED,
        ),
        (
            "no A, AAAA outside",
            |m| address(m, NAME, "fe80::1"),
            REFUSED,
        ),
        (
            "A inside, AAAA fails",
            |m| {
                address(m, NAME, "127.0.0.1");
                if !four(m) {
                    m.metadata.response_code = ResponseCode::ServFail;
                }
            },
            FAILED,
        ),
        (
            "A inside, AAAA says that there is no such name",
            |m| {
                address(m, NAME, "127.0.0.1");
                if !four(m) {
                    m.metadata.response_code = ResponseCode::NXDomain;
                }
            },
            FAILED,
        ),
        (
            "A fails, AAAA inside",
            |m| {
                address(m, NAME, "::1");
                if four(m) {
                    m.metadata.response_code = ResponseCode::ServFail;
                }
            },
            FAILED,
        ),
        (
            "the twin: A inside, AAAA empty",
            |m| address(m, NAME, "127.0.0.1"),
            None,
        ),
    ];
    for (what, make, reason) in rows {
        check(what, Says::Made(make), reason).await;
    }
    check(
        "A inside, AAAA silent",
        Says::Datagrams(|m| if four(&m) { good(m) } else { Vec::new() }),
        FAILED,
    )
    .await;
}

fn good(mut answer: Message) -> Vec<Vec<u8>> {
    address(&mut answer, NAME, "127.0.0.1");
    vec![answer.to_vec().unwrap()]
}

/// The answer with another id.
fn misnumbered(mut answer: Message) -> Vec<Vec<u8>> {
    answer.metadata.id = answer.metadata.id.wrapping_add(1);
    good(answer)
}

/// The answer to another question.
fn misplaced(mut answer: Message) -> Vec<Vec<u8>> {
    let kind = answer.queries[0].query_type();
    answer.queries = vec![Query::query(Name::from_ascii("other.test.").unwrap(), kind)];
    good(answer)
}

type Datagrams = (
    &'static str,
    fn(Message) -> Vec<Vec<u8>>,
    Option<&'static str>,
);

#[tokio::test]
async fn a_datagram_that_is_not_the_answer_is_not_taken_for_it() {
    let rows: [Datagrams; 8] = [
        ("another id", misnumbered, FAILED),
        (
            "another id, then the answer",
            |m| [misnumbered(m.clone()), good(m)].concat(),
            None,
        ),
        ("another question", misplaced, FAILED),
        (
            "another question, then the answer",
            |m| [misplaced(m.clone()), good(m)].concat(),
            None,
        ),
        (
            "nothing, then the answer",
            |m| [vec![Vec::new(), vec![7]], good(m)].concat(),
            None,
        ),
        (
            "the id and then noise",
            |m| vec![[&m.metadata.id.to_be_bytes()[..], &[0xff; 40]].concat()],
            FAILED,
        ),
        (
            "half of it",
            |m| good(m).iter().map(|b| b[..b.len() / 2].to_vec()).collect(),
            FAILED,
        ),
        (
            "the answer, then another",
            |m| {
                let mut second = m.clone();
                address(&mut second, NAME, "10.0.0.1");
                [good(m), vec![second.to_vec().unwrap()]].concat()
            },
            None,
        ),
    ];
    for (what, make, reason) in rows {
        check(what, Says::Datagrams(make), reason).await;
    }
}

#[tokio::test]
async fn an_answer_from_another_port_is_nobodys() {
    for elsewhere in [true, false] {
        let asked = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = asked.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buf = [0; 4096];
            loop {
                let (len, from) = asked.recv_from(&mut buf).await.unwrap();
                let mut answer = Message::from_vec(&buf[..len]).unwrap();
                answer.metadata.message_type = MessageType::Response;
                let by = if elsewhere { &other } else { &asked };
                by.send_to(&good(answer)[0], from).await.unwrap();
            }
        });
        let scripted = listening().await;
        let mut policy = policy();
        policy.resolvers = vec![server];
        let done = Way::by(policy, named("models.test", scripted.port))
            .call()
            .await;
        assert_eq!(done.reason, elsewhere.then_some("connect_failed"));
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length[..], bytes].concat()
}

type Tcp = (&'static str, fn(Message) -> Vec<u8>, Option<&'static str>);

#[tokio::test]
async fn what_comes_over_tcp_is_held_to_the_same() {
    let rows: [Tcp; 9] = [
        ("nothing", |_| Vec::new(), FAILED),
        ("half a length", |_| vec![0], FAILED),
        ("no bytes", |_| vec![0, 0], FAILED),
        (
            "less than was said",
            |m| framed(&good(m)[0])[..20].to_vec(),
            FAILED,
        ),
        ("another id", |m| framed(&misnumbered(m)[0]), FAILED),
        ("another question", |m| framed(&misplaced(m)[0]), FAILED),
        (
            "cut short again",
            |mut m| {
                m.metadata.truncation = true;
                framed(&good(m)[0])
            },
            FAILED,
        ),
        (
            "outside",
            |mut m| {
                address(&mut m, NAME, "10.0.0.1");
                framed(&good(m)[0])
            },
            REFUSED,
        ),
        ("the twin", |m| framed(&good(m)[0]), None),
    ];
    for (what, make, reason) in rows {
        check(what, Says::Tcp(make), reason).await;
    }
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_says_nothing_and_not_for_a_better_answer() {
    let inside = || Says::Addresses(ips(&["127.0.0.1"]));
    for (first, second, reason, asked_second) in [
        (Says::Silence, inside(), None, 2),
        (Says::Code(ResponseCode::ServFail), inside(), None, 2),
        (Says::Addresses(ips(&["10.0.0.1"])), inside(), REFUSED, 0),
        (Says::Addresses(ips(&[])), inside(), FAILED, 0),
        (Says::Code(ResponseCode::NXDomain), inside(), FAILED, 0),
        (inside(), Says::Addresses(ips(&["10.0.0.1"])), None, 0),
    ] {
        let scripted = listening().await;
        let (one, _) = name_server(first).await;
        let (two, asked) = name_server(second).await;
        let mut policy = policy();
        policy.resolvers = vec![one, two];
        let done = Way::by(policy, named("models.test", scripted.port))
            .call()
            .await;
        assert_eq!(done.reason, reason);
        assert_eq!(asked.lock().unwrap().len(), asked_second);
        assert_eq!(scripted.accepts(), usize::from(reason.is_none()));
    }
}
