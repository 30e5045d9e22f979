//! Where each block begins and ends, and what an embedding address is worth.

use super::*;

/// The class that an address must be in.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Public,
    Private,
    Loopback,
    Nothing,
}
use Is::{Loopback, Nothing, Private, Public};

fn is(address: IpAddr, expected: Is, row: &str) {
    for (class, name) in [
        (Addresses::Public, Public),
        (Addresses::Private, Private),
        (Addresses::Loopback, Loopback),
    ] {
        assert_eq!(
            class.contains(address),
            name == expected,
            "{address} ({row}) in {class:?}"
        );
    }
}

/// Every block that no public host has, with the class of the address before it, of its own, and of the address behind it.
const BLOCKS: &[(&str, Is, Is, Is)] = &[
    ("0.0.0.0/8", Nothing, Nothing, Public),
    ("10.0.0.0/8", Public, Private, Public),
    ("100.64.0.0/10", Public, Nothing, Public),
    ("100.100.100.200/32", Nothing, Nothing, Nothing), // metadata
    ("127.0.0.0/8", Public, Loopback, Public),
    ("168.63.129.16/32", Public, Nothing, Public), // metadata
    ("169.254.0.0/16", Public, Nothing, Public),
    ("169.254.169.254/32", Nothing, Nothing, Nothing), // metadata
    ("172.16.0.0/12", Public, Private, Public),
    ("192.0.0.0/24", Public, Nothing, Public),
    ("192.0.2.0/24", Public, Nothing, Public),
    ("192.88.99.0/24", Public, Nothing, Public),
    ("192.168.0.0/16", Public, Private, Public),
    ("198.18.0.0/15", Public, Nothing, Public),
    ("198.51.100.0/24", Public, Nothing, Public),
    ("203.0.113.0/24", Public, Nothing, Public),
    ("224.0.0.0/4", Public, Nothing, Nothing),
    ("240.0.0.0/4", Nothing, Nothing, Nothing),
    ("255.255.255.255/32", Nothing, Nothing, Nothing),
    ("::/128", Nothing, Nothing, Loopback),
    ("::1/128", Nothing, Loopback, Nothing),
    ("::2/127", Loopback, Nothing, Nothing), // IPv4-compatible
    ("64:ff9b:1::/48", Nothing, Nothing, Nothing),
    ("100::/64", Nothing, Nothing, Nothing),       // discard
    ("100:0:0:1::/64", Nothing, Nothing, Nothing), // dummy, RFC 9780
    ("1fff::/16", Nothing, Nothing, Public),
    ("2001::/32", Public, Nothing, Nothing),     // Teredo
    ("2001:2::/48", Nothing, Nothing, Nothing),  // benchmarking
    ("2001:10::/28", Nothing, Nothing, Nothing), // ORCHID
    ("2001:20::/28", Nothing, Nothing, Nothing), // ORCHIDv2
    ("2001::/23", Public, Nothing, Public),
    ("2001:db8::/32", Public, Nothing, Public),
    ("3ffe::/16", Public, Nothing, Nothing),
    ("3fff::/20", Nothing, Nothing, Public),
    ("4000::/3", Public, Nothing, Nothing),
    ("5f00::/16", Nothing, Nothing, Nothing),
    ("fc00::/7", Nothing, Private, Nothing),
    ("fe80::/10", Nothing, Nothing, Nothing),
    ("fec0::/10", Nothing, Nothing, Nothing),
    ("ff00::/8", Nothing, Nothing, Nothing),
    ("fd00:ec2::/32", Private, Nothing, Private),
    ("fd20:ce::254/128", Private, Nothing, Private),
    ("fd00:c1::a9fe:a9fe/128", Private, Nothing, Private),
    ("fd00:42::42/128", Private, Nothing, Private),
    ("fd00:a9fe:a9fe::1/128", Private, Nothing, Private),
    ("fd00:100::100:200/128", Private, Nothing, Private),
];

