//! Scripted hosts, policies and calls for the tests of this room.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::admit::Departure;
use crate::egress::account::{Account, Sink};
use crate::egress::{Answer, Egress, Failed, exchange};
use crate::ledger::Outcome;
use crate::policy::*;
use crate::terms::HostPin;
use crate::vocabulary::Vocabularies;

pub(super) const OK: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// A policy with short limits.
pub(super) fn policy() -> Policy {
    let path = PathBuf::from("unused");
    Policy {
        secrets: Default::default(),
        text_sha256: [0; 32],
        file: None,
        hash: String::new(),
        listen: Listen {
            proxy: SocketAddr::from(([127, 0, 0, 1], 0)).into(),
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: Vec::new(),
            tls: None,
            token: None,
        },
        cards_dir: path.clone(),
        cards_named: false,
        fixtures: Fixtures {
            lock: path.clone(),
            lock_named: false,
            hmac_key: None,
        },
        ledger: LedgerSettings {
            dir: path,
            segment_bytes: 1 << 20,
            checkpoint_every: Duration::from_secs(10),
            checkpoint_copy: None,
            sync: Sync::Record,
        },
        pin_max_age: Duration::from_secs(86_400),
        placeholders: Vec::new(),
        failure_labels: Vec::new(),
        refused_status: 422,
        limits: Limits {
            head: 64 << 10,
            body: 16 << 20,
            in_flight: 1024,
            in_flight_bytes: 512 << 20,
            client_head: Duration::from_secs(30),
            client_body: Duration::from_secs(60),
            connect: Duration::from_millis(1500),
            first_byte: Duration::from_millis(400),
            idle: Duration::from_millis(400),
            shutdown: Duration::from_secs(30),
        },
        resolvers: Vec::new(),
        intercept: None,
        hosts: Default::default(),
    }
}

/// A plain host on loopback at this port.
pub(super) fn host(port: u16) -> Host {
    named("127.0.0.1", port)
}

pub(super) fn named(name: &str, port: u16) -> Host {
    Host {
        pin: HostPin::parse("local").unwrap(),
        base: BaseUrl {
            tls: false,
            host: name.to_owned(),
            port,
            authority: format!("{name}:{port}"),
            path: "/v1".to_owned(),
        },
        source: None,
        copied_at: None,
        max_age: None,
        credential: Credential::None,
        addresses: Addresses::Loopback,
        resolve: Vec::new(),
        ca: None,
        spki: Vec::new(),
        routes: Vec::new(),
        headers: Vec::new(),
        split: SplitRoute {
            path: "/chat/completions".to_owned(),
            envelope: Envelope::Bare,
        },
        models: vec!["m-small".to_owned()],
        bind: Bind::None,
        bind_written: false,
        vocabularies: Vocabularies::default(),
        clear_text: false,
    }
}

/// A way out of one policy to one host.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) egress: Egress,
    pub(super) policy: Arc<Policy>,
    pub(super) host: Arc<Host>,
}

impl Way {
    pub(super) fn to(host: Host) -> Way {
        Way::by(policy(), host)
    }

    pub(super) fn by(policy: Policy, host: Host) -> Way {
        Way {
            egress: Egress::new(),
            policy: Arc::new(policy),
            host: Arc::new(host),
        }
    }

    pub(super) fn departure(&self, body: impl Into<Bytes>) -> Departure {
        let body = body.into();
        Departure {
            policy: self.policy.clone(),
            host: self.host.clone(),
            method: Method::POST,
            path: "/v1/chat/completions".to_owned(),
            headers: vec![(
                HeaderName::from_static("authorization"),
                HeaderValue::from_static("Bearer test"),
            )],
            sha256: Sha256::digest(&body).into(),
            body,
            split: false,
        }
    }

    /// Starts a call as `send` does, with the outcome for the test.
    pub(super) fn start(
        &self,
        departure: Departure,
    ) -> (
        impl Future<Output = Result<Answer, Failed>> + Send + use<>,
        Receiver<Outcome>,
    ) {
        let (sender, outcome) = std::sync::mpsc::channel();
        let inner = self.egress.inner.clone();
        let account = Account::open(inner.clone(), &departure, Sink::Test(sender));
        let call = async move { exchange::exchange(&inner, departure, account).await };
        (call, outcome)
    }

    /// A whole call with a small body.
    pub(super) async fn call(&self) -> Done {
        self.call_with(&b"{\"x\":1}"[..]).await
    }

    pub(super) async fn call_with(&self, body: impl Into<Bytes>) -> Done {
        let (call, outcome) = self.start(self.departure(body));
        let answer = call.await;
        finish(answer, outcome).await
    }
}

