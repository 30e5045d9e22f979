//! The client's body, from its last byte read to admission.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::BodyFacts;

/// The body of a call, read to its end within its cap. It cannot be cloned, copied or looked into; `Debug` prints its length.
/// Anybody may seal one; admission alone opens it.
///
/// ```compile_fail
/// # fn f(body: leafgate::admit::SealedBody) {
/// let again = body.clone();
/// # }
/// ```
///
/// ```
/// # fn f(body: leafgate::admit::SealedBody) {
/// let moved = body; // it can be handed on
/// # }
/// ```
pub struct SealedBody {
    bytes: Bytes,
    sha256: [u8; 32],
}

impl SealedBody {
    /// Seals a whole body. It is hashed here, once, for everything that needs its hash later.
    pub fn seal(bytes: Bytes) -> SealedBody {
        let sha256 = Sha256::digest(&bytes).into();
        SealedBody { bytes, sha256 }
    }

    /// Length and hash, for the record.
    pub fn facts(&self) -> BodyFacts {
        BodyFacts {
            len: self.bytes.len() as u64,
            sha256: self.sha256,
        }
    }

    pub(super) fn look(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn open(self) -> (Bytes, [u8; 32]) {
        (self.bytes, self.sha256)
    }
}

impl fmt::Debug for SealedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedBody({} bytes)", self.bytes.len())
    }
}
