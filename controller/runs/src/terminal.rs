//! What others have written, on its way to stdout or stderr: as it is into a pipe or a file, and without orders onto a
//! terminal.
//!
//! Newlines and tabs stay. Every other control character, and what turns the direction of writing, becomes a blank; bytes
//! that are not UTF-8 become U+FFFD, since a terminal may take them for control characters.

use std::io::{self, IsTerminal, Write};

use sluice_contract::text::sanitize;

/// A stream for bytes of others; they may come in any pieces.
#[derive(Debug)]
pub struct SanitizedWriter<W> {
    stream: W,
    is_terminal: bool,
    /// The first bytes of a character whose others have not come yet.
    cut: Vec<u8>,
}

impl<W: Write + IsTerminal> SanitizedWriter<W> {
    /// Screens what goes to this stream, if it is a terminal.
    pub fn new(stream: W) -> Self {
        let is_terminal = stream.is_terminal();
        Self::of(stream, is_terminal)
    }
}

impl<W: Write> SanitizedWriter<W> {
    /// Screens what goes to this stream, which writes to a terminal.
    pub fn for_terminal(stream: W) -> Self {
        Self::of(stream, true)
    }

    /// Passes every byte to this stream, which does not write to a terminal.
    pub fn for_pipe(stream: W) -> Self {
        Self::of(stream, false)
    }

    fn of(stream: W, is_terminal: bool) -> Self {
        Self { stream, is_terminal, cut: Vec::new() }
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_terminal {
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
            // At the very end it may be the beginning of a character.
            let is_begun = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if read == all.len() && is_begun {
                self.cut = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.stream.write_all(screened(&text).as_bytes())?;
        self.stream.flush()
    }
}

/// A text as a terminal may have it.
#[must_use]
pub fn screened(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let kept = piece.trim_end_matches(['\n', '\t']).len();
        shown.push_str(&sanitize(&piece[..kept]));
        shown.push_str(&piece[kept..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of these bytes, in pieces of this size.
    fn shown(bytes: &[u8], size: usize, is_terminal: bool) -> Vec<u8> {
        let mut screen = SanitizedWriter::of(Vec::new(), is_terminal);
        bytes.chunks(size).for_each(|piece| screen.put(piece).expect("memory does not fail"));
        screen.stream
    }

    #[test]
    fn a_terminal_gets_text_and_no_orders_however_it_is_cut() {
        for (bytes, expected) in [
            (&b"plain\n\ttext"[..], "plain\n\ttext"),
            (b"\x1b[31mred\x1b[0m\x07\x08\r\n", " [31mred [0m   \n"),
            ("\u{9b}2J\u{85}é漢🦀\u{202e}x\u{7f}".as_bytes(), " 2J é漢🦀 x "),
            (b"\x9b2J a\xc3(b", "\u{fffd}2J a\u{fffd}(b"),
        ] {
            for size in 1..=bytes.len() {
                let said = String::from_utf8(shown(bytes, size, true)).expect("it is text now");
                assert_eq!(said, expected, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(shown(&bytes, 7, false), bytes);
    }
}
