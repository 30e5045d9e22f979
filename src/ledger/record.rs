//! The one legal form of a record (contract, section 9): a JSON object on one line, keys sorted, no spaces, ASCII with the escapes of
//! Python's `json.dumps`, integers below 2^53.
//!
//! Promises: a [`Draft`] is a whole record but for `prev`, `seq` and `time`, which only the writer knows; [`Draft::stitch`] puts
//! them at their sorted places, so the writer's work for a record is a copy. Makers: the call's own task, through [`Fields`].
//! Takers: the writer. It does not look at what a value means.

use super::hex::push_hex;

/// The longest record, in bytes without its newline.
pub const MAX_RECORD_BYTES: usize = 65_535;

/// Bytes that [`Draft::stitch`] adds at most: `,"prev":"…"`, `,"seq":…` and `,"time":"…"`.
const STITCHED: usize = 10 + 64 + 7 + 16 + 10 + 27;

/// The longest draft that is still a legal record once it is stitched.
pub(super) const MAX_DRAFT_BYTES: usize = MAX_RECORD_BYTES - STITCHED;

/// A record without `prev`, `seq` and `time`.
#[derive(Debug)]
pub(super) struct Draft {
    text: Vec<u8>,
    prev_at: usize,
    seq_at: usize,
    time_at: usize,
}

impl Draft {
    /// Whether the stitched record keeps the limit.
    pub(super) fn fits(&self) -> bool {
        self.text.len() <= MAX_DRAFT_BYTES
    }

    /// Bytes, before stitching.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends the whole record, without a newline, to `out`.
    pub(super) fn stitch(&self, prev: &[u8; 32], seq: u64, time: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.text.len() + STITCHED);
        out.extend_from_slice(&self.text[..self.prev_at]);
        out.extend_from_slice(b",\"prev\":\"");
        push_hex(out, prev);
        out.push(b'"');
        out.extend_from_slice(&self.text[self.prev_at..self.seq_at]);
        out.extend_from_slice(b",\"seq\":");
        push_int(out, seq);
        out.extend_from_slice(&self.text[self.seq_at..self.time_at]);
        out.extend_from_slice(b",\"time\":\"");
        out.extend_from_slice(time);
        out.push(b'"');
        out.extend_from_slice(&self.text[self.time_at..]);
    }
}

/// Writes the fields of one record. The caller names them in sorted order; a debug build checks it.
#[derive(Debug)]
pub(super) struct Fields {
    draft: Draft,
    #[cfg(debug_assertions)]
    last: &'static str,
}

impl Fields {
    /// An empty record.
    pub(super) fn new() -> Fields {
        let mut text = Vec::with_capacity(1024);
        text.push(b'{');
        Fields {
            draft: Draft {
                text,
                prev_at: 0,
                seq_at: 0,
                time_at: 0,
            },
            #[cfg(debug_assertions)]
            last: "",
        }
    }

    fn in_order(&mut self, _key: &'static str) {
        #[cfg(debug_assertions)]
        {
            assert!(
                self.last < _key,
                "{_key} stands after {}: not sorted",
                self.last
            );
            self.last = _key;
        }
    }

