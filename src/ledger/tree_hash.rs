//! The RFC 6962 Merkle tree over all lines, grown line by line.
//!
//! Promises: [`MerkleTree::root`] is the Merkle tree hash (RFC 6962 section 2.1) of the lines pushed so far, in memory that grows with the
//! logarithm of their number: one hash for each whole subtree, largest first.

use sha2::{Digest, Sha256};

/// The whole subtrees of the lines so far.
#[derive(Debug, Clone, Default)]
pub(super) struct MerkleTree {
    size: u64,
    whole: Vec<[u8; 32]>,
}

impl MerkleTree {
    /// Adds a line, without its newline.
    pub(super) fn push(&mut self, line: &[u8]) {
        // A leaf is hashed after a zero byte, a node after a one: neither can pass for the other.
        let mut hash: [u8; 32] = Sha256::new()
            .chain_update([0])
            .chain_update(line)
            .finalize()
            .into();
        // Each low one bit of the size is a whole subtree that the new line completes.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.whole.pop() {
                hash = node(&left, &hash);
            }
        }
        self.whole.push(hash);
        self.size += 1;
    }

    /// The tree of `size` lines whose whole subtrees are these, largest first; `None` where their number is not that size's.
    pub(super) fn of(size: u64, whole: Vec<[u8; 32]>) -> Option<MerkleTree> {
        (whole.len() == size.count_ones() as usize).then_some(MerkleTree { size, whole })
    }

    /// The whole subtrees, largest first: all that is needed to grow on.
    pub(super) fn whole(&self) -> &[[u8; 32]] {
        &self.whole
    }

    /// How many lines.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The root.
    pub(super) fn root(&self) -> [u8; 32] {
        let mut from_small = self.whole.iter().rev();
        let Some(first) = from_small.next() else {
            return Sha256::digest([]).into();
        };
        from_small.fold(*first, |right, left| node(left, &right))
    }
}

fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update([1])
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6962 section 2.1 as it is written there.
    fn by_the_book(lines: &[Vec<u8>]) -> [u8; 32] {
        match lines {
            [] => Sha256::digest([]).into(),
            [one] => Sha256::new()
                .chain_update([0])
                .chain_update(one)
                .finalize()
                .into(),
            many => {
                let mut k = 1;
                while k * 2 < many.len() {
                    k *= 2;
                }
                node(&by_the_book(&many[..k]), &by_the_book(&many[k..]))
            }
        }
    }

    #[test]
    fn the_grown_root_is_the_books_root_at_each_size() {
        let mut tree = MerkleTree::default();
        let mut lines = Vec::new();
        assert_eq!(tree.root(), by_the_book(&lines));
        for n in 0..130_u32 {
            let line = n.to_string().into_bytes();
            tree.push(&line);
            lines.push(line);
            assert_eq!(tree.root(), by_the_book(&lines), "size {}", n + 1);
            assert_eq!(tree.size(), u64::from(n) + 1);
        }
    }
}
