//! What a host staples to its certificate: an OCSP answer (RFC 6960, section 4.2), or nothing.
//!
//! Promises: a staple that is no whole answer of that form is seen. Not promised: that a certificate was not revoked; leafgate asks no
//! authority, and takes a staple as proof of nothing.

const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const BITS: u8 = 0x03;
const TAGGED_0: u8 = 0xa0;

/// `id-pkix-ocsp-basic`, 1.3.6.1.5.5.7.48.1.1.
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// Whether this is no staple, or one whole answer.
pub(super) fn is_whole(staple: &[u8]) -> bool {
    staple.is_empty() || answer(staple).is_some()
}

fn answer(staple: &[u8]) -> Option<()> {
    let mut inside = only(staple, SEQUENCE)?;
    match take(&mut inside, ENUMERATED)? {
        [0] => {
            let mut pair = only(only(inside, TAGGED_0)?, SEQUENCE)?;
            let kind = take(&mut pair, OBJECT)?;
            let basic = only(pair, OCTETS)?;
            (kind == BASIC).then_some(())?;
            let mut parts = only(basic, SEQUENCE)?;
            for tag in [SEQUENCE, SEQUENCE, BITS] {
                take(&mut parts, tag)?;
            }
            if !parts.is_empty() {
                only(parts, TAGGED_0)?;
            }
            Some(())
        }
        // An authority that had no answer says so with a number and nothing behind it.
        [1 | 2 | 3 | 5 | 6] => inside.is_empty().then_some(()),
        _ => None,
    }
}

/// The content of the one element that these bytes are.
fn only(mut bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let content = take(&mut bytes, tag)?;
    bytes.is_empty().then_some(content)
}

/// Takes one element with this tag off the front: its content. Lengths as DER has them, of at most three bytes.
fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |all, digit| (all << 8) | usize::from(*digit));
            // The shortest spelling alone.
            (digits[0] != 0 && length > 0x7f).then_some((length, rest))?
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    (*found == tag).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = content.len();
        let head = match length {
            0..=0x7f => vec![tag, length as u8],
            0x80..=0xff => vec![tag, 0x81, length as u8],
            _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        [head, content].concat()
    }

    fn answer(signature: usize, kind: &[u8]) -> Vec<u8> {
        let empty = element(0x30, &[]);
        let basic = element(0x30, &[&empty, &empty, &element(3, &[&vec![7; signature]])]);
        let pair = element(0x30, &[&element(6, &[kind]), &element(4, &[&basic])]);
        element(0x30, &[&[10, 1, 0], &element(0xa0, &[&pair])])
    }

    #[test]
    fn a_whole_answer_passes_and_each_piece_of_it_does_not() {
        for good in [
            Vec::new(),
            answer(3, super::BASIC),
            answer(200, super::BASIC),
            answer(600, super::BASIC),
            vec![0x30, 3, 10, 1, 3],
        ] {
            assert!(is_whole(&good), "{good:?}");
            for cut in 1..good.len() {
                assert!(!is_whole(&good[..cut]), "{cut} of {good:?}");
            }
            if !good.is_empty() {
                assert!(!is_whole(&[&good[..], &[0]].concat()));
            }
        }
        for bad in [
            b"no answer".to_vec(),
            answer(3, b"other"),
            vec![0x30, 0],
            vec![0x30, 3, 10, 1, 0],
            vec![0x30, 3, 10, 1, 4],
            vec![0x30, 0x80, 10, 1, 3, 0, 0],
            vec![0x30, 0x81, 3, 10, 1, 3],
            vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            vec![0x31, 3, 10, 1, 3],
            vec![0; 64],
        ] {
            assert!(!is_whole(&bad), "{bad:?}");
        }
    }
}
