//! Text with the characters that are not covered: in colour on a terminal, with a line of carets where there is none.
//!
//! What of them is glue is marked less, with dots in place of carets: it does not count there, and is not what is at fault.
//!
//! Promises: nothing that is shown can steer a terminal; long texts are cut to what lies around the marks.

use super::out::{Failure, Out, Tone, safe};
use crate::fixture::Finding;

/// Characters shown on each side of a mark in a long line.
const AROUND: usize = 60;
/// Lines shown before a marked one.
const LINES_BEFORE: usize = 1;

/// Each finding: pointer, reason, count, and the text with its marks.
pub(super) fn places(findings: &[Finding], out: &mut Out) -> Result<(), Failure> {
    for finding in findings {
        let pointer = if finding.pointer.is_empty() {
            "(the body)"
        } else {
            &finding.pointer
        };
        let pointer = out.paint(Tone::Strong, &safe(pointer), 0);
        let clause = finding.fault.clause();
        let count = match finding.uncovered {
            0 => String::new(),
            1 => ": 1 character".into(),
            more => format!(": {more} characters"),
        };
        out.line(format!("  {pointer}  {clause}{count}"))?;
        for line in marked(&finding.text, &finding.ranges, &finding.glue, out) {
            out.line(format!("    {line}").trim_end())?;
        }
        let glue = finding.of_glue();
        if glue > 0 {
            let are = if glue == 1 {
                "1 is"
            } else {
                &format!("{glue} are")
            };
            let dim = if out.coloured() { "dim" } else { "dots" };
            out.line(format!(
                "    of these, {are} glue ({dim}) that something beside it cuts off or keeps from fixture text"
            ))?;
        }
        if let Some(advice) = finding.advice() {
            out.line(format!("    {advice}"))?;
        }
    }
    Ok(())
}

/// How a character is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// It is covered.
    None,
    /// It is glue that does not count here.
    Glue,
    Bad,
}

/// One character as it is shown, and how it is marked.
type Shown = (String, Mark);

/// The lines of a text that have marks, with their marks.
fn marked(
    text: &str,
    ranges: &[(usize, usize)],
    glue: &[(usize, usize)],
    out: &Out,
) -> Vec<String> {
    let mut lines: Vec<Vec<Shown>> = vec![Vec::new()];
    let mut ranges = ranges.iter().peekable();
    let mut glue = glue.iter().peekable();
    for (at, c) in text.char_indices() {
        while ranges.next_if(|range| range.1 <= at).is_some() {}
        let bad = ranges.peek().is_some_and(|range| range.0 <= at);
        while glue.next_if(|range| range.1 <= at).is_some() {}
        let of_glue = glue.peek().is_some_and(|range| range.0 <= at);
        let mark = match (bad, of_glue) {
            (false, _) => Mark::None,
            (true, true) => Mark::Glue,
            (true, false) => Mark::Bad,
        };
        // A line break is shown where it is marked; else it only breaks.
        let shown = if c == '\n' && !bad {
            String::new()
        } else {
            safe(c.encode_utf8(&mut [0; 4])).into_owned()
        };
        if let Some(line) = lines.last_mut() {
            line.push((shown, mark));
        }
        if c == '\n' {
            lines.push(Vec::new());
        }
    }
    let has_mark: Vec<bool> = lines
        .iter()
        .map(|line| line.iter().any(|shown| shown.1 != Mark::None))
        .collect();
    let mut shown = Vec::new();
    let mut skipped = false;
    for (number, line) in lines.iter().enumerate() {
        let near = has_mark.iter().skip(number).take(LINES_BEFORE + 1);
        if !near.into_iter().any(|mark| *mark) {
            skipped = true;
            continue;
        }
        if skipped && !shown.is_empty() {
            shown.push("…".into());
        }
        skipped = false;
        shown.extend(one(&cut(line), out));
    }
    shown
}

/// Without what lies far from every mark.
fn cut(line: &[Shown]) -> Vec<Shown> {
    if line.len() <= 2 * AROUND {
        return line.to_vec();
    }
    let mut keep = vec![false; line.len()];
    for (at, _) in line
        .iter()
        .enumerate()
        .filter(|(_, shown)| shown.1 != Mark::None)
    {
        let from = at.saturating_sub(AROUND);
        for near in keep.iter_mut().take(at + AROUND + 1).skip(from) {
            *near = true;
        }
    }
    if !keep.contains(&true) {
        keep.iter_mut()
            .take(2 * AROUND)
            .for_each(|near| *near = true);
    }
    let mut short = Vec::new();
    let mut gap = false;
    for (shown, near) in line.iter().zip(keep) {
        if near {
            short.push(shown.clone());
        } else if !gap {
            short.push(("…".into(), Mark::None));
        }
        gap = !near;
    }
    short
}

/// A line; where there is no colour, a line of carets under it.
fn one(line: &[Shown], out: &Out) -> Vec<String> {
    let mut text = String::new();
    let mut carets = String::new();
    for piece in line.chunk_by(|a, b| a.1 == b.1) {
        let joined: String = piece.iter().map(|shown| shown.0.as_str()).collect();
        let (mark, tone) = match piece.first().map(|shown| shown.1) {
            Some(Mark::Bad) => ("^", Tone::Mark),
            Some(Mark::Glue) => (".", Tone::Dim),
            Some(Mark::None) | None => (" ", Tone::Plain),
        };
        carets.push_str(&mark.repeat(joined.chars().count()));
        text.push_str(&out.paint(tone, &joined, 0));
    }
    let carets = carets.trim_end();
    if out.coloured() || carets.is_empty() {
        vec![text]
    } else {
        vec![text, carets.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, ranges: &[(usize, usize)], colour: bool) -> Vec<String> {
        marked(text, ranges, &[], &Out::to(std::io::sink(), colour))
    }

    #[test]
    fn carets_stand_under_what_is_not_covered() {
        assert_eq!(
            lines("one\ntwo bad\nthree\nfour", &[(8, 11)], false),
            ["one", "two bad", "    ^^^"]
        );
        // What would steer a terminal is shown, and its marks are as wide.
        assert_eq!(
            lines("a\u{1b}[31m\nb", &[(1, 3), (6, 7)], false),
            ["a\\u{1b}[31m\\n", " ^^^^^^^   ^^"]
        );
        assert_eq!(lines("é x", &[(3, 4)], false), ["é x", "  ^"]);
        assert_eq!(lines("whole", &[], false), Vec::<String>::new());
    }

    #[test]
    fn glue_among_it_has_dots() {
        let marks = |ranges, glue| {
            marked(
                "2\nJane asks. Reply.",
                ranges,
                glue,
                &Out::to(std::io::sink(), false),
            )
        };
        assert_eq!(
            marks(&[(2, 19)], &[(13, 19)]),
            ["2", "Jane asks. Reply.", "^^^^^^^^^^^......"]
        );
    }

    #[test]
    fn colour_takes_the_place_of_carets() {
        let lines = lines("two bad", &[(4, 7)], true);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("two \u{1b}[") && lines[0].contains("bad\u{1b}[0m"));
    }

    #[test]
    fn a_long_text_is_cut_to_what_lies_around() {
        let text = format!("{}BAD{}", "x".repeat(5000), "y".repeat(5000));
        let lines = lines(&text, &[(5000, 5003)], false);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].chars().count() < 3 * AROUND, "{}", lines[0]);
        assert_eq!(
            lines[0].chars().position(|c| c == 'B'),
            lines[1].chars().position(|c| c == '^')
        );
    }
}
