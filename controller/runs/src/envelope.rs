//! The output of an envelope agent: exactly one JSON object, after lines with parts of its answer if it streams.
//!
//! Unknown members are tolerated, so that agents can write more than we read. Billing never uses this output.
//!
//! Pure.

use std::fmt;

use serde::Deserialize;
use sluice_contract::text::{sanitize, truncate};

/// Answer of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Texts of all payloads, one per line.
    pub content: String,
    /// Failure that the agent reports, whatever its exit code.
    pub error: Option<ReportedError>,
}

/// Failure that an agent reports. Both members may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReportedError {
    /// Status word of the agent.
    #[serde(default)]
    pub code: String,
    /// Message of the agent.
    #[serde(default)]
    pub message: String,
}

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", "") => f.write_str("the agent reported an error without a code and a message"),
            ("", text) | (text, "") => f.write_str(text),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}

#[derive(Deserialize)]
struct RawEnvelope {
    payloads: Vec<EnvelopePayload>,
    #[serde(default)]
    meta: EnvelopeMeta,
}

#[derive(Deserialize)]
struct EnvelopePayload {
    #[serde(default)]
    text: Option<String>,
}

#[derive(Deserialize, Default)]
struct EnvelopeMeta {
    #[serde(default)]
    error: Option<ReportedError>,
}

/// Reason why an output is not an envelope; the message is for the agent's author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// No output.
    #[error("the agent printed nothing on stdout, and one JSON object was expected")]
    Empty,
    /// Something else. The parser's message quotes foreign text, so it is sanitised.
    #[error("stdout is not one JSON object {{\"payloads\":[{{\"text\":…}}],\"meta\":{{…}}}}: {0}")]
    Malformed(String),
}

/// A line of an agent that streams.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltaLine {
    delta: String,
}

/// Returns the text of a line of an agent that streams, `{"delta": "text"}`; `None` for any other line.
#[must_use]
pub fn delta(line: &str) -> Option<String> {
    // An envelope may be long: it is not parsed for this.
    let is_candidate = line.trim_start().strip_prefix('{')?.trim_start().starts_with("\"delta\"");
    is_candidate.then(|| serde_json::from_str(line).ok()).flatten().map(|DeltaLine { delta }| delta)
}

/// Parses an envelope; only white space may surround it, and lines with parts of the answer may be before it.
///
/// # Errors
/// [`EnvelopeError`].
pub fn parse(stdout: &str) -> Result<Envelope, EnvelopeError> {
    let mut stdout = stdout;
    while let Some((line, rest)) = stdout.split_once('\n')
        && delta(line).is_some()
    {
        stdout = rest;
    }
    if stdout.trim().is_empty() {
        return Err(EnvelopeError::Empty);
    }
    let raw: RawEnvelope =
        serde_json::from_str(stdout).map_err(|error| EnvelopeError::Malformed(truncate(&error.to_string())))?;
    let error =
        raw.meta.error.map(|error| ReportedError { code: one_line(&error.code), message: one_line(&error.message) });
    let texts: Vec<_> = raw.payloads.into_iter().filter_map(|payload| payload.text).collect();
    Ok(Envelope { content: texts.join("\n"), error })
}

/// Limits an agent's text to one line without control characters.
fn one_line(text: &str) -> String {
    const MAX: usize = 500;
    sanitize(text).chars().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_members_are_tolerated() {
        let output = r#" {"payloads":[{"text":"a","more":1},{"image":"x"},{"text":"b"}],
            "meta":{"durationMs":3,"error":null,"litellmCallId":"x"},"version":9} "#;
        assert_eq!(parse(output), Ok(Envelope { content: "a\nb".into(), error: None }));
        let failed = r#"{"payloads":[],"meta":{"error":{"code":"llm_error","message":"no"}}}"#;
        let error = Some(ReportedError { code: "llm_error".into(), message: "no".into() });
        assert_eq!(parse(failed), Ok(Envelope { content: String::new(), error }));
    }

    #[test]
    fn a_missing_part_of_an_error_leaves_no_colon() {
        for (error, expected) in [
            (r#"{"code":"c","message":"m"}"#, "c: m"),
            (r#"{"kind":"c","message":"m"}"#, "m"),
            (r#"{"code":"c"}"#, "c"),
            ("{}", "the agent reported an error without a code and a message"),
        ] {
            let output = format!(r#"{{"payloads":[],"meta":{{"error":{error}}}}}"#);
            let error = parse(&output).expect("an envelope").error.expect("an error");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn an_error_stays_on_one_line() {
        let output = r#"{"payloads":[],"meta":{"error":{"code":"x\u001b[2J","message":"a\nrun  ok\r"}}}"#;
        let error = parse(output).expect("an envelope").error.expect("an error");
        assert_eq!(error, ReportedError { code: "x [2J".into(), message: "a run  ok ".into() });
    }

    #[test]
    fn a_long_malformed_envelope_is_not_quoted_completely() {
        let output = format!(r#"{{"payloads":"\u001b[2J{}"}}"#, "x".repeat(100_000));
        let why = parse(&output).expect_err("a text is not a list").to_string();
        assert!(why.contains("invalid type: string") && why.len() < 2000, "{why:.2000}");
        assert!(!why.contains('\u{1b}'), "{why:.2000?}");
    }

    #[test]
    fn parts_of_the_answer_may_come_before() {
        let output = "{\"delta\":\"a\\n\"}\n{ \"delta\": \"b\" }\r\n{\"payloads\":[{\"text\":\"a\\nb\"}]}\n";
        assert_eq!(parse(output), Ok(Envelope { content: "a\nb".into(), error: None }));
        assert_eq!(parse("{\"delta\":\"a\"}\n"), Err(EnvelopeError::Empty), "no envelope follows");
        for (line, text) in [
            (r#"{"delta":"x"}"#, Some("x")),
            (r#"{"delta":1}"#, None),
            (r#"{"delta":"x","more":1}"#, None),
            (r#"{"payloads":[]}"#, None),
            ("delta", None),
        ] {
            assert_eq!(delta(line).as_deref(), text, "{line}");
        }
    }

    #[test]
    fn other_output_is_not_an_envelope() {
        for bad in [
            "",
            "  \n",
            "hello",
            "{}",
            "[]",
            r#"{"payloads":1}"#,
            r#"{"payloads":[]} {}"#,
            r#"log
{"payloads":[]}"#,
            "{\"delta\":\"a\",\"b\":1}\n{\"payloads\":[]}",
            "{\"payloads\":[]}\n{\"delta\":\"a\"}",
        ] {
            parse(bad).expect_err(bad);
        }
    }
}
