//! The answers of a provider behind LiteLLM, in every wire format, unary and streaming.
//!
//! Usage is always 10 in, 5 out, 15 total, cost 0.0000054: any other number in an audit line
//! is wrong. The shapes are those that LiteLLM sends.

use bytes::Bytes;
use serde_json::{Value, json};

use super::shape::{AnswerFraming, AnswerShape};
use super::{ReceivedRequest, Script, Step};

/// Cost of every unary answer, also in a chat stream's last chunk and in `response.completed`.
pub const COST: &str = "0.0000054";

/// Headers that LiteLLM sends and that must not reach an agent; every LiteLLM-like answer has them.
pub const LEAKY: [(&str, &str); 10] = [
    ("x-litellm-key-spend", "12.34567"),
    ("x-litellm-model-api-base", "http://10.9.8.7:4000/leaked-base"),
    ("x-litellm-model-id", "leaked-model-id-5f2c"),
    ("x-litellm-model-region", "leaked-region"),
    ("x-litellm-version", "1.106.2"),
    ("llm_provider-set-cookie", "leaked=1"),
    ("llm_provider-openai-organization", "leaked-org"),
    ("set-cookie", "leaked=2; Path=/"),
    ("server", "uvicorn"),
    ("location", "http://leaked.internal/v1"),
];

/// A gzip member that holds [`GZIPPED`].
const GZIP: [u8; 74] = [
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0xca, 0x4c, 0x51, 0xb2, 0x52, 0x4a, 0xce,
    0x48, 0x2c, 0x49, 0xce, 0x2d, 0xc8, 0xd1, 0x4d, 0xaf, 0xca, 0x2c, 0x50, 0xd2, 0x51, 0xca, 0x4f, 0xca, 0x4a, 0x4d,
    0x2e, 0x81, 0x4a, 0xe8, 0x25, 0xe7, 0x03, 0xa5, 0x52, 0x4b, 0x32, 0xf3, 0xf3, 0x80, 0x52, 0xc9, 0x19, 0xf9, 0x99,
    0xc9, 0xa9, 0xc5, 0x4a, 0x56, 0xd1, 0xb1, 0xb5, 0x00, 0xc6, 0x1a, 0xb0, 0x24, 0x3e, 0x00, 0x00, 0x00,
];

/// The body of [`Script::gzip`], decompressed.
pub const GZIPPED: &str = r#"{"id":"chatcmpl-gzip","object":"chat.completion","choices":[]}"#;

impl Script {
    /// A JSON answer whose only header is its type.
    pub fn json(status: u16, value: Value) -> Self {
        Self::json_with(status, &[], value)
    }

    /// A JSON answer with more headers.
    pub fn json_with(status: u16, headers: &[(&str, &str)], value: Value) -> Self {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::shaped(move |_| {
            let mut shape = AnswerShape::unary(status, "application/json", value.to_string().into_bytes());
            shape.headers.extend(headers.clone());
            shape
        })
    }

    /// A body of any bytes and type, with its length.
    pub fn body(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let (content_type, body) = (content_type.to_owned(), body.into());
        Self::shaped(move |_| AnswerShape::unary(status, &content_type, body.clone()))
    }

    /// An event stream, one chunk per event. An event is `data: X` unless it ends with a blank line.
    pub fn sse<E: AsRef<str>>(events: impl IntoIterator<Item = E>) -> Self {
        let events: Vec<Bytes> = events.into_iter().map(|event| event_bytes(event.as_ref())).collect();
        Self::shaped(move |_| AnswerShape::chunked("text/event-stream", events.clone()))
    }

    /// A chunked stream of this number of copies of an event, sent as fast as the reader takes them.
    pub fn flood(event: &str, copies: usize) -> Self {
        let event = event_bytes(event);
        Self::shaped(move |_| {
            let mut shape = AnswerShape::chunked("text/event-stream", []);
            shape.body.push(Step::Flood(event.clone(), copies));
            shape
        })
    }

    /// A body in `content-encoding: gzip`, which no client asked for.
    pub fn gzip() -> Self {
        Self::body(200, "application/json", GZIP).header("content-encoding", "gzip")
    }

