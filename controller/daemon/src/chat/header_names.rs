//! User and session of a chat, from headers: chat programs have no member for them in a body of OpenAI's form.
//!
//! Pure. A header overrides the body: a front sets headers, and may pass on bodies as its users wrote them. Both are the
//! client's claims, and never an account.

use http::HeaderMap;
use serde_json::{Map, Value};

use super::request::{invalid, set_name};
use crate::api_error::ApiError;

/// Headers of each member of the metadata, by priority. Open WebUI sends its headers with the setting
/// `ENABLE_FORWARD_USER_INFO_HEADERS`.
const HEADERS: [(&str, [&str; 2]); 2] = [
    ("user_id", ["x-sluice-user-id", "x-openwebui-user-id"]),
    ("session_id", ["x-sluice-session-id", "x-openwebui-chat-id"]),
];

/// Sets the members that headers name.
///
/// # Errors
/// 400, with the name of the header.
pub(crate) fn add_names(metadata: &mut Map<String, Value>, headers: &HeaderMap) -> Result<(), ApiError> {
    for (member, names) in HEADERS {
        let Some((name, value)) = names.into_iter().find_map(|name| headers.get(name).map(|value| (name, value)))
        else {
            continue;
        };
        let text = std::str::from_utf8(value.as_bytes());
        let text = text.map_err(|_| invalid(name, &format!("the header {name} is not UTF-8")))?.to_owned();
        metadata.remove(member);
        set_name(metadata, member, text).map_err(|error| error.of_field(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn named(given: Value, headers: &[(&'static str, &str)]) -> Result<Value, Value> {
        let Value::Object(mut metadata) = given else { panic!("{given}") };
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a value");
        let headers = headers.iter().map(|(name, text)| (http::HeaderName::from_static(name), value(text))).collect();
        match add_names(&mut metadata, &headers) {
            Ok(()) => Ok(Value::Object(metadata)),
            Err(error) => Err(error.details().cloned().unwrap_or_default()),
        }
    }

    #[test]
    fn a_header_comes_before_the_body() {
        let webui = [("x-openwebui-user-id", "u1"), ("x-openwebui-chat-id", "c1")];
        assert_eq!(named(json!({}), &webui), Ok(json!({ "user_id": "u1", "session_id": "c1" })));
        let own = [("x-sluice-session-id", "s"), ("x-openwebui-chat-id", "c1"), ("x-sluice-user-id", "Åsa")];
        assert_eq!(named(json!({}), &own), Ok(json!({ "user_id": "Åsa", "session_id": "s" })));
        let body = json!({ "user_id": "somebody else", "session_id": "x" });
        assert_eq!(named(body.clone(), &own), Ok(json!({ "user_id": "Åsa", "session_id": "s" })));
        assert_eq!(named(body.clone(), &own[..1]), Ok(json!({ "user_id": "somebody else", "session_id": "s" })));
        assert_eq!(named(body.clone(), &[]), Ok(body));
    }

    #[test]
    fn a_wrong_header_is_named() {
        let long = "x".repeat(256);
        for text in ["", "a\tb", &long] {
            let refused = named(json!({}), &[("x-sluice-session-id", text)]);
            assert_eq!(refused, Err(json!({ "field": "x-sluice-session-id" })), "{text}");
        }
    }
}
