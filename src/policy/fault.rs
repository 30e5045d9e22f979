//! What is wrong with a policy, and where.
//!
//! Promises: a fault names the file, the line and the key, and never shows the file's text or a secret. Makers: the readers of this room.

/// One fault of a policy. `Display` is `FILE:LINE: KEY: what is wrong, and what to do`; never the file's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {key}: {what}", self.place())]
pub struct Fault {
    /// The policy file as given.
    pub file: String,
    /// 1-based line; 0 where the file could not be read at all.
    pub line: usize,
    /// 1-based byte column in that line where the key (or the item of an array) begins: where a caret would stand.
    pub column: usize,
    /// Dotted key, `hosts."models.example.org".ca`.
    pub key: String,
    /// What is wrong and what to do next.
    pub what: String,
}

impl Fault {
    fn place(&self) -> String {
        match self.line {
            0 => String::new(),
            line => format!(":{line}"),
        }
    }

    /// The line as it may be shown below the fault: blanks up to the key, then a caret.
    pub fn caret(&self) -> String {
        format!("{}^", " ".repeat(self.column.saturating_sub(1)))
    }
}
