//! What a request body may say.

/// Each `POST` route, and the least that its bodies hold beside the model.
pub(crate) const WIRES: [(&str, &str); 6] = [
    ("/v1/chat/completions", r#""messages":[]"#),
    ("/v1/completions", r#""prompt":"p""#),
    ("/v1/embeddings", r#""input":"i""#),
    ("/v1/responses", r#""input":"i""#),
    ("/v1/messages", r#""max_tokens":9,"messages":[]"#),
    ("/v1/messages/count_tokens", r#""messages":[]"#),
];

/// A body for model `m`, with `more` members, each after a comma of its own.
pub(crate) fn body(rest: &str, more: &str) -> String {
    format!(r#"{{"model":"m",{rest}{more}}}"#)
}
