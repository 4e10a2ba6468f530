//! Makes foreign text safe to show: text of an upstream, an engine, an agent or a file.
//!
//! Pure. Foreign text has any length and any content. A message shows it in limited length, on one line, and without
//! control sequences for a terminal.

use std::error::Error;

/// Maximum number of characters of a message.
const MAX: usize = 1200;
/// Number of characters kept of the end of a longer message, since the end says what to do.
const END: usize = 300;

/// Replaces with a space each character that could break a line, control a terminal, change the direction of writing or
/// hide text. Joiners stay: Persian and emoji need them.
#[must_use]
pub fn sanitize(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// Sanitises a text and limits it to the length of a message. A longer text loses its middle.
#[must_use]
pub fn truncate(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX {
        return sanitize(text);
    }
    let begin: String = text.chars().take(MAX - END).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{} [...] {}", sanitize(&begin), sanitize(&end))
}

/// Formats an error with all its causes as one line, sanitised and truncated. A cause that only repeats the message
/// before it is left out.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        // SQLite's code has the text of its error: "Error code 13: database or disk is full".
        if !text.ends_with(&message) && !message.ends_with(&last) {
            text = format!("{text}: {message}");
        }
        last = message;
        cause = inner.source();
    }
    truncate(&text)
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        for control in [
            "\u{1b}[2J", "\u{9b}2J", "\r", "\n", "\u{7}", "\u{7f}", "\u{202e}", "\u{2028}", "\u{2066}", "\u{200b}",
            "\u{e0041}",
        ] {
            let text = format!("a{control}é漢");
            let shown = sanitize(&text);
            assert!(shown.starts_with("a ") && shown.ends_with("é漢"), "{text:?}: {shown:?}");
            assert!(!shown.chars().any(is_unsafe), "{text:?}: {shown:?}");
            assert_eq!(truncate(&text), shown);
        }
    }

    #[test]
    fn a_cause_that_repeats_is_left_out() {
        #[derive(Debug)]
        struct Nested(&'static str, Option<Box<Nested>>);
        impl std::fmt::Display for Nested {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Nested {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.1.as_deref().map(|cause| cause as &dyn Error)
            }
        }
        for (texts, expected) in [
            (["cannot open x", "disk is full", "Error code 13: disk is full"], "cannot open x: disk is full"),
            (["cannot open x: disk is full", "disk is full", "no room"], "cannot open x: disk is full: no room"),
            (["cannot ask", "refused", "os error 111"], "cannot ask: refused: os error 111"),
        ] {
            let [first, second, third] = texts;
            let cause = Nested(second, Some(Box::new(Nested(third, None))));
            assert_eq!(error_chain(&Nested(first, Some(Box::new(cause)))), expected);
        }
    }

    #[test]
    fn a_long_text_keeps_its_begin_and_its_end() {
        let long = format!("begin {}\u{1b} end; do this", "é".repeat(100_000));
        let shown = truncate(&long);
        assert!(shown.starts_with("begin é") && shown.ends_with("  end; do this"), "{shown}");
        assert_eq!(shown.chars().count(), MAX + " [...] ".len());
        let fits = "é".repeat(MAX);
        assert_eq!(truncate(&fits), fits);
    }
}
