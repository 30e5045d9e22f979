//! 124 hostile or broken inputs (`cases.json`), each against a whole leafgate between raw sockets: the answer, what the host and a trap
//! saw, the records; and its twin without the fault, which is forwarded. What a table here cannot run cheaply is a test elsewhere, by name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests; clients and hosts open their own sockets"
)]

#[path = "../support/mod.rs"]
mod support;

mod cards;
mod channels;
mod crashes;
mod dress;
mod elsewhere;
mod exhaustion;
mod faults;
mod heads;
mod hosts;
mod interference;
mod kernel;
mod kit;
mod limits;
mod log;
mod machine;
mod network;
mod pins;
mod process;
mod strains;
mod trust;
mod values;
mod volume;

use std::collections::BTreeSet;

/// A case that is built in code, by its id.
type Built = (&'static str, fn(&str));

/// Every table of cases that are built in code.
const BUILT: [&[Built]; 10] = [
    limits::CASES,
    channels::CASES,
    cards::CASES,
    values::CASES,
    hosts::CASES,
    faults::CASES,
    network::CASES,
    machine::CASES,
    crashes::CASES,
    strains::CASES,
];

/// Runs a table; with `CASE=RES-03` in the environment that case alone.
fn run(cases: &[Built]) {
    let only = std::env::var("CASE").ok();
    for (id, case) in cases {
        if only.as_ref().is_some_and(|only| only != id) {
            continue;
        }
        let began = std::time::Instant::now();
        case(id);
        println!("{id} ({} ms)", began.elapsed().as_millis());
    }
}

macro_rules! groups {
    ($($name:ident => $cases:expr;)*) => {
        $(#[test] fn $name() { run($cases); })*
    };
}

groups! {
    bodies_that_do_not_end_as_they_should => limits::CASES;
    channels_beside_the_body => channels::CASES;
    cards_that_two_readers_may_read_differently => cards::CASES;
    cards_with_values_that_look_good => values::CASES;
    hosts_that_steer => hosts::CASES;
    hosts_that_break => faults::CASES;
    names_addresses_and_tls => network::CASES;
    this_machine_and_its_clients => machine::CASES;
    a_process_that_is_killed => crashes::CASES;
    a_process_under_strain => strains::CASES;
}

#[test]
fn every_case_is_run_here_or_named_in_another_test() {
    let cases = kit::cases();
    let mut here: Vec<&str> = heads::ids();
    here.extend(BUILT.iter().copied().flatten().map(|(id, _)| *id));
    let other: Vec<&str> = elsewhere::CASES.iter().map(|(id, _)| *id).collect();
    let unique: BTreeSet<&str> = here.iter().chain(&other).copied().collect();
    assert_eq!(unique.len(), here.len() + other.len(), "an id stands twice");
    let known: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    let missing: Vec<_> = known.difference(&unique).collect();
    let strange: Vec<_> = unique.difference(&known).collect();
    assert!(
        missing.is_empty() && strange.is_empty(),
        "without a test: {missing:?}; no case: {strange:?}"
    );
    assert_eq!(known.len(), 124);
    let groups: BTreeSet<&str> = cases.iter().map(|case| case.group.as_str()).collect();
    println!(
        "{} cases in {} groups, {} run here, {} in other tests",
        known.len(),
        groups.len(),
        here.len(),
        other.len()
    );
}
