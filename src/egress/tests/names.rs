//! From a name to an address: asked once, absolutely, and the whole answer checked.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::ResponseCode;

use super::kit::*;
use super::nameserver::*;
use crate::ledger::Sent;
use crate::policy::{Addresses, Network};

#[tokio::test]
async fn a_name_is_asked_once_absolutely_and_its_address_dialled() {
    for says in [
        Says::Addresses(ips(&["127.0.0.1"])),
        Says::Alias(ips(&["127.0.0.1"])),
    ] {
        let scripted = listening().await;
        let (way, asked) = way_by(says, Addresses::Loopback, scripted.port).await;
        let done = way.call().await;
        done.ok(b"{}");
        assert_eq!(
            done.outcome().peer,
            Some(SocketAddr::new(loopback(), scripted.port))
        );
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        assert_eq!(asked, ["A models.test.", "AAAA models.test."]);
    }
}

#[tokio::test]
async fn a_kept_connection_asks_nothing_and_a_new_one_asks_again() {
    let scripted = Scripted::plays(vec![vec![
        Step::Request,
        say(OK),
        Step::Request,
        say(OK),
        Step::Hold,
    ]])
    .await;
    let turns = Says::InTurn(vec![ips(&["127.0.0.1"]), ips(&["10.0.0.1"])]);
    let (way, asked) = way_by(turns, Addresses::Loopback, scripted.port).await;
    way.call().await.ok(b"{}");
    way.call().await.ok(b"{}");
    assert_eq!(asked.lock().unwrap().len(), 2);
    // Nothing is cached: the second answer is another, and it is refused.
    way.egress.close_kept();
    assert_eq!(way.call().await.reason, Some("address_refused"));
    assert_eq!((asked.lock().unwrap().len(), scripted.accepts()), (4, 1));
}

#[tokio::test]
async fn one_address_outside_the_class_refuses_all() {
    let mapped = ["::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"];
    let mut cases: Vec<(Addresses, Vec<IpAddr>)> = [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "fd00:ec2::254",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "192.0.2.1",
        "198.18.0.1",
    ]
    .into_iter()
    .chain(mapped)
    .map(|ip| (Addresses::Public, ips(&[ip])))
    .collect();
    cases.extend([
        (Addresses::Loopback, ips(&["127.0.0.1", "10.0.0.1"])),
        (Addresses::Loopback, ips(&["127.0.0.1", "fd00::1"])),
        (Addresses::Loopback, ips(&["8.8.8.8"])),
        (Addresses::Loopback, ips(&["::ffff:127.0.0.1"])),
        (Addresses::Private, ips(&["10.0.0.1", "127.0.0.1"])),
        (Addresses::Public, ips(&["8.8.8.8", "127.0.0.1"])),
        (
            Addresses::Networks(vec![Network {
                address: loopback(),
                prefix: 32,
            }]),
            ips(&["127.0.0.1", "127.0.0.2"]),
        ),
    ]);
    for (addresses, answer) in cases {
        let scripted = listening().await;
        let shown = format!("{addresses:?} {answer:?}");
        let (way, _) = way_by(Says::Addresses(answer), addresses, scripted.port).await;
        let done = way.call().await;
        assert_eq!(done.reason, Some("address_refused"), "{shown}");
        let outcome = done.outcome();
        assert_eq!(
            (outcome.sent, outcome.peer, outcome.error),
            (Sent::None, None, Some("address_refused"))
        );
        assert_eq!(scripted.accepts(), 0, "{shown}");
    }
    // The twin.
    let scripted = listening().await;
    let networks = Addresses::Networks(vec![Network {
        address: loopback(),
        prefix: 8,
    }]);
    let (way, _) = way_by(
        Says::Addresses(ips(&["127.0.0.1", "127.0.0.2"])),
        networks,
        scripted.port,
    )
    .await;
    way.call().await.ok(b"{}");
}

