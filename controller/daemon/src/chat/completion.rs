//! Answers in the OpenAI form: one object, or chunks.
//!
//! Pure. The form has no member for tools that the agent itself calls, nor for phases: a client sees the text.

use bytes::Bytes;
use serde_json::{Value, json};
use sluice_state::ledger::TokenSums;

use super::failure::ChatFailure;
use crate::event_frames::frame;

/// Last frame of a stream.
const LAST: &[u8] = b"data: [DONE]\n\n";

/// Writes the answer of one run.
#[derive(Debug, Clone)]
pub(crate) struct CompletionWriter {
    /// Id of the answer.
    pub(crate) id: String,
    /// `model` of the request.
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: i64,
    /// True for a stream whose last chunk has the usage.
    pub(crate) has_usage: bool,
}

impl CompletionWriter {
    /// Returns the whole answer.
    pub(crate) fn whole(&self, text: &str, usage: &TokenSums) -> Value {
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0, "message": { "role": "assistant", "content": text, "refusal": null },
                "finish_reason": "stop", "logprobs": null,
            }],
            "usage": usage_object(usage),
        })
    }

    /// Returns the first chunk.
    pub(crate) fn first(&self) -> Bytes {
        self.chunk(&json!({ "role": "assistant", "content": "" }), None)
    }

    /// Returns the chunk of a part of the text.
    pub(crate) fn text(&self, text: &str) -> Bytes {
        self.chunk(&json!({ "content": text }), None)
    }

    /// Returns the chunks that end an answer.
    pub(crate) fn last(&self, usage: Option<&TokenSums>) -> Bytes {
        let mut bytes = self.chunk(&json!({}), Some("stop")).to_vec();
        if let Some(usage) = usage.filter(|_| self.has_usage) {
            let mut chunk = self.head();
            (chunk["choices"], chunk["usage"]) = (json!([]), usage_object(usage));
            bytes.extend_from_slice(&framed(&chunk));
        }
        bytes.extend_from_slice(LAST);
        bytes.into()
    }

    /// Returns the frame of a failure, which ends the stream. No last chunk follows, because the answer is incomplete.
    pub(crate) fn failed(failure: &ChatFailure) -> Bytes {
        let code = failure.kind.as_str();
        framed(&json!({ "error": { "message": failure.message, "type": code, "code": code, "param": null } }))
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Bytes {
        let mut chunk = self.head();
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
        framed(&chunk)
    }

    fn head(&self) -> Value {
        let mut head =
            json!({ "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model });
        if self.has_usage {
            head["usage"] = Value::Null;
        }
        head
    }
}

fn framed(data: &Value) -> Bytes {
    frame(None, None, data).expect("JSON of strings and numbers")
}

/// Returns the token sums of a run's receipts. A number that was not counted is 0.
fn usage_object(usage: &TokenSums) -> Value {
    let number = |sum: Option<i128>| u64::try_from(sum.unwrap_or_default()).unwrap_or_default();
    let (input, output) = (number(usage.input), number(usage.output));
    json!({
        "prompt_tokens": input, "completion_tokens": output,
        "total_tokens": usage.total.map_or(input.saturating_add(output), |total| number(Some(total))),
        "prompt_tokens_details": { "cached_tokens": number(usage.cached_input) },
        "completion_tokens_details": { "reasoning_tokens": number(usage.reasoning) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(has_usage: bool) -> CompletionWriter {
        CompletionWriter { id: "chatcmpl-r_1".to_owned(), model: "sandbox:agent".to_owned(), created: 7, has_usage }
    }

    fn chunks(bytes: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).expect("text");
        let data = text.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").expect("data alone"));
        data.map(|data| if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).expect("JSON") })
            .collect()
    }

    fn sums() -> TokenSums {
        TokenSums { input: Some(5), output: Some(2), total: Some(7), cached_input: Some(3), ..TokenSums::default() }
    }

    #[test]
    fn a_stream_ends_with_usage_where_it_was_asked_for() {
        let [last, usage, done] = &chunks(&writer(true).last(Some(&sums())))[..] else { panic!("three frames") };
        assert_eq!((&last["choices"][0]["finish_reason"], &last["usage"]), (&json!("stop"), &Value::Null));
        assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(7)));
        assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
        assert_eq!(done, "[DONE]");
        let [last, _] = &chunks(&writer(false).last(Some(&sums())))[..] else { panic!("two frames") };
        assert!(last.get("usage").is_none(), "{last}");
    }

    #[test]
    fn text_is_in_the_chunks() {
        let first = &chunks(&writer(false).first())[0];
        assert_eq!(first["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        let text = &chunks(&writer(false).text("a\n\nb"))[0];
        assert_eq!(
            (&text["choices"][0]["delta"], &text["object"]),
            (&json!({ "content": "a\n\nb" }), &json!("chat.completion.chunk"))
        );
        let whole = writer(false).whole("hi", &TokenSums::default());
        assert_eq!(whole["choices"][0]["message"]["content"], "hi");
        assert_eq!(whole["usage"]["total_tokens"], 0);
    }
}
