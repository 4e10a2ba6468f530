//! Lines of a stream that comes in pieces of any size.
//!
//! Pure.

use std::collections::VecDeque;

use memchr::memchr;

/// Splits bytes into lines of limited length.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    longest: usize,
    /// The beginning of the next line.
    begun: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
}

/// A line that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongLine;

impl LineSplitter {
    /// Returns a splitter of lines of at most `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        Self { longest, begun: Vec::new(), lines: VecDeque::new() }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// A line is longer than the limit.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<(), LongLine> {
        while let Some(at) = memchr(b'\n', piece) {
            self.extend(&piece[..at])?;
            let mut line = std::mem::take(&mut self.begun);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            self.lines.push_back(line);
            piece = &piece[at + 1..];
        }
        self.extend(piece)
    }

    /// Returns the next whole line.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front()
    }

    /// Returns whether the bytes end within a line.
    pub(crate) fn is_inside(&self) -> bool {
        !self.begun.is_empty()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), LongLine> {
        if self.begun.len() + bytes.len() > self.longest {
            return Err(LongLine);
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_for_each_split() {
        let text = b"one\r\ntwo\n\nthree\nrest";
        for size in 1..=text.len() {
            let mut splitter = LineSplitter::new(8);
            text.chunks(size).for_each(|piece| splitter.push(piece).expect("no line is long"));
            let lines: Vec<_> = std::iter::from_fn(|| splitter.pop()).collect();
            assert_eq!(lines, [&b"one"[..], b"two", b"", b"three"], "in pieces of {size}");
            assert!(splitter.is_inside());
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut splitter = LineSplitter::new(8);
        splitter.push(b"12345678").expect("it just fits");
        assert_eq!(splitter.push(b"9"), Err(LongLine));
        assert_eq!(LineSplitter::new(8).push(b"123456789\n"), Err(LongLine));
    }
}
