//! Whole calls: what leaves, what is recorded, what the client sees.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::Digest as _;
use support::{
    CANARY, Gate, HOST, Host, OK_BODY, body, body_with, card, entry, fixture_hash, read_reply,
    split_card,
};

fn held(gate: &Gate, host: &Host, card: &Value, body: &[u8], reason: &str, step: &str) {
    let reply = gate.call(card, body);
    assert_eq!(
        (reply.status, reply.reason(), reply.header("leafgate-step")),
        (422, reason, Some(step)),
        "{reply:?}"
    );
    let doc = reply.json();
    let message = doc["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("leafgate") && message.is_ascii() && !message.contains('\n'),
        "{message}"
    );
    // A command that named one file without its format would record another fixture.
    let whole = message.contains(" --format text") && !message.contains("add FILE");
    assert!(reason != "fixture_mismatch" || whole, "{message}");
    assert_eq!(
        (
            doc["type"].as_str(),
            doc["error"]["type"].as_str(),
            doc["error"]["code"].as_str()
        ),
        (Some("error"), Some("egress_refused"), Some(reason))
    );
    assert_eq!(host.accepts(), 0, "{reason}");
}

#[test]
fn a_release_is_the_body_byte_for_byte_and_a_head_built_anew() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let odd = [b" ", &body()[..], b"\r\n"].concat();
    for payload in [body(), odd] {
        let reply = gate.call_with(&card(json!({})), &format!("User-Agent: {CANARY}\r\nCookie: {CANARY}\r\nX-{CANARY}: 1\r\nAuthorization: Bearer {CANARY}\r\n"), &payload);
        assert_eq!(
            (reply.status, reply.body.as_slice()),
            (200, OK_BODY.as_bytes())
        );
        let seen = host.seen().pop().unwrap();
        assert_eq!(seen.body, payload);
        assert_eq!(
            seen.head,
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {HOST}:{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\naccept: */*\r\naccept-encoding: identity\r\nuser-agent: leafgate\r\n\r\n",
                host.address.port(),
                payload.len()
            )
        );
    }
    let decision = gate.of_kind("decision").pop().unwrap();
    assert_eq!(
        decision["dropped"],
        json!({"names": ["authorization", "cookie", "user-agent"], "other": 1})
    );
    let outcome = gate.wait("outcome", 2).pop().unwrap();
    assert_eq!(
        (
            &outcome["sent_sha256"],
            &outcome["sent_len"],
            &outcome["sent"]
        ),
        (
            &decision["plan_sha256"],
            &decision["plan_len"],
            &json!("all")
        )
    );
    assert!(!gate.ledger_text().contains(CANARY));
}

#[test]
fn a_split_is_a_function_of_four_values() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    for (payload, headers) in [
        (
            body_with(CANARY),
            format!(
                "User-Agent: {CANARY}\r\nX-Team: {CANARY}\r\nanthropic-version: 2023-06-01\r\n"
            ),
        ),
        (b"{}".to_vec(), String::new()),
        (
            b"\xff not json".to_vec(),
            format!("Accept: {CANARY}\r\nContent-Encoding: gzip\r\n"),
        ),
    ] {
        let reply = gate.call_with(&split_card(json!({"note": CANARY})), &headers, &payload);
        assert_eq!(
            (reply.status, reply.header("leafgate-score")),
            (200, Some("local")),
            "{reply:?}"
        );
    }
    let seen = host.seen();
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    let want = format!(
        r#"{{"fixture_id":"doc-17","fixture_hash":"{}","egress_class":"redacted-metadata","failure_label":"wrong-answer"}}"#,
        fixture_hash()
    );
    assert_eq!(String::from_utf8(seen[0].body.clone()).unwrap(), want);
    assert!(
        gate.wait("outcome", 3)
            .iter()
            .all(|o| o["score"] == "local")
    );
    assert!(!gate.ledger_text().contains(CANARY));
}

#[test]
fn holds_and_refusals_reach_no_host() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    for (card, reason, step) in [
        (
            card(json!({"egress_class": "machine-local"})),
            "machine_local",
            "1",
        ),
        (
            card(json!({"residue": ["customer_email"]})),
            "residue_present",
            "2",
        ),
        (
            card(json!({"host_pin": "\u{200b}\u{3164}"})),
            "field_blank",
            "3",
        ),
        (
            card(json!({"egress_class": "public-fixtre"})),
            "class_unknown",
            "6",
        ),
        (card(json!({"host_pin": null})), "field_missing", "0"),
        (card(json!({"override": true})), "card_malformed", "0"),
        (
            card(json!({"fixture_hash": "sha256:abc"})),
            "hash_malformed",
            "5",
        ),
        (card(json!({"fixture_id": "a b"})), "id_malformed", "5"),
        (
            card(json!({"host_pin": "free-server"})),
            "pin_placeholder",
            "5",
        ),
        (
            card(json!({"host_pin": "models.example.org."})),
            "pin_unknown",
            "5",
        ),
        (
            card(json!({"fixture_id": "never-seen"})),
            "fixture_unknown",
            "5",
        ),
        (
            card(json!({"fixture_hash": format!("sha256:{}", "0".repeat(64))})),
            "fixture_mismatch",
            "5",
        ),
        (
            split_card(json!({"failure_label": null})),
            "label_missing",
            "4",
        ),
        (
            split_card(json!({"failure_label": "my own words"})),
            "label_unknown",
            "4",
        ),
    ] {
        let ascii = card.to_string().is_ascii();
        if ascii {
            held(&gate, &host, &card, &body(), reason, step);
        } else {
            let head = gate
                .head(
                    &json!({}),
                    &format!("Content-Length: {}\r\n\r\n", body().len()),
                )
                .replace(
                    "leafgate-card: {}",
                    &format!(
                        "leafgate-card: {}",
                        support::b64(card.to_string().as_bytes())
                    ),
                );
            let reply = gate.raw(&[head.as_bytes(), &body()].concat());
            assert_eq!((reply.status, reply.reason()), (422, reason));
        }
    }
    held(
        &gate,
        &host,
        &split_card(json!({})),
        br#"{"failure_label":"timeout"}"#,
        "payload_contradicts",
        "4",
    );
    held(
        &gate,
        &host,
        &card(json!({})),
        &body_with("The patient is J. M., born in 1961."),
        "body_unbound",
        "5",
    );
    assert!(
        !gate.ledger_text().contains("patient") && !gate.ledger_text().contains("my own words")
    );
    assert_eq!(gate.of_kind("decision").len(), 16);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
}

#[test]
fn residue_outside_its_grammar_is_residue_and_is_not_quoted() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let reply = gate.call(
        &card(json!({"residue": ["customer email of Ann", "api_key"]})),
        &body(),
    );
    assert_eq!(reply.reason(), "residue_present");
    let message = reply.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("api_key") && !message.contains("Ann"),
        "{message}"
    );
    let words = gate
        .call(
            &card(json!({"residue": ["flagged_terms", "Blocked"]})),
            &body(),
        )
        .json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_lowercase();
    assert!(
        !words.contains("flagged") && !words.contains("blocked"),
        "{words}"
    );
    assert!(!gate.ledger_text().contains("Ann"));
}

#[test]
fn media_and_routes() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let me = gate.address;
    let send = |path: &str, method: &str, media: &str| {
        let payload = body();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {me}\r\nleafgate-card: {}\r\n{media}Content-Length: {}\r\n\r\n",
            card(json!({})),
            payload.len()
        );
        gate.raw(&[head.as_bytes(), &payload].concat())
    };
    let json_type = "Content-Type: application/json\r\n";
    for path in [
        "/v1/files",
        "/v1/chat/completions?note=x",
        "/v1/../admin",
        "/v1/chat/%63ompletions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions#x",
        "/v1/chat/completions;x=1",
    ] {
        assert_eq!(
            send(path, "POST", json_type).reason(),
            "route_not_allowed",
            "{path}"
        );
    }
    assert_eq!(
        send("/v1/chat/completions", "DELETE", json_type).reason(),
        "route_not_allowed"
    );
    for media in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/jsonp\r\n",
        "Content-Type: application/json, text/html\r\n",
        "Content-Type: application/json; charset=utf-16\r\n",
        "Content-Type: application/json; charset=utf-8; x=1\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
        "Content-Type: application/json\r\nContent-Encoding: identity, gzip\r\n",
        "Content-Type: application/json\r\nContent-Encoding: identity\r\n",
    ] {
        assert_eq!(
            send("/v1/chat/completions", "POST", media).reason(),
            "media_not_allowed",
            "{media}"
        );
    }
    assert_eq!(host.accepts(), 0);
    for media in [
        json_type,
        "Content-Type: Application/JSON; charset=UTF-8\r\n",
    ] {
        assert_eq!(
            send("/v1/chat/completions", "POST", media).status,
            200,
            "{media}"
        );
    }
}

#[test]
fn three_ways_to_attach_and_one_card_only() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let (me, payload) = (gate.address, String::from_utf8(body()).unwrap());
    let value = support::b64(card(json!({})).to_string().as_bytes());
    let send = |path: &str, headers: &str| {
        gate.raw(format!("POST {path} HTTP/1.1\r\nHost: {me}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{payload}", payload.len()).as_bytes())
    };
    let (root, named) = ("/v1/chat/completions", "/card/seed-04/v1/chat/completions");
    for (path, headers) in [
        (root, format!("leafgate-card: {value}\r\n")),
        (root, "leafgate-card: @seed-04\r\n".into()),
        (named, String::new()),
        (root, "Authorization: Bearer card:seed-04\r\n".into()),
        (root, "x-api-key: card:seed-04\r\n".into()),
        (named, "Authorization: Bearer sk-other\r\n".into()),
    ] {
        assert_eq!(send(path, &headers).status, 200, "{path} {headers}");
    }
    assert!(
        host.seen()
            .iter()
            .all(|seen| !seen.head.contains("card") && !seen.head.contains("sk-other"))
    );
    for (path, headers) in [
        (named, format!("leafgate-card: {value}\r\n")),
        (
            root,
            format!("leafgate-card: {value}\r\nLeafgate-Card: {value}\r\n"),
        ),
        (
            root,
            "leafgate-card: @seed-04\r\nAuthorization: Bearer card:seed-04\r\n".into(),
        ),
        (
            root,
            "x-api-key: card:seed-04\r\nAuthorization: Bearer card:seed-04\r\n".into(),
        ),
    ] {
        assert_eq!(
            send(path, &headers).reason(),
            "card_ambiguous",
            "{path} {headers}"
        );
    }
    for (path, headers) in [
        (root, ""),
        ("/card/other/v1/chat/completions", ""),
        (root, "leafgate-card: @other\r\n"),
        (root, "x-api-key: card:../seed-04\r\n"),
    ] {
        assert_eq!(
            send(path, headers).reason(),
            "card_missing",
            "{path} {headers}"
        );
    }
    assert_eq!(host.seen().len(), 6);
}

#[test]
fn absolute_form_lies_under_the_pinned_base_url() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let payload = String::from_utf8(body()).unwrap();
    let send = |authority: &str, path: &str| {
        gate.raw(format!("POST http://{authority}{path} HTTP/1.1\r\nHost: {authority}\r\nleafgate-card: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{payload}", card(json!({})), payload.len()).as_bytes())
    };
    let authority = format!("{HOST}:{}", host.address.port());
    let bracketed = format!("[{HOST}]:{}", host.address.port());
    assert_eq!(send(&authority, "/v1/chat/completions").status, 200);
    for (authority, path) in [
        (&*authority, "/v2/chat/completions"),
        (&authority, "/v1chat/completions"),
        ("other.example.org", "/v1/chat/completions"),
        (&bracketed, "/v1/chat/completions"),
        (HOST, "/v1/chat/completions"),
        (&authority, "/chat/completions"),
    ] {
        assert_eq!(
            send(authority, path).reason(),
            "route_not_allowed",
            "{authority}{path}"
        );
    }
    assert_eq!(host.seen().len(), 1);
}

#[test]
fn models_are_answered_from_the_policy() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let get = |card: &Value| {
        gate.raw(
            format!(
                "GET /v1/models HTTP/1.1\r\nHost: {}\r\nleafgate-card: {card}\r\n\r\n",
                gate.address
            )
            .as_bytes(),
        )
    };
    for card in [card(json!({})), split_card(json!({}))] {
        let reply = get(&card);
        assert_eq!(
            (
                reply.status,
                reply.header("leafgate-verdict"),
                reply.json()["data"][0]["id"].as_str()
            ),
            (200, Some("local"), Some("tiny"))
        );
    }
    assert_eq!(
        get(&card(json!({"host_pin": "free-server"}))).reason(),
        "pin_placeholder"
    );
    assert_eq!(
        get(&card(json!({"residue": ["x"]}))).reason(),
        "residue_present"
    );
    assert_eq!(
        (
            host.accepts(),
            gate.of_kind("decision").len(),
            gate.of_kind("outcome").len()
        ),
        (0, 4, 0)
    );
}

#[test]
fn an_answer_that_breaks_at_its_first_byte_still_shows_its_head() {
    let chunked =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let length = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n";
    for (answer, received, whole) in [
        (format!("{chunked}XYZ\r\n"), "", false),
        (format!("{chunked}3\r\nabc\r\nXYZ\r\n"), "abc", false),
        (length.to_owned(), "", false),
        (format!("{length}abc"), "abc", false),
        (format!("{chunked}3\r\nabc\r\n0\r\n\r\n"), "abc", true),
        (format!("{length}abcdefghi"), "abcdefghi", true),
    ] {
        let host = Host::start({
            let answer = answer.clone();
            move |stream, _| {
                let _ = stream.write_all(answer.as_bytes());
                false
            }
        });
        let gate = Gate::in_front_of(&host);
        let mut stream = gate.connect();
        let head = gate.head(&card(json!({})), "");
        let request = format!("{head}Content-Length: {}\r\n\r\n", body().len());
        stream
            .write_all(&[request.as_bytes(), &body()].concat())
            .unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        let (mut raw, mut piece) = (Vec::new(), [0; 4096]);
        // A whole answer leaves the connection open: the time-out ends the reading.
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            raw.extend_from_slice(&piece[..read]);
        }
        let text = String::from_utf8_lossy(&raw);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}: {text}");
        assert!(text.contains(received), "{answer}: {text}");
        let ended = text.ends_with("0\r\n\r\n") || text.ends_with("abcdefghi");
        assert_eq!(ended, whole, "{answer}: {text}");
        let outcome = gate.wait("outcome", 1).remove(0);
        assert_eq!(outcome.get("error").is_none(), whole, "{outcome}");
    }
}

/// On one thread that serves: whoever asks while a long body is checked does not wait for the end of that.
#[test]
fn a_long_body_holds_nobody_else_up() {
    let host = Host::ok();
    let dir = tempfile::tempdir().unwrap();
    support::lay_out(dir.path(), &support::entry(&host, ""), "", "");
    let gate = Gate::start_on(dir, 1);
    let long = body_with(&"def clamp(v".repeat(400_000));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| gate.call(&card(json!({})), &long));
        let mut longest = Duration::ZERO;
        while !call.is_finished() {
            let asked = Instant::now();
            let held = gate.call(&card(json!({ "egress_class": "machine-local" })), b"{}");
            assert_eq!(held.status, 422);
            longest = longest.max(asked.elapsed());
        }
        let all = began.elapsed();
        assert_eq!(call.join().unwrap().reason(), "body_unbound");
        assert!(longest < all / 2, "{longest:?} of {all:?}");
    });
}

#[test]
fn a_client_that_leaves_ends_the_exchange_and_the_outcome_says_so() {
    let host = Host::start(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..100 {
            if stream.write_all(b"5\r\ndata:\r\n").is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    });
    let gate = Gate::in_front_of(&host);
    let began = Instant::now();
    let mut stream = gate.connect();
    let payload = body();
    stream
        .write_all(
            &[
                gate.head(
                    &card(json!({})),
                    &format!("Content-Length: {}\r\n\r\n", payload.len()),
                )
                .as_bytes(),
                &payload,
            ]
            .concat(),
        )
        .unwrap();
    let mut first = [0; 64];
    std::io::Read::read(&mut stream, &mut first).unwrap();
    drop(stream);
    let outcome = gate
        .wait("outcome", 1)
        .pop()
        .expect("an outcome although nobody waits");
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (outcome["sent"].as_str(), outcome["error"].as_str()),
        (Some("all"), Some("client_gone"))
    );
}

#[test]
fn many_calls_on_one_connection_are_each_judged() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    let mut stream = gate.connect();
    let payload = body();
    for n in 0..20 {
        let hold = n % 3 == 1;
        let card = if hold {
            card(json!({"egress_class": "machine-local"}))
        } else {
            card(json!({}))
        };
        stream
            .write_all(
                &[
                    gate.head(&card, &format!("Content-Length: {}\r\n\r\n", payload.len()))
                        .as_bytes(),
                    &payload,
                ]
                .concat(),
            )
            .unwrap();
        assert_eq!(
            read_reply(&mut stream).status,
            if hold { 422 } else { 200 },
            "{n}"
        );
    }
    assert_eq!((host.seen().len(), host.accepts()), (13, 1));
    assert_eq!(gate.of_kind("decision").len(), 20);
}

/// `vocabulary` in the policy: what one host takes besides the API, and no other host does.
#[test]
fn a_hosts_own_parameters_leave_for_that_host_with_their_types() {
    let own = "vocabulary = { top_k = \"number\", guided_choice = \"[text]\", mode = \"'plain' | null\" }";
    let (host, plain) = (Host::ok(), Host::ok());
    let gate = Gate::with(&entry(&host, own), "");
    let without = Gate::in_front_of(&plain);
    let with = |name: &str, value: Value| {
        let mut doc: Value = serde_json::from_slice(&body()).unwrap();
        doc[name] = value;
        doc.to_string().into_bytes()
    };
    let line = support::FIXTURE.lines().next().unwrap();
    for (name, value) in [
        ("top_k", json!(40)),
        ("guided_choice", json!([line, line])),
        ("mode", json!("plain")),
        ("mode", json!(null)),
    ] {
        let payload = with(name, value);
        let reply = gate.call(&card(json!({})), &payload);
        assert_eq!(reply.status, 200, "{name} {reply:?}");
        assert_eq!(host.seen().pop().unwrap().body, payload);
        let refused = without.call(&card(json!({})), &payload);
        let message = refused.json()["error"]["message"].to_string();
        assert_eq!(refused.reason(), "body_unbound", "{name}");
        assert!(
            message.contains("the body at /* is")
                && message.contains("under the host's vocabulary"),
            "{message}"
        );
    }
    let left = host.accepts();
    for (name, value, place) in [
        ("top_k", json!("40"), "/top_k"),
        ("top_k", json!([40]), "/top_k"),
        ("guided_choice", json!([line, 7]), "/guided_choice/1"),
        ("guided_choice", json!([CANARY]), "/guided_choice/0"),
        ("mode", json!("plan"), "/mode"),
        ("min_p", json!(0.1), "/*"),
    ] {
        let refused = gate.call(&card(json!({})), &with(name, value));
        let message = refused.json()["error"]["message"].to_string();
        assert_eq!(refused.reason(), "body_unbound", "{name}");
        assert!(
            message.contains(&format!("the body at {place} is")),
            "{message}"
        );
    }
    assert_eq!((host.accepts(), plain.accepts()), (left, 0));
    let hash = |gate: &Gate| {
        let decisions = gate.of_kind("decision");
        decisions
            .iter()
            .find_map(|one| one["bind"]["vocabulary_sha256"].as_str().map(str::to_owned))
    };
    // What the record says can be made again: the shipped file, then the names as `policy check --json` shows them.
    let text = concat!(
        include_str!("../policies/vocabulary/openai-chat.toml"),
        r#"{"guided_choice":"[text]","mode":"'plain' | null","top_k":"number"}"#
    );
    let want: String = sha2::Sha256::digest(text)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(hash(&gate), Some(want));
    assert_eq!(without.call(&card(json!({})), &body()).status, 200);
    assert_ne!(hash(&without), hash(&gate));
    assert!(!gate.ledger_text().contains(CANARY));
}

#[test]
fn over_the_limits_a_call_is_overloaded_and_counted() {
    let host = Host::start(|stream, _| {
        std::thread::sleep(Duration::from_millis(500));
        stream.write_all(&support::ok_response()).is_ok()
    });
    let gate = Gate::with(&entry(&host, ""), "[limits]\nin_flight = 1\n");
    let mut slow = gate.connect();
    let payload = body();
    slow.write_all(
        &[
            gate.head(
                &card(json!({})),
                &format!("Content-Length: {}\r\n\r\n", payload.len()),
            )
            .as_bytes(),
            &payload,
        ]
        .concat(),
    )
    .unwrap();
    gate.wait("decision", 1);
    let reply = gate.call(&card(json!({})), &body());
    assert_eq!(
        (reply.status, reply.reason(), reply.header("x-should-retry")),
        (503, "overloaded", None),
        "{reply:?}"
    );
    assert_eq!(read_reply(&mut slow).status, 200);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    let refused = gate.wait("refused", 1);
    assert_eq!(
        (refused[0]["reason"].as_str(), refused[0]["count"].as_u64()),
        (Some("overloaded"), Some(1))
    );
}

#[test]
fn a_token_is_asked_for_where_the_policy_says() {
    let host = Host::ok();
    // The token itself comes from the environment, which a test shares with others: the policy is loaded with a variable that is always set.
    let path = std::env::vars()
        .find(|(name, value)| name == "PATH" && !value.is_empty())
        .expect("PATH is set")
        .1;
    let gate = Gate::with_listen(&entry(&host, ""), "token_env = \"PATH\"");
    let with = |header: &str| gate.call_with(&card(json!({})), header, &body());
    for header in [
        "",
        "leafgate-token: wrong\r\n",
        &format!("leafgate-token: {path}\r\nleafgate-token: {path}\r\n"),
    ] {
        let reply = with(header);
        assert_eq!(
            (reply.status, reply.reason(), reply.header("leafgate-leaf")),
            (422, "client_not_allowed", None),
            "{header}"
        );
    }
    assert_eq!(
        (
            gate.wait("refused", 3).len(),
            gate.of_kind("decision").len(),
            host.accepts()
        ),
        (3, 0, 0)
    );
    assert_eq!(with(&format!("leafgate-token: {path}\r\n")).status, 200);
    assert!(!host.seen()[0].head.contains("token"));
}

#[test]
fn a_changed_fixture_or_card_is_taken_within_seconds() {
    let host = Host::ok();
    let gate = Gate::in_front_of(&host);
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
    std::fs::write(gate.path("cards/late.json"), card(json!({})).to_string()).unwrap();
    std::fs::write(gate.path("seed-04.txt"), "something else\n").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(
        gate.call(&card(json!({})), &body()).reason(),
        "fixture_changed"
    );
    let named = format!(
        "POST /card/late/v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
        gate.address
    );
    assert_eq!(
        gate.raw(named.as_bytes()).reason(),
        "fixture_changed",
        "the card is there"
    );
    std::fs::write(gate.path("seed-04.txt"), support::FIXTURE).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(gate.call(&card(json!({})), &body()).status, 200);
}
