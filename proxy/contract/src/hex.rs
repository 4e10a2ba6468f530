//! Lower-case hex.
//!
//! Pure.

/// Returns the digits of these bytes.
#[must_use]
#[inline]
pub fn encode(bytes: &[u8]) -> String {
    // One pass that the compiler can vectorise.
    let mut text = vec![[0; 2]; bytes.len()];
    for (pair, byte) in text.iter_mut().zip(bytes) {
        *pair = digits(*byte);
    }
    String::from_utf8(text.into_flattened()).expect("digits are ASCII")
}

/// Appends the digits of these bytes. Within the text's capacity no copy of the digits stays in freed memory, so that
/// secrets can be written.
pub fn push(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.extend(digits(*byte).map(char::from));
    }
}

/// Parses exactly `N` bytes of lower-case digits; `None` for any other text.
#[must_use]
pub fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Returns both digits of a byte, without a branch or a table.
fn digits(byte: u8) -> [u8; 2] {
    let digit = |value: u8| value + b'0' + u8::from(value > 9) * (b'a' - b'0' - 10);
    [digit(byte >> 4), digit(byte & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_as_written() {
        let bytes: [u8; 256] = std::array::from_fn(|i| i as u8);
        let text = encode(&bytes);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"), "{text}");
        assert_eq!(decode(text.as_bytes()), Some(bytes));
        let mut pushed = String::from("x");
        push(&mut pushed, &bytes);
        assert_eq!(pushed, format!("x{text}"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "0", "000", "0G", "0A", "0x"] {
            assert_eq!(decode::<1>(text.as_bytes()), None, "{text}");
        }
    }
}
