//! The text of a message.
//!
//! Pure.

use super::{CONTENT_MAX, MessageError};

/// Returns a text without control characters, except for tabs and ends of lines.
///
/// # Errors
/// [`MessageError::Content`]: the cleaned text is empty or too long.
pub fn clean_content(text: &str) -> Result<String, MessageError> {
    let clean: String = text.chars().filter(|char| matches!(char, '\t' | '\n') || !char.is_control()).collect();
    let is_valid = !clean.trim().is_empty() && clean.chars().count() <= CONTENT_MAX;
    if is_valid { Ok(clean) } else { Err(MessageError::Content) }
}

/// Returns the beginning of the text of an intervention. It helps an agent to read its conversation, and proves nothing: any
/// sender can write the same.
#[must_use]
pub fn intervention_prefix(steering_type: &str) -> String {
    format!("[GUARDIAN INTERVENTION - {steering_type}] ")
}

/// Returns the text of an intervention as its sender wrote it.
#[must_use]
pub fn intervention_text<'a>(content: &'a str, steering_type: &str) -> &'a str {
    content.strip_prefix(&intervention_prefix(steering_type)).unwrap_or(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed_and_length_is_bounded() {
        for (text, expected) in [
            ("a\tb\nc", Some("a\tb\nc")),
            ("a\u{1b}[31m\r\u{85}\u{7f}b", Some("a[31mb")),
            ("", None),
            (" \n\u{7}", None),
        ] {
            assert_eq!(clean_content(text).ok().as_deref(), expected, "{text:?}");
        }
        assert!(clean_content(&"é".repeat(CONTENT_MAX)).is_ok());
        assert!(clean_content(&"x".repeat(CONTENT_MAX + 1)).is_err());
    }

    #[test]
    fn an_intervention_has_its_prefix_once() {
        let content = format!("{}stop here", intervention_prefix("stop"));
        assert_eq!(content, "[GUARDIAN INTERVENTION - stop] stop here");
        assert_eq!(intervention_text(&content, "stop"), "stop here");
        assert_eq!(intervention_text("stop here", "stop"), "stop here");
    }
}
