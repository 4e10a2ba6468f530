//! Pieces of output as lines of JSON.
//!
//! Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use sluice_state::records::{OutputContent, OutputPiece, RecordedStream};

use crate::timestamp::timestamp;

/// A line of a run's output.
#[derive(Debug, Serialize)]
struct OutputLine {
    /// Position after the line: `after` of the next request.
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

/// Form of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputForm {
    /// Lines of JSON.
    Lines,
    /// Only the bytes.
    Bytes,
}

/// Returns a piece in this form; empty for a piece of a stream that was not requested.
pub(super) fn shown(piece: OutputPiece, only: Option<RecordedStream>, form: OutputForm) -> Vec<u8> {
    if only.is_some_and(|only| only != piece.stream) {
        return Vec::new();
    }
    match (form, piece.content) {
        (OutputForm::Lines, content) => line(OutputPiece { content, ..piece }).unwrap_or_default().into_bytes(),
        (OutputForm::Bytes, OutputContent::Bytes(bytes)) => bytes,
        (OutputForm::Bytes, OutputContent::Missing(count)) => format!("\n[{count} bytes left out]\n").into_bytes(),
    }
}

/// Returns a piece as a line of JSON.
fn line(piece: OutputPiece) -> Option<String> {
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

    fn text(piece: OutputPiece, only: Option<RecordedStream>, form: OutputForm) -> String {
        String::from_utf8_lossy(&shown(piece, only, form)).into_owned()
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let begin = r#"{"position":3,"stream":"stderr","offset":7,"ts":"1970-01-01T00:00:01.000000Z","#;
        for (content, end) in [
            (OutputContent::Bytes(b"a\nb".to_vec()), r#""text":"a\nb"}"#),
            (OutputContent::Bytes(vec![0xff, 0x00]), r#""base64":"/wA="}"#),
            (OutputContent::Missing(9), r#""missing":9}"#),
        ] {
            assert_eq!(text(piece(content), None, OutputForm::Lines), format!("{begin}{end}\n"));
        }
    }

    #[test]
    fn bytes_are_passed_on_as_they_are() {
        let bytes = vec![b'a', 0xff, b'\n'];
        assert_eq!(shown(piece(OutputContent::Bytes(bytes.clone())), None, OutputForm::Bytes), bytes);
        assert_eq!(text(piece(OutputContent::Missing(9)), None, OutputForm::Bytes), "\n[9 bytes left out]\n");
    }

    #[test]
    fn only_the_stream_that_is_asked_for_is_shown() {
        for form in [OutputForm::Lines, OutputForm::Bytes] {
            let output = || piece(OutputContent::Bytes(b"a".to_vec()));
            assert_eq!(text(output(), Some(RecordedStream::Stdout), form), "");
            assert_ne!(text(output(), Some(RecordedStream::Stderr), form), "");
        }
    }
}
