//! What a ledger knows of the segments that were pruned from it: the prune records, and the file `pruned` that a reader begins from.
//!
//! Promises: a [`Gone`] that was read says all that a verifier needs to begin after its segment; [`Past::read`] takes nothing but one line that is a prune record.
//! Whether that line is in the chain, and covered by the checkpoint, is for the scan to find: see [`Pruned::settle`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::{Fault, LedgerError, Problem};
use super::form::{Line, Type};
use super::hex::{push_hex, unhex32};
use super::kept::small;
use super::keys::VerifierKey;
use super::record::{Fields, MAX_RECORD_BYTES, push_int, push_string};
use super::scan::SegmentFile;

/// The file that holds the line of the last pruned segment's record.
pub(super) const FILE: &str = "pruned";

/// What a prune record says of its segment, besides what every record says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gone {
    /// Its first `seq`.
    pub(super) segment: u64,
    /// How many records.
    pub(super) count: u64,
    /// The file's length.
    pub(super) bytes: u64,
    /// SHA-256 of the file, hex.
    pub(super) sha256: String,
    /// How many records of each kind.
    pub(super) counts: BTreeMap<String, u64>,
    /// SHA-256 of its last line, hex.
    pub(super) last: String,
    /// The whole subtrees of all lines up to its end, largest first, hex.
    pub(super) tree: Vec<String>,
    /// Forwarded decisions up to its end that had no outcome there: `seq` and call.
    pub(super) open: Vec<(u64, String)>,
    /// The verifier key in force at its end.
    pub(super) key: String,
}

impl Gone {
    /// Reads a prune record's line; gives its `seq` too.
    ///
    /// # Errors
    /// What is wrong with its form.
    pub(super) fn read(line: &[u8]) -> Result<(u64, Gone), &'static str> {
        let read = Line::read(line)?;
        if read.kind != Type::Prune {
            return Err("is no prune record");
        }
        let gone: Gone = serde_json::from_slice(line)
            .map_err(|_| "has a field of another kind than its name says")?;
        let end = gone.end();
        let whole = gone.tree.len() == end.count_ones() as usize;
        if gone.count == 0 || end > read.seq || !whole || gone.subtrees().is_none() {
            return Err("does not say what a segment held");
        }
        if gone.open.iter().any(|(seq, _)| *seq >= end)
            || gone.open.windows(2).any(|two| two[0].0 >= two[1].0)
        {
            return Err("has open decisions that are not sorted, or not before the segment's end");
        }
        if VerifierKey::parse(&gone.key).is_none() {
            return Err("holds a key that is not in the verifier form");
        }
        Ok((read.seq, gone))
    }

    /// The `seq` after its last.
    pub(super) fn end(&self) -> u64 {
        self.segment.saturating_add(self.count)
    }

    /// The whole subtrees, as bytes.
    pub(super) fn subtrees(&self) -> Option<Vec<[u8; 32]>> {
        self.tree
            .iter()
            .map(|hex| unhex32(hex.as_bytes()))
            .collect()
    }

    /// The last line's hash.
    pub(super) fn last(&self) -> Option<[u8; 32]> {
        unhex32(self.last.as_bytes())
    }

    fn digest(&self) -> [u8; 32] {
        // Never fails: strings and numbers alone.
        Sha256::digest(serde_json::to_vec(self).unwrap_or_default()).into()
    }

    /// [`Gone::digest`] of what one reading of the segment tells: all but the file's hash, and of the key its name.
    fn as_read(&self) -> [u8; 32] {
        let name = self.key.split('+').next().unwrap_or_default();
        let read = Gone {
            sha256: String::new(),
            key: name.to_owned(),
            ..self.clone()
        };
        read.digest()
    }

    /// The record's fields, as a draft of the run `run`, which is signed when it is written.
    pub(super) fn draft(
        &self,
        log: &str,
        run: &str,
        recovered: super::entry::Recovered,
    ) -> super::record::Draft {
        let mut f = Fields::new();
        f.int("bytes", self.bytes).int("count", self.count);
        let out = f.key("counts");
        out.push(b'{');
        for (place, (name, count)) in self.counts.iter().enumerate() {
            comma(out, place);
            push_string(out, name);
            out.push(b':');
            push_int(out, *count);
        }
        out.push(b'}');
        f.text("key", &self.key)
            .text("last", &self.last)
            .text("log", log);
        let out = f.key("open");
        out.push(b'[');
        for (place, (seq, call)) in self.open.iter().enumerate() {
            comma(out, place);
            out.push(b'[');
            push_int(out, *seq);
            out.push(b',');
            push_string(out, call);
            out.push(b']');
        }
        out.push(b']');
        f.prev();
        recovered.write(&mut f);
        f.text("run", run)
            .int("segment", self.segment)
            .seq()
            .text("sha256", &self.sha256)
            .text("t", "prune")
            .time();
        let out = f.key("tree");
        out.push(b'[');
        for (place, hash) in self.tree.iter().enumerate() {
            comma(out, place);
            push_string(out, hash);
        }
        out.push(b']');
        f.int("v", 1);
        f.end()
    }
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

