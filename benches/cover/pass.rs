//! What a call costs that is passed on and nothing else, on loopback: no hash, no ledger, no TLS, no rule. Once by hyper, server and client, over connections that are kept,
//! which is what a plain proxy in Rust is; once by the least that can be written: read head and body, send the same bytes on, send the answer back. One thread; its time
//! on a CPU is what is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Mutex;

use crate::on_cpu;

/// A plain proxy made of hyper's server and hyper's client.
pub(crate) fn by_hyper(body: &[u8], calls: u32) -> Duration {
    measure(body, calls, |front, upstream_at, warm| async move {
        let (client, _) = front.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        let server = tokio::net::TcpStream::connect(upstream_at).await.unwrap();
        server.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(server))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let sender = Mutex::new(sender);
        let clock = Mutex::new((on_cpu(), 0));
        let service = service_fn(|request: Request<Incoming>| async {
            let (mut head, body) = request.into_parts();
            head.headers.remove("host");
            let body = body.collect().await?.to_bytes();
            let mut onward = Request::new(Full::<Bytes>::new(body));
            *onward.method_mut() = head.method;
            *onward.uri_mut() = head.uri;
            *onward.headers_mut() = head.headers;
            onward
                .headers_mut()
                .insert("host", http::HeaderValue::from_static("models.example.org"));
            let answer = sender.lock().await.send_request(onward).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            let mut clock = clock.lock().await;
            clock.1 += 1;
            if clock.1 == warm {
                clock.0 = on_cpu();
            }
            Ok::<_, hyper::Error>(Response::from_parts(head, Full::new(body)))
        });
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(client), service)
            .await
            .unwrap();
        connection.abort();
        let (start, count) = *clock.lock().await;
        (on_cpu() - start) / (count - warm)
    })
}

/// The least that a proxy can do with a request.
pub(crate) fn by_hand(body: &[u8], calls: u32) -> Duration {
    measure(body, calls, |front, upstream_at, warm| async move {
        let (mut client, _) = front.accept().await.unwrap();
        let mut server = tokio::net::TcpStream::connect(upstream_at).await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let mut start = on_cpu();
        let mut count = 0;
        while read_message(&mut client, &mut request, true).await {
            server.write_all(&request).await.unwrap();
            assert!(read_message(&mut server, &mut reply, false).await);
            client.write_all(&reply).await.unwrap();
            count += 1;
            if count == warm {
                start = on_cpu();
            }
        }
        (on_cpu() - start) / (count - warm)
    })
}

/// A proxy's time on a CPU for each call of this body; the first calls warm what there is to warm.
fn measure<F: Future<Output = Duration>>(
    body: &[u8],
    calls: u32,
    proxy: impl FnOnce(tokio::net::TcpListener, SocketAddr, u32) -> F + Send + 'static,
) -> Duration {
    let (upstream, upstream_at) = listen();
    let (front, front_at) = listen();
    let server = thread::spawn(move || answer(upstream));
    let proxy = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            front.set_nonblocking(true).unwrap();
            let front = tokio::net::TcpListener::from_std(front).unwrap();
            proxy(front, upstream_at, calls / 10).await
        })
    });
    let mut client = TcpStream::connect(front_at).unwrap();
    client.set_nodelay(true).unwrap();
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: models.example.org\r\nuser-agent: bench\r\naccept: application/json\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    let mut buffer = vec![0; 16 * 1024];
    for _ in 0..calls {
        client.write_all(&request).unwrap();
        let mut have = 0;
        while have < REPLY.len() {
            have += client.read(&mut buffer[have..]).unwrap();
        }
    }
    drop(client);
    let each = proxy.join().unwrap();
    server.join().unwrap();
    each
}

const REPLY: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 67\r\n\r\n{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"It clamps\"}}]";

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Answers each request on one connection.
fn answer(listener: TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    let mut part = vec![0; 16 * 1024];
    loop {
        buffer.clear();
        while message_end(&buffer, true).is_none_or(|end| buffer.len() < end) {
            match stream.read(&mut part).unwrap() {
                0 => return,
                count => buffer.extend_from_slice(&part[..count]),
            }
        }
        stream.write_all(REPLY.as_bytes()).unwrap();
    }
}

/// One message, head and body; `false` where the connection ended before it.
async fn read_message(
    stream: &mut tokio::net::TcpStream,
    buffer: &mut Vec<u8>,
    request: bool,
) -> bool {
    buffer.clear();
    buffer.reserve(16 * 1024);
    while message_end(buffer, request).is_none_or(|end| buffer.len() < end) {
        if stream.read_buf(buffer).await.unwrap() == 0 {
            return false;
        }
    }
    true
}

/// Where a message ends by its `content-length`; `None` until its head is whole.
fn message_end(bytes: &[u8], request: bool) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let (head, headers) = if request {
        let mut head = httparse::Request::new(&mut headers);
        (head.parse(bytes).unwrap(), head.headers)
    } else {
        let mut head = httparse::Response::new(&mut headers);
        (head.parse(bytes).unwrap(), head.headers)
    };
    let httparse::Status::Complete(head) = head else {
        return None;
    };
    let length = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |header| {
            std::str::from_utf8(header.value).unwrap().parse().unwrap()
        });
    Some(head + length)
}
