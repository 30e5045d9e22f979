//! `/api/export`: the same bytes as `leafgate ledger export`, streamed.
//!
//! Promises: what is in memory at once does not grow with the ledger (a few blocks, and the calls on their way); an export that cannot go on looks cut short, it never ends as
//! if it were whole. At most [`AT_ONCE`] run at the same time.

use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use super::cut::ShowsCut;
use super::{Answer, json, pairs, text, unreadable, with_headers};
use crate::ledger::{self, Export, Filter, Format, Stopped};

/// Exports at the same time: each reads the whole ledger.
const AT_ONCE: usize = 2;
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);
/// Written at once, and how many of those wait for the client.
const BLOCK: usize = 64 * 1024;
const WAITING: usize = 4;

/// What a query asks for.
fn asked(query: &str) -> Result<(Format, Filter, bool), String> {
    let mut filter = Filter::default();
    let (mut format, mut manifest) = (None, false);
    pairs(query, |key, value| {
        match key {
            "format" => format = Some(Format::parse(value)?),
            "manifest" if value == "1" => manifest = true,
            "manifest" => return Err("manifest is 1, or is not there".to_owned()),
            _ => return filter.add(key, value, Timestamp::now()),
        }
        Ok(())
    })?;
    let format = format.ok_or_else(|| format!("format is one of {}", Format::NAMES.join(", ")))?;
    Ok((format, filter, manifest))
}

pub(super) async fn answer(query: &str, dir: &Path) -> Answer {
    let (format, filter, manifest) = match asked(query) {
        Ok(asked) => asked,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("leafgate: {why}\n")),
    };
    let Ok(place) = PLACES.try_acquire() else {
        return text(
            StatusCode::SERVICE_UNAVAILABLE,
            "leafgate: other exports are running; ask again when they have ended\n",
        );
    };
    let dir = dir.to_owned();
    let made = tokio::task::spawn_blocking(move || Export::new(&dir, filter, format)).await;
    let export = match made {
        Ok(Ok(export)) => export,
        Ok(Err(fault)) => return unreadable(&fault),
        Err(_) => {
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "leafgate: the ledger could not be read\n",
            );
        }
    };
    if manifest {
        let made = tokio::task::spawn_blocking(move || {
            let _place = place;
            export.write(&mut io::sink())
        });
        return match made.await {
            Ok(Ok(manifest)) => json(
                StatusCode::OK,
                ledger::ascii(&manifest.to_json().to_string()),
            ),
            Ok(Err(Stopped::Read(fault))) => unreadable(&fault),
            Ok(Err(Stopped::Taker(_))) | Err(_) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "leafgate: the ledger could not be read\n",
            ),
        };
    }
    let (to, from) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut pipe = io::BufWriter::with_capacity(BLOCK, Pipe(to.clone()));
        let written = export.write(&mut pipe).map(|_| ());
        let written = written.and_then(|()| pipe.flush().map_err(Stopped::Taker));
        // Without this last, empty block the answer looks cut; a client that went away takes it no more.
        if written.is_ok() {
            let _ = to.blocking_send(Bytes::new());
        }
    });
    streamed(format, from)
}

fn streamed(format: Format, from: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = with_headers(
        StatusCode::OK,
        format.media(),
        ShowsCut::new(Stream(from)).boxed(),
    );
    let name = format!("attachment; filename=\"leafgate.{}\"", format.extension());
    if let Ok(name) = HeaderValue::from_str(&name) {
        answer
            .headers_mut()
            .insert(header::CONTENT_DISPOSITION, name);
    }
    if format == Format::Html
        && let Ok(policy) = HeaderValue::from_str(&ledger::page_policy())
    {
        answer
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// Blocks of the export on their way to the client.
struct Pipe(mpsc::Sender<Bytes>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Bytes::copy_from_slice(bytes))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|next| match next {
            Some(block) if block.is_empty() => None,
            Some(block) => Some(Ok(Frame::data(block))),
            None => Some(Err(io::Error::other("the ledger could not be read"))),
        })
    }
}
