use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose};

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

#[test]
fn what_is_no_limited_authority_is_refused_each_for_its_own_reason() {
    let now = SystemTime::now();
    let own = ["models.example.org"];
    let made = make(&names(&own), now).unwrap();
    let other = make(&names(&own), now).unwrap();
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    let params = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        change(&mut params);
        params.self_signed(&key).unwrap().pem()
    };
    let limit = |names: &[&str]| {
        let dns = |name: &&str| GeneralSubtree::DnsName((*name).to_owned());
        Some(rcgen::NameConstraints {
            permitted_subtrees: names.iter().map(dns).collect(),
            excluded_subtrees: Vec::new(),
        })
    };
    for (ca, key, why) in [
        (made.ca.as_str(), other.key.as_str(), "key is not the key"),
        (&made.ca, "", "key holds no private key"),
        (&made.ca, &made.ca, "key holds no private key"),
        ("", &made.key, "ca holds no certificate"),
        (&made.key, &made.key, "ca holds no certificate"),
        (
            &format!("{}{}", made.ca, other.ca),
            &made.key,
            "more than one",
        ),
        (&params(&|_| {}), &pem, "no critical name constraints"),
        (
            &params(&|p| p.name_constraints = limit(&own)),
            &pem,
            "can vouch for names",
        ),
        (
            &params(&|p| p.name_constraints = limit(&["example.net"])),
            &pem,
            "does not vouch for the host models.example.org",
        ),
        (&params(&|p| p.is_ca = IsCa::NoCa), &pem, "no authority"),
        (
            &params(&|p| p.key_usages = vec![KeyUsagePurpose::CrlSign]),
            &pem,
            "no authority",
        ),
    ] {
        let found = unfit(ca, key, &own, now);
        assert!(found.contains(why), "{why}: {found}");
    }
}
