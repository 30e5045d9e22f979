//! Text from outside, as it may be shown.

use std::borrow::Cow;

/// The text without control characters, format characters (those that turn the direction of writing among them) and line breaks, each as its escape: what is shown
/// can neither steer a terminal nor look like another text.
pub fn safe(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|c| {
            if hides(c) {
                c.escape_debug().to_string()
            } else {
                c.to_string()
            }
        })
        .collect::<String>()
        .into()
}

/// Whether a character is not to be seen where it stands, or changes how others are. `escape_debug` keeps what a reader can see and escapes the rest, and beside it
/// quotes and the backslash, which stay as they are.
pub fn hides(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_cannot_steer_a_terminal_or_turn_the_text_round() {
        for text in ["a b.json", "é \"x\" 'y' \\ <b>", "日本"] {
            assert_eq!(safe(text), text);
        }
        assert_eq!(safe("é\u{1b}[2J\n\u{202e}"), "é\\u{1b}[2J\\n\\u{202e}");
        let turns = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let marks = ['\u{200e}', '\u{200f}', '\u{61c}', '\u{feff}', '\u{2028}'];
        let controls = ('\0'..' ').chain('\u{7f}'..='\u{9f}');
        for c in turns.chain(marks).chain(controls) {
            let shown = safe(c.encode_utf8(&mut [0; 4])).into_owned();
            assert!(
                hides(c) && shown.starts_with('\\') && shown.is_ascii(),
                "{c:?}"
            );
        }
    }
}
