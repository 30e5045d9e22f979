//! Header lines and a path name, as a client may send them: a header `leafgate-card`, API keys, a name in the base URL.
//!
//! The input is lines: `c` and a card header, `b` and a bearer token, `k` and an `x-api-key`, `p` and a name in the path. Beside "no panic":
//! two places never give a card.
#![no_main]

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use leafgate::card::{CARD_HEADER, CardStore, Reading, attach, is_card_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut headers = HeaderMap::new();
    let mut name = None;
    let mut places = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else { continue };
        let (header, value) = match kind {
            b'c' => (HeaderName::from_static(CARD_HEADER), rest.to_vec()),
            b'b' => (AUTHORIZATION, [b"Bearer ", rest].concat()),
            b'k' => (HeaderName::from_static("x-api-key"), rest.to_vec()),
            b'p' => {
                places += usize::from(name.is_none());
                name = name.or(std::str::from_utf8(rest).ok());
                places -= usize::from(name.is_none());
                continue;
            }
            _ => continue,
        };
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let names_a_card = match kind {
                b'b' => rest.trim_ascii_start().starts_with(b"card:"),
                b'k' => rest.starts_with(b"card:"),
                _ => false,
            };
            // What names a card is never sent on.
            assert!(!names_a_card || is_card_key(value.as_bytes()));
            places += usize::from(*kind == b'c' || names_a_card);
            headers.append(header, value);
        }
    }
    let found = attach(&headers, name, &CardStore::default());
    assert_eq!(places > 1, matches!(found.reading, Reading::Ambiguous));
    assert_eq!(places == 1, found.place.is_some());
});
