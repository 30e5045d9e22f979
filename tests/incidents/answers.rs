//! Answers that carry what leafgate alone should know.

use std::io::Write as _;

use serde_json::json;

use crate::support::{Host, OK_BODY, body, card};
use crate::{KEY, Place};

/// bifrost: the host's redirect came with the key that the gateway had put into the request, and all its headers went to the client.
#[test]
fn a_key_that_the_host_sends_back_does_not_reach_the_client() {
    let names = [
        "x-goog-api-key",
        "x-api-key",
        "api-key",
        "authorization",
        "set-cookie",
        "x-provider-secret",
        // The prefixes and names that are relayed otherwise.
        "openai-api-key",
        "anthropic-api-key",
        "x-ratelimit-key",
        "x-request-id",
        "request-id",
        "retry-after",
        "content-type",
    ];
    for (status, scheme) in [
        ("302 Found", "Bearer"),
        ("200 OK", "Bearer"),
        ("200 OK", ""),
        ("401 No", ""),
    ] {
        let mut head = format!(
            "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:9/x\r\ncontent-length: {}\r\nx-ratelimit-limit: 9\r\n",
            OK_BODY.len()
        );
        for name in names {
            head += &format!("{name}: key={KEY}; x\r\n");
        }
        let host = Host::start(move |stream, _| {
            stream
                .write_all(format!("{head}\r\n{OK_BODY}").as_bytes())
                .is_ok()
        });
        let scheme_is = if scheme.is_empty() {
            String::new()
        } else {
            format!(", scheme = \"{scheme}\"")
        };
        let credential =
            format!("credential = {{ file = \"key\", header = \"x-goog-api-key\"{scheme_is} }}\n");
        let place = Place::before(host, &credential, "");
        let reply = place.call(&card(json!({})), &body());
        let raw = String::from_utf8_lossy(&reply.raw).into_owned();
        assert!(!raw.contains(KEY), "{status}: {raw}");
        let seen = place.host.seen();
        assert!(seen[0].head.contains(KEY), "the host did get it");
        if status.starts_with('3') {
            assert_eq!((reply.status, reply.reason()), (422, "redirect_refused"));
        } else {
            // The twin: what has no key in it is relayed.
            assert_eq!(reply.status.to_string(), status[..3]);
            assert_eq!(reply.header("x-ratelimit-limit"), Some("9"));
            assert_eq!(reply.body, OK_BODY.as_bytes());
        }
        place.outcomes(1);
        let ledger = crate::support::all_text(&place.process.ledger());
        assert!(
            !ledger.contains(KEY) && !place.process.log().contains(KEY),
            "{status}"
        );
    }
}
