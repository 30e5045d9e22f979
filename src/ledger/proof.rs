//! An inclusion proof in the form of c2sp.org/tlog-proof: that one record stands at its place in the ledger that a checkpoint was signed over.
//!
//! ```text
//! c2sp.org/tlog-proof@v1
//! index 73894
//! base64 of a hash                 one for each step, from the leaf's sibling up to the root's child
//!
//! the checkpoint, whole
//! ```
//!
//! Promises: what [`Proof::check`] accepted needs no ledger: the line's leaf hash leads along the path to the root that the key signed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::audit_path;
use super::canon;
use super::checkpoint::Checkpoint;
use super::keys::VerifierKey;
use super::tree_hash::leaf;

const HEAD: &str = "c2sp.org/tlog-proof@v1";
/// No path is longer: a tree of 2^53 records has one of 53 steps.
const LONGEST_PATH: usize = 64;

/// An inclusion proof. Its `Display` is the proof's text.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The record's `seq`.
    pub index: u64,
    /// From the leaf's sibling to the root's child.
    pub path: Vec<[u8; 32]>,
    note: Checkpoint,
}

/// Why a proof does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofFault {
    /// Another form.
    #[error("the proof is not in the form c2sp.org/tlog-proof@v1")]
    Form,
    /// The key file.
    #[error("the key is no verifier key of a leafgate ledger; leafgate.pub holds one")]
    Key,
    /// Another key signed.
    #[error("no signature on the proof's checkpoint verifies under this key")]
    Signature,
    /// The index lies beyond the checkpoint.
    #[error("the proof's index is not below its checkpoint's size")]
    Index,
    /// The record is another, or the proof is another's.
    #[error(
        "this record with this proof does not lead to the checkpoint's root: the record was changed, or the proof is another record's"
    )]
    Root,
}

impl Proof {
    /// Of a path and the note it leads to.
    pub(super) fn new(index: u64, path: Vec<[u8; 32]>, note: Checkpoint) -> Proof {
        Proof { index, path, note }
    }

    /// The checkpoint's text, whole.
    pub fn checkpoint(&self) -> &str {
        self.note.whole()
    }

    /// How many records the checkpoint covers.
    pub fn size(&self) -> u64 {
        self.note.size
    }

    /// Reads a proof's text. An `extra` line is passed over: nothing vouches for it.
    ///
    /// # Errors
    /// [`ProofFault::Form`]
    pub fn parse(text: &str) -> Result<Proof, ProofFault> {
        Proof::read(text).ok_or(ProofFault::Form)
    }

    fn read(text: &str) -> Option<Proof> {
        let (head, checkpoint) = text.split_once("\n\n")?;
        let mut lines = head.split('\n');
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut index = lines.next()?;
        if let Some(extra) = index.strip_prefix("extra ") {
            STANDARD.decode(extra).ok()?;
            index = lines.next()?;
        }
        let index = canon::int(index.strip_prefix("index ")?.as_bytes())?;
        let path: Vec<[u8; 32]> = lines
            .take(LONGEST_PATH + 1)
            .map(|line| STANDARD.decode(line).ok()?.try_into().ok())
            .collect::<Option<_>>()?;
        if path.len() > LONGEST_PATH {
            return None;
        }
        let note = Checkpoint::parse(checkpoint)?;
        Some(Proof::new(index, path, note))
    }

    /// Whether `line`, a record without its newline, stands at the proof's place in the ledger whose checkpoint `key` signed (the text of `leafgate.pub`). Gives the key's name.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn check(&self, line: &[u8], key: &str) -> Result<String, ProofFault> {
        let key = VerifierKey::parse(key).ok_or(ProofFault::Key)?;
        if !self.note.signed_by(&key) {
            return Err(ProofFault::Signature);
        }
        if self.index >= self.note.size {
            return Err(ProofFault::Index);
        }
        if self.root(leaf(line)) != Some(self.note.root) {
            return Err(ProofFault::Root);
        }
        Ok(key.name().to_owned())
    }

    fn root(&self, leaf: [u8; 32]) -> Option<[u8; 32]> {
        audit_path::root(self.index, self.note.size, leaf, &self.path)
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\nindex {}", self.index)?;
        for hash in &self.path {
            writeln!(f, "{}", STANDARD.encode(hash))?;
        }
        write!(f, "\n{}", self.checkpoint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::keys::Signer;
    use crate::ledger::tree_hash::{MerkleTree, leaf};

    #[test]
    fn a_proof_reads_back_and_each_change_is_seen() {
        let signer = Signer::from_seed([7; 32]);
        let key = signer.public().line();
        let mut tree = MerkleTree::default();
        let mut path = audit_path::AuditPath::new(3, 6);
        let lines = ["a", "b", "c", "d", "e", "f"];
        for line in lines {
            tree.push(line.as_bytes());
            path.push(leaf(line.as_bytes()));
        }
        let checkpoint = Checkpoint::note(&signer, 6, &tree.root());
        let note = Checkpoint::parse(&checkpoint).expect("the form");
        let (_, path) = path.end().expect("all leaves");
        let text = Proof::new(3, path, note).to_string();
        assert!(
            text.starts_with("c2sp.org/tlog-proof@v1\nindex 3\n"),
            "{text}"
        );

        let check = |text: &str, line: &str, key: &str| {
            Proof::parse(text).and_then(|proof| proof.check(line.as_bytes(), key))
        };
        assert_eq!(
            check(&text, "d", &key).as_deref(),
            Ok(signer.public().name())
        );
        let extra = text.replacen("\nindex", "\nextra eHl6\nindex", 1);
        assert!(check(&extra, "d", &key).is_ok());
        assert_eq!(check(&text, "e", &key), Err(ProofFault::Root));
        let moved = text.replacen("index 3", "index 2", 1);
        assert_eq!(check(&moved, "d", &key), Err(ProofFault::Root));
        let beyond = text.replacen("index 3", "index 6", 1);
        assert_eq!(check(&beyond, "d", &key), Err(ProofFault::Index));
        let other = Signer::from_seed([8; 32]).public().line();
        assert_eq!(check(&text, "d", &other), Err(ProofFault::Signature));
        assert_eq!(check(&text, "d", "no key"), Err(ProofFault::Key));
        let larger = text.replacen("\n6\n", "\n7\n", 1);
        assert_eq!(check(&larger, "d", &key), Err(ProofFault::Signature));
        for bad in [
            text.replacen("@v1", "@v2", 1),
            text.replacen("index 3", "index 03", 1),
            text.replacen("index 3\n", "", 1),
            text.replacen("index 3\n", "index 3\nAAAA\n", 1),
            text.replacen("\n\n", "\n", 1),
            text.replacen("\nindex", "\nextra !\nindex", 1),
            text.trim_end().to_owned(),
            String::new(),
        ] {
            assert!(matches!(Proof::parse(&bad), Err(ProofFault::Form)), "{bad}");
        }
    }
}
