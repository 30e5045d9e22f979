//! Fixtures and bodies that are made here: the same bytes each time.

use std::fmt::Write as _;

/// A fixed generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub(crate) const SEED: u64 = 0x2545_F491_4F6C_DD1D;

/// Words drawn at random: text that does not repeat and is not random bytes.
pub(crate) fn text(bytes: usize) -> String {
    let mut dice = Dice(SEED);
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        let state = dice.next();
        for at in 0..(2 + state % 7) {
            out.push(char::from(b'a' + ((state >> (8 + 5 * at)) % 26) as u8));
        }
        out.push(if state.is_multiple_of(11) { '\n' } else { ' ' });
    }
    out.truncate(bytes);
    out
}

/// Letters `a` and `b` at random: as many windows as can be stand in it, and a run goes on by chance for a letter or two.
pub(crate) fn two_letters(bytes: usize, seed: u64) -> String {
    let mut dice = Dice(seed);
    (0..bytes)
        .map(|_| if dice.next() >> 40 & 1 == 0 { 'a' } else { 'b' })
        .collect()
}

/// A data set of questions with short answers, as JSON Lines, or as one JSON array.
pub(crate) fn questions(bytes: usize, lines: bool) -> String {
    let words = text(bytes);
    let mut out = String::with_capacity(bytes + 400);
    out.push_str(if lines { "" } else { "[" });
    let mut rest = words.as_str();
    let mut number = 0;
    while out.len() < bytes && rest.len() > 330 {
        let (question, after) = rest.split_at(150 + number % 97);
        let (answer, after) = after.split_at(3 + number % 20);
        rest = after;
        let between = match (number, lines) {
            (0, _) => "",
            (_, true) => "\n",
            (_, false) => ",\n",
        };
        let letter = ["A", "B", "C", "D"][number % 4];
        let (question, answer) = (serde_json::json!(question), serde_json::json!(answer));
        let _ = write!(
            out,
            r#"{between}{{"id": {number}, "question": {question}, "answer": {answer}, "letter": "{letter}"}}"#
        );
        number += 1;
    }
    out.push_str(if lines { "\n" } else { "]" });
    out
}

/// A data set of single words, as dense as JSON Lines can be.
pub(crate) fn words(bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 32);
    for word in text(bytes).split_whitespace() {
        let _ = writeln!(out, "\"{word}\"");
        if out.len() >= bytes {
            break;
        }
    }
    out
}
