//! The demo's client: it speaks plain HTTP to leafgate on 127.0.0.1, as any client would.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cli::out::Failure;

/// What the client sends.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) head: Vec<String>,
    pub(super) body: String,
}

/// What it got.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) leaf: String,
    pub(super) step: String,
    pub(super) reason: String,
    /// The error's message, or the assistant's words.
    pub(super) says: String,
    pub(super) param: Option<String>,
}

const WAIT: Duration = Duration::from_secs(30);
const HEADERS: usize = 64;

impl Request {
    /// A chat completion under the card of this name, with a key, a cookie and a tracing header such as clients send.
    pub(super) fn new(to: SocketAddr, card: &str, body: String) -> Request {
        let head = [
            "POST /v1/chat/completions HTTP/1.1".to_owned(),
            format!("host: {to}"),
            format!("leafgate-card: @{card}"),
            "content-type: application/json".to_owned(),
            format!("content-length: {}", body.len()),
            "authorization: Bearer sk-demo-not-a-key".to_owned(),
            "cookie: session=7d1f".to_owned(),
            "user-agent: eval-client/2.1".to_owned(),
        ];
        Request {
            head: head.into(),
            body,
        }
    }

    /// Sends it and reads the answer to its end.
    pub(super) async fn send(&self, to: SocketAddr) -> Result<Reply, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("the demo's client: {error}"));
        let answer = tokio::time::timeout(WAIT, self.exchange(to))
            .await
            .map_err(|_| Failure::new("the demo's client: no answer in 30 s"))?
            .map_err(failed)?;
        read(&answer).ok_or_else(|| Failure::new("the demo's client: the answer is not clean HTTP"))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "this is a client of leafgate on 127.0.0.1, not a way out"
    )]
    async fn exchange(&self, to: SocketAddr) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(to).await?;
        let head = self.head.join("\r\n");
        let message = format!("{head}\r\nconnection: close\r\n\r\n{}", self.body);
        stream.write_all(message.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

fn read(answer: &[u8]) -> Option<Reply> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = parsed.parse(answer).ok()? else {
        return None;
    };
    let get = |name: &str| {
        let found = parsed
            .headers
            .iter()
            .find(|h| h.name.eq_ignore_ascii_case(name));
        found.map_or_else(String::new, |h| {
            String::from_utf8_lossy(h.value).into_owned()
        })
    };
    let raw = answer.get(start..)?;
    // The body is one JSON object; a chunked one is found between its chunk lines.
    let from = memchr::memchr(b'{', raw)?;
    let to = memchr::memrchr(b'}', raw)?;
    let body: Value = serde_json::from_slice(raw.get(from..=to)?).ok()?;
    let says = body["error"]["message"]
        .as_str()
        .or_else(|| body["choices"][0]["message"]["content"].as_str());
    Some(Reply {
        status: parsed.code?,
        leaf: get("leafgate-leaf"),
        step: get("leafgate-step"),
        reason: get("leafgate-reason"),
        says: says.unwrap_or_default().to_owned(),
        param: body["error"]["param"].as_str().map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_plain_and_chunked_and_broken_ones_are_not() {
        let head = "HTTP/1.1 422 Unprocessable Content\r\nleafgate-leaf: hold\r\nleafgate-step: 2\r\nleafgate-reason: residue_present\r\n";
        let body = r#"{"type":"error","error":{"param":"residue","message":"leafgate hold"}}"#;
        for message in [
            format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
            format!(
                "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ),
        ] {
            let reply = read(message.as_bytes()).unwrap();
            assert_eq!(
                (reply.status, reply.leaf.as_str(), reply.step.as_str()),
                (422, "hold", "2")
            );
            assert_eq!(
                (reply.reason.as_str(), reply.says.as_str()),
                ("residue_present", "leafgate hold")
            );
            assert_eq!(reply.param.as_deref(), Some("residue"));
        }
        assert!(read(b"HTTP/1.1 422 X\r\n").is_none());
        assert!(read(b"HTTP/1.1 200 OK\r\n\r\n").is_none());
    }
}
