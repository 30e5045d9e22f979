//! A glue file, and the rule of cover over it. Beside "no panic": what is read is what serde_json reads, and the indexed rule says of a text
//! what the slow reference says, which tries every reading.
//!
//! The input: a glue file, a zero byte, fixture strings with a 1 byte between them, a zero byte, a text.
#![no_main]

use leafgate::fixture::fuzzing::{covered, glue};
use libfuzzer_sys::fuzz_target;

/// Characters of a text, and of all strings together: the reference takes the cube of the one times the other.
const MOST: usize = 48;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let Ok(strings) = glue(file) else { return };
    assert!(strings.iter().all(|string| !string.is_empty()));
    let second: Vec<String> = serde_json::from_slice(file).expect("a second reader reads it too");
    assert_eq!(second, strings);

    let (Some(fixture), Some(text)) = (parts.next(), parts.next()) else { return };
    let (Ok(fixture), Ok(text)) = (std::str::from_utf8(fixture), std::str::from_utf8(text)) else { return };
    if text.chars().count() > MOST || fixture.len() > 2 * MOST || strings.iter().map(String::len).sum::<usize>() > 4 * MOST {
        return;
    }
    let fixture: Vec<String> = fixture.split('\u{1}').map(str::to_owned).collect();
    let (fast, slow) = covered(&fixture, file, text).expect("glue that was read");
    assert_eq!(fast, slow, "{fixture:?} {strings:?} {text:?}");
});
