//! The strict reader of one record's form, over bytes: the twin of [`record`](super::record), for `verify` and the start.
//!
//! Promises: what [`object`] accepts is byte for byte what Python's `json.dumps(sort_keys=True, separators=(",", ":"))` would write of it;
//! it does not build a tree and allocates nothing. A record uses a part of JSON only: no negative number, no fraction, no `null`, member names
//! of `a-z`, `0-9` and `_`. It does not judge what a value means.

use super::record::is_plain;

/// Integers stand below this.
const INT_END: u64 = 1 << 53;

/// Arrays and objects within the record.
const DEPTH: usize = 4;

/// Reads one canonical object; calls `field` with each top-level member, name without quotes and value as written.
///
/// # Errors
/// What is wrong with the form, or what `field` found.
pub(super) fn object<'a>(
    line: &'a [u8],
    mut field: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut at = Cursor { line, at: 0 };
    at.expect(b'{', "is no JSON object")?;
    at.members(0, &mut field)?;
    if at.at == line.len() {
        Ok(())
    } else {
        Err("has bytes after its object")
    }
}

/// How many bytes at the front of `rest` stand in a string as they are.
fn plain_run(rest: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let (words, end) = rest.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        // Eight bytes at once. The high bit of a byte of `stops` is set where that byte is a quote, a backslash, below a space or above a tilde. A borrow or a carry out of
        // such a byte can set bits above it, never below: the lowest one is exact.
        let word = u64::from_le_bytes(*word);
        let is = |byte: u8| {
            let other = word ^ (ONES * u64::from(byte));
            other.wrapping_sub(ONES) & !other
        };
        let below = word.wrapping_sub(ONES * 0x20) & !word;
        let above = word.wrapping_add(ONES) | word;
        let stops = (is(b'"') | is(b'\\') | below | above) & HIGH;
        if stops != 0 {
            return place * 8 + stops.trailing_zeros() as usize / 8;
        }
    }
    let plain = end.iter().take_while(|byte| PLAIN[usize::from(**byte)]);
    words.len() * 8 + plain.count()
}

/// Which bytes stand in a string as they are.
const PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_plain(byte as u8);
        byte += 1;
    }
    table
};

/// Which bytes a member's name is made of.
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'_');
        byte += 1;
    }
    table
};

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, fault: &'static str) -> Result<(), &'static str> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(fault)
        }
    }

    /// The members of an object whose brace is read, to its closing brace.
    fn members(
        &mut self,
        depth: usize,
        field: &mut dyn FnMut(&'a [u8], &'a [u8]) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let mut last: &[u8] = b"";
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.expect(b'"', "has a member without a name, or a space")?;
            let rest = &self.line[self.at..];
            let name = rest.iter().take_while(|byte| NAME[usize::from(**byte)]);
            let name = &rest[..name.count()];
            self.at += name.len();
            self.expect(b'"', "has a member name that no record has")?;
            // Strictly ascending: sorted, and no name twice.
            if name <= last {
                return Err("has its keys out of order, or one twice");
            }
            last = name;
            self.expect(b':', "has a space or no colon after a name")?;
            let start = self.at;
            self.value(depth)?;
            field(name, &self.line[start..self.at])?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err("has a space or a stray byte after a value"),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), &'static str> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string()
            }
            Some(b'0'..=b'9') => self.integer(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'[' | b'{') if depth == DEPTH => Err("is nested too deep"),
            Some(b'[') => {
                self.at += 1;
                self.items(depth + 1)
            }
            Some(b'{') => {
                self.at += 1;
                self.members(depth + 1, &mut |_, _| Ok(()))
            }
            _ => Err("has a value that no record has"),
        }
    }

    fn items(&mut self, depth: usize) -> Result<(), &'static str> {
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err("has a space or a stray byte in an array"),
            }
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), &'static str> {
        if self.line[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err("has a value that no record has")
        }
    }

    fn integer(&mut self) -> Result<(), &'static str> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        int(&self.line[start..self.at]).map_or(
            Err("has an integer with a leading zero or not below 2^53"),
            |_| Ok(()),
        )
    }

    /// The rest of a string whose opening quote is read.
    fn string(&mut self) -> Result<(), &'static str> {
        const NOT_PYTHONS: &str = "has an escape other than json.dumps writes it";
        loop {
            self.at += plain_run(&self.line[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 1,
                Some(_) => return Err("has a byte in a string that json.dumps would escape"),
                None => return Err("ends within a string"),
            }
            match self.peek() {
                Some(b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r') => self.at += 1,
                Some(b'u') => match self.unit().ok_or(NOT_PYTHONS)? {
                    0xd800..=0xdbff => {
                        let low = self.line[self.at..].starts_with(b"\\u");
                        self.at += 1;
                        if !low || !matches!(self.unit(), Some(0xdc00..=0xdfff)) {
                            return Err("has half a surrogate pair");
                        }
                    }
                    0xdc00..=0xdfff => return Err("has half a surrogate pair"),
                    // These have a shorter form.
                    0x08 | 0x09 | 0x0a | 0x0c | 0x0d | 0x20..=0x7e => return Err(NOT_PYTHONS),
                    _ => {}
                },
                _ => return Err(NOT_PYTHONS),
            }
        }
    }

    /// `uXXXX`, lower-case.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.line.get(self.at + 1..self.at + 5)?;
        let mut unit = 0;
        for digit in digits {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            unit = (unit << 4) | u16::from(value);
        }
        self.at += 5;
        Some(unit)
    }
}

