//! What a call costs that is passed on and nothing else: the least that a forwarding proxy can do with a request on loopback. It reads the head and the body, sends them
//! on over a connection that is kept, and sends the answer back. No hash, no ledger, no TLS, no rule. One thread; its time on a CPU is what is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::on_cpu;

/// The proxy's time on a CPU for each call of this body.
pub(crate) fn pass_through(body: &[u8], calls: u32) -> Duration {
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
            let (mut client, _) = front.accept().await.unwrap();
            let mut server = tokio::net::TcpStream::connect(upstream_at).await.unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (mut request, mut reply) = (Vec::new(), Vec::new());
            // The first calls warm what there is to warm.
            let mut start = on_cpu();
            let mut count = 0;
            while read_message(&mut client, &mut request, true).await {
                server.write_all(&request).await.unwrap();
                assert!(read_message(&mut server, &mut reply, false).await);
                client.write_all(&reply).await.unwrap();
                count += 1;
                if count == calls / 10 {
                    start = on_cpu();
                }
            }
            (on_cpu() - start) / (count - calls / 10)
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
