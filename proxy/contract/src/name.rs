//! Names that people choose: of owners, projects, runs, targets.
//!
//! Pure.

/// Maximum number of characters of a name.
const NAME_MAX: usize = 63;

/// Returns whether a text is a name: 1 to 63 of a-z, 0-9, `.`, `_` and `-`, with a letter or a digit first.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_MAX
        && text.bytes().next().is_some_and(is_start)
        && text.bytes().all(|byte| is_start(byte) || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_a_letter_or_a_digit() {
        for good in ["a", "0", "build-7", "a.b_c-d", &"a".repeat(NAME_MAX)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "-a", ".a", "_a", "a b", "a/b", "a\n", "é", "aé", &"a".repeat(NAME_MAX + 1)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