/// The first and the last address, with those outside, where there are any.
fn edges(block: &str) -> [Option<IpAddr>; 4] {
    let (address, prefix) = block.split_once('/').unwrap();
    let prefix: u32 = prefix.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(first) => {
            let first = first.to_bits();
            let last = first | u32::MAX.checked_shr(prefix).unwrap_or(0);
            [
                first.checked_sub(1),
                Some(first),
                Some(last),
                last.checked_add(1),
            ]
            .map(|bits| bits.map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))))
        }
        IpAddr::V6(first) => {
            let first = first.to_bits();
            let last = first | u128::MAX.checked_shr(prefix).unwrap_or(0);
            [
                first.checked_sub(1),
                Some(first),
                Some(last),
                last.checked_add(1),
            ]
            .map(|bits| bits.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))))
        }
    }
}

#[test]
fn each_block_begins_and_ends_where_it_does() {
    for (block, before, inside, behind) in BLOCKS.iter().copied() {
        let [a, b, c, d] = edges(block);
        for (address, expected) in [(a, before), (b, inside), (c, inside), (d, behind)] {
            if let Some(address) = address {
                is(address, expected, block);
            }
        }
    }
}

#[test]
fn what_embeds_an_address_goes_no_further_than_it() {
    let mut addresses = 0;
    for (block, ..) in BLOCKS {
        for address in edges(block).into_iter().flatten() {
            let IpAddr::V4(inner) = address else { continue };
            addresses += 1;
            let low = u128::from(inner.to_bits());
            let class = if is_public(address) { Public } else { Nothing };
            for (head, bits) in [
                ("mapped", (0xffff << 32) | low),
                ("NAT64", (0x64_ff9b << 96) | low),
                ("6to4", (0x2002 << 112) | (low << 80)),
                ("6to4, with a host", (0x2002 << 112) | (low << 80) | 1),
            ] {
                is(IpAddr::V6(Ipv6Addr::from_bits(bits)), class, head);
            }
            for (head, bits) in [
                ("translated", (0xffff_0000 << 32) | low),
                ("NAT64 of a site", (0x64_ff9b_0001 << 80) | low),
                ("Teredo server", (0x2001_0000 << 96) | (low << 64)),
                ("Teredo client", (0x2001_0000 << 96) | (low ^ 0xffff_ffff)),
                ("ISATAP", (0x2a00 << 112) | (0x5efe << 32) | low),
                ("ISATAP", (0x2a00 << 112) | (0x0200_5efe << 32) | low),
            ] {
                is(IpAddr::V6(Ipv6Addr::from_bits(bits)), Nothing, head);
            }
            // :: and ::1 stand for themselves.
            if low > 1 {
                is(IpAddr::V6(Ipv6Addr::from_bits(low)), Nothing, "compatible");
            }
            // The twin of ISATAP: one bit beside it, and it is a host as any other.
            let beside = (0x2a00 << 112) | (0x5eff << 32) | low;
            is(IpAddr::V6(Ipv6Addr::from_bits(beside)), Public, "no ISATAP");
        }
    }
    assert!(addresses > 60, "{addresses}");
}

#[test]
fn a_listed_network_is_its_own_block_and_no_more() {
    for (block, ..) in BLOCKS {
        let (address, prefix) = block.split_once('/').unwrap();
        let class = Addresses::Networks(vec![Network {
            address: address.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
        }]);
        let unclear = |ip: IpAddr| matches!(embedded_v4(ip), Embedded::Unclear);
        let [before, first, last, behind] = edges(block);
        for ip in [first, last].into_iter().flatten() {
            assert_eq!(class.contains(ip), !unclear(ip), "{ip} of {block}");
        }
        for ip in [before, behind].into_iter().flatten() {
            assert!(!class.contains(ip), "{ip} beside {block}");
        }
    }
}
