//! A value that must not be shown.

use std::fmt;

/// A credential or key. `Debug` says its kind only; there is no `Display`, no `Serialize` and no `PartialEq`.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes the bytes of a secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into().into_boxed_slice())
    }

    /// The bytes, for the one place that needs them (a header of the host, a keyed hash, a comparison in constant time).
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
