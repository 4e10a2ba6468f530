//! The lines of an output that flags select: by time, by a text, and the last ones.
//!
//! Pure.

use std::collections::VecDeque;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::super::sandbox_object::timestamp;

/// Maximum number of bytes of a line that is kept together.
const LINE_MAX: usize = 1 << 20;

/// Flags that select the lines to show.
#[derive(Debug, Clone, Default)]
pub(super) struct LineFlags {
    /// Lines that were written since this time, in microseconds since 1970.
    pub(super) since_us: Option<i64>,
    /// Number of the last existing lines that are shown.
    pub(super) tail: Option<usize>,
    /// Text that a line has.
    pub(super) text: Option<String>,
}

/// A line of a run's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectedLine {
    /// 0 for stdout, 1 for stderr.
    pub(super) stream: usize,
    /// Time of its begin in microseconds since 1970; 0 if it is unknown.
    pub(super) time_us: i64,
    /// The line, with its end if it has one.
    pub(super) bytes: Vec<u8>,
}

impl SelectedLine {
    /// Returns the line as a JSON object on one line.
    pub(super) fn json(&self) -> Vec<u8> {
        let stream = ["stdout", "stderr"][self.stream];
        let time = (self.time_us != 0).then(|| timestamp(self.time_us));
        let mut object = json!({ "stream": stream, "ts": time });
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => object["text"] = json!(text),
            Err(_) => object["base64"] = json!(BASE64_STANDARD.encode(&self.bytes)),
        }
        format!("{object}\n").into_bytes()
    }
}

/// Selects lines of two streams.
#[derive(Debug)]
pub(super) struct LineSelection {
    flags: LineFlags,
    /// The line of each stream that has no end yet, and the time of its first byte.
    open: [(Vec<u8>, i64); 2],
    /// The last lines of the output that existed at first; `None` after they were shown.
    last: Option<VecDeque<SelectedLine>>,
}

impl LineFlags {
    /// Returns whether all lines are shown.
    pub(super) fn select_all(&self) -> bool {
        self.since_us.is_none() && self.tail.is_none() && self.text.is_none()
    }
}

impl LineSelection {
    pub(super) fn new(flags: LineFlags) -> Self {
        let last = flags.tail.map(|_| VecDeque::new());
        Self { flags, open: Default::default(), last }
    }

    /// Takes bytes of a stream that were written at a time, and returns the lines to show now.
    pub(super) fn push(&mut self, stream: usize, time_us: i64, bytes: &[u8]) -> Vec<SelectedLine> {
        let mut shown = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, begun_us) = &mut self.open[stream];
            if line.is_empty() {
                *begun_us = time_us;
            }
            line.extend_from_slice(part);
            if line.ends_with(b"\n") || line.len() >= LINE_MAX {
                let (line, begun_us) = (std::mem::take(line), *begun_us);
                shown.extend(self.select(stream, begun_us, line));
            }
        }
        shown
    }

    /// Notes that the existing output was read, and returns its last lines.
    pub(super) fn caught_up(&mut self) -> Vec<SelectedLine> {
        self.last.take().map_or_else(Vec::new, Vec::from)
    }

    /// Returns the rest at the end of the output: lines without a line end.
    pub(super) fn finish(&mut self) -> Vec<SelectedLine> {
        let mut shown = Vec::new();
        for stream in [0, 1] {
            let (line, begun_us) = std::mem::take(&mut self.open[stream]);
            if !line.is_empty() {
                shown.extend(self.select(stream, begun_us, line));
            }
        }
        // If no line was shown yet, it is one of the last lines.
        shown.extend(self.caught_up());
        shown
    }

    fn select(&mut self, stream: usize, time_us: i64, bytes: Vec<u8>) -> Option<SelectedLine> {
        let LineFlags { since_us, tail, text } = &self.flags;
        let is_old = since_us.is_some_and(|since| time_us < since);
        let has_text = text.as_ref().is_none_or(|text| contains(&bytes, text.as_bytes()));
        if is_old || !has_text {
            return None;
        }
        let line = SelectedLine { stream, time_us, bytes };
        match (&mut self.last, tail) {
            (Some(last), Some(tail)) => {
                last.push_back(line);
                if last.len() > *tail {
                    last.pop_front();
                }
                None
            }
            _ => Some(line),
        }
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    text.is_empty() || line.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes pieces, and then the end. Returns the shown lines as one text.
    fn shown(flags: LineFlags, pieces: &[(usize, i64, &str)]) -> String {
        let mut selection = LineSelection::new(flags);
        let mut shown = Vec::new();
        for (stream, time_us, text) in pieces {
            shown.extend(selection.push(*stream, *time_us, text.as_bytes()));
        }
        shown.extend(selection.finish());
        shown.iter().map(|line| format!("{}{}", line.stream, String::from_utf8_lossy(&line.bytes))).collect()
    }

    #[test]
    fn lines_in_pieces_are_selected_whole() {
        let pieces = [(0, 1, "on"), (1, 2, "err one\n"), (0, 3, "e\ntwo\n"), (0, 4, "three")];
        let with = |flags| shown(flags, &pieces);
        assert_eq!(with(LineFlags::default()), "1err one\n0one\n0two\n0three");
        let text = |text: &str| LineFlags { text: Some(text.to_owned()), ..LineFlags::default() };
        assert_eq!(with(text("one")), "1err one\n0one\n");
        assert_eq!(with(text("nothing")), "");
        assert_eq!(with(LineFlags { tail: Some(2), ..LineFlags::default() }), "0two\n0three");
        assert_eq!(with(LineFlags { tail: Some(1), ..text("one") }), "0one\n");
        assert_eq!(with(LineFlags { tail: Some(0), ..LineFlags::default() }), "");
    }

    #[test]
    fn the_time_of_a_line_is_that_of_its_begin() {
        let pieces = [(0, 1, "old "), (0, 9, "line\nnew\n")];
        assert_eq!(shown(LineFlags { since_us: Some(5), ..LineFlags::default() }, &pieces), "0new\n");
    }

    #[test]
    fn a_line_that_is_no_text_is_base64() {
        let object = |bytes: &[u8]| {
            let line = SelectedLine { stream: 1, time_us: 1_000_000, bytes: bytes.to_vec() };
            String::from_utf8(line.json()).expect("it is text")
        };
        let ts = r#""ts":"1970-01-01T00:00:01.000000Z""#;
        for (bytes, member) in [(&b"a\n"[..], r#""text":"a\n""#), (b"\xff", r#""base64":"/w==""#)] {
            let object = object(bytes);
            assert!(object.contains(ts) && object.contains(member) && object.ends_with("}\n"), "{object}");
        }
    }

    #[test]
    fn a_line_without_a_time_has_ts_null() {
        let line = SelectedLine { stream: 0, time_us: 0, bytes: b"a\n".to_vec() };
        let object = serde_json::from_slice::<serde_json::Value>(&line.json()).expect("it is JSON");
        assert_eq!(object, json!({ "stream": "stdout", "ts": null, "text": "a\n" }));
    }

    #[test]
    fn what_comes_later_is_not_in_the_tail() {
        let mut selection = LineSelection::new(LineFlags { tail: Some(1), ..LineFlags::default() });
        assert_eq!(selection.push(0, 1, b"a\nb\n"), []);
        assert_eq!(selection.caught_up(), [SelectedLine { stream: 0, time_us: 1, bytes: b"b\n".to_vec() }]);
        assert_eq!(selection.push(0, 2, b"c\nd\n").len(), 2);
        assert!(!LineFlags { tail: Some(1), ..LineFlags::default() }.select_all() && LineFlags::default().select_all());
    }
}
