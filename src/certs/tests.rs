use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn names(hosts: &[&str]) -> Vec<Name> {
    hosts.iter().map(|host| Name::of(host)).collect()
}

fn unfit(ca: &str, key: &str, hosts: &[&str], now: SystemTime) -> String {
    match Authority::read(ca.as_bytes(), key.as_bytes(), &names(hosts), now) {
        Ok(_) => panic!("fit"),
        Err(Unfit::Ca(what)) => format!("ca {what}"),
        Err(Unfit::Key(what)) => format!("key {what}"),
    }
}

#[test]
fn what_is_made_is_read_and_vouches_for_its_names_alone() {
    let now = SystemTime::now();
    for own in [
        &["models.example.org"][..],
        &["models.example.org", "api.example.net", "localhost"],
        &["203.0.113.7"],
        &["203.0.113.7", "2001:db8::9", "models.example.org"],
    ] {
        let made = make(&names(own), now).unwrap();
        let read = |hosts: &[&str]| {
            Authority::read(
                made.ca.as_bytes(),
                made.key.as_bytes(),
                &names(hosts),
                SystemTime::now(),
            )
        };
        let authority = read(own).unwrap_or_else(|why| panic!("{own:?}: {why:?}"));
        assert_eq!(
            seconds(authority.until()),
            seconds(made.until),
            "and says until when"
        );
        let key = made.key.lines().nth(1).unwrap();
        assert!(!format!("{authority:?}").contains(key));
        for other in [
            "example.org",
            "other.example.org",
            "203.0.113.8",
            "2001:db8::8",
        ] {
            assert!(read(&[other]).is_err(), "{own:?} vouches for {other}");
        }
    }
    assert!(matches!(make(&[], now), Err(MakeError::NoName)));
}

#[test]
fn a_leaf_lives_a_day_and_never_longer_than_its_authority() {
    let now = SystemTime::now();
    let own = names(&["models.example.org"]);
    let made = make(&own, now).unwrap();
    let read = |at| Authority::read(made.ca.as_bytes(), made.key.as_bytes(), &own, at);
    let lives = |at: SystemTime| {
        let leaf = read(at).unwrap().leaf(&own[0], at).unwrap();
        seconds(leaf.until) - seconds(at)
    };
    assert_eq!(lives(now), 86_400);
    let late = now + DAY * 180 - Duration::from_secs(600);
    assert!((598..=600).contains(&lives(late)));
    assert!(matches!(read(now + DAY * 181), Err(Unfit::Ca(why)) if why.contains("expired")));
    assert!(matches!(read(now - DAY), Err(Unfit::Ca(why)) if why.contains("not valid yet")));
}

/// What `certs init` would write for `models.example.org` and 203.0.113.7, changed.
fn changed(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![dns("models.example.org"), v4("203.0.113.7", 32)],
        excluded_subtrees: vec![v6("::", 0)],
    });
    change(&mut params);
    params.self_signed(key).unwrap().pem()
}

fn dns(name: &str) -> GeneralSubtree {
    GeneralSubtree::DnsName(name.to_owned())
}

fn v4(address: &str, bits: u8) -> GeneralSubtree {
    let address: Ipv4Addr = address.parse().unwrap();
    GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address.into(), bits))
}

fn v6(address: &str, bits: u8) -> GeneralSubtree {
    let address: Ipv6Addr = address.parse().unwrap();
    GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address.into(), bits))
}

/// An extension byte by byte, in place of the one that rcgen would write.
fn raw(params: &mut CertificateParams, oid: &[u64], critical: bool, der: &[u8]) {
    let mut extension = CustomExtension::from_oid_content(oid, der.to_vec());
    extension.set_criticality(critical);
    params.custom_extensions.push(extension);
}

#[test]
fn what_is_no_authority_with_its_key_is_refused_each_for_its_own_reason() {
    let now = SystemTime::now();
    let own = ["models.example.org", "203.0.113.7"];
    let made = make(&names(&own), now).unwrap();
    let other = make(&names(&own), now).unwrap();
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    for (ca, key, why) in [
        (made.ca.as_str(), other.key.as_str(), "key is not the key"),
        (&made.ca, "", "key holds no private key"),
        (&made.ca, &made.ca, "key holds no private key"),
        ("", &made.key, "ca holds no certificate"),
        (
            &format!("{}{}", made.ca, other.ca),
            &made.key,
            "more than one",
        ),
        (
            &changed(&key, |p| p.is_ca = IsCa::NoCa),
            &pem,
            "no authority",
        ),
        (
            &changed(&key, |p| p.key_usages = vec![KeyUsagePurpose::CrlSign]),
            &pem,
            "no authority",
        ),
    ] {
        let found = unfit(ca, key, &own, now);
        assert!(found.contains(why), "{why}: {found}");
    }
}

type Change = Box<dyn FnOnce(&mut CertificateParams)>;

