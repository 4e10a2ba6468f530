//! Streams: the events of each API, and their pace.

use std::time::Duration;

use crate::wire::{CHAT_PATH, DONE, QUESTION, STREAM, chat, request};

/// The API whose events a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Messages,
    Responses,
}

impl Api {
    pub(crate) const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    /// The model that is asked for such a stream.
    pub(crate) const fn model(self) -> &'static str {
        match self {
            Self::Chat => "bench-burst",
            Self::Messages => "bench-messages",
            Self::Responses => "bench-responses",
        }
    }

    /// Returns the request for a stream, head and body.
    pub(crate) fn request(self) -> Vec<u8> {
        let model = self.model();
        match self {
            Self::Chat => request(CHAT_PATH, &chat(model, QUESTION, STREAM)),
            Self::Messages => request(
                "/v1/messages",
                &format!(
                    r#"{{"model":"{model}","max_tokens":256,"messages":[{{"role":"user","content":"{QUESTION}"}}],"stream":true}}"#
                ),
            ),
            Self::Responses => {
                request("/v1/responses", &format!(r#"{{"model":"{model}","input":"{QUESTION}","stream":true}}"#))
            }
        }
    }

    /// Returns `total` events; the last one ends the stream, and the usage is where the API has it.
    pub(crate) fn events(self, total: usize) -> Vec<Vec<u8>> {
        (0..total).map(|index| self.event(index, total - index)).collect()
    }

    /// Returns the last bytes of the last event.
    pub(crate) fn tail(self) -> &'static [u8] {
        match self {
            Self::Chat => DONE,
            Self::Messages => b"data: {\"type\":\"message_stop\"}\n\n",
            Self::Responses => b"\"total_tokens\":51}}}\n\n",
        }
    }

    fn event(self, index: usize, left: usize) -> Vec<u8> {
        match self {
            Self::Chat => chat_event(left),
            Self::Messages => messages_event(index, left),
            Self::Responses => responses_event(index, left),
        }
    }
}

/// Returns an event of a chat. Its stamp comes last, like the changing parts of a provider's events, and is a valid
/// JSON number even before it is set.
fn chat_event(left: usize) -> Vec<u8> {
    const OPEN: &str = r#"data: {"id":"chatcmpl-Bq7WcA1xU9sYtR3nK5mVpZ2dE8fGh","created":1763640000,"model":"gpt-4o-mini","object":"chat.completion.chunk","#;
    const CLOSE: &str = ",\"t\":1000000000000000}\n\n";
    let rest = match left {
        1 => return DONE.to_vec(),
        2 => r#""choices":[],"usage":{"completion_tokens":20,"prompt_tokens":31,"total_tokens":51}"#,
        _ => r#""choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]"#,
    };
    [OPEN, rest, CLOSE].concat().into_bytes()
}

fn messages_event(index: usize, left: usize) -> Vec<u8> {
    match (index, left) {
        (0, _) => typed(
            "message_start",
            r#""message":{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":31,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}"#,
        ),
        (1, _) => typed("content_block_start", r#""index":0,"content_block":{"type":"text","text":""}"#),
        (_, 3) => typed("content_block_stop", r#""index":0"#),
        (_, 2) => typed(
            "message_delta",
            r#""delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":20}"#,
        ),
        (_, 1) => b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_vec(),
        _ => typed("content_block_delta", r#""index":0,"delta":{"type":"text_delta","text":" token"}"#),
    }
}

fn responses_event(index: usize, left: usize) -> Vec<u8> {
    const RESPONSE: &str = r#""id":"resp_67c9fdcecf488190bdd9a0409de3a1ec07b8b0ad4e5eb654","object":"response","created_at":1763640000,"error":null,"model":"gpt-4o-mini","tools":[]"#;
    const ITEM: &str = "msg_67c9fdcf37fc8190ba82116e33fb28c507b8b0ad4e5eb654";
    match (index, left) {
        (0, _) => typed(
            "response.created",
            &format!(
                r#""sequence_number":0,"response":{{{RESPONSE},"status":"in_progress","output":[],"usage":null}}"#
            ),
        ),
        (_, 1) => typed(
            "response.completed",
            &format!(
                r#""sequence_number":{index},"response":{{{RESPONSE},"status":"completed","output":[],"usage":{{"input_tokens":31,"input_tokens_details":{{"cached_tokens":0}},"output_tokens":20,"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":51}}}}"#
            ),
        ),
        _ => typed(
            "response.output_text.delta",
            &format!(
                r#""sequence_number":{index},"item_id":"{ITEM}","output_index":0,"content_index":0,"delta":" token","logprobs":[]"#
            ),
        ),
    }
}

fn typed(kind: &str, members: &str) -> Vec<u8> {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{members}}}\n\n").into_bytes()
}

/// The pace of a stream's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One each 2 ms: far faster than a model.
    Fast,
    /// One each 40 ms, as models speak: for many streams.
    Slow,
}

impl Pace {
    pub(crate) const ALL: [Self; 2] = [Self::Fast, Self::Slow];

    /// The model that is asked for such a stream.
    pub(crate) const fn model(self) -> &'static str {
        match self {
            Self::Fast => "bench-paced",
            Self::Slow => "bench-slow",
        }
    }

    /// Returns the number of chunks of a stream, its end included.
    pub(crate) fn chunks(self) -> usize {
        match self {
            Self::Fast => 200,
            Self::Slow => 50,
        }
    }

    /// Returns the time between two chunks.
    pub(crate) fn interval(self) -> Duration {
        match self {
            Self::Fast => Duration::from_millis(2),
            Self::Slow => Duration::from_millis(40),
        }
    }

    /// Number of streams that share an interval.
    pub(crate) fn phases(self) -> u32 {
        match self {
            Self::Fast => 64,
            Self::Slow => 512,
        }
    }
}
