//! Values of one label. They may come from a sandbox, so their number, length and characters are bounded.
//!
//! Pure.

use std::collections::BTreeSet;

use sluice_contract::text::sanitize;

/// Maximum number of values of one label.
const VALUES_MAX: usize = 100;
/// Maximum number of characters of a value.
const CHARACTERS_MAX: usize = 100;
/// Value that replaces all values after the maximum number.
const OTHER: &str = "other";
/// Value that replaces an empty one.
const NONE: &str = "none";

/// The values that one label has had.
#[derive(Debug, Default)]
pub(super) struct LabelValues(BTreeSet<String>);

impl LabelValues {
    /// Returns the value for a text: the text without control characters and of bounded length, or `other`.
    pub(super) fn of(&mut self, text: Option<&str>) -> String {
        let text: String = text.unwrap_or_default().chars().take(CHARACTERS_MAX).collect();
        let text = sanitize(&text);
        let value = if text.trim().is_empty() { NONE.to_owned() } else { text };
        if self.0.contains(&value) {
            return value;
        }
        if self.0.len() >= VALUES_MAX {
            return OTHER.to_owned();
        }
        self.0.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_values_is_bounded() {
        let mut values = LabelValues::default();
        for number in 0..VALUES_MAX {
            assert_eq!(values.of(Some(&format!("m{number}"))), format!("m{number}"));
        }
        assert_eq!(values.of(Some("m100")), OTHER);
        assert_eq!(values.of(Some("m7")), "m7", "a known value stays");
    }

    #[test]
    fn hostile_texts_become_one_short_line() {
        let mut values = LabelValues::default();
        assert_eq!(values.of(Some("a\n\u{1b}[31m\u{202e}b\0")), "a  [31m b ");
        assert_eq!(values.of(Some(&"ä".repeat(10_000))), "ä".repeat(CHARACTERS_MAX));
        for empty in [None, Some(""), Some(" \n\t")] {
            assert_eq!(values.of(empty), NONE);
        }
    }
}
