//! What the cases are run with: a whole leafgate, a host that records, a trap that nobody may reach, and the log of the whole process.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::log::{listen_to_the_log, log};
use crate::support::{
    Gate, HOST, Host, Reply, Seen, b64, body, card, entry, ok_response, read_reply,
};

/// One of the cases, as the data has it.
#[derive(serde::Deserialize)]
pub struct Case {
    pub id: String,
    pub group: String,
    pub send: String,
}

/// All of them.
pub fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("cases.json")).unwrap()
}

pub const PLAIN: &str = "{REQ}Content-Length: {N}\\r\\n\\r\\n{BODY}";
pub const CHUNKED: &str =
    "{REQ}Transfer-Encoding: chunked\\r\\n\\r\\n{X}\\r\\n{BODY}\\r\\n0\\r\\n\\r\\n";

/// Which record a refusal leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The message never became a call.
    Refused,
    /// The call was decided.
    Decision,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Refused => "refused",
            Kind::Decision => "decision",
        }
    }
}

pub struct Lab {
    pub host: Host,
    pub trap: Host,
    pub gate: Gate,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with("", "")
    }

    /// `more_host` stands in the host's entry, `more` beside it.
    pub fn with(more_host: &str, more: &str) -> Lab {
        Lab::before(Host::ok(), Host::ok(), more_host, more)
    }

    /// A host that plays `first` once, and is a good host from then on. `{TRAP}` in it is the trap.
    pub fn said(first: &str) -> Lab {
        let trap = Host::ok();
        let first = first.replace("{TRAP}", &trap.address.to_string());
        let host = once(move |stream, _| stream.write_all(first.as_bytes()).is_ok());
        let limits = "[limits]\nfirst_byte = \"2s\"\nidle = \"2s\"\n";
        Lab::before(host, trap, "", limits)
    }

    pub fn before(host: Host, trap: Host, more_host: &str, more: &str) -> Lab {
        listen_to_the_log();
        let gate = Gate::with(&entry(&host, more_host), more);
        Lab { host, trap, gate }
    }

    /// The bytes that a construction of the cases stands for.
    pub fn bytes(&self, template: &str) -> Vec<u8> {
        let text = String::from_utf8(body()).unwrap();
        let card = format!("leafgate-card: {}", card(json!({})));
        let auth = self.gate.address.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {auth}\r\n{card}\r\nContent-Type: application/json\r\n"
        );
        let all = unescaped(template)
            .replace("{REQ}", &request)
            .replace("{AUTH}", &auth)
            .replace("{CARD}", &card)
            .replace("{TRAP}", &self.trap.address.to_string())
            .replace("{X}", &format!("{:x}", text.len()))
            .replace("{N}", &text.len().to_string())
            .replace("{BODY}", &text);
        all.chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect()
    }

    /// The records of calls and messages so far; a list of those beyond `known`.
    pub fn judged(&self, known: usize) -> Vec<Value> {
        let all = self.gate.records();
        let judged = all
            .into_iter()
            .filter(|r| r["t"] == "decision" || r["t"] == "refused");
        judged.skip(known).collect()
    }

    /// Sends, and expects this refusal, one record, nobody reached; after a 4xx of the message itself a closed connection.
    pub fn refused(&self, id: &str, bytes: &[u8], status: u16, reason: &str, kind: Kind) -> Value {
        let (known, accepts) = (self.judged(0).len(), self.host.accepts());
        let outcomes = self.gate.of_kind("outcome").len();
        let mut stream = self.gate.connect();
        let _ = stream.write_all(bytes);
        let reply = read_reply(&mut stream);
        own(id, &reply, status, reason);
        if status != 422 {
            ended(id, &mut stream);
        }
        let records = self.judged(known);
        assert_eq!(records.len(), 1, "{id}: {records:?}");
        assert_eq!(
            (records[0]["t"].as_str(), records[0]["reason"].as_str()),
            (Some(kind.name()), Some(reason)),
            "{id}"
        );
        assert_eq!(
            self.gate.of_kind("outcome").len(),
            outcomes,
            "{id}: nothing was sent"
        );
        assert_eq!(self.host.accepts(), accepts, "{id}: reached the host");
        self.nothing_told(id);
        records[0].clone()
    }

    /// Sends, and expects that the body went to the host, byte for byte, in a head built anew. Gives the decision.
    pub fn forwarded(&self, id: &str, bytes: &[u8]) -> Value {
        let known = self.judged(0).len();
        let before = self.host.seen().len();
        let reply = self.gate.raw(bytes);
        assert_eq!(reply.status, 200, "the twin of {id}: {reply:?}");
        assert_eq!(reply.header("leafgate-verdict"), Some("forward"), "{id}");
        let seen = self.host.seen();
        assert_eq!(seen.len(), before + 1, "the twin of {id}");
        assert_eq!(
            seen[before],
            self.release(&body()),
            "the twin of {id}: bytes upstream"
        );
        let records = self.judged(known);
        assert_eq!(records.len(), 1, "the twin of {id}: {records:?}");
        self.nothing_told(id);
        records[0].clone()
    }

    /// The plain good call: the twin of most cases.
    pub fn good(&self, id: &str) -> Value {
        self.forwarded(id, &self.bytes(PLAIN))
    }

    /// What a release of this body is on the host's wire.
    pub fn release(&self, body: &[u8]) -> Seen {
        Seen {
            head: format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {HOST}:{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\naccept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\n\r\n",
                self.host.address.port(),
                body.len()
            ),
            body: body.to_vec(),
        }
    }

    /// The trap was not reached; ledger and log hold nothing that was planted.
    pub fn nothing_told(&self, id: &str) {
        assert_eq!(self.trap.accepts(), 0, "{id}: the trap was reached");
        assert!(!self.gate.ledger_text().contains("CANARY"), "{id}: ledger");
        let log = log();
        assert!(
            !log.contains("CANARY") && !log.contains('\u{1b}'),
            "{id}: log"
        );
    }

    /// A head with this card in its header: as JSON where a header can hold it, or as base64url.
    pub fn with_card(&self, card: &[u8], encoded: bool) -> Vec<u8> {
        let value = if encoded {
            b64(card).into_bytes()
        } else {
            card.to_vec()
        };
        let payload = body();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nleafgate-card: ",
            self.gate.address,
            payload.len()
        );
        [head.as_bytes(), &value, b"\r\n\r\n", &payload].concat()
    }
}