    /// The answer of a provider to the received request: by route, as a stream if the request asks for one.
    pub fn provider(text: &str) -> Self {
        let text = text.to_owned();
        Self::shaped(move |request| {
            let (route, one) = (request.route(), [text.as_str()]);
            let script = match (route.as_str(), request.wants("stream")) {
                ("chat/completions", true) => Self::chat_stream(one),
                ("completions", true) => Self::completion_stream(one),
                ("responses", true) => Self::responses_stream(one),
                ("messages", true) => Self::messages_stream(one),
                ("completions", false) => Self::completion(&text),
                ("embeddings", _) => Self::embeddings(),
                ("responses", false) => Self::responses(&text),
                ("messages", false) => Self::messages(&text),
                ("messages/count_tokens", _) => Self::count_tokens(),
                ("models", _) => Self::models(["gpt-test"]),
                _ => Self::chat(&text),
            };
            script.shape(request)
        })
    }

    /// A chat completion.
    pub fn chat(text: &str) -> Self {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
        Self::litellm(move |request| {
            json!({"id": "chatcmpl-sluice1", "object": "chat.completion", "created": 1_790_000_000,
                "model": request.model(), "choices": [choice], "usage": usage("prompt_tokens", "completion_tokens")})
        })
    }

    /// A text completion.
    pub fn completion(text: &str) -> Self {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "stop"});
        Self::litellm(move |request| {
            json!({"id": "cmpl-sluice1", "object": "text_completion", "created": 1_790_000_000,
                "model": request.model(), "choices": [choice], "usage": usage("prompt_tokens", "completion_tokens")})
        })
    }

    /// One embedding; its usage has no output.
    pub fn embeddings() -> Self {
        Self::litellm(|request| {
            json!({"object": "list", "model": request.model(),
                "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}],
                "usage": {"prompt_tokens": 10, "total_tokens": 10}})
        })
    }

    /// A response of `/v1/responses`.
    pub fn responses(text: &str) -> Self {
        let text = text.to_owned();
        Self::litellm(move |request| response(request, "completed", &text))
    }

    /// A message of `/v1/messages`.
    pub fn messages(text: &str) -> Self {
        let content = json!([{"type": "text", "text": text}]);
        Self::litellm(move |request| {
            json!({"id": "msg_sluice1", "type": "message", "role": "assistant", "model": request.model(),
                "content": content, "stop_reason": "end_turn", "stop_sequence": null, "usage": message_usage(5)})
        })
    }

    /// The answer of `/v1/messages/count_tokens`; LiteLLM sends neither call id nor cost with it.
    pub fn count_tokens() -> Self {
        Self::json_with(200, &LEAKY, json!({"input_tokens": 10}))
    }

    /// The answer of `/v1/models`.
    pub fn models<M: AsRef<str>>(names: impl IntoIterator<Item = M>) -> Self {
        let model = |name: M| json!({"id": name.as_ref(), "object": "model", "created": 1, "owned_by": "openai"});
        let data: Vec<Value> = names.into_iter().map(model).collect();
        Self::json_with(200, &LEAKY, json!({"object": "list", "data": data}))
    }

    /// An error in LiteLLM's words, with its call id and a cost of 0.
    pub fn error(status: u16, message: &str) -> Self {
        let code = status.to_string();
        let body = json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
        let script = Self::litellm(move |_| body.clone()).status(status);
        script.without_header("x-litellm-response-cost").header("x-litellm-response-cost", "0")
    }

    /// A chat stream: a chunk per text, the finish, LiteLLM's usage chunk if asked for, `[DONE]`.
    pub fn chat_stream<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::openai_stream(
            texts,
            "chatcmpl-sluice1",
            "chat.completion.chunk",
            |text| json!({"delta": {"content": text}}),
        )
    }

    /// A text completion stream, ended like a chat stream.
    pub fn completion_stream<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::openai_stream(texts, "cmpl-sluice1", "text_completion", |text| json!({"text": text}))
    }

    /// A chat stream with status 200 that sends an error, as LiteLLM does, and then `[DONE]`.
    pub fn chat_stream_failing<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let whole = Self::chat_stream(texts);
        Self::shaped(move |request| {
            let mut shape = whole.shape(request);
            let finish = shape.body.len() - if request.wants_usage() { 3 } else { 2 };
            shape.body.truncate(finish);
            let error = json!({"error": {"message": "upstream broke", "type": "server_error", "code": "500"}});
            shape.body.extend([error.to_string(), "[DONE]".to_owned()].map(|event| Step::Send(event_bytes(&event))));
            shape
        })
    }

    /// A stream of `/v1/responses`: `response.created`, a delta per text, `response.completed`.
    pub fn responses_stream<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let texts = owned(texts);
        Self::litellm_stream(move |request| {
            let mut begun = response(request, "in_progress", "");
            begun["usage"] = Value::Null;
            begun["output"] = json!([]);
            let mut done = response(request, "completed", &texts.concat());
            done["usage"]["cost"] = cost();
            let mut events = vec![json!({"type": "response.created", "response": begun})];
            events.extend(texts.iter().map(|text| {
                json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
                    "delta": text})
            }));
            events.push(json!({"type": "response.completed", "response": done}));
            events.iter().map(typed_event).collect()
        })
    }

    /// A stream of `/v1/messages`: start, block start, a delta per text, block stop, delta, stop.
    pub fn messages_stream<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let texts = owned(texts);
        Self::litellm_stream(move |request| {
            let begun = json!({"id": "msg_sluice1", "type": "message", "role": "assistant", "model": request.model(),
                "content": [], "stop_reason": null, "stop_sequence": null, "usage": message_usage(1)});
            let mut events = vec![
                json!({"type": "message_start", "message": begun}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ];
            events.extend(texts.iter().map(|text| {
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
            }));
            events.extend([
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
                json!({"type": "message_stop"}),
            ]);
            events.iter().map(typed_event).collect()
        })
    }

    /// A unary 200 with LiteLLM's headers: the request's call id, the cost, and headers that must not pass.
    fn litellm(body: impl Fn(&ReceivedRequest) -> Value + Send + Sync + 'static) -> Self {
        Self::shaped(move |request| {
            let mut shape = AnswerShape::unary(200, "application/json", body(request).to_string().into_bytes());
            shape.headers.extend(litellm_headers(request));
            shape.headers.push(("x-litellm-response-cost".to_owned(), COST.to_owned()));
            shape
        })
    }

    /// A streamed 200 with LiteLLM's headers; a stream has no cost header.
    fn litellm_stream(events: impl Fn(&ReceivedRequest) -> Vec<Bytes> + Send + Sync + 'static) -> Self {
        Self::shaped(move |request| {
            let mut shape = AnswerShape::chunked("text/event-stream; charset=utf-8", events(request));
            shape.headers.extend(litellm_headers(request));
            debug_assert_eq!(shape.framing, AnswerFraming::Chunked);
            shape
        })
    }

    fn openai_stream<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
        id: &'static str,
        object: &'static str,
        choice: fn(&str) -> Value,
    ) -> Self {
        let texts = owned(texts);
        Self::litellm_stream(move |request| {
            let chunk = |choice: Value| {
                let mut chunk = json!({"id": id, "object": object, "created": 1_790_000_000, "model": request.model()});
                chunk["choices"] = json!([choice]);
                chunk
            };
            let indexed = |mut choice: Value, finish: Value| {
                choice["index"] = json!(0);
                choice["finish_reason"] = finish;
                choice
            };
            let mut events: Vec<Value> = texts.iter().map(|text| chunk(indexed(choice(text), Value::Null))).collect();
            let mut last = choice("");
            if let Some(delta) = last.get_mut("delta") {
                *delta = json!({});
            }
            events.push(chunk(indexed(last, json!("stop"))));
            if request.wants_usage() {
                let mut usage = usage("prompt_tokens", "completion_tokens");
                usage["cost"] = cost();
                let mut closing = chunk(json!({"index": 0, "delta": {}}));
                closing["usage"] = usage;
                events.push(closing);
            }
            let events = events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
            events.map(|event| event_bytes(&event)).collect()
        })
    }
}

