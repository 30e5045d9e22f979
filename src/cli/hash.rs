//! `hash`: the fixture hash of files.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use ring::{digest, hmac};
use serde_json::json;

use super::out::{Done, Failure, Out, safe};
use crate::fixture::MOST_BYTES;
use crate::terms::{FixtureHash, HashKind};

/// Show the hash of files, as `fixture_hash` wants it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate hash fixtures/seed-04.txt
  FIXTURE_KEY=… leafgate hash --key-env FIXTURE_KEY private.txt

A plain hash of a short private text can be guessed: use --key-env for those.")]
pub(super) struct Args {
    /// Files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// hmac-sha256 under the key in this environment variable
    #[arg(long, value_name = "V")]
    key_env: Option<String>,
    /// One hash of all files, joined in order: that of a fixture with several files
    #[arg(long)]
    joined: bool,
    /// One JSON object on a line for each hash
    #[arg(long)]
    json: bool,
}

/// One hash in the making.
pub(super) enum Hasher {
    Plain(digest::Context),
    Keyed(hmac::Context),
}

impl Hasher {
    /// Plain, or under a key.
    pub(super) fn new(key: Option<&[u8]>) -> Hasher {
        match key {
            None => Hasher::Plain(digest::Context::new(&digest::SHA256)),
            Some(key) => Hasher::Keyed(hmac::Context::with_key(&hmac::Key::new(
                hmac::HMAC_SHA256,
                key,
            ))),
        }
    }

    /// Adds a file's bytes: of a regular file, of a pipe by name, or of standard input for `-`.
    pub(super) fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let mut from: Box<dyn Read> = if path == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(open(path)?)
        };
        self.all(path, &mut from, MOST_BYTES)
    }

    /// Adds at most so many bytes: more than that is no fixture, and a pipe may have no end.
    fn all(&mut self, path: &Path, from: &mut dyn Read, most: u64) -> Result<(), Failure> {
        let fault = |error| Failure::file(path, &error);
        let mut left = most;
        let mut block = vec![0; 64 * 1024];
        loop {
            let read = match from.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(fault(error)),
            };
            left = left
                .checked_sub(read as u64)
                .ok_or_else(|| too_long(path))?;
            match self {
                Hasher::Plain(context) => context.update(&block[..read]),
                Hasher::Keyed(context) => context.update(&block[..read]),
            }
        }
    }

    /// The hash, with its kind.
    pub(super) fn end(self) -> FixtureHash {
        let (kind, bytes) = match self {
            Hasher::Plain(context) => (HashKind::Sha256, context.finish().as_ref().to_vec()),
            Hasher::Keyed(context) => (HashKind::HmacSha256, context.sign().as_ref().to_vec()),
        };
        let mut digest = [0; 32];
        digest.copy_from_slice(&bytes);
        FixtureHash::of(kind, &digest)
    }
}

/// A device is no file, and some have no end.
fn open(path: &Path) -> Result<File, Failure> {
    let fault = |error| Failure::file(path, &error);
    let kind = std::fs::metadata(path).map_err(fault)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        let name = path.display();
        return Err(Failure::new(format!(
            "{name}: a device, not a file; name a file, or - for standard input"
        )));
    }
    let file = File::open(path).map_err(fault)?;
    if file.metadata().map_err(fault)?.len() > MOST_BYTES {
        return Err(too_long(path));
    }
    Ok(file)
}

fn too_long(path: &Path) -> Failure {
    Failure::new(format!(
        "{}: longer than 64 GiB, which a fixture's files are at most; it cannot be one",
        path.display()
    ))
}

/// The key in an environment variable that the command line names.
pub(super) fn key(variable: &str) -> Result<Vec<u8>, Failure> {
    match std::env::var_os(variable) {
        Some(key) if !key.is_empty() => Ok(key.into_vec()),
        Some(_) => Err(Failure::new(format!(
            "--key-env: the variable {variable} is empty"
        ))),
        None => Err(Failure::new(format!(
            "--key-env: the variable {variable} is not set"
        ))),
    }
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    let key = args.key_env.as_deref().map(key).transpose()?;
    let groups: Vec<&[PathBuf]> = if args.joined {
        vec![&args.files]
    } else {
        args.files.chunks(1).collect()
    };
    for files in groups {
        let mut hasher = Hasher::new(key.as_deref());
        for file in files {
            hasher.file(file)?;
        }
        let hash = hasher.end();
        let names: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        if args.json {
            out.json(&json!({ "hash": hash.as_str(), "files": names }))?;
        } else {
            out.line(format!("{hash}  {}", safe(&names.join(" "))))?;
        }
    }
    Ok(Done::Yes)
}