/// Reads an answer to its end.
pub(super) async fn finish(answer: Result<Answer, Failed>, outcome: Receiver<Outcome>) -> Done {
    let mut done = match answer {
        Err(failed) => {
            assert!(failed.hint.is_ascii() && !failed.hint.is_empty());
            Done {
                reason: Some(failed.reason.code()),
                ..Done::default()
            }
        }
        Ok(mut answer) => {
            let mut body = Vec::new();
            let mut cut = None;
            while let Some(frame) = answer.body.frame().await {
                match frame {
                    Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap()),
                    Err(failed) => cut = Some(failed.reason.code()),
                }
            }
            Done {
                status: answer.status.as_u16(),
                headers: answer
                    .headers
                    .iter()
                    .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                    .collect(),
                body,
                cut,
                ..Done::default()
            }
        }
    };
    done.outcome = Some(outcome.try_recv().expect("one outcome, at once"));
    assert!(outcome.try_recv().is_err(), "one outcome only");
    done
}

/// What became of a call.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) reason: Option<&'static str>,
    pub(super) status: u16,
    pub(super) headers: Vec<String>,
    pub(super) body: Vec<u8>,
    pub(super) cut: Option<&'static str>,
    outcome: Option<Outcome>,
}

impl Done {
    pub(super) fn outcome(&self) -> &Outcome {
        self.outcome.as_ref().unwrap()
    }

    /// Fails unless the answer came whole.
    pub(super) fn ok(&self, body: &[u8]) {
        assert_eq!(
            (self.reason, self.cut, self.outcome().error),
            (None, None, None)
        );
        assert_eq!(self.body, body);
    }
}

/// What a scripted host does on one connection.
#[derive(Clone)]
pub(super) enum Step {
    /// Reads one request to its end.
    Request,
    /// Reads this many bytes.
    Bytes(usize),
    /// Writes.
    Say(Vec<u8>),
    /// Writes this many times.
    Again(usize, Vec<u8>),
    /// Waits so many milliseconds.
    Wait(u64),
    /// Ends with a reset instead of an orderly close.
    Reset,
    /// Goes on holding the connection until the other side closes.
    Hold,
}

pub(super) fn say(bytes: impl AsRef<[u8]>) -> Step {
    Step::Say(bytes.as_ref().to_vec())
}

/// A host that plays one script for each connection; the last one again for those after it.
pub(super) struct Scripted {
    pub(super) port: u16,
    accepts: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Scripted {
    pub(super) async fn plays(scripts: Vec<Vec<Step>>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Scripted::on(listener, scripts)
    }

    pub(super) fn on(listener: TcpListener, scripts: Vec<Vec<Step>>) -> Scripted {
        let scripted = Scripted {
            port: listener.local_addr().unwrap().port(),
            accepts: Arc::default(),
            heard: Arc::default(),
        };
        let (accepts, heard) = (scripted.accepts.clone(), scripted.heard.clone());
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let number = accepts.fetch_add(1, Ordering::SeqCst);
                let script = scripts[number.min(scripts.len() - 1)].clone();
                let heard = heard.clone();
                heard.lock().unwrap().push(Vec::new());
                tokio::spawn(async move {
                    let reset = script.iter().any(|step| matches!(step, Step::Reset));
                    if reset {
                        socket2::SockRef::from(&tcp)
                            .set_linger(Some(Duration::ZERO))
                            .unwrap();
                    }
                    let mut tcp = tcp;
                    play(&mut tcp, script, |bytes| {
                        heard.lock().unwrap()[number].extend_from_slice(bytes);
                    })
                    .await;
                });
            }
        });
        scripted
    }

    pub(super) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    /// The bytes of each connection.
    pub(super) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

pub(super) async fn play(
    wire: &mut (impl AsyncRead + AsyncWrite + Unpin),
    script: Vec<Step>,
    mut heard: impl FnMut(&[u8]),
) {
    let mut buf = vec![0; 64 << 10];
    let mut pending = Vec::new();
    for step in script {
        match step {
            Step::Request => loop {
                if let Some(len) = request_len(&pending)
                    && pending.len() >= len
                {
                    pending.drain(..len);
                    break;
                }
                match wire.read(&mut buf).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => {
                        heard(&buf[..n]);
                        pending.extend_from_slice(&buf[..n]);
                    }
                }
            },
            Step::Bytes(len) => {
                let mut some = vec![0; len];
                if wire.read_exact(&mut some).await.is_err() {
                    return;
                }
                heard(&some);
            }
            Step::Say(bytes) => {
                if wire.write_all(&bytes).await.is_err() || wire.flush().await.is_err() {
                    return;
                }
            }
            Step::Again(times, bytes) => {
                for _ in 0..times {
                    if wire.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                let _ = wire.flush().await;
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Step::Reset => return,
            Step::Hold => loop {
                match wire.read(&mut buf).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => heard(&buf[..n]),
                }
            },
        }
    }
    let _ = wire.shutdown().await;
}

fn request_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |n| n.trim().parse::<usize>().unwrap());
    Some(head + length)
}

pub(super) fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}
