//! The checkpoint: a C2SP signed note (c2sp.org/signed-note, c2sp.org/tlog-checkpoint) over the RFC 6962 root of all lines.
//!
//! ```text
//! leafgate-0123456789abcdef        the log's origin: the name of its key
//! 42                               how many records
//! base64 of the root
//!
//! — leafgate-0123456789abcdef base64(key id (4 bytes) || Ed25519 signature (64 bytes))
//! ```
//!
//! Promises: a [`Checkpoint`] that was read had exactly this form; [`Checkpoint::signed_by`] says whether a key signed it. On disk it is replaced whole or
//! not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::canon;
use super::keys::{Signer, VerifierKey};

/// Its file name.
pub(super) const FILE: &str = "checkpoint";

/// A checkpoint that was read.
#[derive(Debug, Clone)]
pub(super) struct Checkpoint {
    /// How many records it covers.
    pub(super) size: u64,
    /// The root of those.
    pub(super) root: [u8; 32],
    note: String,
    text: String,
    signatures: Vec<(String, Vec<u8>)>,
}

impl Checkpoint {
    /// The whole note for this size and root.
    pub(super) fn note(signer: &Signer, size: u64, root: &[u8; 32]) -> String {
        let name = signer.public().name();
        let text = format!("{name}\n{size}\n{}\n", STANDARD.encode(root));
        let mut blob = signer.public().id().to_vec();
        blob.extend_from_slice(&signer.sign(text.as_bytes()));
        format!("{text}\n\u{2014} {name} {}\n", STANDARD.encode(blob))
    }

    /// Reads a note; `None` where it has another form.
    pub(super) fn parse(whole: &str) -> Option<Checkpoint> {
        let (text, signatures) = whole.split_once("\n\n")?;
        let mut lines = text.split('\n');
        let origin = lines.next()?;
        let size = canon::int(lines.next()?.as_bytes())?;
        let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        if origin.is_empty() || lines.next().is_some() {
            return None;
        }
        let signatures = signatures
            .strip_suffix('\n')?
            .split('\n')
            .map(|line| {
                let (name, blob) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
                Some((name.to_owned(), STANDARD.decode(blob).ok()?))
            })
            .collect::<Option<_>>()?;
        Some(Checkpoint {
            size,
            root,
            note: whole.to_owned(),
            text: format!("{text}\n"),
            signatures,
        })
    }

    /// The note as it was read.
    pub(super) fn whole(&self) -> &str {
        &self.note
    }

    /// Whether the origin is this key's name and one of the signatures is the key's.
    pub(super) fn signed_by(&self, key: &VerifierKey) -> bool {
        self.text.starts_with(&format!("{}\n", key.name()))
            && self.signatures.iter().any(|(name, blob)| {
                name == key.name()
                    && blob
                        .strip_prefix(key.id())
                        .is_some_and(|signature| key.verifies(self.text.as_bytes(), signature))
            })
    }
}

/// Replaces a file that anybody may read: a new one is written and synced, then renamed over the old one, then the folder is synced.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let Some(name) = file.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let new = dir.join(beside);
    // A left-over of a crash is taken away, never written on.
    match fs::remove_file(&new) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        Ok(()) | Err(_) => {}
    }
    let mut open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&new)?;
    let written = open
        .write_all(text.as_bytes())
        .and_then(|()| open.sync_all());
    if let Err(cause) = written {
        // Nothing of the old file is lost; the half-written file only takes room.
        let _ = fs::remove_file(&new);
        return Err(cause);
    }
    fs::rename(&new, file)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_and_each_change_is_seen() {
        let signer = Signer::from_seed([7; 32]);
        let note = Checkpoint::note(&signer, 42, &[9; 32]);
        let read = Checkpoint::parse(&note).expect("the form");
        assert_eq!((read.size, read.root), (42, [9; 32]));
        assert!(read.signed_by(signer.public()));
        let other = Signer::from_seed([8; 32]);
        assert!(!read.signed_by(other.public()), "another key");
        let forged = Checkpoint::parse(&note.replacen("\n42\n", "\n41\n", 1)).expect("the form");
        assert!(!forged.signed_by(signer.public()), "another size");
        for bad in [
            note.replacen("\n42\n", "\n042\n", 1),
            note.replacen("\n\n", "\n", 1),
            note.replacen("\n\n", "\nextra\n\n", 1),
            note.trim_end().to_owned(),
            note.replace('\u{2014}', "-"),
            String::new(),
        ] {
            assert!(Checkpoint::parse(&bad).is_none(), "{bad:?}");
        }
    }
}
