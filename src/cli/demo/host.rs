//! The demo's host: a small recording server on 127.0.0.1 that answers one chat completion. It stands for a model server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request as the host received it.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

/// The most that one request may be; the demo's own are far shorter.
const MOST: usize = 1024 * 1024;

/// The recording host.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    accepts: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Host {
    /// Binds a port that the system chooses, and serves in the background.
    pub(super) async fn start() -> std::io::Result<(Host, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let host = Host::default();
        let serving = host.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.accepts.fetch_add(1, Ordering::SeqCst);
                let host = serving.clone();
                tokio::spawn(async move {
                    // A connection that breaks concerns its client alone.
                    let _ = host.serve(stream).await;
                });
            }
        });
        Ok((host, address))
    }

    /// Connections accepted so far.
    pub(super) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    /// What was received since the last time this was asked.
    pub(super) fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut held = Vec::new();
        while let Some(received) = request(&mut stream, &mut held).await? {
            self.received
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(received);
            stream.write_all(answer().as_bytes()).await?;
        }
        Ok(())
    }
}

/// Reads one request with a `content-length`, which is all that leafgate sends.
async fn request(stream: &mut TcpStream, held: &mut Vec<u8>) -> std::io::Result<Option<Received>> {
    let mut need = None;
    loop {
        if need.is_none() {
            need = memchr::memmem::find(held, b"\r\n\r\n").map(|end| {
                let head = String::from_utf8_lossy(&held[..end]).into_owned();
                let length = content_length(&head);
                (head, end + 4, length)
            });
        }
        if let Some((head, start, length)) = &need
            && held.len() >= start + length
        {
            let rest = held.split_off(start + length);
            let body = held.split_off(*start);
            *held = rest;
            return Ok(Some(Received {
                head: head.clone(),
                body,
            }));
        }
        if held.len() > MOST || stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    }
}

fn content_length(head: &str) -> usize {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .filter(|length| *length <= MOST)
        .unwrap_or(0)
}

fn answer() -> String {
    let body = r#"{"id":"chatcmpl-demo","object":"chat.completion","created":0,"model":"demo","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"It keeps a value between two others."}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