/// A host that plays `first` for its first request, and answers well from then on.
pub fn once(first: impl Fn(&mut TcpStream, &Seen) -> bool + Send + Sync + 'static) -> Host {
    let count = AtomicUsize::new(0);
    Host::start(move |stream, seen| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            first(stream, seen)
        } else {
            stream.write_all(&ok_response()).is_ok()
        }
    })
}

/// An answer of leafgate's own: status, reason, and the marks that every one has.
pub fn own(id: &str, reply: &Reply, status: u16, reason: &str) {
    assert_eq!(
        (reply.status, reply.reason()),
        (status, reason),
        "{id}: {reply:?}"
    );
    assert_eq!(reply.header("leafgate-verdict"), Some("refuse"), "{id}");
    assert_eq!(reply.header("x-should-retry"), Some("false"), "{id}");
    for name in ["location", "access-control-allow-origin", "set-cookie"] {
        assert_eq!(reply.header(name), None, "{id}");
    }
    let doc = reply.json();
    assert_eq!(doc["error"]["code"], reason, "{id}");
    let message = doc["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("leafgate") && message.is_ascii() && !message.contains(['\n', '\r']),
        "{id}: {message}"
    );
    assert!(
        !String::from_utf8_lossy(&reply.raw).contains("CANARY"),
        "{id}: the answer quotes"
    );
}

/// Nothing more is answered, and the connection is closed.
pub fn ended(id: &str, stream: &mut TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "{id}: not closed: {error}"
        ),
    }
    assert!(
        rest.is_empty(),
        "{id}: answered after the refusal: {rest:?}"
    );
}

/// `\r`, `\n`, `\"` and `\xHH` as the cases write them; each character is one byte.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next().unwrap() {
            'r' => '\r',
            'n' => '\n',
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                char::from(u8::from_str_radix(&digits, 16).unwrap())
            }
            other => other,
        });
    }
    out
}
