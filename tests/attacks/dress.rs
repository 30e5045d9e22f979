//! Everything about a call besides the four values of a split, at random.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use crate::support::body;

/// Everything about a call besides the four values.
#[derive(Debug, Clone)]
pub struct Dress {
    pub attach: usize,
    pub route: usize,
    pub absolute: bool,
    pub note: String,
    pub window: String,
    pub surface: String,
    pub payload: Payload,
    pub headers: Vec<(String, String)>,
    pub upper: bool,
    pub space: String,
    pub card_last: bool,
    pub chunks: Option<Vec<usize>>,
    pub pace: usize,
}

#[derive(Debug, Clone)]
pub enum Payload {
    Bytes(Vec<u8>),
    Text(String),
    /// A chat completion that says this, and `failure_label` where the card has none.
    Chat(String, bool),
}

impl Payload {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Payload::Bytes(bytes) => bytes.clone(),
            Payload::Text(text) => text.clone().into_bytes(),
            Payload::Chat(text, _) => {
                let mut doc = json!({"model": text, "messages": [{"role": "user", "content": text}], text: 1});
                if self.has_label() {
                    doc["failure_label"] = "wrong-answer".into();
                }
                doc.to_string().into_bytes()
            }
        }
    }

    /// The payload has the label, and the card then need not.
    pub fn has_label(&self) -> bool {
        matches!(self, Payload::Chat(_, true))
    }
}

pub const ROUTES: [&str; 5] = [
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/messages",
];

/// Cards in the store, each with a note of its own.
pub const STORED: usize = 3;

fn payloads() -> impl Strategy<Value = Payload> {
    prop_oneof![
        vec(any::<u8>(), 0..200).prop_map(Payload::Bytes),
        "\\PC{0,80}".prop_map(Payload::Text),
        ("[a-z]{1,12}", any::<bool>()).prop_map(|(text, label)| Payload::Chat(text, label)),
        (1000_usize..40_000).prop_map(|long| Payload::Bytes(vec![b'x'; long])),
    ]
}

pub fn dresses() -> impl Strategy<Value = Dress> {
    let header = ("[xX]-[a-z]{1,12}", "[ -~]{0,40}");
    let known = (
        prop_oneof![
            "user-agent",
            "cookie",
            "anthropic-version",
            "accept",
            "openai-organization",
            "content-type",
            "content-encoding",
            "traceparent"
        ],
        prop_oneof!["2023-06-01", "[!-~]{1,20}"],
    );
    let words = (
        "\\PC{0,60}",
        "[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,20}",
        "[a-z]{1,20}",
    );
    let form = (
        0_usize..7,
        0..ROUTES.len(),
        any::<bool>(),
        any::<bool>(),
        "[ \t]{0,3}",
        any::<bool>(),
    );
    let wire = (proptest::option::of(vec(1_usize..90, 1..6)), 1_usize..6);
    (
        words,
        form,
        wire,
        payloads(),
        vec(header, 0..5),
        proptest::option::of(known),
    )
        .prop_map(
            |(
                (note, window, surface),
                (attach, route, absolute, upper, space, card_last),
                (chunks, pace),
                payload,
                mut headers,
                known,
            )| {
                headers.extend(known);
                Dress {
                    attach,
                    route,
                    absolute,
                    note,
                    window,
                    surface,
                    payload,
                    headers,
                    upper,
                    space,
                    card_last,
                    chunks,
                    pace,
                }
            },
        )
}

/// The plainest one.
pub fn dress() -> Dress {
    Dress {
        attach: 6,
        route: 0,
        absolute: false,
        note: String::new(),
        window: "24h".to_owned(),
        surface: "tmpdir".to_owned(),
        payload: Payload::Bytes(body()),
        headers: Vec::new(),
        upper: false,
        space: " ".to_owned(),
        card_last: true,
        chunks: None,
        pace: 1,
    }
}
