//! The lines of a program's output.
//!
//! Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sluice_runs::exec::{ExecEnd, ExecStop};
use sluice_runs::forward::OutputChunk;

const NAMES: [&str; 2] = ["stdout", "stderr"];

/// Returns the reason word for the end of a program.
pub(super) fn stop_word(stop: ExecStop) -> &'static str {
    match stop {
        ExecStop::Cancelled => "cancelled",
        ExecStop::TimedOut => "timed_out",
        ExecStop::NotStarted => "not_started",
    }
}

/// Makes lines of output. A character that arrives in two chunks is kept together.
#[derive(Debug, Default)]
pub(super) struct ExecFrames {
    streams: [StreamText; 2],
}

#[derive(Debug, Default)]
struct StreamText {
    /// Offset of the first byte that was not passed on.
    offset: u64,
    /// The beginning of a character that is not complete yet.
    rest: Vec<u8>,
}

impl ExecFrames {
    /// Returns the first line.
    pub(super) fn first(exec_id: &str) -> Bytes {
        line(&json!({ "exec_id": exec_id }))
    }

    /// Returns the line of a chunk; empty as long as a character is not complete.
    pub(super) fn output(&mut self, chunk: &OutputChunk) -> Bytes {
        let (index, bytes) = match chunk {
            OutputChunk::Stdout(bytes) => (0, bytes),
            OutputChunk::Stderr(bytes) => (1, bytes),
        };
        self.streams[index].take(NAMES[index], bytes)
    }

    /// Returns the last lines: the rest of the output, and the end.
    pub(super) fn end(mut self, end: &ExecEnd) -> Bytes {
        let mut lines = Vec::new();
        for (stream, name) in self.streams.iter_mut().zip(NAMES) {
            let rest = std::mem::take(&mut stream.rest);
            lines.extend(stream.frame(name, rest));
        }
        let [stdout, stderr] = end.bytes;
        lines.extend(line(&json!({
            "exit_code": end.exit_code,
            "stopped": end.stopped.map(stop_word),
            "bytes": { "stdout": stdout, "stderr": stderr },
            "truncated": end.truncated,
        })));
        lines.into()
    }
}

impl StreamText {
    fn take(&mut self, name: &str, bytes: &[u8]) -> Bytes {
        let mut bytes = [&std::mem::take(&mut self.rest)[..], bytes].concat();
        if let Err(error) = std::str::from_utf8(&bytes)
            // The end of the text is the beginning of a character.
            && error.error_len().is_none()
        {
            self.rest = bytes.split_off(error.valid_up_to());
        }
        self.frame(name, bytes)
    }

    fn frame(&mut self, name: &str, bytes: Vec<u8>) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        let mut frame = json!({ "stream": name, "offset": self.offset });
        self.offset += bytes.len() as u64;
        match String::from_utf8(bytes) {
            Ok(text) => frame["text"] = Value::String(text),
            Err(error) => frame["base64"] = Value::String(BASE64_STANDARD.encode(error.as_bytes())),
        }
        line(&frame)
    }
}

fn line(frame: &Value) -> Bytes {
    format!("{frame}\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[Bytes]) -> Vec<Value> {
        let text = lines.concat();
        let text = std::str::from_utf8(&text).expect("it is text");
        text.lines().map(|line| serde_json::from_str(line).expect("one object in a line")).collect()
    }

    #[test]
    fn a_character_in_two_chunks_is_kept_together() {
        let mut frames = ExecFrames::default();
        let out = |bytes: &[u8]| OutputChunk::Stdout(Bytes::copy_from_slice(bytes));
        let err = |bytes: &[u8]| OutputChunk::Stderr(Bytes::copy_from_slice(bytes));
        let mut lines = vec![ExecFrames::first("x_1")];
        for chunk in [out(b"a\xc3"), err(b"\xff\0"), out(b"\xa9b\n"), out(b"\xe2\x82"), err(b"e")] {
            lines.push(frames.output(&chunk));
        }
        let end = ExecEnd { exit_code: Some(3), stopped: None, bytes: [7, 3], truncated: false };
        lines.push(frames.end(&end));
        let expected = [
            json!({ "exec_id": "x_1" }),
            json!({ "stream": "stdout", "offset": 0, "text": "a" }),
            json!({ "stream": "stderr", "offset": 0, "base64": "/wA=" }),
            json!({ "stream": "stdout", "offset": 1, "text": "éb\n" }),
            json!({ "stream": "stderr", "offset": 2, "text": "e" }),
            json!({ "stream": "stdout", "offset": 5, "base64": "4oI=" }),
            json!({ "exit_code": 3, "stopped": null, "bytes": { "stdout": 7, "stderr": 3 }, "truncated": false }),
        ];
        assert_eq!(parse(&lines), expected);
    }

    #[test]
    fn an_end_before_its_time_has_a_word() {
        let end = ExecEnd { exit_code: None, stopped: Some(ExecStop::TimedOut), bytes: [0, 9], truncated: true };
        let [last] = &parse(&[ExecFrames::default().end(&end)])[..] else { panic!("one line") };
        assert_eq!(
            (&last["stopped"], &last["exit_code"], &last["truncated"]),
            (&json!("timed_out"), &json!(null), &json!(true))
        );
    }
}
