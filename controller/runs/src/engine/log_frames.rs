//! Frames of the engine's log as pieces of a program's output.
//!
//! The engine splits a line of 16 KiB or more into chunks of that length, and its log driver `local` drops the newline at
//! the end of such a line. A chunk that is shorter ends its line, so the newline is put back when the stream continues. At
//! the end of a stream it is unknown whether the last long line had a newline: it gets none.
//!
//! Pure.

use std::time::UNIX_EPOCH;

use sluice_contract::time::unix_micros;
use sluice_state::records::RecordedStream;

/// Length of a chunk of a long line.
const CHUNK: usize = 16 << 10;
/// Length of the time before the bytes of a frame, with a space.
const TIME_LEN: usize = "2026-01-01T00:00:00.000000000Z ".len();
/// Maximum number of bytes that the driver stores in addition to the text of a line: lengths, stream, time.
const LINE_OVERHEAD: u64 = 26;
/// Maximum number of bytes that the driver stores in addition to a part of a long line: also an id and a number.
const PART_OVERHEAD: u64 = 160;

/// Decoder of a log, from its first frame on.
#[derive(Debug, Clone, Default)]
pub(super) struct LogDecoder {
    streams: [StreamState; 2],
    /// Upper bound of the log's size so far.
    size: u64,
}

#[derive(Debug, Clone, Default)]
struct StreamState {
    offset: u64,
    /// True if the last frame was a chunk of an unfinished line.
    is_within_line: bool,
    /// True if the line of the last frame has ended, and the log driver has dropped its newline.
    owes_newline: bool,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogPiece {
    pub(super) stream: RecordedStream,
    /// Offset of the first byte in the stream.
    pub(super) offset: u64,
    /// Microseconds since 1970.
    pub(super) time_us: i64,
    pub(super) bytes: Vec<u8>,
}

/// Error about a frame that has no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the engine's log has a line without a time")]
pub(super) struct LogFrameError;

impl LogDecoder {
    /// Decodes the next frame.
    pub(super) fn take(&mut self, stream: RecordedStream, frame: &[u8]) -> Result<LogPiece, LogFrameError> {
        let (time, text) = frame.split_at_checked(TIME_LEN).ok_or(LogFrameError)?;
        let time = std::str::from_utf8(time).ok().and_then(|time| time.strip_suffix(' ')).ok_or(LogFrameError)?;
        let time = humantime::parse_rfc3339(time).map_err(|_| LogFrameError)?;
        let time_us = unix_micros(time.max(UNIX_EPOCH)).ok_or(LogFrameError)?;
        let state = &mut self.streams[stream as usize];
        let mut bytes = Vec::with_capacity(text.len() + 1);
        if std::mem::take(&mut state.owes_newline) {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(text);
        let is_part = text.last() != Some(&b'\n');
        let is_chunk = is_part && text.len() == CHUNK;
        state.owes_newline = is_part && !is_chunk && state.is_within_line;
        state.is_within_line = is_chunk;
        let offset = state.offset;
        state.offset += bytes.len() as u64;
        self.size += text.len() as u64 + if is_part { PART_OVERHEAD } else { LINE_OVERHEAD };
        Ok(LogPiece { stream, offset, time_us, bytes })
    }

    /// Returns an upper bound of the size of the log up to here.
    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

/// Returns the size of a log that holds this many bytes of output, whatever its lines: at worst each byte is a line.
#[must_use]
pub fn log_size(output_max: u64) -> u64 {
    output_max.saturating_mul(LINE_OVERHEAD + 1).saturating_add(64 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use RecordedStream::{Stderr, Stdout};

    const TIME: &str = "2026-11-22T21:30:00.332116089Z ";

    /// Returns the frames that the engine makes from one stream, as measured with Engine 20.10.
    fn frames(stream: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for line in stream.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_end) = line.strip_suffix(b"\n").map_or((line, false), |text| (text, true));
            let chunks = text.len() / CHUNK;
            frames.extend(text.chunks(CHUNK).take(chunks).map(<[u8]>::to_vec));
            let rest = &text[chunks * CHUNK..];
            if chunks == 0 && has_end {
                frames.push(line.to_vec());
            } else if has_end || !rest.is_empty() {
                frames.push(rest.to_vec());
            }
        }
        frames.iter().map(|frame| [TIME.as_bytes(), frame].concat()).collect()
    }

    fn decode(stream: &[u8]) -> Vec<u8> {
        let mut decoder = LogDecoder::default();
        let mut decoded = Vec::new();
        for frame in frames(stream) {
            let piece = decoder.take(Stdout, &frame).expect("it has a time");
            assert_eq!((piece.offset, piece.time_us), (decoded.len() as u64, 1_795_383_000_332_116));
            decoded.extend(piece.bytes);
        }
        decoded
    }

    #[test]
    fn lines_of_any_length_come_out_as_they_went_in() {
        let line = |len: usize| [vec![b'x'; len], b"\n".to_vec()].concat();
        let lengths = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 20_000, 40_000];
        for len in lengths {
            let stream = [line(len), line(3), line(len), b"end".to_vec()].concat();
            assert!(decode(&stream) == stream, "a line of {len}");
            let open = [line(3), vec![b'x'; len]].concat();
            assert!(decode(&open) == open, "no newline after {len}");
        }
        // The newline after the last long line is lost.
        assert_eq!(decode(&line(CHUNK)).len(), CHUNK);
    }

    #[test]
    fn streams_do_not_mix() {
        let mut decoder = LogDecoder::default();
        let mut take = |stream, text: &[u8]| {
            let piece = decoder.take(stream, &[TIME.as_bytes(), text].concat()).expect("it has a time");
            (piece.offset, piece.bytes)
        };
        assert_eq!(take(Stdout, &[b'a'; CHUNK]).0, 0);
        assert_eq!(take(Stderr, b"e\n"), (0, b"e\n".to_vec()));
        assert_eq!(take(Stdout, b""), (CHUNK as u64, vec![]));
        assert_eq!(take(Stderr, b"f\n"), (2, b"f\n".to_vec()));
        assert_eq!(take(Stdout, b"b\n"), (CHUNK as u64, b"\nb\n".to_vec()));
    }

    #[test]
    fn a_frame_without_a_time_is_an_error() {
        for frame in ["", "text\n", "2026-11-22T21:30:00.332116089Zx", "2026-99-22T21:30:00.332116089Z text"] {
            assert_eq!(LogDecoder::default().take(Stdout, frame.as_bytes()), Err(LogFrameError), "{frame}");
        }
    }

    #[test]
    fn a_log_has_room_for_lines_of_one_byte() {
        let mut decoder = LogDecoder::default();
        for _ in 0..1000 {
            decoder.take(Stdout, format!("{TIME}\n").as_bytes()).expect("it has a time");
        }
        assert!(decoder.size() <= log_size(1000), "{}", decoder.size());
    }
}
