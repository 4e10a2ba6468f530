//! What a container wrote, bounded: the head and the tail of each stream, its exact length and its digest.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

/// One stream.
#[derive(Debug, Clone)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    bytes: u64,
    digest: Sha256,
}

/// What is kept of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Its beginning.
    pub head: Vec<u8>,
    /// Its end, as far as it is not in the head.
    pub tail: Vec<u8>,
    /// How long it was.
    pub bytes: u64,
    /// SHA-256 of all of it, in hex.
    pub sha256: String,
}

impl Capture {
    /// Keeps at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: max / 2, bytes: 0, digest: Sha256::new() }
    }

    /// Takes what came next.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.digest.update(piece);
        let (head, rest) = piece.split_at(piece.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len() - rest.len().min(self.half)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// What was kept.
    #[must_use]
    pub fn finish(self) -> Captured {
        Captured {
            head: self.head,
            tail: self.tail.into(),
            bytes: self.bytes,
            sha256: self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl Captured {
    /// How many bytes are missing between head and tail.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// All of it as text; what is missing is named in its place.
    #[must_use]
    pub fn text(&self) -> String {
        match self.left_out() {
            // A character may lie on both sides of the cut that is none.
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
    fn a_short_stream_is_kept_whole() {
        let mut capture = Capture::new(8);
        capture.push(b"abc");
        capture.push("dé".as_bytes());
        assert_eq!(capture.finish().text(), "abcdé");
    }

    #[test]
    fn a_long_one_says_how_much_is_missing() {
        let mut capture = Capture::new(8);
        capture.push(b"0123456789abcdef");
        let captured = capture.finish();
        assert_eq!(captured.text(), "0123\n[8 bytes left out]\ncdef");
        assert_eq!((captured.bytes, captured.left_out()), (16, 8));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20), max in 0_usize..40) {
            let whole = pieces.concat();
            let mut capture = Capture::new(max);
            for piece in &pieces {
                capture.push(piece);
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
