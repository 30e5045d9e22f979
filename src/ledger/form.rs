//! The fields of each type of record, read from a line: the table of contract, section 9, for reading.
//!
//! Promises: a [`Line`] had the canonical form ([`canon`](super::canon)), only fields that its type may have, each of its kind, and every field that its type must
//! have. It borrows from the line and allocates nothing.

use super::canon;
use super::clock::is_time;
use super::hex::is_hex;

/// `t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Open,
    Stop,
    Config,
    Decision,
    Outcome,
    Refused,
    /// Another key signs from here on.
    Key,
    /// A segment was taken away.
    Prune,
}

/// What a scan needs of a record.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) kind: Type,
    pub(super) seq: u64,
    /// 64 lower-case hex digits.
    pub(super) prev: &'a str,
    pub(super) log: &'a str,
    pub(super) run: &'a str,
    pub(super) time: &'a str,
    pub(super) call: &'a str,
    pub(super) of: u64,
    pub(super) forwards: bool,
    pub(super) sent_unknown: bool,
}

/// What a field's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A string.
    Text,
    /// 64 lower-case hex digits.
    Digest,
    /// An integer.
    Int,
    /// `true` or `false`.
    Flag,
    /// A string, or the object that stands in its place.
    Shown,
    /// An object.
    Object,
    /// An array.
    Array,
}

macro_rules! fields {
    ($($name:ident: $kind:ident;)*) => {
        #[allow(non_camel_case_types, reason = "each is named as the field is")]
        #[derive(Clone, Copy)]
        enum Name { $($name,)* }

        /// Every field, sorted as they stand in a record.
        const TABLE: &[(&[u8], Name, Kind)] = &[$((stringify!($name).as_bytes(), Name::$name, Kind::$kind)),*];
    };
}

fields! {
    attach: Text; bind: Object; body_len: Int; body_mac: Digest; bytes: Int; call: Text; clear_text: Flag; count: Int; counts: Object;
    dropped: Object;
    egress_class: Shown; error: Text; failure_label: Shown; field: Text; fixture_hash: Shown; fixture_id: Shown; host: Text;
    host_pin: Shown; key: Text; last: Digest; leaf: Text; log: Text; model: Shown; ms: Int; of: Int; open: Array; oracle: Text; peer: Text; peer_uid: Int; plan_len: Int; plan_sha256: Digest;
    policy: Text; prev: Digest; reason: Text; received_len: Int; received_sha256: Digest; recovered: Object; replay_window: Shown;
    residue: Array; route: Text; run: Text; score: Text; segment: Int; sent: Text; sent_len: Int; sent_sha256: Digest; seq: Int; sha256: Digest; signature: Text; status: Int; step: Int;
    surface_named: Flag; sync: Text; t: Text; time: Text; tree: Array; v: Int; verdict: Text; version: Text;
}

/// A field's name as its length, its first and its last eight bytes, which may overlap: names are compared at every field of every record. The length is 0 where no field's
/// name has it; no two names of 1 to 16 bytes are packed alike.
type Packed = (u8, u64, u64);

const fn packed(name: &[u8]) -> Packed {
    let len = name.len();
    if len > 16 {
        return (0, 0, 0);
    }
    if len >= 8 {
        return (len as u8, eight(name, 0), eight(name, len - 8));
    }
    let (mut number, mut at) = (0, 0);
    while at < len {
        number = (number << 8) | name[at] as u64;
        at += 1;
    }
    (len as u8, number, 0)
}

