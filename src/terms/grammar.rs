//! The grammars of contract, section 1: what may be shown and recorded.

use std::borrow::Borrow;
use std::fmt;

fn name_like(text: &str, most: usize) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= most
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`: a byte class in `residue`.
pub fn fits_byte_class(text: &str) -> bool {
    name_like(text, 64)
}

/// `(sha256|hmac-sha256):[0-9a-f]{64}`
pub fn fits_hash(text: &str) -> bool {
    FixtureHash::parse(text).is_some()
}

/// `[a-z0-9][a-z0-9.-]{0,252}`
pub fn fits_pin(text: &str) -> bool {
    HostPin::parse(text).is_some()
}

/// `[a-z][a-z-]{0,31}`
pub fn fits_class(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 32
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|b| b.is_ascii_lowercase() || *b == b'-')
}

/// `[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,63}`
pub fn fits_window(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 64
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b' ' | b'.' | b'_' | b':' | b'/' | b'-')
        })
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident, $fits:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes `text` where it fits the grammar; nothing is trimmed or folded.
            pub fn parse(text: &str) -> Option<$name> {
                let fits: fn(&str) -> bool = $fits;
                fits(text).then(|| $name(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

word!(
    /// `fixture_id`: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    FixtureId, |text| name_like(text, 64)
);
word!(
    /// `failure_label`: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    FailureLabel, |text| name_like(text, 64)
);
word!(
    /// The name of a card in the store, `NAME` of `NAME.json`.
    CardName, |text| name_like(text, 64)
);
word!(
    /// `host_pin`: `[a-z0-9][a-z0-9.-]{0,252}`.
    HostPin, |text| {
        let bytes = text.as_bytes();
        bytes.len() <= 253
            && bytes.first().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-'))
    }
);
word!(
    /// `fixture_hash`: `(sha256|hmac-sha256):[0-9a-f]{64}`.
    FixtureHash, |text| {
        let hex = text.strip_prefix("sha256:").or_else(|| text.strip_prefix("hmac-sha256:"));
        hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
    }
);

/// How a fixture's hash is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// Plain SHA-256 of the files' bytes.
    Sha256,
    /// HMAC-SHA256 under the policy's key.
    HmacSha256,
}

impl HashKind {
    /// The prefix before the colon.
    pub fn name(self) -> &'static str {
        match self {
            HashKind::Sha256 => "sha256",
            HashKind::HmacSha256 => "hmac-sha256",
        }
    }
}

impl FixtureHash {
    /// The hash of this kind with this digest.
    pub fn of(kind: HashKind, digest: &[u8; 32]) -> FixtureHash {
        use fmt::Write as _;
        let mut text = format!("{}:", kind.name());
        for byte in digest {
            let _ = write!(text, "{byte:02x}");
        }
        FixtureHash(text.into())
    }

    /// Which kind it is.
    pub fn kind(&self) -> HashKind {
        if self.0.starts_with("hmac-") {
            HashKind::HmacSha256
        } else {
            HashKind::Sha256
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_take_the_good_and_refuse_its_twin() {
        let hex = "0123456789abcdef".repeat(4);
        for (good, bad) in [
            (format!("sha256:{hex}"), format!("SHA256:{hex}")),
            (format!("hmac-sha256:{hex}"), format!("md5:{hex}")),
            (format!("sha256:{hex}"), format!("sha256:{hex}\n")),
            (
                format!("sha256:{hex}"),
                format!("sha256:{}", hex.to_uppercase()),
            ),
            (format!("sha256:{hex}"), format!("sha256:{}", &hex[1..])),
            (format!("sha256:{hex}"), format!("sha256:{hex}:x")),
        ] {
            assert!(fits_hash(&good) && !fits_hash(&bad), "{bad}");
        }
        for (good, bad) in [
            ("seed-04", "-seed"),
            ("a", ""),
            ("a.b_c-d", "a b"),
            ("x", "../x"),
            ("x9", "sek\u{fc}r"),
        ] {
            assert!(
                FixtureId::parse(good).is_some() && FixtureId::parse(bad).is_none(),
                "{bad}"
            );
        }
        assert!(
            FixtureId::parse(&"x".repeat(64)).is_some()
                && FixtureId::parse(&"x".repeat(65)).is_none()
        );
        for (good, bad) in [
            ("models.example.org", "Models.example.org"),
            ("local", "a_b"),
            ("1.2", ".a"),
            ("x", "x@y"),
            ("x", "x:1"),
        ] {
            assert!(fits_pin(good) && !fits_pin(bad), "{bad}");
        }
        assert!(
            fits_class("public-fixture")
                && !fits_class("Public")
                && !fits_class("a1")
                && !fits_class("")
        );
        assert!(
            fits_window("24h, ".trim_end_matches(", "))
                && !fits_window("24h,")
                && fits_window("2026-01-01T00:00/12:00")
        );
    }
}
