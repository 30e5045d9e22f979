//! The capture's answers: for each route of the API what its own documentation calls a success, with an empty text.
//!
//! Promises: an answer has as many choices, vectors or events as the request asks for, within bounds; a body that cannot be read gets the plain answer.

use serde_json::{Value, json};

/// The routes that are answered, relative to the base URL.
pub(super) const ROUTES: [&str; 5] = [
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/messages",
];

/// Choices or vectors in one answer, at most.
const MOST: usize = 2048;
/// Numbers of a vector where the request names none, and at most.
const DIMENSIONS: (usize, usize) = (16, 4096);
const ID: &str = "leafgate-capture";

/// A body and its kind.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    fn json(value: &Value) -> Answer {
        Answer {
            kind: "application/json",
            body: value.to_string(),
        }
    }

    /// Server-sent events: each with its name (where the API names them) and its data.
    fn events(events: &[(Option<&str>, String)]) -> Answer {
        let mut body = String::new();
        for (name, data) in events {
            if let Some(name) = name {
                body.push_str(&format!("event: {name}\n"));
            }
            body.push_str(&format!("data: {data}\n\n"));
        }
        Answer {
            kind: "text/event-stream",
            body,
        }
    }

    pub(super) fn fault(what: &str) -> Answer {
        Answer::json(
            &json!({"error": {"message": what, "type": "invalid_request_error", "code": null, "param": null}}),
        )
    }
}

/// `GET /models` (`rest` is empty) and `GET /models/NAME`.
pub(super) fn models(models: &[String], rest: &str) -> Answer {
    let model = |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": ID});
    match rest.strip_prefix('/') {
        Some(name) if !name.is_empty() => Answer::json(&model(name)),
        Some(_) | None => {
            let list: Vec<Value> = models.iter().map(|id| model(id)).collect();
            Answer::json(&json!({"object": "list", "data": list}))
        }
    }
}

/// The empty answer to this body.
pub(super) fn empty(route: &str, body: &[u8]) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let stream = asked["stream"] == true;
    match (route, stream) {
        ("/chat/completions", false) => chat(&asked),
        ("/chat/completions", true) => chat_stream(&asked),
        ("/completions", _) => completions(&asked, stream),
        ("/responses", _) => responses(&asked, stream),
        ("/embeddings", _) => embeddings(&asked),
        (_, false) => Answer::json(&message(&asked, true)),
        (_, true) => message_stream(&asked),
    }
}

fn model(asked: &Value) -> &str {
    asked["model"].as_str().unwrap_or(ID)
}

fn count(value: &Value) -> usize {
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    number.unwrap_or(1).clamp(1, MOST)
}

/// How many texts a prompt or an input holds; a list of numbers is one.
fn texts(value: &Value) -> usize {
    value
        .as_array()
        .filter(|list| !list.iter().any(Value::is_number))
        .map_or(1, |list| list.len().clamp(1, MOST))
}

fn usage() -> Value {
    json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
}

fn chat(asked: &Value) -> Answer {
    let logprobs = if asked["logprobs"] == true {
        json!({"content": [], "refusal": null})
    } else {
        Value::Null
    };
    let choices: Vec<Value> = (0..count(&asked["n"]))
        .map(|index| {
            json!({
                "index": index, "finish_reason": "stop", "logprobs": logprobs,
                "message": {"role": "assistant", "content": "", "refusal": null},
            })
        })
        .collect();
    Answer::json(&json!({
        "id": ID, "object": "chat.completion", "created": 0, "model": model(asked), "choices": choices, "usage": usage(),
    }))
}

fn chat_stream(asked: &Value) -> Answer {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": ID, "object": "chat.completion.chunk", "created": 0, "model": model(asked), "choices": choices, "usage": usage,
        });
        (None, chunk.to_string())
    };
    let mut events = Vec::new();
    for index in 0..count(&asked["n"]) {
        let first = json!([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]);
        events.push(chunk(first, Value::Null));
        let last = json!([{"index": index, "delta": {}, "finish_reason": "stop"}]);
        events.push(chunk(last, Value::Null));
    }
    if asked["stream_options"]["include_usage"] == true {
        events.push(chunk(json!([]), usage()));
    }
    events.push((None, "[DONE]".to_owned()));
    Answer::events(&events)
}

fn completions(asked: &Value, stream: bool) -> Answer {
    let prompts = texts(&asked["prompt"]);
    let logprobs = if asked["logprobs"].is_number() {
        json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []})
    } else {
        Value::Null
    };
    let choices: Vec<Value> = (0..(prompts * count(&asked["n"])).min(MOST))
        .map(|index| json!({"index": index, "text": "", "finish_reason": "stop", "logprobs": logprobs}))
        .collect();
    let all = json!({
        "id": ID, "object": "text_completion", "created": 0, "model": model(asked), "choices": choices, "usage": usage(),
    });
    if stream {
        return Answer::events(&[(None, all.to_string()), (None, "[DONE]".to_owned())]);
    }
    Answer::json(&all)
}

fn embeddings(asked: &Value) -> Answer {
    let inputs = texts(&asked["input"]);
    let dimensions = asked["dimensions"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok());
    let dimensions = dimensions.unwrap_or(DIMENSIONS.0).clamp(1, DIMENSIONS.1);
    // A vector of length one: a client may divide by its length.
    let vector: Vec<f32> = (0..dimensions)
        .map(|place| if place == 0 { 1.0 } else { 0.0 })
        .collect();
    let vector = if asked["encoding_format"] == "base64" {
        use base64::Engine as _;
        let bytes: Vec<u8> = vector.iter().flat_map(|n| n.to_le_bytes()).collect();
        Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))
    } else {
        json!(vector)
    };
    let data: Vec<Value> = (0..inputs)
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    Answer::json(&json!({
        "object": "list", "data": data, "model": model(asked), "usage": {"prompt_tokens": 0, "total_tokens": 0},
    }))
}

