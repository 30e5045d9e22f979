//! Lower-case hex, both ways.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends `bytes` as lower-case hex.
pub(super) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Whether `text` is lower-case hex digits only.
pub(super) fn is_hex(text: &[u8]) -> bool {
    // No early end, no branch and no table: the compiler looks at many bytes at once.
    text.iter().fold(true, |all, byte| {
        all & ((byte.wrapping_sub(b'0') < 10) | (byte.wrapping_sub(b'a') < 6))
    })
}

/// 32 bytes as lower-case hex digits.
pub(super) fn hex32(bytes: &[u8; 32]) -> [u8; 64] {
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

/// `bytes` as lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// Reads exactly 64 lower-case hex digits.
pub(super) fn unhex32(text: &[u8]) -> Option<[u8; 32]> {
    if text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; 32];
    for (place, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *place = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sixteen_digits_are_hex() {
        for byte in 0..=255_u8 {
            assert_eq!(is_hex(&[byte]), DIGITS.contains(&byte), "{byte}");
        }
    }

    #[test]
    fn hex_reads_back_and_upper_case_does_not() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 37) as u8);
        assert_eq!(unhex32(hex(&bytes).as_bytes()), Some(bytes));
        assert_eq!(hex32(&bytes), hex(&bytes).as_bytes());
        assert!(is_hex(&hex32(&bytes)) && !is_hex(b"0g") && !is_hex(b"0A"));
        assert_eq!(unhex32(hex(&bytes).to_uppercase().as_bytes()), None);
        assert_eq!(unhex32(&hex(&bytes).as_bytes()[1..]), None);
    }
}
