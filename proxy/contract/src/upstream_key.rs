//! The form of a key of the upstream: both programs refuse the same texts, and never repeat them.
//!
//! Pure.

/// Maximum length in bytes: longer than any key or signed token in use.
pub const KEY_MAX: usize = 8192;
/// Minimum length in bytes: a shorter text occurs in ordinary responses, and would be scrubbed there.
pub const KEY_MIN: usize = 6;

/// Reason why a text is not a key; never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The text is empty.
    #[error("is empty: write the key into it")]
    Empty,
    /// The text is too short or too long.
    #[error("holds {0} bytes; give a key of {KEY_MIN} to {KEY_MAX}")]
    Length(usize),
    /// The text has a byte that no header may carry.
    #[error("holds a byte that is not visible ASCII, at position {0}; write one key on one line")]
    Alphabet(usize),
}

/// Checks the form of a key, without its final newline.
///
/// # Errors
/// [`KeyFault`], the first one.
pub fn check(key: &[u8]) -> Result<(), KeyFault> {
    match key.len() {
        0 => Err(KeyFault::Empty),
        length if !(KEY_MIN..=KEY_MAX).contains(&length) => Err(KeyFault::Length(length)),
        _ => key.iter().position(|byte| !byte.is_ascii_graphic()).map_or(Ok(()), |at| Err(KeyFault::Alphabet(at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word_of_some_length() {
        for (key, expected) in [
            ("sk-abc", Ok(())),
            (&"x".repeat(KEY_MAX), Ok(())),
            ("", Err(KeyFault::Empty)),
            ("short", Err(KeyFault::Length(5))),
            (&"x".repeat(KEY_MAX + 1), Err(KeyFault::Length(KEY_MAX + 1))),
            ("sk test", Err(KeyFault::Alphabet(2))),
            ("sk-a\nsk-b", Err(KeyFault::Alphabet(4))),
            ("sk-é-key", Err(KeyFault::Alphabet(3))),
        ] {
            assert_eq!(check(key.as_bytes()), expected, "{key}");
        }
    }
}
