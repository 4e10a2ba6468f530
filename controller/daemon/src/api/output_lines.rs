//! Pieces of output as lines of JSON.
//!
//! Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use sluice_state::records::{OutputContent, OutputPiece, RecordedStream};

use super::timestamp::timestamp;

/// A line of a run's output.
#[derive(Debug, Serialize)]
struct OutputLine {
    /// Position after it: `after` of a request that goes on.
    position: u64,
    stream: &'static str,
    /// Offset of its first byte in the stream.
    offset: u64,
    ts: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Number of bytes that were not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u64>,
}

/// Returns a piece as a line of JSON; none for a piece of another stream than the one that is asked for.
pub(super) fn line(piece: OutputPiece, only: Option<RecordedStream>) -> Option<String> {
    if only.is_some_and(|only| only != piece.stream) {
        return None;
    }
    let (text, base64, missing) = match piece.content {
        OutputContent::Missing(bytes) => (None, None, Some(bytes)),
        OutputContent::Bytes(bytes) => match String::from_utf8(bytes) {
            Ok(text) => (Some(text), None, None),
            Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes())), None),
        },
    };
    let line = OutputLine {
        position: piece.next,
        stream: piece.stream.as_str(),
        offset: piece.offset,
        ts: timestamp(piece.time_us),
        text,
        base64,
        missing,
    };
    serde_json::to_string(&line).ok().map(|line| line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(content: OutputContent) -> OutputPiece {
        OutputPiece { next: 3, stream: RecordedStream::Stderr, offset: 7, time_us: 1_000_000, content }
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let begin = r#"{"position":3,"stream":"stderr","offset":7,"ts":"1970-01-01T00:00:01.000000Z","#;
        for (content, end) in [
            (OutputContent::Bytes(b"a\nb".to_vec()), r#""text":"a\nb"}"#),
            (OutputContent::Bytes(vec![0xff, 0x00]), r#""base64":"/wA="}"#),
            (OutputContent::Missing(9), r#""missing":9}"#),
        ] {
            assert_eq!(line(piece(content), None), Some(format!("{begin}{end}\n")));
        }
    }

    #[test]
    fn only_the_stream_that_is_asked_for_is_shown() {
        let empty = || piece(OutputContent::Bytes(Vec::new()));
        assert_eq!(line(empty(), Some(RecordedStream::Stdout)), None);
        assert!(line(empty(), Some(RecordedStream::Stderr)).is_some());
    }
}