    /// Begins a field; its value follows through the returned buffer.
    pub(super) fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        self.in_order(key);
        let text = &mut self.draft.text;
        if text.len() > 1 {
            text.push(b',');
        }
        text.push(b'"');
        text.extend_from_slice(key.as_bytes());
        text.extend_from_slice(b"\":");
        text
    }

    /// A string.
    pub(super) fn text(&mut self, key: &'static str, value: &str) -> &mut Fields {
        push_string(self.key(key), value);
        self
    }

    /// A string, where there is one.
    pub(super) fn text_opt(&mut self, key: &'static str, value: Option<&str>) -> &mut Fields {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    /// An integer.
    pub(super) fn int(&mut self, key: &'static str, value: u64) -> &mut Fields {
        push_int(self.key(key), value);
        self
    }

    /// An integer, where there is one.
    pub(super) fn int_opt(&mut self, key: &'static str, value: Option<u64>) -> &mut Fields {
        if let Some(value) = value {
            self.int(key, value);
        }
        self
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, value: bool) -> &mut Fields {
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.key(key).extend_from_slice(word);
        self
    }

    /// 32 bytes as lower-case hex.
    pub(super) fn digest(&mut self, key: &'static str, value: &[u8; 32]) -> &mut Fields {
        let text = self.key(key);
        text.push(b'"');
        push_hex(text, value);
        text.push(b'"');
        self
    }

    /// 32 bytes as lower-case hex, where they are there.
    pub(super) fn digest_opt(
        &mut self,
        key: &'static str,
        value: Option<&[u8; 32]>,
    ) -> &mut Fields {
        if let Some(value) = value {
            self.digest(key, value);
        }
        self
    }

    /// The place of `prev`.
    pub(super) fn prev(&mut self) -> &mut Fields {
        self.in_order("prev");
        self.draft.prev_at = self.draft.text.len();
        self
    }

    /// The place of `seq`.
    pub(super) fn seq(&mut self) -> &mut Fields {
        self.in_order("seq");
        self.draft.seq_at = self.draft.text.len();
        self
    }

    /// The place of `time`.
    pub(super) fn time(&mut self) -> &mut Fields {
        self.in_order("time");
        self.draft.time_at = self.draft.text.len();
        self
    }

    /// The record so far, closed.
    pub(super) fn end(mut self) -> Draft {
        self.draft.text.push(b'}');
        self.draft
    }
}

/// Appends an integer.
pub(super) fn push_int(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Whether Python's `json.dumps` writes this byte as it is.
pub(super) const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends a string with its quotes, escaped as Python's `json.dumps(ensure_ascii=True)` does (RFC 8259 section 7).
pub(super) fn push_string(out: &mut Vec<u8>, value: &str) {
    out.push(b'"');
    if value.bytes().all(is_plain) {
        out.extend_from_slice(value.as_bytes());
    } else {
        for char in value.chars() {
            push_char(out, char);
        }
    }
    out.push(b'"');
}

fn push_char(out: &mut Vec<u8>, char: char) {
    match char {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\u{8}' => out.extend_from_slice(b"\\b"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\u{c}' => out.extend_from_slice(b"\\f"),
        '\r' => out.extend_from_slice(b"\\r"),
        ' '..='~' => out.push(char as u8),
        other => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(b"\\u");
                push_hex(out, &unit.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::canon;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn escapes_are_pythons() {
        // The right column is what CPython's json.dumps prints.
        for (text, dumped) in [
            ("", r#""""#),
            ("plain ~ text/", r#""plain ~ text/""#),
            ("\u{8}\t\n\u{c}\r\"\\", r#""\b\t\n\f\r\"\\""#),
            ("\0\u{1}\u{1f}\u{7f}", r#""\u0000\u0001\u001f\u007f""#),
            (
                "\u{e9}\u{2028}\u{ffff}\u{1f600}",
                r#""\u00e9\u2028\uffff\ud83d\ude00""#,
            ),
        ] {
            assert_eq!(escaped(text), dumped);
        }
    }

    #[test]
    fn stitching_puts_the_three_at_their_sorted_places() {
        let mut fields = Fields::new();
        fields
            .text("log", "l")
            .prev()
            .text("run", "r")
            .seq()
            .text("t", "x")
            .time()
            .int("v", 1);
        let draft = fields.end();
        let mut out = Vec::new();
        draft.stitch(
            &[0xab; 32],
            9_007_199_254_740_991,
            b"2026-11-30T00:00:00.000001Z",
            &mut out,
        );
        let expected = format!(
            r#"{{"log":"l","prev":"{}","run":"r","seq":9007199254740991,"t":"x","time":"2026-11-30T00:00:00.000001Z","v":1}}"#,
            "ab".repeat(32)
        );
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        // The longest stitched part is what the limit counts with.
        assert_eq!(out.len(), draft.len() + STITCHED);
    }

    proptest! {
        #[test]
        fn any_string_reads_back_and_is_canonical(text in any::<String>()) {
            let json = escaped(&text);
            prop_assert!(json.is_ascii());
            prop_assert_eq!(&serde_json::from_str::<String>(&json).unwrap(), &text);
            let line = format!("{{\"k\":{json}}}");
            prop_assert_eq!(canon::object(line.as_bytes(), |_, _| Ok(())), Ok(()));
        }

        #[test]
        fn any_integer_reads_back(value in any::<u64>()) {
            let mut out = Vec::new();
            push_int(&mut out, value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
