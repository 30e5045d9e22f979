//! Secrets and the files that the policy names.
//!
//! Promises: a secret comes from the environment or from a file, never from the policy text; it is not empty; no fault shows it, nor the
//! text of a file. What an error of the system says of a file is its kind alone.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::model::Origin;
use super::read::{Table, Value};
use crate::files;
use crate::terms::Secret;

const SECRET_MOST: u64 = 64 << 10;
pub(super) const PEM_MOST: u64 = 8 << 20;

/// Reads a file of at most `most` bytes. The error is a clause.
pub(super) fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let kind = |error: std::io::Error| format!("cannot be read ({})", error.kind());
    if std::fs::metadata(path).map_err(kind)?.is_dir() {
        return Err("is a folder, not a file".to_owned());
    }
    files::read(path, most).map_err(|error| {
        if error.kind() == std::io::ErrorKind::FileTooLarge {
            format!("is longer than {most} bytes")
        } else {
            kind(error)
        }
    })
}

/// A secret and where it came from.
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) origin: Origin,
}

/// `env` or `file` of a table, exactly one.
pub(super) fn from_table(table: &Table<'_>) -> Option<Found> {
    match (table.get("env"), table.get("file")) {
        (Some(name), None) => from_environment(&name),
        (None, Some(path)) => from_file(&path),
        (Some(_), Some(file)) => {
            file.fault("contradicts env; keep one of env and file");
            None
        }
        (None, None) => {
            table.fault("names no secret; write { env = \"NAME\" } or { file = \"PATH\" }");
            None
        }
    }
}

/// `{ env = … }` or `{ file = … }`.
pub(super) fn from_value(value: &Value<'_>) -> Option<Found> {
    from_table(&value.table(&["env", "file"])?)
}

/// The value names an environment variable.
pub(super) fn from_environment(value: &Value<'_>) -> Option<Found> {
    let name = value.string()?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        // Not quoted: someone may have written the secret itself here.
        value.fault("not the name of an environment variable; write its name, not the secret");
        return None;
    }
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = (value.context().environment)(name).map(|text| text.into_vec());
    match bytes {
        None => {
            value.fault(format!("the environment variable {} is not set; set it where leafgate runs, or take this out of the policy", shown(name)));
            None
        }
        Some(bytes) if bytes.is_empty() => {
            value.fault(format!("the environment variable {} is empty; set it where leafgate runs, or take this out of the policy", shown(name)));
            None
        }
        Some(bytes) => Some(Found {
            bytes,
            origin: Origin::Env(name.to_owned()),
        }),
    }
}

/// A variable's name, where it looks like one: somebody may have written the secret itself there.
fn shown(name: &str) -> &str {
    let usual = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let words = name.split('_').all(|word| word.len() <= 16);
    if name.len() <= 64 && name.bytes().all(usual) && words && digits <= 4 {
        name
    } else {
        "that is named here"
    }
}

/// The value names a file; one newline at its end is cut.
pub(super) fn from_file(value: &Value<'_>) -> Option<Found> {
    let path = value.path()?;
    match read_file(&path, SECRET_MOST) {
        Err(_) if is_closed(value, &path) => Some(Found {
            bytes: b"closed-to-this-user".to_vec(),
            origin: Origin::File(path),
        }),
        Err(why) => {
            value.fault(format!(
                "the file {why}; make it readable, or remove the key"
            ));
            None
        }
        Ok(mut bytes) => {
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.is_empty() {
                value.fault("the file is empty; put the secret in it, or remove the key");
                return None;
            }
            Some(Found {
                bytes,
                origin: Origin::File(path),
            })
        }
    }
}

/// Whether a file that could not be read is closed to this user, where that is no fault: a client's policy.
pub(super) fn is_closed(value: &Value<'_>, path: &Path) -> bool {
    let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    value.context().closed && files::open(path).err().is_some_and(denied)
}

/// Whether the bytes can stand as a header value: visible ASCII, with blanks inside only (RFC 9110, section 5.5).
pub(super) fn is_header_value(bytes: &[u8]) -> bool {
    let visible = |b: &u8| b.is_ascii_graphic();
    bytes.first().is_some_and(visible)
        && bytes.last().is_some_and(visible)
        && bytes.iter().all(|b| visible(b) || *b == b' ')
}

/// The secret as a whole header value, with the scheme before it.
pub(super) fn header_value(
    value: &Value<'_>,
    found: &Found,
    scheme: Option<&str>,
) -> Option<Secret> {
    if !is_header_value(&found.bytes) {
        value.fault("the secret cannot stand in a header; it must be visible ASCII on one line");
        return None;
    }
    let mut whole = Vec::with_capacity(found.bytes.len() + 16);
    if let Some(scheme) = scheme {
        whole.extend_from_slice(scheme.as_bytes());
        whole.push(b' ');
    }
    whole.extend_from_slice(&found.bytes);
    Some(Secret::new(whole))
}

/// A PEM file with at least one certificate, each of which can be read.
pub(super) fn certificates(value: &Value<'_>) -> Option<PathBuf> {
    let path = value.path()?;
    let checked = read_file(&path, PEM_MOST).and_then(|pem| {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| "is not well-formed PEM".to_owned())?;
            roots
                .add(certificate)
                .map_err(|_| "holds a certificate that cannot be read".to_owned())?;
        }
        if roots.is_empty() {
            return Err("holds no certificate".to_owned());
        }
        Ok(())
    });
    settle(value, path, checked, "name a PEM file with certificates")
}

/// A PEM file with a private key.
pub(super) fn private_key(value: &Value<'_>) -> Option<PathBuf> {
    let path = value.path()?;
    if is_closed(value, &path) {
        return Some(path);
    }
    let checked = read_file(&path, PEM_MOST).and_then(|pem| {
        PrivateKeyDer::from_pem_slice(&pem)
            .map(drop)
            .map_err(|_| "holds no private key".to_owned())
    });
    settle(value, path, checked, "name a PEM file with a private key")
}

fn settle(
    value: &Value<'_>,
    path: PathBuf,
    checked: Result<(), String>,
    next: &str,
) -> Option<PathBuf> {
    match checked {
        Ok(()) => Some(path),
        Err(why) => {
            value.fault(format!("the file {why}; {next}"));
            None
        }
    }
}
