//! Names that are spelled otherwise, and names that change their address.

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::Place;
use crate::support::{HOST, Host, Reply, body, card, entry, response};

/// smokescreen: a name in square brackets was another name to the list and the same name to the dialler; before that, one with a dot
/// at its end.
#[test]
fn another_spelling_of_a_name_is_no_name() {
    let place = Place::plain();
    let text = String::from_utf8(body()).unwrap();
    let target = |name: &str, pin: &str| -> Reply {
        let authority = format!("{name}:{}", place.host.address.port());
        place.ask(
            format!(
                "POST http://{authority}/v1/chat/completions HTTP/1.1\r\nHost: {authority}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                card(json!({"host_pin": pin})),
                text.len()
            )
            .as_bytes(),
        )
    };
    let own = format!("{HOST}:{}", place.host.address.port());
    for spelled in [
        format!("[{HOST}]"),
        format!("{HOST}."),
        format!("[{HOST}.]"),
        HOST.to_uppercase(),
        HOST.replace('.', "%2e"),
        HOST.replace('.', "\u{3002}"),
    ] {
        // In the card, in the target, in `CONNECT`.
        let pinned = place.call(&card(json!({"host_pin": spelled})), &body());
        let connect = format!("CONNECT {spelled}:443 HTTP/1.1\r\nHost: {spelled}:443\r\n\r\n");
        let pin = ["pin_unknown", "pin_malformed", "card_malformed"];
        assert!(pin.contains(&pinned.reason()), "{}", pinned.head);
        for reply in [
            target(&spelled, HOST),
            target(&spelled, &spelled),
            place.ask(connect.as_bytes()),
        ] {
            let refused = ["route_not_allowed", "http_malformed", "card_malformed"];
            assert!(
                refused.contains(&reply.reason()),
                "{spelled}: {}",
                reply.head
            );
        }
    }
    assert_eq!(place.host.accepts(), 0, "{own}");
    // The twin: the name, byte for byte.
    assert_eq!(target(HOST, HOST).status, 200);
    assert!(
        place.host.seen()[0]
            .head
            .contains(&format!("\r\nhost: {own}\r\n"))
    );
}

/// Of each question, the addresses in its answer.
type Answers = Vec<Vec<[u8; 4]>>;

/// A name server that gives the next of these answers to each question for an IPv4 address, and the last one for ever.
fn name_server(answers: Answers) -> (String, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        let mut question = [0; 1500];
        while let Ok((_, from)) = socket.recv_from(&mut question) {
            let mut end = 12;
            while question[end] != 0 {
                end += 1 + usize::from(question[end]);
            }
            let is_a = question[end + 1..end + 3] == [0, 1];
            let found: &[[u8; 4]] = if is_a {
                let turn = count.fetch_add(1, Ordering::SeqCst);
                &answers[turn.min(answers.len() - 1)]
            } else {
                &[]
            };
            let mut answer = question[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::try_from(found.len()).unwrap()]);
            answer.extend([0; 4]);
            answer.extend(&question[12..end + 5]);
            for ip in found {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(ip);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    (address, asked)
}

/// iron-proxy: one look-up for the rule, a second one for the connection, and another address in the second.
#[test]
fn the_address_that_was_checked_is_the_address_that_is_dialled() {
    const GOOD: [u8; 4] = [127, 0, 0, 1];
    const INSIDE: [u8; 4] = [127, 0, 0, 2];
    // What happens to three calls, each on a connection of its own.
    let rows: [(Answers, [u16; 3]); 5] = [
        (vec![vec![GOOD], vec![INSIDE]], [200, 422, 422]),
        (vec![vec![INSIDE], vec![GOOD]], [422, 200, 200]),
        (vec![vec![GOOD], vec![INSIDE], vec![GOOD]], [200, 422, 200]),
        (vec![vec![GOOD, INSIDE]], [422, 422, 422]),
        // The twin.
        (vec![vec![GOOD]], [200, 200, 200]),
    ];
    let now = jiff::Timestamp::now();
    let elsewhere = format!(
        "[\"127.0.0.1/32\"]\nclear_text = true\nsource = \"https://example.org/\"\ncopied_at = {now:.0}"
    );
    for (answers, statuses) in rows {
        let closing = response("200 OK", "connection: close\r\n", "{}");
        let host = Host::start(move |stream, _| {
            let _ = stream.write_all(&closing);
            false
        });
        let port = host.address.port();
        let trap = TcpListener::bind(("127.0.0.2", port)).unwrap();
        trap.set_nonblocking(true).unwrap();
        let (server, asked) = name_server(answers.clone());
        let hosts = entry(&host, "")
            .replace("resolve = [\"127.0.0.1\"]\n", "")
            .replace("\"loopback\"", &elsewhere);
        let resolver = format!("[resolver]\nservers = [\"{server}\"]\n");
        let place = Place::with(host, &hosts, &resolver);
        for (n, status) in statuses.into_iter().enumerate() {
            let reply = place.call(&card(json!({})), &body());
            assert_eq!(reply.status, status, "{answers:?} {n}: {reply:?}");
            if status == 422 {
                assert_eq!(reply.reason(), "address_refused");
            }
            assert_eq!(asked.load(Ordering::SeqCst), n + 1, "one look-up a call");
        }
        let good = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(
            (place.host.accepts(), place.host.seen().len()),
            (good, good)
        );
        assert!(trap.accept().is_err(), "{answers:?}: dialled");
        let sent = place.outcomes(3);
        let none = sent.iter().filter(|one| one["sent"] == "none").count();
        assert_eq!((sent.len(), none), (3, 3 - good), "{answers:?}");
    }
}
