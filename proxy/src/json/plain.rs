//! Length of plain text in a string: the inner loop of every body and every response.

use memchr::memchr2;

use super::block::{self, BLOCK};
use super::grammar::escape;

/// The lowest bit of each of eight bytes.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each of eight bytes.
const HIGHS: u64 = ONES << 7;
/// Number of bytes without an escape after which more are likely.
const NEAR: usize = 64;
/// Number of blocks without an escape after which the rest is searched by [`wide`].
const CLEAN: usize = 8;
/// Number of bytes that are read twice, and are still in the nearest cache the second time.
const WINDOW: usize = 8 * 1024;

/// Returns the length of the plain text: up to a quote, a backslash, a control character, or the end of `text`; and
/// true if all of it is ASCII.
pub(super) fn plain(text: &[u8]) -> (usize, bool) {
    let (mut at, mut seen) = (0, 0);
    while let Some(word) = text[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let stops = stops(word);
        if stops != 0 {
            // Only the first stop is exact, and only that is needed.
            let first = stops & stops.wrapping_neg();
            seen |= word & (first - 1);
            return (at + first.trailing_zeros() as usize / 8, seen & HIGHS == 0);
        }
        seen |= word;
        at += 8;
        if at == NEAR {
            let (len, ascii) = wide(&text[at..]);
            return (at + len, ascii && seen & HIGHS == 0);
        }
    }
    let rest = &text[at..];
    let len = rest.iter().position(|b| matches!(b, b'"' | b'\\' | ..0x20)).unwrap_or(rest.len());
    (at + len, seen & HIGHS == 0 && rest[..len].is_ascii())
}

/// Returns the same, but continues over escapes: text that is not kept need not be decoded. The flag may also be false
/// for non-ASCII text shortly after the end.
pub(super) fn plain_or_escaped(text: &[u8]) -> (usize, bool) {
    let (mut at, mut ascii, mut clean) = (0, true, 0);
    while let Some(block) = text[at..].first_chunk::<BLOCK>() {
        let (mut stops, is_ascii) = block::stops(block);
        ascii &= is_ascii;
        clean = if stops == 0 { clean + 1 } else { 0 };
        if clean == CLEAN {
            let (len, is_ascii) = wide(&text[at..]);
            (at, ascii, clean) = (at + len, ascii && is_ascii, 0);
            continue;
        }
        // Each stop but an escape is the end, and an escape may reach into the next block.
        let mut passed = BLOCK;
        while stops != 0 {
            let stop = stops.trailing_zeros() as usize;
            let Some(len) = escape(&text[at + stop..]) else {
                return (at + stop, ascii);
            };
            passed = passed.max(stop + len);
            stops &= u64::MAX.checked_shl((stop + len) as u32).unwrap_or(0);
        }
        at += passed;
    }
    loop {
        let (len, is_ascii) = plain(&text[at..]);
        (at, ascii) = (at + len, ascii && is_ascii);
        match escape(&text[at..]) {
            Some(len) => at += len,
            None => return (at, ascii),
        }
    }
}

/// Returns the highest bit of each byte that is a quote, a backslash or a control character, and perhaps of some
/// bytes after it.
fn stops(word: u64) -> u64 {
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c)) | control) & HIGHS
}

/// Returns the same for long text: two passes that the compiler and memchr vectorise.
fn wide(text: &[u8]) -> (usize, bool) {
    let (mut len, mut ascii) = (0, true);
    for window in text.chunks(WINDOW) {
        let stop = memchr2(b'"', b'\\', window);
        let run = &window[..stop.unwrap_or(window.len())];
        // One signed comparison finds control characters and non-ASCII bytes; the rare case is told apart afterwards.
        if run.iter().fold(false, |odd, b| odd | (b.cast_signed() < 0x20)) {
            let control = run.iter().position(|b| *b < 0x20);
            ascii &= run[..control.unwrap_or(run.len())].is_ascii();
            if let Some(control) = control {
                return (len + control, ascii);
            }
        }
        len += run.len();
        if stop.is_some() {
            break;
        }
    }
    (len, ascii)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the same, byte by byte.
    fn plainly(text: &[u8]) -> (usize, bool) {
        let len = text.iter().position(|b| matches!(b, b'"' | b'\\' | ..0x20)).unwrap_or(text.len());
        (len, text[..len].is_ascii())
    }

    #[test]
    fn every_byte_is_judged_alike_wherever_it_stands() {
        for byte in 0..=255 {
            for at in [0, 1, 7, 8, 62, 63, 64, 65, 100, NEAR + WINDOW - 1, NEAR + WINDOW, NEAR + WINDOW + 1] {
                for behind in [0, 1, 9, 200] {
                    let mut text = vec![b'x'; at + 1 + behind];
                    text[at] = byte;
                    assert_eq!(plain(&text), plainly(&text), "{byte:#x} at {at} before {behind}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_what_a_look_at_each_byte_says(text in prop::collection::vec(prop::sample::select(b"aaaaaaaaaaaaaaaaaaaa\x7f\x80\xff\x1f\x20\x21\"#\\".to_vec()), 0..200)) {
            prop_assert_eq!(plain(&text), plainly(&text));
        }
    }
}
