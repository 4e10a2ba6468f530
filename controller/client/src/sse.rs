//! Frames of Server-Sent Events, from lines.
//!
//! Pure.

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SseFrame {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: String,
}

/// Collects the lines of a frame.
#[derive(Debug)]
pub(crate) struct SseReader {
    largest: usize,
    frame: SseFrame,
    has_field: bool,
}

/// A frame that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongFrame;

impl SseReader {
    /// Returns a reader of frames with at most `largest` bytes of data.
    pub(crate) fn new(largest: usize) -> Self {
        Self { largest, frame: SseFrame::default(), has_field: false }
    }

    /// Takes a line, and returns the frame that ends with it.
    ///
    /// # Errors
    /// The frame is longer than the limit.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<Option<SseFrame>, LongFrame> {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return Ok(std::mem::take(&mut self.has_field).then_some(frame));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.frame.id = Some(value.to_owned()),
            "event" => self.frame.event = Some(value.to_owned()),
            "data" => {
                if self.frame.data.len() + value.len() > self.largest {
                    return Err(LongFrame);
                }
                if !self.frame.data.is_empty() {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            // A comment, or a field of a later version.
            _ => return Ok(None),
        }
        self.has_field = true;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(text: &str, largest: usize) -> Result<Vec<SseFrame>, LongFrame> {
        let mut reader = SseReader::new(largest);
        let mut found = Vec::new();
        for line in text.split_terminator('\n') {
            found.extend(reader.line(line.as_bytes())?);
        }
        Ok(found)
    }

    #[test]
    fn frames_have_ids_names_and_data() {
        let text = ": ping\n\nid: 7\nevent: snapshot\ndata: {}\n\ndata:a\ndata: b\nretry: 3\n\n\ndata: unfinished\n";
        let found = frames(text, 16).expect("they are short");
        let frame = |id: Option<&str>, event: Option<&str>, data: &str| SseFrame {
            id: id.map(str::to_owned),
            event: event.map(str::to_owned),
            data: data.to_owned(),
        };
        assert_eq!(found, [frame(Some("7"), Some("snapshot"), "{}"), frame(None, None, "a\nb")]);
    }

    #[test]
    fn a_frame_without_an_end_is_refused() {
        assert_eq!(frames(&"data: 0123456789\n".repeat(100), 64), Err(LongFrame));
    }
}