/// `hash` as lower-case hex, for a [`Gone`].
pub(super) fn as_hex(hash: &[u8; 32]) -> String {
    let mut text = Vec::with_capacity(64);
    push_hex(&mut text, hash);
    text.into_iter().map(char::from).collect()
}

/// Where a reader begins: after what `pruned` says, or at record 0.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// What it holds, its `seq` and its line.
    pub(super) of: Option<(Gone, u64, Vec<u8>)>,
}

impl Past {
    /// Reads `pruned`, where it is there.
    pub(super) fn read(dir: &Path) -> Result<Past, LedgerError> {
        let path = dir.join(FILE);
        let Some(text) = small(&path).map_err(LedgerError::io(&path, "read what was pruned"))?
        else {
            return Ok(Past::default());
        };
        let line = text
            .strip_suffix(b"\n")
            .filter(|line| line.len() <= MAX_RECORD_BYTES);
        let read = line.and_then(|line| {
            let (seq, gone) = Gone::read(line).ok()?;
            Some((gone, seq, line.to_vec()))
        });
        let of = read.ok_or(LedgerError::Problem(Problem {
            file: path,
            line: None,
            seq: None,
            fault: Fault::PrunedForm,
        }))?;
        Ok(Past { of: Some(of) })
    }

    /// The first `seq` that is read.
    pub(super) fn base(&self) -> u64 {
        self.of.as_ref().map_or(0, |(gone, ..)| gone.end())
    }

    /// The segments that are read. Those before are what a cut prune has not taken away yet.
    pub(super) fn kept<'a>(&self, files: &'a [SegmentFile]) -> &'a [SegmentFile] {
        let base = self.base();
        &files[files.partition_point(|file| file.first < base)..]
    }
}

/// What the records that were read say of pruned segments. It grows with the number of segments alone.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    base: u64,
    /// The line that `pruned` holds, and its `seq`.
    line: Option<(u64, Vec<u8>)>,
    found: bool,
    /// By the segment's first `seq`: its end, a digest of all that is said of it, and the `seq` of the newest record that says it.
    gone: BTreeMap<u64, (u64, [u8; 32], u64)>,
    /// The segments that were read, and a digest of what was found ([`Gone::as_read`]).
    read: BTreeMap<u64, [u8; 32]>,
}

impl Pruned {
    pub(super) fn from(past: &Past) -> Pruned {
        Pruned {
            base: past.base(),
            line: past.of.as_ref().map(|(_, seq, line)| (*seq, line.clone())),
            ..Pruned::default()
        }
    }

    /// Whether the record with this `seq` must be the line in `pruned`, and is not.
    pub(super) fn differs(&mut self, seq: u64, line: &[u8]) -> bool {
        match &self.line {
            Some((at, kept)) if *at == seq => {
                self.found = line == kept;
                !self.found
            }
            Some(_) | None => false,
        }
    }

    /// A segment was read to its end; its hash is left out, and of the key the name is enough.
    pub(super) fn ended(&mut self, here: &Gone) {
        self.read.insert(here.segment, here.as_read());
    }

    /// Takes a prune record.
    pub(super) fn record(&mut self, line: &[u8]) -> Result<(), Fault> {
        let (seq, gone) = Gone::read(line).map_err(Fault::Form)?;
        let segment = gone.segment;
        let now = (gone.end(), gone.digest(), seq);
        let said = self.gone.insert(segment, now);
        let same = said.is_none_or(|before| (before.0, before.1) == (now.0, now.1));
        // Of a segment that is still here, the record can be held against it.
        let true_here = segment < self.base || self.read.get(&segment) == Some(&gone.as_read());
        if same && true_here {
            Ok(())
        } else {
            Err(Fault::PruneFacts { segment })
        }
    }

    /// After the last record: that the checkpoint covers the line in `pruned`, and that each pruned segment has its record.
    pub(super) fn settle(&self, covered: u64) -> Result<(), Fault> {
        if let Some((seq, _)) = &self.line
            && (!self.found || covered <= *seq)
        {
            return Err(Fault::PrunedUncovered { seq: *seq });
        }
        let mut at = 0;
        while at < self.base {
            match self.gone.get(&at) {
                Some((end, ..)) if *end <= self.base => at = *end,
                Some(_) | None => return Err(Fault::PruneMissing { segment: at }),
            }
        }
        Ok(())
    }

    /// Where a prune was cut: the end of the last segment that is still here and has a record, from the first on without a gap, and its newest record's `seq`.
    pub(super) fn cut(&self) -> Option<(u64, u64)> {
        let (mut at, mut newest) = (self.base, None);
        while let Some((end, _, seq)) = self.gone.get(&at) {
            (at, newest) = (*end, Some((*end, *seq)));
        }
        newest
    }

