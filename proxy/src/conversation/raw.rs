//! The bytes of a body at the offsets that the scanner names.
//!
//! Pure. A string is hashed as it is written, whatever its length: the scanner keeps only its beginning.

use sluice_contract::Hasher;

/// A text in pieces. Ranges that follow each other are found without a search.
#[derive(Debug)]
pub(super) struct RawText<'a> {
    pieces: &'a [&'a [u8]],
    /// Piece of the last range, and the offset at which it begins.
    at: usize,
    start: u64,
}

impl<'a> RawText<'a> {
    pub(super) fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces, at: 0, start: 0 }
    }

    /// Adds the bytes of a range to a hash.
    pub(super) fn hash(&mut self, mut from: u64, to: u64, hasher: &mut Hasher) {
        if from < self.start {
            (self.at, self.start) = (0, 0);
        }
        while let Some(piece) = self.pieces.get(self.at) {
            let end = self.start + piece.len() as u64;
            if from < end {
                let upto = to.min(end);
                hasher.update(&piece[(from - self.start) as usize..(upto - self.start) as usize]);
                from = upto;
                if from == to {
                    return;
                }
            }
            self.start = end;
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_contract::Hash;

    #[test]
    fn a_range_is_the_same_in_any_pieces() {
        for pieces in [&[&b"abcdefgh"[..]][..], &[b"a", b"bc", b"", b"def", b"gh"]] {
            let mut raw = RawText::new(pieces);
            for (from, to, text) in [(0, 1, "a"), (1, 6, "bcdef"), (2, 8, "cdefgh"), (0, 8, "abcdefgh"), (3, 3, "")] {
                let mut hasher = Hasher::default();
                raw.hash(from, to, &mut hasher);
                assert_eq!(hasher.finish(), Hash::of(text.as_bytes()), "{from}..{to}");
            }
        }
    }
}
