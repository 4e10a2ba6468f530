//! The position of a client in a chat: the ids of its frames.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

/// The position after a frame: `EVENT-OUTPUT`, and `EVENT-OUTPUT-t` after the last text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChatCursor {
    /// Position of the last event that was read.
    pub(crate) event: i64,
    /// Position after the last piece of output that was read.
    pub(crate) output: u64,
    /// True if the whole text was sent.
    pub(crate) is_text_complete: bool,
}

impl fmt::Display for ChatCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}{}", self.event, self.output, if self.is_text_complete { "-t" } else { "" })
    }
}

impl FromStr for ChatCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (text, is_text_complete) = match text.strip_suffix("-t") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (event, output) = text.split_once('-').ok_or(())?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(event) || !is_number(output) {
            return Err(());
        }
        Ok(Self { event: event.parse().map_err(drop)?, output: output.parse().map_err(drop)?, is_text_complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        for text in ["0-0", "17-3", "17-3-t", "9223372036854775807-18446744073709551615"] {
            assert_eq!(text.parse::<ChatCursor>().map(|cursor| cursor.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "7", "-", "1-", "-1-2", "1-2-", "1-2-x", "+1-2", "1-2-t-t", "9223372036854775808-0", " 1-2"] {
            assert_eq!(text.parse::<ChatCursor>(), Err(()), "{text}");
        }
    }
}
