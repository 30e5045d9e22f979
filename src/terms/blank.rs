//! What counts as blank (contract, section 2).

use std::sync::LazyLock;

use regex::Regex;

#[allow(clippy::expect_used, reason = "a constant pattern; a test compiles it")]
static VISIBLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[^\p{White_Space}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\x{2800}]")
        .expect("the pattern is constant")
});

/// Whether `text` is empty or made only of characters that show nothing: Unicode White_Space, Cc, Cf,
/// Default_Ignorable_Code_Point, or U+2800 (the empty braille pattern).
///
/// ```
/// assert!(leafgate::terms::is_blank(" \u{200b}\u{3164}"));
/// assert!(!leafgate::terms::is_blank("24h"));
/// ```
pub fn is_blank(text: &str) -> bool {
    // The usual value begins with a visible ASCII character and needs no table.
    !text.as_bytes().first().is_some_and(u8::is_ascii_graphic) && !VISIBLE.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::is_blank;

    #[test]
    fn every_kind_of_nothing_is_blank_and_its_neighbour_is_not() {
        for c in [
            '\0',
            '\t',
            '\n',
            ' ',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{1680}',
            '\u{17b4}',
            '\u{180e}',
            '\u{2003}',
            '\u{200b}',
            '\u{200d}',
            '\u{2028}',
            '\u{2060}',
            '\u{2064}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e01ef}',
            '\u{600}',
            '\u{110bd}',
        ] {
            let alone = c.to_string();
            assert!(is_blank(&alone), "U+{:04X}", c as u32);
            assert!(
                is_blank(&format!(" {c}\t{c}")),
                "U+{:04X} among others",
                c as u32
            );
            assert!(
                !is_blank(&format!("{c}x{c}")),
                "U+{:04X} around a letter",
                c as u32
            );
        }
        assert!(is_blank(""));
        for c in [
            'x', '-', '.', '\u{301}', '\u{2801}', '\u{e000}', '\u{4e00}', '\u{fffd}',
        ] {
            assert!(!is_blank(&c.to_string()), "U+{:04X}", c as u32);
        }
    }
}
