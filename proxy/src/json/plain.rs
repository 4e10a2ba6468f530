//! How far a string is plain text: the inner loop of every body and every answer.

use memchr::memchr2;

/// One byte of eight, eight times.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each.
const HIGHS: u64 = ONES << 7;
/// So many bytes without an escape, and more are likely.
const NEAR: usize = 64;
/// As much is looked at twice, and still in the nearest cache the second time.
const WINDOW: usize = 8 * 1024;

/// Where plain text ends: at a quote, a backslash, a control character, or the end of `text`; and whether all
/// before it is ASCII.
pub(super) fn plain(text: &[u8]) -> (usize, bool) {
    skim::<false>(text)
}

/// The same, and on over escapes of two bytes.
pub(super) fn plain_or_escaped(text: &[u8]) -> (usize, bool) {
    skim::<true>(text)
}

fn skim<const ESCAPES: bool>(text: &[u8]) -> (usize, bool) {
    let (mut at, mut seen, mut near) = (0, 0, NEAR);
    while let Some(word) = text[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let stops = stops(word);
        if stops == 0 {
            seen |= word;
            at += 8;
            near -= 8;
            if near == 0 {
                let (len, ascii) = wide(&text[at..]);
                return (at + len, ascii && seen & HIGHS == 0);
            }
            continue;
        }
        // Exact for the first one, which is all that is asked for.
        let first = stops & stops.wrapping_neg();
        seen |= word & (first - 1);
        at += first.trailing_zeros() as usize / 8;
        match text.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') if ESCAPES && text[at] == b'\\' => {
                at += 2;
                near = NEAR;
            }
            _ => return (at, seen & HIGHS == 0),
        }
    }
    while let Some(b) = text.get(at) {
        if matches!(b, b'"' | b'\\' | ..0x20) {
            break;
        }
        seen |= u64::from(*b);
        at += 1;
    }
    (at, seen & HIGHS == 0)
}

/// The highest bit of each byte that is a quote, a backslash or a control character, and perhaps of some behind it.
fn stops(word: u64) -> u64 {
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c)) | control) & HIGHS
}

/// The same for what is long: two passes that the compiler and memchr make wide.
fn wide(text: &[u8]) -> (usize, bool) {
    let (mut len, mut ascii) = (0, true);
    for window in text.chunks(WINDOW) {
        let stop = memchr2(b'"', b'\\', window);
        let run = &window[..stop.unwrap_or(window.len())];
        // One signed comparison finds control characters and what is not ASCII; which it was is asked if any.
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

    /// Byte by byte.
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
