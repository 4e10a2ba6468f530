//! The bytes of both ends: the client's requests and the upstream's answers.
//!
//! The model's name selects the upstream's answer. Both ends take lengths from here, so
//! every answer is checked against the expected bytes.

pub(crate) use crate::streams::{Api, Pace};

/// The upstream key that a contender puts in place of the client's.
pub(crate) const KEY: &str = "sk-bench-upstream-key-0123456789";
/// The account that a contender puts into `x-litellm-end-user-id`.
pub(crate) const ACCOUNT: &str = "acct-bench";
/// The value of `x-litellm-spend-logs-metadata`, as far as a template can know it.
pub(crate) const METADATA: &str = r#"{"run_id":"bench","attempt":0,"graph_id":"sandbox:agent"}"#;

/// Chunks of a burst, its end included.
pub(crate) const BURST_CHUNKS: usize = 100;

/// The end of every stream.
pub(crate) const DONE: &[u8] = b"data: [DONE]\n\n";
/// Precedes the time stamp in each chunk of a stream: microseconds since the epoch, 16 digits.
pub(crate) const STAMP: &[u8] = b"\"t\":";
/// Digits of a stamp.
pub(crate) const STAMP_DIGITS: usize = 16;

const CHAT_MODEL: &str = "bench-chat";
const SIGNED_MODEL: &str = "bench-signed";
/// Every model that is asked for: a sidecar's allow list.
pub(crate) const MODELS: [&str; 7] = [
    CHAT_MODEL,
    SIGNED_MODEL,
    Api::Chat.model(),
    Api::Messages.model(),
    Api::Responses.model(),
    Pace::Fast.model(),
    Pace::Slow.model(),
];

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A small chat, answered at once.
    Chat,
    /// A stream, all of it at once.
    Burst(Api),
    /// A stream, chunk by chunk.
    Paced(Pace),
    /// A request body of about this many bytes, answered like a chat.
    Body(usize),
}

/// The upstream's answer to a model's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerKind {
    Chat,
    Burst(Api),
    Paced(Pace),
    /// Tells whether the request has the key and the account in place of the client's.
    Signed,
}

impl AnswerKind {
    /// Returns the answer to a model's name; `None` for an unknown model.
    pub(crate) fn to(model: &[u8]) -> Option<Self> {
        let model = std::str::from_utf8(model).ok()?;
        let known = [(CHAT_MODEL, Self::Chat), (SIGNED_MODEL, Self::Signed)];
        let bursts = Api::ALL.map(|api| (api.model(), Self::Burst(api)));
        let paced = Pace::ALL.map(|pace| (pace.model(), Self::Paced(pace)));
        known.into_iter().chain(bursts).chain(paced).find(|(name, _)| *name == model).map(|(_, answer)| answer)
    }
}

/// The expected body of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Length of the decoded body.
    pub(crate) length: usize,
    /// The end of the body.
    pub(crate) tail: &'static [u8],
}

impl CallKind {
    /// The request as an SDK would send it, head and body.
    pub(crate) fn request(self) -> Vec<u8> {
        let body = match self {
            Self::Chat => chat(CHAT_MODEL, QUESTION, ""),
            Self::Burst(api) => return api.request(),
            Self::Paced(pace) => chat(pace.model(), QUESTION, STREAM),
            Self::Body(size) if size > 1 << 20 => image(size),
            Self::Body(size) => chat(CHAT_MODEL, &history(size), ""),
        };
        request(CHAT_PATH, &body)
    }

    /// The expected answer.
    pub(crate) fn expected(self) -> Expected {
        match self {
            Self::Chat | Self::Body(_) => Expected { length: chat_answer().len(), tail: b"}" },
            Self::Burst(api) => Expected { length: length(&api.events(BURST_CHUNKS)), tail: api.tail() },
            Self::Paced(pace) => Expected { length: length(&Api::Chat.events(pace.chunks())), tail: DONE },
        }
    }
}

/// A call whose answer tells whether it was signed.
pub(crate) fn signed_request() -> Vec<u8> {
    request(CHAT_PATH, &chat(SIGNED_MODEL, "Who pays?", ""))
}

