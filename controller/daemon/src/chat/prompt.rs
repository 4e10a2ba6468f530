//! Prompts: a whole conversation for a program that takes one message, or the new message for a worker that has the rest.
//!
//! Pure.

use serde_json::{Value, json};
use sluice_state::messages::clean_content;

use super::request::invalid;
use crate::api_error::ApiError;

/// Returns the messages for a program. A program that takes one user message gets the whole conversation as its text.
pub(crate) fn for_program(messages: Vec<Value>, takes_one_message: bool) -> Vec<Value> {
    if !takes_one_message {
        return messages;
    }
    let text = match &messages[..] {
        [only] if only["role"] == "user" => text_of(only),
        [before @ .., last] => {
            let mut text = "The conversation so far:\n".to_owned();
            for message in before {
                text += &format!("\n[{}]\n{}\n", message["role"].as_str().unwrap_or_default(), text_of(message));
            }
            text + &format!("\nAnswer this message:\n\n{}", text_of(last))
        }
        [] => String::new(),
    };
    vec![json!({ "role": "user", "content": text })]
}

/// Returns the message of a turn for a worker, which knows the conversation before it.
///
/// # Errors
/// 400: the last message is not the user's, or has images.
pub(crate) fn for_worker(messages: &[Value]) -> Result<String, ApiError> {
    let last = messages.last().filter(|last| last["role"] == "user");
    let last = last.ok_or_else(|| {
        invalid(
            "messages",
            "the last message must be the user's: the agent of this session runs, and knows the ones before",
        )
    })?;
    let parts = last["content"].as_array();
    if parts.is_some_and(|parts| parts.iter().any(|part| !part["text"].is_string())) {
        return Err(invalid("messages", "the agent of this session runs, and takes text alone; leave out the images"));
    }
    let text = text_of(last);
    clean_content(&text).map_err(|_| {
        invalid(
            "messages",
            "the agent of this session runs, and takes messages of 1 to 10,000 characters; send a shorter one",
        )
    })
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    #[test]
    fn one_message_stays_as_it_is() {
        let one = vec![message("user", "hi")];
        assert_eq!(for_program(one.clone(), true), one);
        let several = vec![message("system", "s"), message("user", "hi")];
        assert_eq!(for_program(several.clone(), false), several);
    }

    #[test]
    fn a_worker_gets_the_new_message_alone() {
        let several = [message("user", "a"), message("assistant", "b"), message("user", "c\u{7}d")];
        assert_eq!(for_worker(&several).expect("text"), "cd");
        let parts = |part: Value| json!({ "role": "user", "content": [{ "type": "text", "text": "x" }, part] });
        assert_eq!(for_worker(&[parts(json!({ "type": "text", "text": "y" }))]).expect("text"), "x\ny");
        let image = parts(json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }));
        for wrong in [message("assistant", "a"), message("user", "  "), message("user", &"x".repeat(10_001)), image] {
            assert_eq!(for_worker(&[wrong]).expect_err("it is refused").code(), "invalid_request");
        }
    }

    #[test]
    fn a_conversation_becomes_one_text() {
        let several = vec![message("user", "a"), message("assistant", "b"), message("user", "c")];
        let text = "The conversation so far:\n\n[user]\na\n\n[assistant]\nb\n\nAnswer this message:\n\nc";
        assert_eq!(for_program(several, true), [message("user", text)]);
    }
}
