//! Reads the error of the API from the body of an answer.
//!
//! Pure.

use serde::Deserialize;
use serde_json::Value;
use sluice_contract::text::{sanitize, truncate};

use crate::error::ApiFailure;

/// Maximum length of an error code in bytes.
const WORD_MAX: usize = 64;

/// Returns the error of the API in a body, if the body has one.
pub(crate) fn failure(status: u16, body: &[u8]) -> Option<ApiFailure> {
    #[derive(Deserialize)]
    struct ApiErrorBody {
        error: ApiErrorFields,
    }
    #[derive(Deserialize)]
    struct ApiErrorFields {
        code: String,
        message: String,
        #[serde(default)]
        details: Option<Value>,
    }
    let ApiErrorBody { error } = serde_json::from_slice(body).ok()?;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_code = (1..=WORD_MAX).contains(&error.code.len()) && error.code.bytes().all(is_word);
    let details = error.details.filter(|details| !details.is_null());
    let facts = details.as_ref().map_or_else(String::new, |details| format!(" ({})", sanitize(&details.to_string())));
    let message = truncate(&format!("{}{facts}", error.message));
    is_code.then_some(ApiFailure { status, code: error.code, message, details })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_harmless_line() {
        let body = r#"{"error":{"code":"limit_exceeded","message":"too\u001b[2J\nmuch","details":{"max":3}}}"#;
        let found = failure(422, body.as_bytes()).expect("an error of the API");
        assert_eq!((found.code.as_str(), found.message.as_str()), ("limit_exceeded", "too [2J much ({\"max\":3})"));
        let long = format!(r#"{{"error":{{"code":"x","message":"{}"}}}}"#, "m".repeat(1 << 20));
        assert!(failure(500, long.as_bytes()).expect("an error").message.len() < 2000);
    }

    #[test]
    fn other_bodies_are_no_errors_of_the_api() {
        for body in [
            "",
            "<html>",
            "{}",
            r#"{"error":"x"}"#,
            r#"{"error":{"code":"","message":"m"}}"#,
            r#"{"error":{"code":"A b","message":"m"}}"#,
        ] {
            assert_eq!(failure(500, body.as_bytes()), None, "{body}");
        }
    }
}
