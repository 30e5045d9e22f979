//! The ledger's two keys. `leafgate.key` signs checkpoints: one line in the signer form of Go's `note` package,
//! `PRIVATE+KEY+NAME+ID+BASE64(0x01 || seed)`; `leafgate.pub` is its verifier key, `NAME+ID+BASE64(0x01 || public key)` (c2sp.org/signed-note). `mac.key` is 32
//! random bytes as hex: the key of every HMAC in a record. Both secret files have mode 0600 from their first byte on.
//!
//! Promises: the name of a key is made of the key (`leafgate-` and the first 8 bytes, in hex, of its SHA-256), and every record holds that name in `log`: whoever
//! puts another key in place must write every record anew. Keys are made for an empty ledger only; a ledger that lost one does not start.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use super::error::LedgerError;
use super::hex::{hex, unhex32};
use super::kept::small;
use crate::files;

/// The verifier key's file name.
pub(super) const PUBLIC_FILE: &str = "leafgate.pub";
/// The signing key's file name.
pub(super) const SIGNER_FILE: &str = "leafgate.key";
const MAC_FILE: &str = "mac.key";
/// The signature type Ed25519 of c2sp.org/signed-note.
const ED25519_TYPE: u8 = 1;

/// A verifier key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifierKey {
    name: String,
    id: [u8; 4],
    public: [u8; 32],
}

impl VerifierKey {
    fn of(public: [u8; 32]) -> VerifierKey {
        let name = format!("leafgate-{}", hex(&Sha256::digest(public)[..8]));
        VerifierKey::named(name, public)
    }

    fn named(name: String, public: [u8; 32]) -> VerifierKey {
        let digest = Sha256::new()
            .chain_update(&name)
            .chain_update([b'\n', ED25519_TYPE])
            .chain_update(public)
            .finalize();
        let id = [digest[0], digest[1], digest[2], digest[3]];
        VerifierKey { name, id, public }
    }

    /// Reads `NAME+ID+BASE64`; `None` where it is another form, or where the name is not made of the key.
    pub(super) fn parse(text: &str) -> Option<VerifierKey> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (name, rest) = line.split_once('+')?;
        let (_, key) = rest.split_once('+')?;
        let key = STANDARD.decode(key).ok()?;
        let public: [u8; 32] = key.strip_prefix(&[ED25519_TYPE])?.try_into().ok()?;
        let made = VerifierKey::of(public);
        (made.name == name && made.line() == line).then_some(made)
    }

    /// The one line, without a newline.
    pub(super) fn line(&self) -> String {
        let mut key = vec![ED25519_TYPE];
        key.extend_from_slice(&self.public);
        format!("{}+{}+{}", self.name, hex(&self.id), STANDARD.encode(key))
    }

    /// The name: `log` in every record.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The key id.
    pub(super) fn id(&self) -> &[u8; 4] {
        &self.id
    }

    /// Whether `signature` is this key's over `text`.
    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.public)
            .verify(text, signature)
            .is_ok()
    }
}

/// The key that signs checkpoints. `Debug` says its name only.
pub(super) struct Signer {
    pair: Ed25519KeyPair,
    public: VerifierKey,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.public.name)
    }
}

impl Signer {
    fn new(seed: &[u8; 32]) -> Option<Signer> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = pair.public_key().as_ref().try_into().ok()?;
        Some(Signer {
            pair,
            public: VerifierKey::of(public),
        })
    }

    /// A new key, and its file's text.
    pub(super) fn make(dir: &Path) -> Result<(Signer, String), LedgerError> {
        let seed = random::<32>(dir)?;
        let signer = Signer::new(&seed)
            .ok_or_else(|| fault(dir, SIGNER_FILE, "cannot be made of this seed"))?;
        let text = signer.line(&seed);
        Ok((signer, text))
    }

    /// Reads the key in the file `name`; `None` where that is not there.
    pub(super) fn read(dir: &Path, name: &str) -> Result<Option<Signer>, LedgerError> {
        let Some(text) = read_secret(&dir.join(name))? else {
            return Ok(None);
        };
        let signer = Signer::parse(&text).ok_or_else(|| {
            fault(
                dir,
                name,
                "is not in the signer form; restore it from a copy, or name a new ledger.dir",
            )
        })?;
        Ok(Some(signer))
    }

    #[cfg(test)]
    pub(super) fn from_seed(seed: [u8; 32]) -> Signer {
        Signer::new(&seed).expect("a seed of 32 bytes")
    }

    fn parse(text: &str) -> Option<Signer> {
        let rest = text.strip_suffix('\n')?.strip_prefix("PRIVATE+KEY+")?;
        let (_, rest) = rest.split_once('+')?;
        let (_, key) = rest.split_once('+')?;
        let key = STANDARD.decode(key).ok()?;
        let seed: [u8; 32] = key.strip_prefix(&[ED25519_TYPE])?.try_into().ok()?;
        let signer = Signer::new(&seed)?;
        (signer.line(&seed) == text).then_some(signer)
    }

    fn line(&self, seed: &[u8; 32]) -> String {
        let mut key = vec![ED25519_TYPE];
        key.extend_from_slice(seed);
        let id = hex(&self.public.id);
        format!(
            "PRIVATE+KEY+{}+{id}+{}\n",
            self.public.name,
            STANDARD.encode(key)
        )
    }

    /// Its verifier key.
    pub(super) fn public(&self) -> &VerifierKey {
        &self.public
    }

    /// Ed25519 (RFC 8032) over `text`.
    pub(super) fn sign(&self, text: &[u8]) -> Vec<u8> {
        self.pair.sign(text).as_ref().to_vec()
    }
}

