//! `ledger export`: the records that fit a filter, as a file for somebody else, with a manifest.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ledger::there;
use super::ledger_list::{Which, none_fits};
use super::out::{Done, Failure, Out, count};
use crate::ledger::{Export, Format, Manifest, Stopped, ascii};

/// Write the records that fit to a file, with a manifest.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  leafgate ledger export ledger --format html --since 24h --out run.html
  leafgate ledger export ledger --format ocsf --verdict refuse --out refused.ocsf.jsonl
  leafgate ledger export ledger --format jsonl | sha256sum

Beside F stands F.manifest.json: filter, counts, first and last seq, checkpoint, SHA-256. Without --out the
export goes to standard output and the manifest to standard error.
Exits 1 where no record fits; nothing is written then.")]
pub(super) struct Args {
    /// The ledger's folder
    #[arg(value_name = "DIR", default_value = "ledger")]
    dir: PathBuf,
    /// jsonl (the lines as they stand), csv, ocsf (HTTP Activity events) or html (one page)
    #[arg(long)]
    format: String,
    #[command(flatten)]
    which: Which,
    /// The file to write
    #[arg(long, value_name = "F")]
    out: Option<PathBuf>,
    /// Replace F where it is there
    #[arg(long, requires = "out")]
    force: bool,
    /// Print the manifest, on one line
    #[arg(long, requires = "out")]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> Result<Done, Failure> {
    there(&args.dir)?;
    let format =
        Format::parse(&args.format).map_err(|why| Failure::new(format!("--format: {why}")))?;
    let filter = args.which.filter()?;
    let export =
        Export::new(&args.dir, filter.clone(), format).map_err(|fault| Failure::of(&fault))?;
    let manifest = match &args.out {
        Some(file) => to_file(&export, file, args)?,
        None => {
            let manifest = written(
                export.write(&mut Printed(out)),
                Path::new("standard output"),
            )?;
            out.flush()?;
            if manifest.records() > 0 {
                eprintln!("{}", ascii(&manifest.to_json().to_string()));
            }
            manifest
        }
    };
    if manifest.records() == 0 {
        none_fits(&filter, out)?;
        return Ok(Done::No);
    }
    if let Some(file) = &args.out {
        if args.json {
            out.json(&manifest.to_json())?;
        } else {
            let (records, rows) = (manifest.records(), manifest.rows());
            out.line(format!(
                "{}: {}, {}; {}",
                file.display(),
                count(records, "record"),
                count(rows, "row"),
                beside(file).display()
            ))?;
        }
    }
    Ok(Done::Yes)
}

/// `F.manifest.json`
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".manifest.json");
    PathBuf::from(name)
}

/// The folder that a file stands in, or would.
pub(super) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// A file in the ledger's folder, or in a folder below it, could pass for a segment, stand in the way of one, or go when the ledger is moved.
pub(super) fn not_within(flag: &str, folder: &Path, ledger: &Path) -> Result<(), Failure> {
    let real = |path: &Path| {
        path.canonicalize()
            .map_err(|error| Failure::file(path, &error))
    };
    if real(folder)?.starts_with(real(ledger)?) {
        return Err(Failure::new(format!(
            "{flag}: the file would stand in the ledger's own folder; name another place"
        )));
    }
    Ok(())
}

/// Writes both files whole or neither.
fn to_file(export: &Export, file: &Path, args: &Args) -> Result<Manifest, Failure> {
    let folder = folder_of(file);
    not_within("--out", folder, &args.dir)?;
    let manifest_file = beside(file);
    for path in [file, &manifest_file] {
        if !args.force && path.symlink_metadata().is_ok() {
            return Err(Failure::new(format!(
                "{}: is there already; name another file, or use --force to replace it",
                path.display()
            )));
        }
    }
    let scratch = |path: &Path| {
        tempfile::NamedTempFile::new_in(folder).map_err(|error| Failure::file(path, &error))
    };
    let mut data = io::BufWriter::new(scratch(file)?);
    let manifest = written(export.write(&mut data), file)?;
    if manifest.records() == 0 {
        return Ok(manifest);
    }
    let data = data
        .into_inner()
        .map_err(|error| Failure::file(file, error.error()))?;
    let mut about = scratch(&manifest_file)?;
    let text = ascii(&format!("{:#}\n", manifest.to_json()));
    about
        .write_all(text.as_bytes())
        .map_err(|error| Failure::file(&manifest_file, &error))?;
    for (new, path) in [(data, file), (about, manifest_file.as_path())] {
        let kept = if args.force {
            new.persist(path)
        } else {
            new.persist_noclobber(path)
        };
        kept.map_err(|error| Failure::file(path, &error.error))?;
    }
    Ok(manifest)
}

fn written(done: Result<Manifest, Stopped>, to: &Path) -> Result<Manifest, Failure> {
    done.map_err(|stopped| match stopped {
        Stopped::Read(fault) => Failure::of(&fault),
        Stopped::Taker(error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        Stopped::Taker(error) => Failure::file(to, &error),
    })
}

/// Standard output, as the exports write.
struct Printed<'a>(&'a mut Out);

impl Write for Printed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.bytes(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(Failure::ReaderGone) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(Failure::Lines(lines)) => Err(io::Error::other(lines.join("; "))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
