//! `ledger prove` and `ledger check-proof`: that one record stands in the ledger, shown to somebody who has neither the ledger nor a reason to trust it.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::ledger::there;
use super::ledger_export::{folder_of, not_within};
use super::out::{Done, Failure, Out, Tone, safe};
use crate::ledger::{LedgerError, MAX_RECORD_BYTES, Proof, ProofFault, Proved};

/// A proof has at most 64 hashes and one note: this is far more.
const PROOF_BYTES: u64 = 1 << 20;

/// Print the proof that a record stands in the ledger (C2SP tlog-proof).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger prove 42 --record 42.json > 42.tlog-proof
  leafgate ledger prove 42 other/ledger --checkpoint kept/2026-11-30 > 42.tlog-proof
and the auditor, with leafgate.pub from a place they trust:
  leafgate ledger check-proof 42.tlog-proof 42.json --key leafgate.pub

Exits 1 where the checkpoint does not cover the record yet, or does not hold.")]
pub(super) struct Prove {
    /// The record's seq
    #[arg(value_name = "SEQ")]
    seq: u64,
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// Against this checkpoint, kept elsewhere, instead of the folder's own
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Also write the record's line, as it stands, to this new file: who checks the proof needs it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The proof's parts and the record's line, as one JSON object
    #[arg(long)]
    json: bool,
}

/// Check a proof without the ledger: one record, the proof, the ledger's verifier key.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger check-proof 42.tlog-proof 42.json --key leafgate.pub

Exits 1 where the proof does not hold, and says why.")]
pub(super) struct CheckProof {
    /// The proof, as `ledger prove` printed it
    #[arg(value_name = "PROOF")]
    proof: PathBuf,
    /// A file that holds the record's line
    #[arg(value_name = "RECORD")]
    record: PathBuf,
    /// The ledger's leafgate.pub
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// What was found, as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn prove(args: &Prove, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    if let Some(file) = &args.record {
        not_within("--record", folder_of(file), &args.dir)?;
    }
    let kept = args.checkpoint.as_deref();
    let proved = match crate::ledger::prove(&args.dir, args.seq, kept) {
        Ok(proved) => proved,
        // What is wrong with the files is an answer, as it is to `verify`.
        Err(LedgerError::Problem(problem)) => return no(&problem.to_string()),
        Err(error) => return Err(Failure::of(&error)),
    };
    let (proof, line) = match proved {
        Proved::Pruned { gone } => {
            return no(&format!(
                "record {}: the first {gone} records were pruned; put the archived segments beside a copy of the ledger, take `pruned` away there, and ask again",
                args.seq
            ));
        }
        Proved::Yes(proof, line) => (proof, line),
        Proved::NotCovered { size } => {
            return no(&format!(
                "record {}: the checkpoint covers {size} records, not this one; {}",
                args.seq,
                match kept {
                    Some(_) => "name a newer checkpoint",
                    None =>
                        "where it was recorded, wait for the next (ledger.checkpoint_every) or stop leafgate, and ask again",
                }
            ));
        }
    };
    if let Some(file) = &args.record {
        write_record(file, &line).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                let file = file.display();
                Failure::new(format!(
                    "--record: {file} is there already and stays as it is; name another file"
                ))
            } else {
                Failure::file(file, &error)
            }
        })?;
    }
    if args.json {
        let path: Vec<_> = proof
            .path
            .iter()
            .map(|hash| STANDARD.encode(hash))
            .collect();
        out.json(&json!({
            "index": proof.index, "size": proof.size(), "path": path, "checkpoint": proof.checkpoint(),
            "record": String::from_utf8_lossy(&line),
        }))?;
    } else {
        out.bytes(proof.to_string().as_bytes())?;
    }
    Ok(Done::Yes)
}

/// A file that is there is never written over: it could be a segment.
fn write_record(file: &Path, line: &[u8]) -> std::io::Result<()> {
    let mut open = OpenOptions::new().write(true).create_new(true).open(file)?;
    open.write_all(line)?;
    open.write_all(b"\n")
}

/// The answer is no. Standard output is for the proof alone, so that no file of it ever holds a sentence.
fn no(why: &str) -> Result<Done, Failure> {
    let _ = writeln!(std::io::stderr(), "leafgate: {}", safe(why));
    Ok(Done::No)
}

pub(super) fn check(args: &CheckProof, out: &mut Out) -> Result<Done, Failure> {
    let proof = read(&args.proof, PROOF_BYTES)?;
    let line = read(&args.record, MAX_RECORD_BYTES as u64 + 1)?;
    let key = read(&args.key, PROOF_BYTES)?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let checked = (|| {
        let text = std::str::from_utf8(&proof).map_err(|_| ProofFault::Form)?;
        let proof = Proof::parse(text)?;
        let key = std::str::from_utf8(&key).map_err(|_| ProofFault::Key)?;
        proof.check(line, key).map(|name| (proof, name))
    })();
    if args.json {
        let found = checked.as_ref().ok();
        out.json(&json!({
            "ok": checked.is_ok(), "log": found.map(|(_, name)| name),
            "index": found.map(|(proof, _)| proof.index), "size": found.map(|(proof, _)| proof.size()),
            "problem": checked.as_ref().err().map(ToString::to_string),
        }))?;
        return Ok(Done::when(checked.is_ok()));
    }
    match checked {
        Ok((proof, name)) => out.line(format!(
            "{} record {} of the {} that {} signed",
            out.paint(Tone::Good, "PROVEN", 0),
            proof.index,
            proof.size(),
            safe(&name)
        ))?,
        Err(fault) => {
            out.line(format!("{} {fault}", out.paint(Tone::Bad, "NOT PROVEN", 0)))?;
            return Ok(Done::No);
        }
    }
    Ok(Done::Yes)
}

/// A file of at most so many bytes.
fn read(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let fail = |error| Failure::file(file, &error);
    let mut bytes = Vec::new();
    let open = std::fs::File::open(file).map_err(fail)?;
    open.take(most + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > most {
        return Err(Failure::new(format!(
            "{}: longer than {most} bytes; this is another file",
            file.display()
        )));
    }
    Ok(bytes)
}
