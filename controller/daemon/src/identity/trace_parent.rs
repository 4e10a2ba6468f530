//! The header `traceparent` of W3C Trace Context.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A span of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// Trace, 32 hexadecimal digits.
    pub trace_id: String,
    /// Span, 16 hexadecimal digits.
    pub span_id: String,
    /// Flags of the trace.
    pub flags: u8,
}

/// A text that is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a traceparent is VERSION-TRACE-SPAN-FLAGS, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct TraceParentError;

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut parts = text.trim().split('-');
        let mut part = |digits: usize| parts.next().filter(|part| is_hex(part, digits)).ok_or(TraceParentError);
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        // A later version may have more parts; its first four are these.
        let has_more = parts.next().is_some();
        if version == "ff" || (version == "00" && has_more) || is_zero(trace_id) || is_zero(span_id) {
            return Err(TraceParentError);
        }
        let flags = u8::from_str_radix(flags, 16).map_err(|_| TraceParentError)?;
        Ok(Self { trace_id: trace_id.to_owned(), span_id: span_id.to_owned(), flags })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl TryFrom<String> for TraceParent {
    type Error = TraceParentError;

    fn try_from(text: String) -> Result<Self, TraceParentError> {
        text.parse()
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> Self {
        parent.to_string()
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_alike() {
        let parent: TraceParent = GOOD.parse().expect("it is right");
        assert_eq!(parent.to_string(), GOOD);
        let later = format!("cc{}-more", &GOOD[2..]);
        assert_eq!(later.parse::<TraceParent>().expect("a later version").span_id, "00f067aa0ba902b7");
    }

    #[test]
    fn malformed_traceparents_are_refused() {
        let (zero_trace, zero_span) = (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), "0".repeat(16));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{zero_span}-01");
        let (upper, more, version) = (GOOD.to_uppercase(), format!("{GOOD}-x"), format!("ff{}", &GOOD[2..]));
        let rows = ["", "00", &GOOD[..52], &zero_trace, &zero_span, &upper, &more, &version, "é"];
        for text in rows {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }
}
