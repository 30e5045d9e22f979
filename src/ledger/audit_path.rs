//! The RFC 6962 audit path of one record: the hashes that lead from its leaf to the root.
//!
//! Promises: [`AuditPath`] finds it in one pass over the leaves, in memory that grows with the logarithm of their number; [`root`] is RFC 9162 section 2.1.3.2, and gives a
//! root only where the path has exactly the length that index and size ask for.

use std::ops::Range;

use super::tree_hash::{MerkleTree, node};

/// The path of the record `index` in a tree of `size` records, grown leaf by leaf.
#[derive(Debug)]
pub(super) struct AuditPath {
    index: u64,
    seen: u64,
    leaf: Option<[u8; 32]>,
    /// The subtrees beside the way from the root to the leaf, in this order. They and the leaf share out all records among them.
    beside: Vec<(Range<u64>, MerkleTree)>,
    at: usize,
}

impl AuditPath {
    /// Of the record `index`, which must be below `size`.
    pub(super) fn new(index: u64, size: u64) -> AuditPath {
        let mut beside = Vec::new();
        let mut around = 0..size;
        while around.end - around.start > 1 {
            let len = around.end - around.start;
            // The largest power of two below the length: RFC 6962 splits there.
            let middle = around.start + (1 << (len - 1).ilog2());
            let (left, right) = (around.start..middle, middle..around.end);
            let other;
            (around, other) = if index < middle {
                (left, right)
            } else {
                (right, left)
            };
            beside.push((other, MerkleTree::default()));
        }
        AuditPath {
            index,
            seen: 0,
            leaf: None,
            beside,
            at: 0,
        }
    }

    /// The same, where the records before `gone`, which is not above `index`, are known by the whole subtrees of `past` alone.
    pub(super) fn after(past: &MerkleTree, index: u64, size: u64) -> AuditPath {
        let mut path = AuditPath::new(index, size);
        let mut at = 0;
        let mut nodes = past.whole().iter();
        // A subtree beside the way that lies before `index` holds each of these whole or not at all: what held one in part would hold `index` too.
        for bit in (0..u64::BITS).rev() {
            let len = 1_u64 << bit;
            if past.size() & len == 0 {
                continue;
            }
            let Some(node) = nodes.next() else { break };
            let holds = path
                .beside
                .iter_mut()
                .find(|(range, _)| range.contains(&at));
            if let Some((_, tree)) = holds {
                tree.push_whole(len, *node);
            }
            at += len;
        }
        path.seen = past.size();
        path
    }

    /// Takes the next leaf hash; those from `size` on change nothing.
    pub(super) fn push(&mut self, leaf: [u8; 32]) {
        let place = self.seen;
        self.seen += 1;
        if place == self.index {
            self.leaf = Some(leaf);
            return;
        }
        let holds = |(range, _): &(Range<u64>, MerkleTree)| range.contains(&place);
        if !self.beside.get(self.at).is_some_and(holds) {
            // Happens once for each subtree.
            match self.beside.iter().position(holds) {
                Some(at) => self.at = at,
                None => return,
            }
        }
        self.beside[self.at].1.push_leaf(leaf);
    }

    /// The leaf's hash and its path, from the leaf to the root; `None` where fewer than `size` leaves were taken.
    pub(super) fn end(self) -> Option<([u8; 32], Vec<[u8; 32]>)> {
        let whole = self
            .beside
            .iter()
            .all(|(range, tree)| tree.size() == range.end - range.start);
        let path = self.beside.iter().rev().map(|(_, tree)| tree.root());
        Some((self.leaf.filter(|_| whole)?, path.collect()))
    }
}