const fn eight(name: &[u8], at: usize) -> u64 {
    let (_, rest) = name.split_at(at);
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// The names of [`TABLE`], in its order.
const PACKED: [Packed; TABLE.len()] = {
    let mut all = [(0, 0, 0); TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        all[at] = packed(TABLE[at].0);
        assert!(all[at].0 != 0, "a field's name has 1 to 16 bytes");
        at += 1;
    }
    all
};

const fn set(names: &[Name]) -> u64 {
    let (mut set, mut at) = (0, 0);
    while at < names.len() {
        set |= 1 << names[at] as u64;
        at += 1;
    }
    set
}

const EVERY: u64 = {
    use Name::*;
    set(&[log, prev, run, seq, t, time, v])
};

impl Type {
    fn parse(word: &str) -> Option<Type> {
        Some(match word {
            "open" => Type::Open,
            "stop" => Type::Stop,
            "config" => Type::Config,
            "decision" => Type::Decision,
            "outcome" => Type::Outcome,
            "refused" => Type::Refused,
            "key" => Type::Key,
            "prune" => Type::Prune,
            _ => return None,
        })
    }

    /// The fields it must have, and those it may have besides.
    const fn fields(self) -> (u64, u64) {
        use Name::*;
        match self {
            Type::Open => (
                EVERY | set(&[version, policy, oracle, sync]),
                set(&[key, recovered]),
            ),
            Type::Key => (EVERY | set(&[key, signature]), set(&[recovered])),
            Type::Prune => (
                EVERY
                    | set(&[
                        bytes, count, counts, key, last, open, segment, sha256, signature, tree,
                    ]),
                set(&[recovered]),
            ),
            Type::Stop => (EVERY | set(&[policy]), 0),
            Type::Config => (EVERY | set(&[policy]), set(&[error])),
            Type::Decision => (
                EVERY | set(&[call, leaf, step, reason, verdict]),
                set(&[
                    attach,
                    bind,
                    body_len,
                    body_mac,
                    clear_text,
                    dropped,
                    egress_class,
                    failure_label,
                    field,
                    fixture_hash,
                    fixture_id,
                    host,
                    host_pin,
                    peer_uid,
                    plan_len,
                    plan_sha256,
                    replay_window,
                    residue,
                    route,
                    surface_named,
                ]),
            ),
            Type::Outcome => (
                EVERY | set(&[call, of, sent]),
                set(&[
                    error,
                    model,
                    ms,
                    peer,
                    received_len,
                    received_sha256,
                    score,
                    sent_len,
                    sent_sha256,
                    status,
                ]),
            ),
            Type::Refused => (EVERY | set(&[reason]), set(&[bytes, count, peer_uid])),
        }
    }

    /// Whether a record of this type begins a run.
    pub(super) fn begins(self) -> bool {
        matches!(self, Type::Open | Type::Key | Type::Prune)
    }

    /// Whether a record of this type is a run by itself: leafgate was not running.
    pub(super) fn alone(self) -> bool {
        matches!(self, Type::Key | Type::Prune)
    }
}

impl<'a> Line<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with its form.
    pub(super) fn read(line: &'a [u8]) -> Result<Line<'a>, &'static str> {
        let mut found = 0_u64;
        let mut kind = None;
        let mut read = Line {
            kind: Type::Open,
            seq: 0,
            prev: "",
            log: "",
            run: "",
            time: "",
            call: "",
            of: 0,
            forwards: false,
            sent_unknown: false,
        };
        // Both are sorted: one walk through the table for the whole record.
        let mut table = PACKED.iter().zip(TABLE);
        canon::object(line, |name, value| {
            let name = packed(name);
            let (_, (_, name, is)) = table
                .find(|(known, _)| **known == name)
                .ok_or("has a field that no record has")?;
            let (name, is) = (*name, *is);
            if !is.fits(value) {
                return Err("has a field of another kind than its name says");
            }
            found |= 1 << name as u64;
            read.take(name, value, &mut kind)
        })?;
        read.kind = kind.ok_or("has no t")?;
        let (must, may) = read.kind.fields();
        if found & must != must {
            return Err("lacks a field of its type");
        }
        if found & !(must | may) != 0 {
            return Err("has a field that its type has not");
        }
        Ok(read)
    }

    fn take(
        &mut self,
        name: Name,
        value: &'a [u8],
        kind: &mut Option<Type>,
    ) -> Result<(), &'static str> {
        const PLAIN: &str = "has an escape where only plain text stands";
        let word = || canon::text(value).ok_or(PLAIN);
        let among = |words: &[&str]| {
            word().and_then(|word| {
                if words.contains(&word) {
                    Ok(word)
                } else {
                    Err("has a word that the contract does not know")
                }
            })
        };
        let int = || canon::int(value).ok_or("has a value of another kind");
        #[allow(
            clippy::wildcard_enum_match_arm,
            reason = "the other fields need their kind only"
        )]
        match name {
            Name::t => {
                *kind =
                    Some(Type::parse(word()?).ok_or("has a t that the contract does not know")?);
            }
            Name::v if value != b"1" => return Err("has another v than 1"),
            Name::seq => self.seq = int()?,
            Name::of => self.of = int()?,
            Name::prev => self.prev = word()?,
            Name::log => self.log = word()?,
            Name::run => self.run = word()?,
            Name::call => self.call = word()?,
            Name::leaf => {
                among(&["hold", "split", "release"])?;
            }
            Name::verdict => self.forwards = among(&["forward", "refuse", "local"])? == "forward",
            Name::sent => {
                self.sent_unknown = among(&["none", "partial", "all", "unknown"])? == "unknown";
            }
            Name::time => {
                self.time = word()?;
                if !is_time(self.time.as_bytes()) {
                    return Err("has a time that is not RFC 3339, UTC, to the microsecond");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Kind {
    /// Whether a canonical value is of this kind.
    fn fits(self, value: &[u8]) -> bool {
        let first = value.first().copied().unwrap_or_default();
        match self {
            Kind::Text => first == b'"',
            Kind::Digest => value.len() == 66 && first == b'"' && is_hex(&value[1..65]),
            Kind::Int => first.is_ascii_digit(),
            Kind::Flag => matches!(first, b't' | b'f'),
            Kind::Shown => matches!(first, b'"' | b'{'),
            Kind::Object => first == b'{',
            Kind::Array => first == b'[',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_one_walk_finds_every_field() {
        assert!(TABLE.is_sorted_by(|one, next| one.0 < next.0));
        assert!(TABLE.len() < 64, "the sets are 64 bits");
    }

    #[test]
    fn names_are_packed_alike_only_where_they_are_alike() {
        let mut names: Vec<Vec<u8>> = TABLE.iter().map(|(name, ..)| name.to_vec()).collect();
        // One byte changed, added or left out, and names of one letter, where the two halves say least.
        for (name, ..) in TABLE {
            for at in 0..name.len() {
                let mut other = name.to_vec();
                other[at] = b'z';
                names.push(other.clone());
                other.remove(at);
                names.push(other);
            }
            names.push([name, &b"s"[..]].concat());
        }
        names.extend((1..=16).map(|len| vec![b'a'; len]));
        names.retain(|name| (1..=16).contains(&name.len()));
        names.sort();
        names.dedup();
        for one in &names {
            for other in &names {
                assert_eq!(packed(one) == packed(other), one == other);
            }
        }
        assert_eq!(packed(&[b'a'; 17]), packed(&[b'b'; 40]));
    }

    #[test]
    fn a_record_has_the_fields_of_its_type_and_no_others() {
        let zeros = "0".repeat(64);
        let tail =
            |t: &str| format!(r#""seq":0,"t":"{t}","time":"2026-11-30T00:00:00.000000Z","v":1}}"#);
        let head = format!(r#"{{"log":"l","policy":"p","prev":"{zeros}","run":"r","#);
        let good = format!("{head}{}", tail("stop"));
        assert!(Line::read(good.as_bytes()).is_ok());
        for (bad, why) in [
            (good.replace(r#""policy":"p","#, ""), "lacks"),
            (
                good.replace(r#""policy":"p","#, r#""peer":"x","policy":"p","#),
                "its type has not",
            ),
            (
                good.replace(r#""policy":"p","#, r#""policy":"p","preview":1,"#),
                "no record has",
            ),
            (
                good.replace(r#""policy":"p""#, r#""policy":1"#),
                "another kind",
            ),
            (good.replace("stop", "halt"), "does not know"),
            (good.replace("\"v\":1", "\"v\":2"), "another v"),
            (good.replace(".000000Z", ".000Z"), "RFC 3339"),
            (good.replace(&zeros, &zeros[1..]), "another kind"),
        ] {
            let fault = Line::read(bad.as_bytes()).map(|_| ()).unwrap_err();
            assert!(fault.contains(why), "{bad}: {fault}");
        }
    }
}
