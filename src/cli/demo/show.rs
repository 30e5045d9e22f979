//! What the demo prints: plain words, two columns side by side, at most 100 columns wide.

use super::client::{Reply, Request};
use super::host::Received;
use super::scenes::Scene;
use crate::cli::out::{Failure, Out, Tone, safe};

/// Columns of each side.
const SIDE: usize = 46;
const WIDTH: usize = 2 * SIDE + 3;

pub(super) fn opening(out: &mut Out, host: std::net::SocketAddr) -> Result<(), Failure> {
    out.line(out.paint(
        Tone::Strong,
        "leafgate demo: four calls, on this machine alone",
        0,
    ))?;
    out.line("")?;
    for line in [
        "A client sends calls to a model's host. leafgate stands between them. Each call carries a card",
        "that says what its bytes are; leafgate reads the card, decides, and writes the decision to its",
        "ledger before a byte leaves:",
    ] {
        out.line(line)?;
    }
    out.line("")?;
    for (tone, leaf, what) in [
        (Tone::Bad, "hold", "nothing leaves"),
        (Tone::Half, "split", "four values leave, the text stays"),
        (
            Tone::Good,
            "release",
            "the body leaves byte for byte, to the pinned host only",
        ),
    ] {
        out.line(format!("  {}  {what}", out.paint(tone, leaf, 7)))?;
    }
    out.line("")?;
    out.line(format!(
        "The host is a small server inside this demo, http://{host}. The cards are those of the"
    ))?;
    out.line("note, with two changes: their pins (local, local-builder, free-server) are replaced by local,")?;
    out.line("and their hashes, abbreviated there, by the whole ones of the fixtures' files.")
}

/// One call: both sides, the decision, the answer.
pub(super) fn scene(
    out: &mut Out,
    number: usize,
    scene: &Scene,
    request: &Request,
    received: &[Received],
    reply: &Reply,
) -> Result<(), Failure> {
    out.line("")?;
    out.line(out.paint(Tone::Dim, &"─".repeat(WIDTH), 0))?;
    out.line(format!(
        "{number}  {}  {}",
        out.paint(Tone::Strong, scene.name, 0),
        scene.about
    ))?;
    out.line(format!(
        "   class {}, residue {}, pin {}",
        scene.class,
        list(scene.residue),
        pin(scene)
    ))?;
    out.line("")?;
    let left = column(&request.head, request.body.as_bytes());
    let right = received.first().map_or_else(
        || vec!["nothing: no connection".to_owned()],
        |received| {
            let head: Vec<String> = received.head.lines().map(str::to_owned).collect();
            column(&head, &received.body)
        },
    );
    let heads = ("the client sent", "the host received");
    let (left_head, right_head) = (
        out.paint(Tone::Strong, heads.0, SIDE),
        out.paint(Tone::Strong, heads.1, 0),
    );
    out.line(format!("{left_head} │ {right_head}"))?;
    for row in 0..left.len().max(right.len()) {
        let cell = |side: &[String]| side.get(row).cloned().unwrap_or_default();
        let line = format!("{:<SIDE$} │ {}", cell(&left), cell(&right));
        out.line(line.trim_end())?;
    }
    out.line("")?;
    let field = reply
        .param
        .as_ref()
        .map_or_else(String::new, |param| format!(" ({param})"));
    let leaf = out.paint(Tone::of(scene.leaf), &safe(&reply.leaf), 0);
    out.line(format!(
        "=> {leaf}  step {}, {}{}",
        safe(&reply.step),
        safe(&reply.reason),
        safe(&field)
    ))?;
    out.line(format!("   {}", happened(request, received)))?;
    let says = format!("the client got {}: {}", reply.status, safe(&reply.says));
    for line in wrap(&says, WIDTH - 3) {
        out.line(format!("   {line}"))?;
    }
    Ok(())
}

fn happened(request: &Request, received: &[Received]) -> String {
    match received {
        [] => {
            "nothing left this machine: no name was looked up, no connection was opened".to_owned()
        }
        [one] if one.body == request.body.as_bytes() => {
            format!(
                "the body arrived byte for byte ({} bytes); card, key and cookie stayed here",
                one.body.len()
            )
        }
        [one] => format!(
            "{} bytes of leafgate's own arrived instead of the {} of the client: four values, no text",
            one.body.len(),
            request.body.len()
        ),
        more => format!("{} requests arrived", more.len()),
    }
}

fn list(words: &[&str]) -> String {
    format!("[{}]", words.join(", "))
}

fn pin(scene: &Scene) -> String {
    if scene.noted_pin == "local" {
        "local".to_owned()
    } else {
        format!("local (in the note: {})", scene.noted_pin)
    }
}

/// Head and body as lines of one column.
fn column(head: &[String], body: &[u8]) -> Vec<String> {
    let body = String::from_utf8_lossy(body);
    let lines = head.iter().map(String::as_str).chain(["", &body]);
    lines
        .flat_map(|line| {
            let line = safe(line);
            let mut cells = Vec::new();
            let chars: Vec<char> = line.chars().collect();
            for chunk in chars.chunks(SIDE) {
                cells.push(chunk.iter().collect::<String>());
            }
            if cells.is_empty() {
                cells.push(String::new());
            }
            cells
        })
        .collect()
}

/// Breaks between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_lines_keep_their_width() {
        let rows = column(&["x".repeat(100)], b"{\"a\":\"\\n\"}");
        assert_eq!(rows.len(), 5);
        assert!(rows.iter().all(|row| row.chars().count() <= SIDE));
        let lines = wrap(&"word ".repeat(60), 40);
        assert!(lines.len() > 5 && lines.iter().all(|line| line.chars().count() <= 40));
        assert_eq!(lines.join(" "), "word ".repeat(60));
        const { assert!(WIDTH <= 100) };
    }
}
