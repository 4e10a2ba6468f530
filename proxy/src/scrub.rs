//! The scrubber: the key never reaches the sandbox, not even inside a response.
//!
//! Pure. An upstream that echoes its own request, or an error page that quotes a header, would show the key. Each
//! occurrence is overwritten by as many `*`, so that lengths stay right. At most the beginning of a key at the very
//! end of a piece waits for the next piece.

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem};

/// Scrubber of one text in a stream of pieces.
#[derive(Debug, Default)]
pub struct Scrub {
    /// End of the last piece, if it could be the beginning of the key.
    held: Bytes,
}

impl Scrub {
    /// Returns the clean piece, perhaps without an end that the next call returns.
    #[must_use]
    pub fn pass(&mut self, key: &[u8], piece: Bytes) -> Bytes {
        let mut piece = self.rejoin(piece);
        if is_in(key, &piece) {
            piece = overwrite(key, &piece);
        }
        let cut = piece.len() - beginning_at_end(key, &piece);
        self.held = piece.split_off(cut);
        piece
    }

    /// Returns the bytes that were held, once no piece follows.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }

    fn rejoin(&mut self, piece: Bytes) -> Bytes {
        if self.held.is_empty() {
            return piece;
        }
        let mut joined = BytesMut::with_capacity(self.held.len() + piece.len());
        joined.extend_from_slice(&self.held);
        joined.extend_from_slice(&piece);
        joined.freeze()
    }
}

/// Returns true if the text contains the key. Most texts are a header's value or one event, for which the table of a
/// wide search costs more than the search: a thousand instructions.
#[must_use]
pub fn is_in(key: &[u8], text: &[u8]) -> bool {
    const SHORT: usize = 1024;
    let Some(before) = key.len().checked_sub(1).filter(|before| text.len() > *before) else {
        return false;
    };
    if text.len() > SHORT {
        return memmem::find(text, key).is_some();
    }
    // Searched by the last byte: keys begin like words, and end at random.
    memchr_iter(key[before], &text[before..]).any(|at| text[at..].starts_with(key))
}

fn overwrite(key: &[u8], piece: &[u8]) -> Bytes {
    let mut clean = BytesMut::from(piece);
    let mut from = 0;
    while let Some(at) = memmem::find(&clean[from..], key) {
        clean[from + at..from + at + key.len()].fill(b'*');
        from += at + key.len();
    }
    clean.freeze()
}

/// Returns the length of the longest end of `piece` with which the key begins.
fn beginning_at_end(key: &[u8], piece: &[u8]) -> usize {
    let from = piece.len().saturating_sub(key.len() - 1);
    let tail = &piece[from..];
    memchr_iter(key[0], tail).find(|at| key.starts_with(&tail[*at..])).map_or(0, |at| tail.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scrubbed(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
        let mut scrub = Scrub::default();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&scrub.pass(key, Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&scrub.finish());
        out
    }

    #[test]
    fn the_key_is_blotted_out_across_any_cut() {
        let text = b"x sk-secret y sk-sk-secret sk-secre";
        let want = b"x ********* y sk-********* sk-secre";
        for size in 1..=text.len() {
            let pieces: Vec<_> = text.chunks(size).collect();
            assert_eq!(scrubbed(b"sk-secret", &pieces), want, "pieces of {size}");
        }
    }

    #[test]
    fn a_key_is_found_in_any_text() {
        for behind in [0, 1, 100, 200] {
            for before in [0, 1, 100, 200] {
                let text = |key: &str| [&"s".repeat(before), key, &"s".repeat(behind)].concat();
                assert!(is_in(b"sk-secret", text("sk-secret").as_bytes()));
                assert!(!is_in(b"sk-secret", text("sk-secre").as_bytes()));
            }
        }
        assert!(!is_in(b"sk-secret", b""));
    }

    #[test]
    fn a_key_of_stars_comes_to_an_end() {
        assert_eq!(scrubbed(b"******", &[b"a ************ b"]), b"a ************ b");
    }

    #[test]
    fn an_event_is_never_held() {
        let mut scrub = Scrub::default();
        let event = Bytes::from_static(b"data: {\"a\":\"sk-\"}\n\n");
        assert_eq!(scrub.pass(b"sk-secret", event.clone()), event);
    }

    proptest! {
        #[test]
        fn lengths_stay_and_the_key_goes(text in "[sk\\-a]{0,60}", cut in 0usize..60) {
            let cut = cut.min(text.len());
            let out = scrubbed(b"sk-ska", &[&text.as_bytes()[..cut], &text.as_bytes()[cut..]]);
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(memmem::find(&out, b"sk-ska").is_none());
        }
    }
}