/// A canonical integer below 2^53.
pub(super) fn int(digits: &[u8]) -> Option<u64> {
    let canonical = digits == b"0" || digits.first().is_some_and(|first| *first != b'0');
    if !canonical || digits.len() > 16 {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + u64::from(digit - b'0'))
    })?;
    (value < INT_END).then_some(value)
}

/// The inside of a string value without escapes.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if plain_run(inside) != inside.len() {
        return None;
    }
    std::str::from_utf8(inside).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_run_ends_where_the_table_says_whatever_stands_around() {
        for byte in 0..=255_u8 {
            for around in [
                b'a', b' ', b'~', 0x7f, 0x80, 0xff, 0, 0x1f, b'"', b'!', b'\\', b']',
            ] {
                for len in [1, 7, 8, 9, 16, 23] {
                    for at in 0..len {
                        // Plain before it, `around` after it.
                        let mut text = vec![b'a'; len];
                        text[at] = byte;
                        text[at + 1..].fill(around);
                        let byte_by_byte = text.iter().position(|byte| !is_plain(*byte));
                        assert_eq!(plain_run(&text), byte_by_byte.unwrap_or(len), "{text:?}");
                    }
                }
            }
        }
    }

    fn check(line: &str) -> Result<(), &'static str> {
        object(line.as_bytes(), |_, _| Ok(()))
    }

    #[test]
    fn the_one_form_passes_and_each_other_spelling_does_not() {
        for good in [
            "{}",
            r#"{"a":0}"#,
            r#"{"a":[],"b":{"c":true,"d":[{"e":"x"},"y"]}}"#,
            r#"{"a":9007199254740991}"#,
            r#"{"a":"\ud83d\ude00 \u00e9\u007f\n\"\\/"}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "[]",
            "{} ",
            " {}",
            "{}\r",
            r#"{"a": 0}"#,
            r#"{"a":0, "b":1}"#,
            r#"{"a":0,}"#,
            r#"{"b":0,"a":1}"#,
            r#"{"a":0,"a":1}"#,
            r#"{"a":00}"#,
            r#"{"a":01}"#,
            r#"{"a":-1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":9007199254740992}"#,
            r#"{"a":null}"#,
            r#"{"a":tru}"#,
            r#"{"A":1}"#,
            r#"{"":1}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":"\u0061"}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"\u00E9"}"#,
            r#"{"a":"\u000a"}"#,
            r#"{"a":"\u0022"}"#,
            r#"{"a":"é"}"#,
            "{\"a\":\"\t\"}",
            "{\"a\":\"\u{7f}\"}",
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ude00"}"#,
            r#"{"a":"\ud83d\u0041"}"#,
            r#"{"a":"\ud83d"#,
            r#"{"a":"x"#,
            r#"{"a":"\u00"#,
            r#"{"a":[1 ]}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":{"c":1,"b":1}}"#,
            r#"{"a":[[[[[1]]]]]}"#,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