fn responses(asked: &Value, stream: bool) -> Answer {
    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    let item = |status: &str, content: Value| json!({"type": "message", "id": "msg-capture", "status": status, "role": "assistant", "content": content});
    let done = item("completed", json!([part]));
    let response = |status: &str, output: Value| {
        json!({
            "id": "resp-capture", "object": "response", "created_at": 0, "status": status, "model": model(asked), "output": output,
            "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": true,
            "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
            "usage": {
                "input_tokens": 0, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0,
            },
        })
    };
    if !stream {
        return Answer::json(&response("completed", json!([done])));
    }
    let open = response("in_progress", json!([]));
    let place = |mut value: Value| {
        value["item_id"] = "msg-capture".into();
        value["output_index"] = 0.into();
        value["content_index"] = 0.into();
        value
    };
    let events = [
        ("response.created", json!({"response": open})),
        ("response.in_progress", json!({"response": open})),
        (
            "response.output_item.added",
            json!({"output_index": 0, "item": item("in_progress", json!([]))}),
        ),
        ("response.content_part.added", place(json!({"part": part}))),
        (
            "response.output_text.done",
            place(json!({"text": "", "logprobs": []})),
        ),
        ("response.content_part.done", place(json!({"part": part}))),
        (
            "response.output_item.done",
            json!({"output_index": 0, "item": done}),
        ),
        (
            "response.completed",
            json!({"response": response("completed", json!([done]))}),
        ),
    ];
    let events: Vec<(Option<&str>, String)> = (0_u64..)
        .zip(events)
        .map(|(number, (name, mut data))| {
            data["type"] = name.into();
            data["sequence_number"] = number.into();
            (Some(name), data.to_string())
        })
        .collect();
    Answer::events(&events)
}

fn message(asked: &Value, whole: bool) -> Value {
    let (content, stop) = if whole {
        (json!([{"type": "text", "text": ""}]), json!("end_turn"))
    } else {
        (json!([]), Value::Null)
    };
    json!({
        "id": ID, "type": "message", "role": "assistant", "model": model(asked), "content": content, "stop_reason": stop,
        "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0},
    })
}

fn message_stream(asked: &Value) -> Answer {
    let events = [
        json!({"type": "message_start", "message": message(asked, false)}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 0},
        }),
        json!({"type": "message_stop"}),
    ];
    let events: Vec<(Option<&str>, String)> = events
        .iter()
        .map(|event| (event["type"].as_str(), event.to_string()))
        .collect();
    Answer::events(&events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(route: &str, asked: Value) -> Value {
        let answer = empty(route, asked.to_string().as_bytes());
        assert_eq!(answer.kind, "application/json");
        serde_json::from_str(&answer.body).unwrap()
    }

    #[test]
    fn an_answer_has_as_much_as_was_asked_for() {
        let chat = value("/chat/completions", json!({"model": "m", "n": 3}));
        assert_eq!(chat["choices"].as_array().unwrap().len(), 3);
        assert_eq!(chat["model"], "m");
        let two = value("/completions", json!({"prompt": ["a", "b"], "n": 2}));
        assert_eq!(two["choices"].as_array().unwrap().len(), 4);
        let tokens = value("/completions", json!({"prompt": [1, 2, 3], "logprobs": 1}));
        assert_eq!(tokens["choices"].as_array().unwrap().len(), 1);
        assert!(tokens["choices"][0]["logprobs"]["token_logprobs"].is_array());
        let vectors = value("/embeddings", json!({"input": ["a", "b"], "dimensions": 4}));
        assert_eq!(vectors["data"][1]["embedding"], json!([1.0, 0.0, 0.0, 0.0]));
        let packed = value(
            "/embeddings",
            json!({"input": "a", "dimensions": 1, "encoding_format": "base64"}),
        );
        assert_eq!(packed["data"][0]["embedding"], "AACAPw==");
        let many = value("/chat/completions", json!({"n": 10_000_000}));
        assert_eq!(many["choices"].as_array().unwrap().len(), MOST);
        assert_eq!(value("/messages", json!({}))["stop_reason"], "end_turn");
        let response = value("/responses", json!({}));
        assert_eq!(response["output"][0]["content"][0]["text"], "");
        assert_eq!(
            empty("/chat/completions", b"no json").kind,
            "application/json"
        );
    }

    #[test]
    fn a_stream_ends_as_its_api_says() {
        for (route, end) in [
            ("/chat/completions", "data: [DONE]\n\n"),
            ("/completions", "data: [DONE]\n\n"),
            (
                "/messages",
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ),
        ] {
            let answer = empty(route, br#"{"stream": true}"#);
            assert_eq!(answer.kind, "text/event-stream");
            assert!(answer.body.ends_with(end), "{route}: {}", answer.body);
        }
        let answer = empty("/responses", br#"{"stream": true}"#);
        assert!(answer.body.contains("event: response.completed\n"));
        let usage = empty(
            "/chat/completions",
            br#"{"stream": true, "stream_options": {"include_usage": true}}"#,
        );
        assert!(usage.body.contains("\"choices\":[]"));
    }
}
