//! The small grammars inside JSON: numbers and escapes.

/// Returns the length of the run of characters that can be part of a number.
pub(super) fn number_run(text: &[u8]) -> usize {
    // Most numbers are whole.
    let complete = digits(text);
    let more = text[complete..].iter().position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    more.map_or(text.len(), |more| complete + more)
}

/// `-? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)?`
pub(super) fn is_number(text: &[u8]) -> bool {
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let complete = digits(rest);
    if complete == 0 || (complete > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[complete..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let n = digits(fraction);
        if n == 0 {
            return false;
        }
        rest = &fraction[n..];
    }
    if let Some((b'e' | b'E', exponent)) = rest.split_first() {
        let exponent = match exponent.split_first() {
            Some((b'+' | b'-', exponent)) => exponent,
            _ => exponent,
        };
        let n = digits(exponent);
        if n == 0 {
            return false;
        }
        rest = &exponent[n..];
    }
    rest.is_empty()
}

/// Returns the number of decimal digits at the beginning of `text`; eight are checked together.
fn digits(text: &[u8]) -> usize {
    const HIGH: u64 = u64::from_ne_bytes([0xf0; 8]);
    const THREES: u64 = u64::from_ne_bytes([0x30; 8]);
    const SIXES: u64 = u64::from_ne_bytes([6; 8]);
    let mut len = 0;
    while let Some(word) = text[len..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // A digit is 0x30 to 0x39, and still below 0x40 when six is added.
        if (word & HIGH) != THREES || (word.wrapping_add(SIXES) & HIGH) != THREES {
            break;
        }
        len += 8;
    }
    len + text[len..].iter().take_while(|b| b.is_ascii_digit()).count()
}

/// Returns the character of an escape at the beginning of `text`, and the length; `None` for an escape that is cut or
/// wrong, and for other text: those are read byte by byte.
pub(super) fn decoded(text: &[u8]) -> Option<(char, usize)> {
    let len = escape(text)?;
    let decoded = match (len, text[1]) {
        (12, _) => {
            let (high, low) = (u32::from(unit(&text[2..])?), u32::from(unit(&text[8..])?));
            char::from_u32(0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00)))?
        }
        (6, _) => char::from_u32(u32::from(unit(&text[2..])?))?,
        (_, b'n') => '\n',
        (_, b't') => '\t',
        (_, b'r') => '\r',
        (_, b'b') => '\u{8}',
        (_, b'f') => '\u{c}',
        (_, b) => char::from(b),
    };
    Some((decoded, len))
}

/// Returns the length of the escape, or of the pair of surrogates, at the beginning of `text`.
#[inline]
pub(super) fn escape(text: &[u8]) -> Option<usize> {
    match text {
        [b'\\', b'n' | b'"' | b'\\' | b't' | b'r' | b'/' | b'b' | b'f', ..] => Some(2),
        [b'\\', b'u', digits @ ..] => unicode_escape(digits),
        _ => None,
    }
}

/// Returns the length of a `\u` escape, from the digits after the `\u`.
fn unicode_escape(digits: &[u8]) -> Option<usize> {
    match unit(digits)? {
        0xD800..0xDC00 => match &digits[4..] {
            [b'\\', b'u', digits @ ..] => matches!(unit(digits)?, 0xDC00..0xE000).then_some(12),
            _ => None,
        },
        0xDC00..0xE000 => None,
        _ => Some(6),
    }
}

/// Returns the value of four hexadecimal digits.
fn unit(digits: &[u8]) -> Option<u16> {
    let digits = digits.first_chunk::<4>()?.map(|digit| HEX[usize::from(digit)]);
    // A byte that is not a digit has a bit that no digit has.
    let all = digits[0] | digits[1] | digits[2] | digits[3];
    (all < 16).then(|| digits.iter().fold(0, |unit, digit| unit << 4 | u16::from(*digit)))
}

const HEX: [u8; 256] = {
    let mut values = [255; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};
