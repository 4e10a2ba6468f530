//! Frames of `/ai/chat`.
//!
//! Pure. No frame has the usage.

use bytes::Bytes;
use serde_json::{Value, json};

use super::cursor::ChatCursor;
use super::translation::ChatEvent;
use crate::event_frames::frame_at;

/// Returns the frame of an event.
pub(crate) fn chat_frame(event: &ChatEvent, cursor: Option<ChatCursor>) -> Bytes {
    let (name, data) = shown(event);
    let id = cursor.map(|cursor| cursor.to_string());
    frame_at(Some(name), id.as_deref(), &data).expect("JSON of strings")
}

fn shown(event: &ChatEvent) -> (&'static str, Value) {
    match event {
        ChatEvent::Text(text) => ("text_delta", json!({ "delta": text })),
        ChatEvent::ToolStart { id, name, args } => {
            ("tool_call_start", json!({ "toolCallId": id, "toolName": name, "args": args }))
        }
        ChatEvent::ToolResult { id, result, is_error } => {
            let mut data = json!({ "toolCallId": id, "result": result });
            if *is_error {
                data["isError"] = Value::Bool(true);
            }
            ("tool_call_result", data)
        }
        ChatEvent::Status { phase, label: None } => ("status", json!({ "phase": phase })),
        ChatEvent::Status { phase, label: Some(label) } => ("status", json!({ "phase": phase, "label": label })),
        ChatEvent::Failed(failure) => ("error", json!({ "error": failure.kind.as_str(), "message": failure.message })),
        ChatEvent::Done { reason } => ("done", json!({ "finishReason": reason })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_an_agent_begins_no_frame() {
        let cursor = "3-1".parse().ok();
        let frame = chat_frame(&ChatEvent::Text("a\n\nevent: done\ndata: {}".to_owned()), cursor);
        let frame = std::str::from_utf8(&frame).expect("text");
        assert_eq!(frame, "id: 3-1\nevent: text_delta\ndata: {\"delta\":\"a\\n\\nevent: done\\ndata: {}\"}\n\n");
        let done = chat_frame(&ChatEvent::Done { reason: "stop" }, None);
        assert_eq!(&done[..], b"event: done\ndata: {\"finishReason\":\"stop\"}\n\n");
    }
}
