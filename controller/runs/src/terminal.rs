//! Foreign text on stdout or stderr: unchanged into a pipe or a file, and without control sequences onto a terminal.
//!
//! Newlines and tabs stay. Every other control character, and each one that changes the direction of writing, becomes a
//! space. Bytes that are not UTF-8 become U+FFFD, since a terminal may take them for control characters.

use std::io::{self, IsTerminal, Write};

use sluice_contract::text::sanitize;

/// A stream for foreign bytes, which may come in chunks of any size.
#[derive(Debug)]
pub struct SanitizedWriter<W> {
    stream: W,
    target: StreamTarget,
    /// First bytes of a character that is not complete yet.
    cut: Vec<u8>,
}

/// Kind of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamTarget {
    Terminal,
    Pipe,
}

impl<W: Write + IsTerminal> SanitizedWriter<W> {
    /// Sanitises text for this stream, if it is a terminal.
    pub fn new(stream: W) -> Self {
        if stream.is_terminal() { Self::for_terminal(stream) } else { Self::for_pipe(stream) }
    }
}

impl<W: Write> SanitizedWriter<W> {
    /// Sanitises text for this stream, which writes to a terminal.
    pub fn for_terminal(stream: W) -> Self {
        Self { stream, target: StreamTarget::Terminal, cut: Vec::new() }
    }

    /// Passes every byte to this stream, which does not write to a terminal.
    pub fn for_pipe(stream: W) -> Self {
        Self { stream, target: StreamTarget::Pipe, cut: Vec::new() }
    }

    /// Writes the next chunk.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.target == StreamTarget::Pipe {
            self.stream.write_all(bytes)?;
            return self.stream.flush();
        }
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut read = 0;
        for chunk in all.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            read += chunk.valid().len() + invalid.len();
            // At the end of the chunk it may be the start of a character.
            let is_incomplete = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if read == all.len() && is_incomplete {
                self.cut = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.stream.write_all(sanitize_lines(&text).as_bytes())?;
        self.stream.flush()
    }
}

/// Sanitises each line of a text. Newlines and tabs stay.
#[must_use]
pub fn sanitize_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(['\n', '\t']) {
        let kept = part.trim_end_matches(['\n', '\t']).len();
        shown.push_str(&sanitize(&part[..kept]));
        shown.push_str(&part[kept..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output for these bytes in chunks of this size.
    fn written(bytes: &[u8], size: usize, mut writer: SanitizedWriter<Vec<u8>>) -> Vec<u8> {
        bytes.chunks(size).for_each(|chunk| writer.put(chunk).expect("memory does not fail"));
        writer.stream
    }

    #[test]
    fn a_terminal_gets_no_control_sequences() {
        for (bytes, expected) in [
            (&b"plain\n\ttext"[..], "plain\n\ttext"),
            (b"\x1b[31mred\x1b[0m\x07\x08\r\n", " [31mred [0m   \n"),
            ("\u{9b}2J\u{85}é漢🦀\u{202e}x\u{7f}".as_bytes(), " 2J é漢🦀 x "),
            (b"\x9b2J a\xc3(b", "\u{fffd}2J a\u{fffd}(b"),
        ] {
            for size in 1..=bytes.len() {
                let text = String::from_utf8(written(bytes, size, SanitizedWriter::for_terminal(Vec::new())))
                    .expect("it is text now");
                assert_eq!(text, expected, "in chunks of {size}");
            }
        }
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(written(&bytes, 7, SanitizedWriter::for_pipe(Vec::new())), bytes);
    }
}
