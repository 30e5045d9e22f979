//! The word that somebody may have meant.

/// Edits that a slip of the hand makes at most.
const EDITS: usize = 2;

/// What stands in a fault for a name that is not shown.
pub const HIDDEN_NAME: &str = "(a key)";

/// The known word nearest to this one, at most two edits away (a letter more, less or other, or two neighbours swapped) and not more than half of the letters of either; of two
/// that are as near the first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer than any word of ours is none of them; the table below stays small.
    let word: Vec<char> = word.chars().take(300).collect();
    known
        .into_iter()
        .map(|known| (edits(&word, &known.chars().collect::<Vec<_>>()), known))
        .filter(|(edits, known)| {
            (1..=EDITS).contains(edits) && edits * 2 <= known.len().min(word.len())
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// `; did you mean X?`, or nothing where no known word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// A name that somebody wrote, as a fault may show it: a plain word, or a slip of the hand in a known one. Whatever else stands where a name belongs may be a secret
/// that went to the wrong place.
pub fn shown_name<'a>(name: &'a str, known: impl IntoIterator<Item = &'a str>) -> &'a str {
    if is_plain_word(name) || nearest(name, known).is_some() {
        name
    } else {
        HIDDEN_NAME
    }
}

/// Whether a word may be shown whatever it is: at most 32 lower-case letters and underscores.
pub fn is_plain_word(word: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b == b'_';
    (1..=32).contains(&word.len()) && word.bytes().all(plain)
}

/// Optimal string alignment distance.
fn edits(one: &[char], other: &[char]) -> usize {
    if one.len().abs_diff(other.len()) > EDITS {
        return EDITS + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_another_word_is_not() {
        let known = ["base_url", "bind", "ca", "env", "file", "models"];
        for (word, meant) in [
            ("base_ulr", Some("base_url")),
            ("baseurl", Some("base_url")),
            ("bnid", Some("bind")),
            ("model", Some("models")),
            ("mdoles", Some("models")),
            ("bind", None),
            ("dir", None),
            ("id", None),
            ("base", None),
            ("bxseurll", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest("fil", ["fill", "file"]), Some("fill"));
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }

    #[test]
    fn a_name_is_shown_where_it_is_a_plain_word_or_near_a_known_one() {
        let known = ["base_url", "in_flight", "spki"];
        for name in ["models", "api_key", "base-url", "In_Flight", "spki2"] {
            assert_eq!(shown_name(name, known), name);
        }
        let long = "x".repeat(33);
        for name in [
            "",
            "sk-key0123",
            "sk-live-abc",
            "hunter2",
            "AKIAEXAMPLE",
            "correct horse",
            "é",
            &long,
        ] {
            assert_eq!(shown_name(name, known), HIDDEN_NAME, "{name}");
        }
    }
}