#[tokio::test]
async fn no_answer_is_connect_failed() {
    for says in [
        Says::Code(ResponseCode::NXDomain),
        Says::Code(ResponseCode::ServFail),
        Says::Code(ResponseCode::Refused),
        Says::Addresses(Vec::new()),
        Says::Silence,
    ] {
        let scripted = listening().await;
        let (way, asked) = way_by(says, Addresses::Loopback, scripted.port).await;
        let started = Instant::now();
        let done = way.call().await;
        assert!(started.elapsed() < Duration::from_secs(3));
        assert_eq!(done.reason, Some("connect_failed"));
        assert_eq!((done.outcome().sent, scripted.accepts()), (Sent::None, 0));
        assert!(
            asked.lock().unwrap().len() <= 4,
            "{:?}",
            asked.lock().unwrap()
        );
    }
}

#[tokio::test]
async fn thousands_of_addresses_come_over_tcp_are_all_checked_and_few_are_dialled() {
    let scripted = listening().await;
    let mut many: Vec<IpAddr> = (0..2000_u32)
        .map(|n| IpAddr::from([127, 1, (n / 250) as u8, (n % 250) as u8]))
        .collect();
    let (way, _) = way_by(
        Says::Addresses(many.clone()),
        Addresses::Loopback,
        scripted.port,
    )
    .await;
    let done = way.call().await;
    assert_eq!(
        done.reason,
        Some("connect_failed"),
        "four of them were tried"
    );
    assert_eq!(done.outcome().peer.map(|peer| peer.ip()), Some(many[3]));
    many.push(ips(&["10.0.0.1"])[0]);
    let (way, _) = way_by(
        Says::Addresses(many.clone()),
        Addresses::Loopback,
        scripted.port,
    )
    .await;
    assert_eq!(
        way.call().await.reason,
        Some("address_refused"),
        "the last of 2001 is outside"
    );
    // The twin.
    many.pop();
    many.insert(0, loopback());
    let (way, _) = way_by(Says::Addresses(many), Addresses::Loopback, scripted.port).await;
    way.call().await.ok(b"{}");
}

#[tokio::test]
async fn a_literal_and_fixed_addresses_ask_nobody_and_are_checked() {
    let scripted = listening().await;
    let (server, asked) = name_server(Says::Addresses(ips(&["10.0.0.1"]))).await;
    for (name, fixed, addresses, reason) in [
        ("127.0.0.1", ips(&[]), Addresses::Loopback, None),
        (
            "127.0.0.1",
            ips(&[]),
            Addresses::Public,
            Some("address_refused"),
        ),
        ("::1", ips(&[]), Addresses::Private, Some("address_refused")),
        (
            "models.test",
            ips(&["127.0.0.1"]),
            Addresses::Loopback,
            None,
        ),
        (
            "models.test",
            ips(&["127.0.0.1", "10.0.0.1"]),
            Addresses::Loopback,
            Some("address_refused"),
        ),
        ("localhost", ips(&[]), Addresses::Loopback, None),
        ("x.localhost", ips(&[]), Addresses::Loopback, None),
        (
            "localhost",
            ips(&[]),
            Addresses::Public,
            Some("address_refused"),
        ),
    ] {
        let mut policy = policy();
        policy.resolvers = vec![server];
        let mut host = named(name, scripted.port);
        host.resolve = fixed;
        host.addresses = addresses;
        assert_eq!(Way::by(policy, host).call().await.reason, reason, "{name}");
    }
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_next_address_is_tried_once_each_and_four_at_most() {
    let scripted = listening().await;
    // Nothing listens at this port of the other addresses.
    let at = |n: u8| IpAddr::from([127, 0, 0, n]);
    for (fixed, reason) in [
        (vec![at(2), at(3), at(4), at(1)], None),
        (
            vec![at(2), at(3), at(4), at(5), at(1)],
            Some("connect_failed"),
        ),
    ] {
        let mut host = named("models.test", scripted.port);
        host.resolve = fixed;
        let done = Way::to(host).call().await;
        assert_eq!(done.reason, reason);
        if reason.is_some() {
            assert_eq!(
                (done.outcome().sent, done.outcome().error),
                (Sent::None, reason)
            );
        }
    }
    assert_eq!(scripted.accepts(), 1);
}

#[tokio::test]
async fn the_system_answers_for_a_name_that_is_not_there() {
    // `.invalid` never resolves (RFC 6761, section 6.4).
    let done = Way::to(named("models.invalid", 9)).call().await;
    assert_eq!(done.reason, Some("connect_failed"));
}
