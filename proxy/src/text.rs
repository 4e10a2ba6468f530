//! Cut of a text to a maximum length.
//!
//! Pure, and without a copy.

/// Returns the beginning of a text, at most `max` bytes, cut at a character boundary.
#[must_use]
pub fn clip(text: &str, max: usize) -> &str {
    match text.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= max).last() {
        Some(end) => &text[..end],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_keeps_whole_characters() {
        assert_eq!((clip("aé", 2), clip("aé", 3), clip("é", 1), clip("abc", 9)), ("a", "aé", "", "abc"));
    }
}
