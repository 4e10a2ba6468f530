//! Paths of a repository as text for people.
//!
//! Pure. Paths in git are bytes that the sandbox chose.

use std::fmt::Write as _;

/// Returns the path as one line of text: control characters, characters that change the direction of text, bytes that are
/// not UTF-8, and backslashes are written as escapes.
#[must_use]
pub fn visible_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                hidden if hidden.is_control() || is_invisible(hidden) => {
                    let _ = write!(text, "\\u{{{:x}}}", u32::from(hidden));
                }
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns true for an invisible character: it changes the direction of text, or joins or separates letters.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_of_a_path_are_written_out() {
        for (path, text) in [
            (&b"src/main.rs"[..], "src/main.rs"),
            ("ä b".as_bytes(), "ä b"),
            (b"a\nb\t\x1b[31m", "a\\nb\\t\\u{1b}[31m"),
            ("x\u{202e}txt.exe".as_bytes(), "x\\u{202e}txt.exe"),
            (b"\xff\\", "\\xff\\\\"),
            ("a\u{fe0f}\u{180d}".as_bytes(), "a\\u{fe0f}\\u{180d}"),
        ] {
            assert_eq!(visible_path(path), text);
        }
    }
}