/// Both keys of a ledger.
#[derive(Debug)]
pub(super) struct Keys {
    /// Signs checkpoints.
    pub(super) signer: Signer,
    /// The key of every HMAC in a record.
    pub(super) mac: hmac::Key,
}

/// Key files of a new ledger that are not there yet.
pub(super) struct Missing(Vec<(&'static str, String, u32)>);

impl Missing {
    /// Writes them, once nothing refuses the start any more: a key that a start left behind would stand in the way of the one that is put back.
    pub(super) fn store(self, dir: &Path) -> Result<(), LedgerError> {
        self.0
            .into_iter()
            .try_for_each(|(name, text, mode)| write_new(dir, name, &text, mode))
    }
}

impl Keys {
    /// Reads the keys, or makes them where the ledger is `new` (no segment is there). Writes nothing: what was made is to be stored.
    pub(super) fn open(dir: &Path, new: bool) -> Result<(Keys, Missing), LedgerError> {
        let mut missing = Vec::new();
        let signer = match Signer::read(dir, SIGNER_FILE)? {
            Some(signer) if new => {
                tracing::warn!(
                    "the ledger's folder has a signing key and no record; a new ledger begins under that key. If there were records, somebody took them away"
                );
                signer
            }
            Some(signer) => signer,
            None if new => {
                let (signer, text) = Signer::make(dir)?;
                missing.push((SIGNER_FILE, text, 0o600));
                signer
            }
            None => {
                return Err(fault(
                    dir,
                    SIGNER_FILE,
                    "is missing, and the ledger has records; restore it from a copy, or name a new ledger.dir",
                ));
            }
        };
        let mac = match read_secret(&dir.join(MAC_FILE))? {
            Some(text) => text
                .strip_suffix('\n')
                .and_then(|text| unhex32(text.as_bytes()))
                .ok_or_else(|| fault(dir, MAC_FILE, "is not 64 hex digits and a newline; restore it from a copy, or name a new ledger.dir"))?,
            None if new => {
                let key = random::<32>(dir)?;
                missing.push((MAC_FILE, format!("{}\n", hex(&key)), 0o600));
                key
            }
            None => return Err(fault(dir, MAC_FILE, "is missing, and the ledger has records; restore it from a copy, or name a new ledger.dir")),
        };
        let line = format!("{}\n", signer.public.line());
        let public_file = dir.join(PUBLIC_FILE);
        match small(&public_file) {
            // As `verify` reads it: an editor may have taken the newline away.
            Ok(Some(text)) if text == line.as_bytes() || text == line.trim_end().as_bytes() => {}
            Ok(Some(_)) => {
                return Err(fault(
                    dir,
                    PUBLIC_FILE,
                    "is not the verifier key of leafgate.key; restore it from a copy",
                ));
            }
            Ok(None) if new => missing.push((PUBLIC_FILE, line, 0o644)),
            other => {
                let missing = || io::ErrorKind::NotFound.into();
                let cause = other.err().unwrap_or_else(missing);
                return Err(LedgerError::io(&public_file, "read the verifier key")(
                    cause,
                ));
            }
        }
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &mac);
        Ok((Keys { signer, mac }, Missing(missing)))
    }
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>(dir: &Path) -> Result<[u8; N], LedgerError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        LedgerError::io(dir, "get random bytes from the system")(io::Error::other("no randomness"))
    })?;
    Ok(bytes)
}

/// A fault of a key file.
pub(super) fn fault(dir: &Path, file: &str, what: &'static str) -> LedgerError {
    LedgerError::Key {
        file: dir.join(file),
        what,
    }
}

/// A secret file's text, `None` where it is not there.
fn read_secret(file: &Path) -> Result<Option<String>, LedgerError> {
    let unfit = || LedgerError::Key {
        file: file.to_owned(),
        what: "is no plain file that its owner alone may read; set its mode to 0600 if nobody else has read it",
    };
    let open = match files::open(file) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => return Err(unfit()),
        other => other.map_err(LedgerError::io(file, "read the key"))?,
    };
    let facts = open
        .metadata()
        .map_err(LedgerError::io(file, "look at the key"))?;
    if facts.mode() & 0o177 != 0 {
        return Err(unfit());
    }
    let mut text = String::new();
    match open.take(4096).read_to_string(&mut text) {
        Err(cause) if cause.kind() == io::ErrorKind::InvalidData => Ok(Some(String::new())),
        other => {
            other.map_err(LedgerError::io(file, "read the key"))?;
            Ok(Some(text))
        }
    }
}

/// Writes a file that is not there yet, whole or not at all: a crash between leaves no half key behind.
pub(super) fn write_new(dir: &Path, name: &str, text: &str, mode: u32) -> Result<(), LedgerError> {
    let file = dir.join(name);
    let new = dir.join(format!(".{name}.new"));
    let write = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            Ok(()) | Err(_) => {}
        }
        let mut open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&new)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        // A link, unlike a rename, never replaces a file that is there.
        fs::hard_link(&new, &file)?;
        fs::remove_file(&new)
    };
    write().map_err(LedgerError::io(&file, "make the key"))
}
