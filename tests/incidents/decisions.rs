//! Decisions that did not hold.

use serde_json::{Value, json};

use crate::support::{CANARY, FIXTURE, GLUE, Host, body, card};
use crate::{KEY, Place};

fn on(place: &Place, path: &str, body: &Value) -> crate::Reply {
    let text = body.to_string();
    place.ask(
        format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: {}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            place.process.address,
            card(json!({})),
            text.len()
        )
        .as_bytes(),
    )
}

/// litellm 30728: the check on private text let all of it pass while the check itself was broken, and one route and streams were never
/// checked.
#[test]
fn a_check_that_cannot_be_made_refuses() {
    let place = Place::plain();
    let bound = format!("{}{FIXTURE}{}", GLUE[0], GLUE[1]);
    let private = format!("My number is 078-05-1120 {CANARY}");
    let bodies = |text: &str, stream: bool| {
        [
            (
                "chat/completions",
                json!({"model": "tiny", "messages": [{"role": "user", "content": text}], "stream": stream}),
            ),
            (
                "responses",
                json!({"model": "tiny", "input": text, "stream": stream}),
            ),
            (
                "messages",
                json!({"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": text}], "stream": stream}),
            ),
            (
                "completions",
                json!({"model": "tiny", "prompt": text, "stream": stream}),
            ),
        ]
    };
    for stream in [false, true] {
        for (path, body) in bodies(&private, stream) {
            let reply = on(&place, path, &body);
            assert_eq!(
                (reply.status, reply.reason()),
                (422, "body_unbound"),
                "{path} {stream}"
            );
        }
        assert_eq!(place.host.seen().len(), if stream { 4 } else { 0 });
        // The twins: the fixture itself, on each route.
        for (path, body) in bodies(&bound, stream) {
            assert_eq!(on(&place, path, &body).status, 200, "{path} {stream}");
        }
    }
    assert_eq!(place.host.seen().len(), 8);
    // What the check needs is taken away: the fixture's file, then its lock file.
    let dir = place.process.dir.path();
    for (name, text, reason) in [
        ("seed-04.txt", &bound, "fixture_changed"),
        ("fixtures.lock", &private, "body_unbound"),
    ] {
        let kept = std::fs::read(dir.join(name)).unwrap();
        std::fs::remove_file(dir.join(name)).unwrap();
        settle();
        for (path, body) in bodies(text, false) {
            let reply = on(&place, path, &body);
            assert_eq!(
                (reply.status, reply.reason()),
                (422, reason),
                "{name} {path}"
            );
        }
        std::fs::write(dir.join(name), kept).unwrap();
        settle();
    }
    assert_eq!(place.host.seen().len(), 8, "nothing left unchecked");
    assert_eq!(
        on(&place, "chat/completions", &bodies(&bound, false)[0].1).status,
        200
    );
    let log = place.process.log();
    assert!(!log.contains(CANARY) && !log.contains("078-05"), "{log}");
}

/// Changes are looked for each second, and taken after two equal looks.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(2500));
}

/// litellm 18261: with the setting that only changes how a block is told, the blocked text was sent all the same.
#[test]
fn how_a_refusal_is_told_does_not_decide_what_leaves() {
    for status in [422, 403, 451] {
        let place = Place::before(Host::ok(), "", &format!("[answers]\nrefused = {status}\n"));
        let held = place.call(
            &card(json!({"egress_class": "machine-local"})),
            CANARY.as_bytes(),
        );
        assert_eq!(
            (held.status, held.header("leafgate-verdict")),
            (status, Some("refuse"))
        );
        let unbound = place.call(&card(json!({})), &crate::support::body_with(CANARY));
        assert_eq!((unbound.status, unbound.reason()), (status, "body_unbound"));
        assert_eq!(place.host.accepts(), 0, "{status}");
        assert!(place.records("outcome").is_empty(), "{status}");
        assert_eq!(place.records("decision").len(), 2, "{status}");
        // The twin.
        assert_eq!(place.call(&card(json!({})), &body()).status, 200);
    }
    // There is no status of success for a refusal, and no mode that only watches.
    for more in [
        "[answers]\nrefused = 200\n",
        "[answers]\nrefused = 500\n",
        "[answers]\nrefused = 422\ndisable_exception_on_block = true\n",
        "mode = \"observe\"\n",
        "[admit]\nfail_open = true\n",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let hosts = crate::entry(&Host::ok(), "");
        crate::lay_out(dir.path(), &hosts, more, "");
        assert!(
            leafgate::policy::Policy::load(&dir.path().join("policy.toml")).is_err(),
            "{more}"
        );
    }
}

/// litellm 37053: a field of the body chose the host, and the key went there.
#[test]
fn no_field_of_a_body_chooses_the_host() {
    let credential =
        "credential = { file = \"key\", header = \"authorization\", scheme = \"Bearer\" }\n";
    let fields = |trap: &Host| {
        let url = format!("http://{}", trap.address);
        [
            json!({"api_base": url}),
            json!({"base_url": url}),
            json!({"litellm_params": {"api_base": url, "api_key": "x"}}),
            json!({"metadata": {"api_base": url}}),
            json!({"extra_body": {"api_base": url}}),
            json!({"model": format!("openai/{url}")}),
        ]
    };
    // Bound to the fixture: refused. Not bound, as `bind = "none"` says: sent as it is, and to the pinned host alone.
    for (bind, status, count) in [
        ("bind = \"cover\"\n", 422, 0),
        ("bind = \"none\"\n", 200, 6),
    ] {
        let trap = Host::ok();
        let place = Place::before(Host::ok(), &format!("{bind}{credential}"), "");
        for field in fields(&trap) {
            let mut asked: Value = serde_json::from_slice(&body()).unwrap();
            let extra = field.as_object().unwrap().clone();
            asked.as_object_mut().unwrap().extend(extra);
            let reply = place.call(&card(json!({})), asked.to_string().as_bytes());
            assert_eq!(reply.status, status, "{bind} {asked}: {}", reply.reason());
        }
        assert_eq!(
            (place.host.seen().len(), trap.accepts()),
            (count, 0),
            "{bind}"
        );
        // The twin; and whoever got a request got the key with it.
        assert_eq!(place.call(&card(json!({})), &body()).status, 200);
        for seen in place.host.seen() {
            assert!(
                seen.head
                    .contains(&format!("\r\nauthorization: Bearer {KEY}\r\n"))
            );
        }
    }
}
