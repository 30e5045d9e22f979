//! Any bytes as a request head. Beside "no panic": reading it piece by piece ends where reading it whole ends, and what passes is read in
//! the same way by httparse, a second parser, lines, names and values.
#![no_main]

use std::net::SocketAddr;

use leafgate::ingress::{Framing, Names, check, scan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = scan(bytes, 0);
    let mut piecewise = Ok(None);
    for end in 1..=bytes.len() {
        piecewise = scan(&bytes[..end], end - 1);
        if !matches!(piecewise, Ok(None)) {
            break;
        }
    }
    assert_eq!(whole.is_err(), piecewise.is_err());
    let Ok(Some(length)) = whole else { return };
    assert!(matches!(piecewise, Ok(Some(same)) if same == length));

    let head = &bytes[..length];
    let names = Names::new(SocketAddr::from(([127, 0, 0, 1], 8484)), false, &[]);
    let Ok(facts) = check(head, &names) else { return };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut second = httparse::Request::new(&mut fields);
    let read = second.parse(head).expect("a head that passes is clean for another parser");
    assert_eq!(read, httparse::Status::Complete(length));
    assert_eq!(second.version, Some(1));
    let count = |name: &str| second.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
    assert_eq!(count("host"), 1);
    assert!(count("content-length") + count("transfer-encoding") <= 1);
    assert_eq!(count("transfer-encoding") == 1, facts.framing == Framing::Chunked);
    assert_eq!(count("origin") + count("upgrade") + count("trailer"), 0);
});