/// The root that `path` leads to from `leaf`, the record `index` of `size`; `None` where the path is too short or too long for that place.
pub(super) fn root(index: u64, size: u64, leaf: [u8; 32], path: &[[u8; 32]]) -> Option<[u8; 32]> {
    // The place of the node in hand, and of the last node, in their row.
    let (mut here, mut last) = (index, size.checked_sub(1)?);
    if here > last {
        return None;
    }
    let mut hash = leaf;
    for other in path {
        if last == 0 {
            return None;
        }
        if here % 2 == 1 || here == last {
            hash = node(other, &hash);
            // The last node of a row without a sibling stands, as it is, in the rows above.
            while here.is_multiple_of(2) && here != 0 {
                here >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, other);
        }
        here >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tree_hash::leaf;

    /// RFC 6962 section 2.1 as it is written there.
    fn hash(leaves: &[[u8; 32]]) -> [u8; 32] {
        match leaves {
            [one] => *one,
            many => {
                let k = split(many.len());
                node(&hash(&many[..k]), &hash(&many[k..]))
            }
        }
    }

    fn split(len: usize) -> usize {
        let mut k = 1;
        while k * 2 < len {
            k *= 2;
        }
        k
    }

    /// `PATH(m, D[n])` of RFC 6962 section 2.1.1 as it is written there.
    fn path(m: usize, leaves: &[[u8; 32]]) -> Vec<[u8; 32]> {
        if leaves.len() == 1 {
            return Vec::new();
        }
        let k = split(leaves.len());
        let (mut path, beside) = if m < k {
            (path(m, &leaves[..k]), hash(&leaves[k..]))
        } else {
            (path(m - k, &leaves[k..]), hash(&leaves[..k]))
        };
        path.push(beside);
        path
    }

    #[test]
    fn each_path_is_the_books_and_leads_to_the_root() {
        let leaves: Vec<_> = (0..140_u32).map(|n| leaf(&n.to_be_bytes())).collect();
        let sizes = (1..=70).chain([127, 128, 129, 139, 140]);
        for size in sizes {
            let top = hash(&leaves[..size]);
            for index in 0..size {
                let mut found = AuditPath::new(index as u64, size as u64);
                // More leaves than the size come too, as from a ledger that has grown since.
                for leaf in &leaves {
                    found.push(*leaf);
                }
                let (own, found) = found.end().expect("all leaves were there");
                assert_eq!(own, leaves[index]);
                assert_eq!(found, path(index, &leaves[..size]), "{index} of {size}");
                let to = |index, size, path: &[_]| root(index, size, own, path);
                let (index, size) = (index as u64, size as u64);
                assert_eq!(to(index, size, &found), Some(top), "{index} of {size}");
                for (place, _) in found.iter().enumerate() {
                    let mut other = found.clone();
                    other[place][31] ^= 1;
                    assert_ne!(to(index, size, &other), Some(top));
                }
                let longer: Vec<_> = found.iter().copied().chain([top]).collect();
                assert_eq!(to(index, size, &longer), None, "too long");
                if let Some((_, shorter)) = found.split_last() {
                    assert_eq!(to(index, size, shorter), None, "too short");
                }
                assert_eq!(to(size, size, &found), None, "no such record");
            }
        }
    }

    #[test]
    fn a_path_after_what_was_pruned_is_the_same() {
        let leaves: Vec<_> = (0..70_u32).map(|n| leaf(&n.to_be_bytes())).collect();
        for size in [1, 2, 3, 7, 8, 33, 64, 70] {
            for index in 0..size {
                for gone in 0..=index {
                    let mut past = MerkleTree::default();
                    for leaf in &leaves[..gone] {
                        past.push_leaf(*leaf);
                    }
                    let mut found = AuditPath::after(&past, index as u64, size as u64);
                    for leaf in &leaves[gone..] {
                        found.push(*leaf);
                    }
                    let (own, found) = found.end().expect("all leaves were there");
                    assert_eq!(own, leaves[index]);
                    assert_eq!(
                        found,
                        path(index, &leaves[..size]),
                        "{index} of {size} after {gone}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_path_of_too_few_leaves_is_none() {
        for (index, size, leaves) in [(0, 2, 1), (1, 2, 1), (3, 9, 8), (8, 9, 8), (0, 1, 0)] {
            let mut path = AuditPath::new(index, size);
            for n in 0..leaves {
                path.push([n; 32]);
            }
            assert_eq!(path.end(), None, "{index} of {size}, {leaves} leaves");
        }
    }

    #[test]
    fn what_is_held_grows_with_the_logarithm() {
        assert_eq!(AuditPath::new(5, 1 << 40).beside.len(), 40);
        assert!(AuditPath::new((1 << 53) - 2, (1 << 53) - 1).beside.len() <= 53);
    }
}
