//! Cases that need what only a room's own tests have: a name server, certificates of every kind, a disk that fails. Each names its test.

use std::path::Path;

use crate::support::has_test;

pub const CASES: [(&str, &[&str]); 9] = [
    (
        "NET-17",
        &[
            "src/egress/tests/names.rs::a_name_is_asked_once_absolutely_and_its_address_dialled",
            "src/egress/tests/names.rs::a_kept_connection_asks_nothing_and_a_new_one_asks_again",
        ],
    ),
    (
        "NET-18",
        &["src/egress/tests/names.rs::one_address_outside_the_class_refuses_all"],
    ),
    (
        "NET-19",
        &["src/egress/tests/names.rs::one_address_outside_the_class_refuses_all"],
    ),
    (
        "NET-22",
        &["src/egress/tests/names.rs::a_name_is_asked_once_absolutely_and_its_address_dialled"],
    ),
    (
        "TLS-03",
        &[
            "src/egress/tests/tls.rs::what_cannot_be_verified_gets_no_byte",
            "src/egress/tests/tls.rs::the_machines_store_does_not_know_our_ca_and_a_lost_file_fails",
        ],
    ),
    (
        "TLS-07",
        &[
            "src/egress/tests/tls.rs::what_cannot_be_verified_gets_no_byte",
            "src/egress/tests/tls.rs::an_address_is_verified_as_one_and_gives_no_sni",
        ],
    ),
    (
        "TLS-08",
        &["src/egress/tests/tls.rs::what_cannot_be_verified_gets_no_byte"],
    ),
    (
        "TLS-09",
        &["src/egress/tests/tls.rs::a_staple_that_is_no_answer_is_refused"],
    ),
    (
        "RES-02",
        &[
            "src/ledger/tests/faults.rs::each_fault_latches_and_nothing_is_forwarded_after",
            "src/ledger/tests/faults.rs::a_segment_that_cannot_be_made_latches",
        ],
    ),
];

#[test]
fn each_test_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (id, tests) in CASES {
        assert!(!tests.is_empty(), "{id}");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(has_test(&text, name), "{id}: {test} is not there");
        }
    }
    assert!(!has_test("#[test]\nfn another() {", "an"));
    assert!(!has_test("fn a() {", "a") && has_test("#[test]\nfn a() {", "a"));
}
