//! Any bytes as a host's answer, cut anywhere. Beside "no panic": where the cuts fall changes nothing; what passes is read by httparse alike, with
//! one framing; the body has the length it was framed with; nothing is relayed that the contract does not list.
//!
//! The first byte says how long each piece is, the second whether the call was a GET.
#![no_main]

use http::Method;
use leafgate::egress::fuzzing::{End, Read, answer};
use leafgate::ingress::Chunked;
use libfuzzer_sys::fuzz_target;

const LISTED: [&str; 6] = ["content-length", "content-type", "content-encoding", "retry-after", "request-id", "x-request-id"];
const PREFIXES: [&str; 3] = ["openai-", "anthropic-", "x-ratelimit-"];

fuzz_target!(|bytes: &[u8]| {
    let [piece, method, wire @ ..] = bytes else { return };
    let method = if method % 2 == 0 { Method::POST } else { Method::GET };
    let whole = answer(wire, wire.len().max(1), &method);
    let cut = answer(wire, usize::from(*piece).max(1), &method);
    // What stands behind an answer is read or not, as the cuts fall; it is never taken.
    assert_eq!(cut, whole);
    assert!(whole.taken <= wire.len() && whole.body.len() <= whole.taken);
    if let Some((status, headers)) = &whole.head {
        assert!((200..300).contains(&status.as_u16()) || (400..600).contains(&status.as_u16()));
        for (name, _) in headers {
            assert!(LISTED.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix)));
        }
        second(wire, &whole);
    } else {
        assert!(whole.body.is_empty() && whole.end != End::Whole);
    }
});

/// The same answer by another head parser and another chunk reader.
fn second(wire: &[u8], whole: &Read) {
    let mut rest = wire;
    for _ in 0..=whole.interim {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = head.parse(rest) else { panic!("a head that passes is clean for another parser") };
        let all = rest;
        rest = &rest[length..];
        if head.code.is_some_and(|code| code < 200) {
            continue;
        }
        assert!(all[..length].ends_with(b"\r\n\r\n"));
        let values = |name: &str| head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value).collect::<Vec<_>>();
        let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1);
        let cut = whole.end == End::Cut;
        if let [length] = lengths[..] {
            let length: usize = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok()).expect("a length");
            assert_eq!(whole.body, &rest[..length.min(rest.len())]);
            assert_eq!(whole.end, if length <= rest.len() { End::Whole } else { End::Cut });
        } else if codings.is_empty() {
            assert!(head.code == Some(204) || (whole.body == rest && whole.end == End::Whole && !whole.keep));
        } else {
            // The strict reader of requests takes a part of what the reader of answers takes, and then they agree.
            let mut strict = Chunked::default();
            if let Ok(taken) = strict.take(rest) {
                assert!(if strict.is_over() { whole.end == End::Whole } else { cut });
                assert!(cut || wire.len() - rest.len() + taken == whole.taken);
            }
        }
        return;
    }
    panic!("the final head is there");
}
