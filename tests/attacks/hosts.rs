//! Hosts that send the client elsewhere: redirects, headers, links.

use std::io::Write as _;

use crate::Built;
use crate::kit::{Lab, PLAIN, once, own};
use crate::support::{Host, OK_BODY, Reply, body, response};

pub const CASES: &[Built] = &[
    ("RED-01", |id| redirects(id, &[307, 308], "")),
    ("RED-03", |id| {
        redirects(id, &[300, 301, 302, 303, 304, 305, 306], "?q=CANARY-7f3a")
    }),
    ("RED-04", |id| {
        gone(id, &["Alt-Svc: h2=\"{TRAP}\"; ma=86400"])
    }),
    ("RED-05", |id| gone(id, &["Refresh: 0; url=http://{TRAP}/"])),
    ("RED-07", cookies),
    ("RED-09", |id| {
        let lines = [
            "Content-Location: http://{TRAP}/",
            "Strict-Transport-Security: max-age=1",
            "Clear-Site-Data: \"*\"",
            "NEL: {\"report_to\":\"x\"}",
            "Report-To: {\"endpoints\":[{\"url\":\"http://{TRAP}/\"}]}",
            "Link: <http://{TRAP}/>; rel=preconnect",
            "Access-Control-Allow-Origin: *",
            "X-Should-Retry: true",
        ];
        gone(id, &lines);
    }),
    ("RED-10", a_body_that_names_another_place),
    ("RED-11", challenges),
    ("RED-12", |id| {
        let lines = [
            "X-Leafgate-Decision: hold",
            "Leafgate-Verdict: refuse",
            "leafgate-score: remote",
            "Leafgate-Call: 0",
        ];
        gone(id, &lines);
    }),
];

/// The first call, which the host answers as `said`; then the twin.
fn answered(id: &str, lab: &Lab) -> Reply {
    let reply = lab.gate.raw(&lab.bytes(PLAIN));
    assert_eq!(lab.host.seen(), [lab.release(&body())], "{id}");
    reply
}

fn redirects(id: &str, statuses: &[u16], query: &str) {
    for status in statuses {
        let lab = Lab::said(&format!(
            "HTTP/1.1 {status} Elsewhere\r\nLocation: http://{{TRAP}}/v1/chat/completions{query}\r\nContent-Length: 0\r\n\r\n"
        ));
        let reply = answered(id, &lab);
        own(id, &reply, 422, "redirect_refused");
        assert!(!reply.head.to_lowercase().contains("location"), "{id}");
        let outcome = lab.gate.wait("outcome", 1).pop().unwrap();
        assert_eq!(
            (
                outcome["error"].as_str(),
                outcome["sent"].as_str(),
                outcome["status"].as_u64()
            ),
            (
                Some("redirect_refused"),
                Some("all"),
                Some(u64::from(*status))
            ),
            "{id}"
        );
        assert_eq!(lab.host.accepts(), 1, "{id}: sent once");
        lab.nothing_told(id);
        lab.good(id);
    }
}

/// These header lines of a good answer reach nobody, and what stands beside them does.
fn gone(id: &str, lines: &[&str]) {
    let lab = Lab::said(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{}\r\nx-request-id: req-1\r\ncontent-length: {}\r\n\r\n{OK_BODY}",
        lines.join("\r\n"),
        OK_BODY.len()
    ));
    let reply = answered(id, &lab);
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, OK_BODY.as_bytes()),
        "{id}"
    );
    assert_eq!(reply.header("x-request-id"), Some("req-1"), "{id}");
    let head = reply.head.to_lowercase();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name = name.to_lowercase();
        let own = reply.header(&name).is_some_and(|found| found != value)
            && name.starts_with("leafgate-");
        assert!(
            own || !head.contains(&format!("\r\n{name}:")),
            "{id}: {name}"
        );
    }
    assert_eq!(reply.header("leafgate-verdict"), Some("forward"), "{id}");
    assert!(!head.contains(&lab.trap.address.to_string()), "{id}");
    lab.good(id);
    assert_eq!(
        lab.host.accepts(),
        1,
        "{id}: the next call goes to the same place"
    );
    lab.nothing_told(id);
}

fn cookies(id: &str) {
    gone(
        id,
        &[
            "Set-Cookie: id=UPSTREAM-TAG",
            "Set-Cookie2: id=UPSTREAM-TAG",
        ],
    );
    let lab = Lab::new();
    let template = "{REQ}Cookie: id=UPSTREAM-TAG\\r\\nContent-Length: {N}\\r\\n\\r\\n{BODY}";
    let record = lab.forwarded(id, &lab.bytes(template));
    assert_eq!(
        record["dropped"]["names"],
        serde_json::json!(["cookie"]),
        "{id}"
    );
}

fn a_body_that_names_another_place(id: &str) {
    let trap = Host::ok();
    let said = format!(
        "{{\"object\":\"list\",\"url\":\"http://{0}/next\",\"next\":\"http://{0}/next\",\"data\":[]}}",
        trap.address
    );
    let text = response("200 OK", "", &said);
    let lab = Lab::before(
        once(move |stream, _| stream.write_all(&text).is_ok()),
        trap,
        "",
        "",
    );
    let reply = answered(id, &lab);
    assert_eq!(
        (reply.status, reply.body),
        (200, said.into_bytes()),
        "{id}: as it came"
    );
    lab.nothing_told(id);
    let threats = include_str!("../../docs/threats.md");
    assert!(
        threats.contains("an address in it"),
        "{id}: the documents say who may go there"
    );
    lab.good(id);
}

fn challenges(id: &str) {
    for (status, line) in [
        (
            "407 Proxy Authentication Required",
            "Proxy-Authenticate: Basic realm=\"CANARY-7f3a\"",
        ),
        (
            "401 Unauthorized",
            "WWW-Authenticate: Basic realm=\"CANARY-7f3a\"",
        ),
        ("401 Unauthorized", "WWW-Authenticate: Negotiate"),
    ] {
        let lab = Lab::said(&format!(
            "HTTP/1.1 {status}\r\n{line}\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        let reply = answered(id, &lab);
        assert_eq!(reply.status.to_string(), status[..3], "{id}");
        assert!(
            !reply.head.to_lowercase().contains("authenticate"),
            "{id}: {reply:?}"
        );
        // No second request with a credential.
        assert_eq!(lab.host.seen().len(), 1, "{id}");
        lab.nothing_told(id);
        lab.good(id);
    }
}