    /// The segments whose newest record stands before `seq`.
    pub(super) fn said_before(&self, seq: u64) -> impl Iterator<Item = u64> {
        self.gone
            .iter()
            .filter(move |(_, (.., at))| *at < seq)
            .map(|(segment, _)| *segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::entry::Recovered;
    use crate::ledger::keys::Signer;
    use crate::ledger::lineage::{SIGNATURE_BYTES, sign_prune};

    fn gone(segment: u64, count: u64) -> Gone {
        let key = Signer::from_seed([7; 32]).public().line();
        let whole = (segment + count).count_ones();
        Gone {
            segment,
            count,
            bytes: 900,
            sha256: as_hex(&[1; 32]),
            counts: [("open".to_owned(), 1)].into(),
            last: as_hex(&[2; 32]),
            tree: (0..whole).map(|_| as_hex(&[3; 32])).collect(),
            open: vec![(segment, "01".to_owned())],
            key,
        }
    }

    fn line(gone: &Gone, seq: u64) -> Vec<u8> {
        let mut line = Vec::new();
        let recovered = Recovered {
            cut: 3,
            ..Recovered::default()
        };
        let draft = gone.draft("l", "r", recovered);
        draft.stitch(&[0; 32], seq, b"2026-11-30T00:00:00.000000Z", &mut line);
        let plain = line.len();
        sign_prune(&Signer::from_seed([7; 32]), &mut line);
        assert_eq!(line.len(), plain + SIGNATURE_BYTES);
        line
    }

    #[test]
    fn a_prune_record_reads_back_and_says_only_what_can_be() {
        let good = gone(4, 3);
        assert_eq!(Gone::read(&line(&good, 9)), Ok((9, good.clone())));
        assert!(Gone::read(&line(&good, 6)).is_err(), "of records after it");
        let bad = |change: &dyn Fn(&mut Gone)| {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(Gone::read(&line(&bad, 9)).is_err(), "{bad:?}");
        };
        bad(&|gone| gone.count = 0);
        bad(&|gone| gone.last = "ab".to_owned());
        bad(&|gone| gone.tree.push(as_hex(&[3; 32])));
        bad(&|gone| gone.tree[0] = "x".repeat(64));
        bad(&|gone| gone.open = vec![(7, "01".to_owned())]);
        bad(&|gone| gone.open = vec![(5, "01".to_owned()), (4, "01".to_owned())]);
        bad(&|gone| gone.key.push('A'));
    }

    #[test]
    fn records_of_one_segment_agree_with_each_other_and_with_the_segment() {
        let (first, next) = (gone(0, 4), gone(4, 3));
        let fault = |segment| Err(Fault::PruneFacts { segment });
        let mut pruned = Pruned::default();
        assert_eq!(pruned.record(&line(&first, 9)), fault(0), "it was not read");
        let mut pruned = Pruned::default();
        pruned.ended(&first);
        pruned.ended(&next);
        assert_eq!(pruned.record(&line(&first, 9)), Ok(()));
        assert_eq!(pruned.record(&line(&first, 12)), Ok(()), "carried");
        assert_eq!(pruned.cut(), Some((4, 12)), "the newest copy");
        type Lie = (&'static str, fn(&mut Gone));
        let lies: [Lie; 5] = [
            ("another last line", |gone| gone.last = as_hex(&[9; 32])),
            ("another length", |gone| gone.bytes += 1),
            ("other counts", |gone| gone.counts.clear()),
            ("another tree", |gone| gone.tree[0] = as_hex(&[9; 32])),
            ("other open decisions", |gone| gone.open.clear()),
        ];
        for (lie, tell) in lies {
            let mut pruned = Pruned::default();
            pruned.ended(&next);
            assert_eq!(pruned.record(&line(&next, 10)), Ok(()));
            let mut pruned = Pruned::default();
            pruned.ended(&next);
            let mut lied = next.clone();
            tell(&mut lied);
            assert_eq!(pruned.record(&line(&lied, 10)), fault(4), "{lie}");
        }
        let forged = Gone {
            bytes: 901,
            ..first
        };
        assert_eq!(
            pruned.record(&line(&forged, 13)),
            fault(0),
            "another length"
        );
    }

    #[test]
    fn each_pruned_segment_has_its_record_and_the_checkpoint_covers_the_last() {
        let past = Past {
            of: Some((gone(4, 3), 9, line(&gone(4, 3), 9))),
        };
        let mut pruned = Pruned::from(&past);
        assert_eq!(
            pruned.settle(20),
            Err(Fault::PrunedUncovered { seq: 9 }),
            "not found"
        );
        assert!(pruned.differs(9, b"another"));
        assert!(!pruned.differs(9, &line(&gone(4, 3), 9)));
        assert_eq!(pruned.settle(9), Err(Fault::PrunedUncovered { seq: 9 }));
        assert_eq!(pruned.settle(10), Err(Fault::PruneMissing { segment: 0 }));
        assert_eq!(pruned.record(&line(&gone(4, 3), 9)), Ok(()));
        assert_eq!(pruned.record(&line(&gone(0, 4), 10)), Ok(()));
        assert_eq!(pruned.settle(10), Ok(()));
    }
}
