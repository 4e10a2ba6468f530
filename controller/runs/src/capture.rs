//! Bounded capture of a container's output: head and tail of each stream, exact length, digest.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};
use sluice_contract::hex;

/// Captures one stream.
#[derive(Debug, Clone)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    bytes: u64,
    digest: Sha256,
}

/// Captured part of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Beginning.
    pub head: Vec<u8>,
    /// End, as far as it is not in the head.
    pub tail: Vec<u8>,
    /// Length of the whole stream.
    pub bytes: u64,
    /// SHA-256 of the whole stream, in hex.
    pub sha256: String,
}

impl Capture {
    /// Starts a capture of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let half = max / 2;
        let (head, tail) = (Vec::new(), VecDeque::new());
        Self { head, tail, head_max: half, tail_max: half, bytes: 0, digest: Sha256::new() }
    }

    /// Takes the next chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.digest.update(chunk);
        let (head, rest) = chunk.split_at(chunk.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len() - rest.len().min(self.tail_max)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Counts bytes that were lost. The digest leaves them out.
    pub fn skip(&mut self, bytes: u64) {
        self.bytes += bytes;
        // The head ends at a gap. The tail keeps its limit, so the end of the stream is captured.
        self.head_max = self.head.len();
    }

    /// Returns the captured part.
    #[must_use]
    pub fn finish(self) -> Captured {
        Captured {
            head: self.head,
            tail: self.tail.into(),
            bytes: self.bytes,
            sha256: hex::encode(&self.digest.finalize()),
        }
    }
}

impl Captured {
    /// Returns the number of bytes that are missing between head and tail.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the stream as text. A remark replaces the missing bytes.
    #[must_use]
    pub fn text(&self) -> String {
        match self.left_out() {
            // The capture is complete, but a character may be split by the cut.
            0 => String::from_utf8_lossy(&[&*self.head, &self.tail].concat()).into_owned(),
            missing => format!(
                "{}\n[{missing} bytes left out]\n{}",
                String::from_utf8_lossy(&self.head),
                String::from_utf8_lossy(&self.tail)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_stream_is_captured_completely() {
        let mut capture = Capture::new(8);
        capture.push(b"abc");
        capture.push("dé".as_bytes());
        assert_eq!(capture.finish().text(), "abcdé");
    }

    #[test]
    fn a_long_stream_says_how_much_is_missing() {
        let mut capture = Capture::new(8);
        capture.push(b"0123456789abcdef");
        let captured = capture.finish();
        assert_eq!(captured.text(), "0123\n[8 bytes left out]\ncdef");
        assert_eq!((captured.bytes, captured.left_out()), (16, 8));
    }

    /// Bug: after a gap, the tail was limited to the length of the head.
    #[test]
    fn the_end_after_a_gap_is_captured() {
        let mut capture = Capture::new(100);
        capture.skip(10);
        capture.push(b"hello");
        assert_eq!(capture.finish().text(), "\n[10 bytes left out]\nhello");
        let mut capture = Capture::new(8);
        capture.push(b"a");
        capture.skip(10);
        capture.push(b"0123456789");
        let captured = capture.finish();
        assert_eq!((captured.text(), captured.bytes), ("a\n[16 bytes left out]\n6789".to_owned(), 21));
    }

    proptest! {
        #[test]
        fn chunk_sizes_do_not_matter(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20), max in 0_usize..40) {
            let whole = chunks.concat();
            let mut capture = Capture::new(max);
            for chunk in &chunks {
                capture.push(chunk);
            }
            let mut at_once = Capture::new(max);
            at_once.push(&whole);
            let captured = capture.finish();
            prop_assert_eq!(&captured, &at_once.finish());
            prop_assert_eq!(captured.bytes, whole.len() as u64);
            prop_assert!(whole.starts_with(&captured.head) && whole.ends_with(&captured.tail));
            prop_assert!(captured.head.len() + captured.tail.len() <= max);
        }
    }
}
