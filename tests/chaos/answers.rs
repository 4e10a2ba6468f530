//! The upstream's answers, in LiteLLM's format, on three routes, unary or as streams.

use crate::random::pick;
use fastrand::Rng;
use serde_json::{Value, json};

/// The routes that the client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Responses,
    Messages,
}

impl Route {
    pub(crate) const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    pub(crate) fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.path() == path)
    }

    /// The line by which a client knows that a stream is complete.
    pub(crate) fn last_line(self) -> &'static str {
        match self {
            Self::Chat => "data: [DONE]\n",
            Self::Responses => "event: response.completed\n",
            Self::Messages => "event: message_stop\n",
        }
    }
}

/// The head and the whole body of a unary answer.
pub(crate) fn unary(route: Route, call_id: &str, random: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let text = text(pick(random, &[20, 2_000, 60_000]));
    let body = match route {
        Route::Chat => json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}),
        Route::Responses => response("completed", &text),
        Route::Messages => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 5}}),
    };
    let body = body.to_string().into_bytes();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         x-litellm-call-id: {call_id}\r\nx-litellm-response-cost: 0.0000105\r\n\r\n"
    );
    (head.into_bytes(), body)
}

/// The head of a stream.
pub(crate) fn stream_head(call_id: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n";
    format!("{head}x-litellm-call-id: {call_id}\r\n\r\n").into_bytes()
}

/// The events, each as a chunk; the last one ends the body.
pub(crate) fn events(route: Route, random: &mut Rng) -> Vec<Vec<u8>> {
    let deltas = 1 + random.u64(..12);
    let mut events: Vec<String> = match route {
        Route::Chat => (0..deltas).map(|_| data(&chat_chunk(&json!({"content": "word "}), &Value::Null))).collect(),
        Route::Responses => std::iter::once(
            json!({"type": "response.created", "response": response("in_progress", "")}),
        )
        .chain((0..deltas).map(|_| {
            json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
                    "delta": "word "})
        }))
        .map(|event| typed(&event))
        .collect(),
        Route::Messages => {
            let begun = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 1}});
            [
                json!({"type": "message_start", "message": begun}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ]
            .into_iter()
            .chain((0..deltas).map(|_| {
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}})
            }))
            .map(|event| typed(&event))
            .collect()
        }
    };
    events.extend(match route {
        Route::Chat => {
            let mut usage = chat_chunk(&json!({}), &Value::Null);
            usage["usage"] =
                json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "cost": 0.0000105});
            vec![data(&chat_chunk(&json!({}), &json!("stop"))), data(&usage), "data: [DONE]\n\n".to_owned()]
        }
        Route::Responses => {
            let mut done = response("completed", "words");
            done["usage"]["cost"] = json!(0.0000105);
            vec![typed(&json!({"type": "response.completed", "response": done}))]
        }
        Route::Messages => vec![
            typed(&json!({"type": "content_block_stop", "index": 0})),
            typed(
                &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
            ),
            typed(&json!({"type": "message_stop"})),
        ],
    });
    let mut chunks: Vec<Vec<u8>> =
        events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()).collect();
    chunks.push(b"0\r\n\r\n".to_vec());
    chunks
}

fn response(status: &str, text: &str) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": status,
            "content": [{"type": "output_text", "text": text, "annotations": []}]}],
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}})
}

fn chat_chunk(delta: &Value, finish: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn typed(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// A text of this length in bytes.
pub(crate) fn text(len: usize) -> String {
    "word ".chars().cycle().take(len).collect()
}