/// The answers to a correctly signed request, and to a relayed one.
pub(crate) const SIGNED: [&[u8]; 2] = [br#"{"signed":"yes"}"#, br#"{"signed":"no"}"#];

pub(crate) const CHAT_PATH: &str = "/v1/chat/completions";
pub(crate) const QUESTION: &str = "Name three rivers, one line each.";
pub(crate) const STREAM: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;

pub(crate) fn chat(model: &str, content: &str, more: &str) -> String {
    format!(
        r#"{{"model":"{model}","messages":[{{"role":"system","content":"You are a helpful assistant. Answer briefly and say so when you do not know."}},{{"role":"user","content":"{content}"}}],"temperature":0.2,"max_tokens":256{more}}}"#
    )
}

/// Chat text with the escapes that real text has.
fn history(size: usize) -> String {
    const LINE: &str =
        r#"fn main() {\n    println!(\"line of a file that the agent has read\");\n}\n// \u00fcber, caf\u00e9\n"#;
    LINE.repeat(size / LINE.len())
}

fn image(size: usize) -> String {
    let data = "iVBORw0KGgoAAAANSUhEUgAAB4AAAAQ4CAYAAADo08FDAAAAAXNSR0IArs4c6QAA".repeat(size / 64);
    format!(
        r#"{{"model":"{CHAT_MODEL}","messages":[{{"role":"user","content":[{{"type":"text","text":"What is this?"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}],"max_tokens":256}}"#
    )
}

pub(crate) fn request(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost:8080\r\nAccept-Encoding: gzip, deflate\r\n\
         Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
         User-Agent: OpenAI/Python 2.9.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.9.0\r\n\
         X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n\
         X-Stainless-Runtime-Version: 3.12.3\r\nAuthorization: Bearer sk-sandbox-dummy\r\n\
         X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The headers of a LiteLLM answer, but for those that frame the body.
const ANSWER_HEAD: &str = "HTTP/1.1 200 OK\r\ndate: Thu, 20 Nov 2025 12:00:00 GMT\r\nserver: uvicorn\r\n\
    x-litellm-call-id: 5d0f3c52-7c0e-4a39-9d4f-0a4b8f0c2b11\r\n\
    x-litellm-model-id: 9f1c1e1f0c0d4b7e8a3b2c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f\r\n\
    x-litellm-model-api-base: https://api.openai.com\r\nx-litellm-version: 1.106.2\r\n\
    x-litellm-response-cost: 4.2e-05\r\nx-litellm-key-spend: 0.0123\r\n\
    x-litellm-response-duration-ms: 412.7\r\nx-litellm-overhead-duration-ms: 3.1\r\n\
    llm_provider-x-request-id: req_0f8b7c6d5e4f3a2b1c0d\r\n";

fn chat_answer() -> &'static str {
    r#"{"id":"chatcmpl-Bq7WcA1xU9sYtR3nK5mVpZ2dE8fGh","created":1763640000,"model":"gpt-4o-mini-2024-07-18","object":"chat.completion","system_fingerprint":"fp_560af6e559","choices":[{"finish_reason":"stop","index":0,"message":{"content":"Danube\nRhine\nElbe, which rises in the mountains and runs north to the sea","role":"assistant","tool_calls":null,"function_call":null}}],"usage":{"completion_tokens":20,"prompt_tokens":31,"total_tokens":51,"completion_tokens_details":{"reasoning_tokens":0},"prompt_tokens_details":{"audio_tokens":0,"cached_tokens":0}},"service_tier":"default"}"#
}

/// A whole unary answer.
pub(crate) fn unary(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("{ANSWER_HEAD}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// The unary answer to a chat.
pub(crate) fn chat_response() -> Vec<u8> {
    unary(chat_answer().as_bytes())
}

/// The head of a streamed answer.
pub(crate) fn stream_head() -> Vec<u8> {
    format!("{ANSWER_HEAD}content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
        .into_bytes()
}

/// Events as HTTP chunks; the last carries the end of the body.
pub(crate) fn chunks(events: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let frame = |(index, event): (usize, &Vec<u8>)| {
        let end: &[u8] = if index + 1 == events.len() { b"\r\n0\r\n\r\n" } else { b"\r\n" };
        [format!("{:x}\r\n", event.len()).as_bytes(), event, end].concat()
    };
    events.iter().enumerate().map(frame).collect()
}

fn length(events: &[Vec<u8>]) -> usize {
    events.iter().map(Vec::len).sum()
}
