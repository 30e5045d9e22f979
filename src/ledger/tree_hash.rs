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
        self.push_leaf(leaf(line));
    }

    /// Adds a line by its [`leaf`] hash.
    pub(super) fn push_leaf(&mut self, mut hash: [u8; 32]) {
        // Each low one bit of the size is a whole subtree that the new line completes.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.whole.pop() {
                hash = node(&left, &hash);
            }
        }
        self.whole.push(hash);
        self.size += 1;
    }

    /// Adds a whole subtree of `len` lines, a power of two that is smaller than every subtree so far.
    pub(super) fn push_whole(&mut self, len: u64, hash: [u8; 32]) {
        self.whole.push(hash);
        self.size += len;
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

/// The hash of a line as a leaf. A leaf is hashed after a zero byte, a node after a one: neither can pass for the other.
pub(super) fn leaf(line: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update([0])
        .chain_update(line)
        .finalize()
        .into()
}

/// The hash of a node over its two subtrees.
pub(super) fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    // In one piece: three pieces would be put together in the hash's own buffer, byte by byte.
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    Sha256::digest(bytes).into()
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