/// Name constraints with more permitted, or with less excluded, or byte by byte.
fn wider_names() -> Vec<(&'static str, Change)> {
    let permit = |subtree: GeneralSubtree| -> Change {
        Box::new(|p| {
            let constraints = p.name_constraints.as_mut().unwrap();
            constraints.permitted_subtrees.push(subtree);
        })
    };
    let bytes = |critical: bool, der: Vec<u8>| -> Change {
        Box::new(move |p| {
            p.name_constraints = None;
            raw(p, &[2, 5, 29, 30], critical, &der);
        })
    };
    let whole = |tail: &[u8]| {
        let dns = [&[0x82, 18][..], b"models.example.org"].concat();
        let v4 = [0x87, 8, 203, 0, 113, 7, 255, 255, 255, 255];
        let v6 = [&[0x87, 32][..], &[0; 32]].concat();
        let node = |tag: u8, content: &[u8]| [&[tag, content.len() as u8][..], content].concat();
        let permitted = [node(0x30, &dns), node(0x30, &[&v4[..], tail].concat())].concat();
        let lists = [node(0xa0, &permitted), node(0xa1, &node(0x30, &v6))].concat();
        node(0x30, &lists)
    };
    vec![
        (
            "subtree 3 of its name constraints is a host name",
            permit(dns("org")),
        ),
        (
            "subtree 3 of its name constraints is a host name",
            permit(dns("")),
        ),
        (
            "subtree 3 of its name constraints is a host name",
            permit(dns("example.org")),
        ),
        (
            "subtree 3 of its name constraints is a host name",
            permit(dns(".models.example.org")),
        ),
        ("is an address or network", permit(v4("203.0.113.6", 31))),
        ("is an address or network", permit(v4("0.0.0.0", 1))),
        ("is an address or network", permit(v4("203.0.113.8", 32))),
        ("is an address or network", permit(v6("8000::", 1))),
        (
            "of other kinds",
            permit(GeneralSubtree::Rfc822Name("example.org".into())),
        ),
        (
            "neither permit IPv6 addresses",
            Box::new(|p| {
                p.name_constraints
                    .as_mut()
                    .unwrap()
                    .excluded_subtrees
                    .clear()
            }),
        ),
        (
            "neither permit IPv6 addresses",
            Box::new(|p| {
                p.name_constraints.as_mut().unwrap().excluded_subtrees = vec![v6("2001:db8::", 32)];
            }),
        ),
        (
            "no critical name constraints",
            Box::new(|p| p.name_constraints = None),
        ),
        ("no critical name constraints", bytes(false, whole(&[]))),
        // A minimum: webpki takes no such one.
        ("does not vouch", bytes(true, whole(&[0x80, 1, 1]))),
        ("", bytes(true, whole(&[]))),
    ]
}

/// Other limits, each gone or wider.
fn wider_purposes() -> Vec<(&'static str, Change)> {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let purposes =
        |all: Vec<ExtendedKeyUsagePurpose>| -> Change { Box::new(|p| p.extended_key_usages = all) };
    let length =
        |length: BasicConstraints| -> Change { Box::new(move |p| p.is_ca = IsCa::Ca(length)) };
    let uncritical = |oid: &'static [u64], der: &'static [u8]| -> Change {
        Box::new(move |p| {
            if oid[3] == 15 {
                p.key_usages.clear();
            } else {
                p.is_ca = IsCa::NoCa;
            }
            raw(p, oid, false, der);
        })
    };
    let signs = Box::new(|p: &mut CertificateParams| p.key_usages.push(KeyUsagePurpose::CrlSign));
    vec![
        ("extendedKeyUsage", purposes(vec![])),
        ("extendedKeyUsage", purposes(vec![Any])),
        ("extendedKeyUsage", purposes(vec![ServerAuth, Any])),
        ("extendedKeyUsage", purposes(vec![ServerAuth, ClientAuth])),
        (
            "extendedKeyUsage",
            purposes(vec![
                ServerAuth,
                ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 1]),
            ]),
        ),
        ("basicConstraints", length(BasicConstraints::Unconstrained)),
        ("basicConstraints", length(BasicConstraints::Constrained(1))),
        (
            "basicConstraints",
            uncritical(&[2, 5, 29, 19], &[0x30, 6, 1, 1, 0xff, 2, 1, 0]),
        ),
        ("keyUsage is not critical", signs),
        (
            "keyUsage is not critical",
            uncritical(&[2, 5, 29, 15], &[3, 2, 2, 4]),
        ),
    ]
}

#[test]
fn an_authority_is_refused_for_each_thing_in_which_it_is_wider_than_a_made_one() {
    let now = SystemTime::now();
    let own = names(&["models.example.org", "203.0.113.7"]);
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    let read = |ca: &str, own: &[Name]| Authority::read(ca.as_bytes(), pem.as_bytes(), own, now);
    let twin = changed(&key, |_| {});
    read(&twin, &own).unwrap();
    for (place, (why, change)) in wider_names()
        .into_iter()
        .chain(wider_purposes())
        .enumerate()
    {
        let found = read(&changed(&key, change), &own);
        if why.is_empty() {
            found.unwrap();
            continue;
        }
        let Err(Unfit::Ca(found)) = found else {
            panic!("{place}: {why}: {found:?}");
        };
        assert!(found.contains(why), "{place}: {why}: {found}");
        assert!(found.contains("leafgate certs init"), "{found}");
        assert!(
            why == "does not vouch" || !found.contains("models.") && !found.contains("203."),
            "{found}"
        );
    }
    // The same one for a policy with a host less, and with one more.
    for (own, why) in [
        (&["models.example.org"][..], "is an address or network"),
        (&["203.0.113.7"], "is a host name"),
        (
            &["models.example.org", "203.0.113.7", "example.net"],
            "does not vouch for the host example.net",
        ),
    ] {
        let found = unfit(&twin, &pem, own, now);
        assert!(found.contains(why), "{own:?}: {found}");
    }
}
