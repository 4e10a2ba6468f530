//! The small grammars inside JSON: numbers and escapes.

/// `-? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)?`
pub(super) fn is_number(text: &[u8]) -> bool {
    // Most are whole and small.
    if matches!(text, [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit)) {
        return true;
    }
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
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

/// What an escape at the beginning of `text` stands for, and its length; `None` for one that is cut, wrong,
/// or half of a surrogate pair: those are read byte by byte.
pub(super) fn short_escape(text: &[u8]) -> Option<(char, usize)> {
    let decoded = match text.get(1)? {
        b'u' => {
            let digits =
                text.get(2..6)?.iter().try_fold(0, |code, b| Some(code << 4 | char::from(*b).to_digit(16)?))?;
            return char::from_u32(digits).map(|decoded| (decoded, 6));
        }
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b @ (b'"' | b'\\' | b'/') => char::from(*b),
        _ => return None,
    };
    Some((decoded, 2))
}
