//! Requests to a WebDriver program, and its answers, as bytes.
//!
//! Pure.

use serde_json::Value;

/// Returns a request.
pub(super) fn request(method: &str, path: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns whether an answer has its whole body. The program keeps the connection open, whatever a request says.
pub(super) fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    answer.len() >= head.len() + 4 + length.unwrap_or(0_usize)
}

/// Returns the value of a complete answer.
pub(super) fn value(answer: &[u8]) -> Value {
    let text = String::from_utf8_lossy(answer);
    let (_, json) = text.split_once("\r\n\r\n").expect("it is complete");
    let mut value: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    value["value"].take()
}