fn litellm_headers(request: &ReceivedRequest) -> Vec<(String, String)> {
    let call_id = request.header("x-litellm-call-id").map(|id| ("x-litellm-call-id", id));
    let pairs = call_id.into_iter().chain(LEAKY);
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn response(request: &ReceivedRequest, status: &str, text: &str) -> Value {
    json!({"id": "resp_sluice1", "object": "response", "created_at": 1_790_000_000, "status": status,
        "model": request.model(), "usage": responses_usage(),
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": status,
            "content": [{"type": "output_text", "text": text, "annotations": []}]}]})
}

fn usage(input: &str, output: &str) -> Value {
    json!({input: 10, output: 5, "total_tokens": 15})
}

fn message_usage(output: u64) -> Value {
    json!({"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output})
}

fn cost() -> Value {
    COST.parse::<f64>().expect("the cost is a number").into()
}

fn owned<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    texts.into_iter().map(|text| text.as_ref().to_owned()).collect()
}

fn typed_event(data: &Value) -> Bytes {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()).into()
}

fn event_bytes(event: &str) -> Bytes {
    let raw = event.ends_with("\n\n") || event.ends_with("\r\r") || event.ends_with("\r\n\r\n");
    if raw { event.to_owned().into() } else { format!("data: {event}\n\n").into() }
}

fn responses_usage() -> Value {
    json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15})
}
