//! What an envelope agent prints: exactly one JSON object.
//!
//! Unknown members are tolerated, so that agents may say more than we read. Billing reads none of it.

use serde::Deserialize;
use sluice_contract::text::{sanitize, truncate};

/// The answer of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The texts of all payloads, one below the other.
    pub content: String,
    /// What the agent itself calls a failure, whatever its exit code.
    pub error: Option<AgentError>,
}

/// A failure by the agent's own account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AgentError {
    /// Its word for it.
    #[serde(default)]
    pub code: String,
    /// Its words for it.
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
struct Raw {
    payloads: Vec<Payload>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    text: Option<String>,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    error: Option<AgentError>,
}

/// Reads an envelope, with white space around it at most.
///
/// # Errors
/// Why it is none, in words for the agent's author.
pub fn parse(stdout: &str) -> Result<Envelope, String> {
    if stdout.trim().is_empty() {
        return Err("the agent printed nothing on stdout, and one JSON object was expected".to_owned());
    }
    let raw: Raw = serde_json::from_str(stdout).map_err(|error| {
        // It quotes what is there.
        let error = truncate(&error.to_string());
        format!("stdout is not one JSON object {{\"payloads\":[{{\"text\":…}}],\"meta\":{{…}}}}: {error}")
    })?;
    let error =
        raw.meta.error.map(|error| AgentError { code: one_line(&error.code), message: one_line(&error.message) });
    let texts: Vec<_> = raw.payloads.into_iter().filter_map(|payload| payload.text).collect();
    Ok(Envelope { content: texts.join("\n"), error })
}

/// An agent's words among ours: they cannot begin a line, nor speak to a terminal.
fn one_line(text: &str) -> String {
    const MAX: usize = 500;
    sanitize(text).chars().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_errors_are_read_and_the_rest_is_tolerated() {
        let said = r#" {"payloads":[{"text":"a","more":1},{"image":"x"},{"text":"b"}],
            "meta":{"durationMs":3,"error":null,"litellmCallId":"x"},"version":9} "#;
        assert_eq!(parse(said), Ok(Envelope { content: "a\nb".into(), error: None }));
        let failed = r#"{"payloads":[],"meta":{"error":{"code":"llm_error","message":"no"}}}"#;
        let error = Some(AgentError { code: "llm_error".into(), message: "no".into() });
        assert_eq!(parse(failed), Ok(Envelope { content: String::new(), error }));
    }

    #[test]
    fn an_error_keeps_to_its_line() {
        let said = r#"{"payloads":[],"meta":{"error":{"code":"x\u001b[2J","message":"a\nrun  ok\r"}}}"#;
        let error = parse(said).expect("an envelope").error.expect("an error");
        assert_eq!(error, AgentError { code: "x [2J".into(), message: "a run  ok ".into() });
    }

    #[test]
    fn what_is_no_envelope_is_not_quoted_at_length() {
        let said = format!(r#"{{"payloads":"\u001b[2J{}"}}"#, "x".repeat(100_000));
        let why = parse(&said).expect_err("a text is no list");
        assert!(why.contains("invalid type: string") && why.len() < 2000, "{why:.2000}");
        assert!(!why.contains('\u{1b}'), "{why:.2000?}");
    }

    #[test]
    fn anything_else_is_none() {
        for bad in [
            "", "  \n", "hello", "{}", "[]", r#"{"payloads":1}"#, r#"{"payloads":[]} {}"#, r#"log
{"payloads":[]}"#,
        ] {
            parse(bad).expect_err(bad);
        }
    }
}
