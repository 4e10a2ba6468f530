//! Text that a sandbox wrote, as HTML that shows it and does nothing else.
//!
//! Pure. The rule is the same as in `controller/console/text.js`, so a page shows the same before and after its script
//! runs.

use std::fmt::Write;

use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};

use super::html::escape_char;

/// Maximum number of combining marks on one letter. No language needs more.
const MARKS_MAX: usize = 8;
/// Maximum number of codes that one text shows. More of them would make the page slow, and are not readable.
const CODES_MAX: usize = 1000;
/// Maximum number of digits and semicolons in the escape sequence of a colour.
const COLOUR_MAX: usize = 64;

/// What a text has shown so far. A colour between two characters resets no counter.
#[derive(Debug, Default)]
struct Shown {
    /// Combining marks on the last letter.
    marks: usize,
    /// Number of codes.
    codes: usize,
}

/// Returns a text as an element. Characters that hide or reorder a text are shown as codes, and terminal colours are
/// left out.
pub(super) fn foreign(text: &str) -> String {
    let mut html = String::from("<bdi>");
    let mut shown = Shown::default();
    let (mut piece, mut rest) = (0, 0);
    while let Some(found) = text[rest..].find(['\u{1b}', '\u{9b}']) {
        let begin = rest + found;
        match colour_len(&text[begin..]) {
            Some(len) => {
                shown.add(&text[piece..begin], &mut html);
                rest = begin + len;
                piece = rest;
            }
            None => rest = begin + text[begin..].chars().next().map_or(1, char::len_utf8),
        }
    }
    shown.add(&text[piece..], &mut html);
    html.push_str("</bdi>");
    html
}

/// Returns the text of a sandbox in its own frame, with a label outside of the text.
pub(super) fn from_agent(text: &str) -> String {
    format!("<div class=\"from-agent\"><span class=\"label\">from the agent</span>{}</div>", foreign(text))
}

/// Returns the length of the escape sequence of a colour at the beginning of a text.
fn colour_len(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[").or_else(|| text.strip_prefix('\u{9b}'))?;
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    (digits <= COLOUR_MAX && rest[digits..].starts_with('m')).then(|| text.len() - rest.len() + digits + 1)
}

impl Shown {
    /// Adds a piece of the text.
    fn add(&mut self, piece: &str, html: &mut String) {
        let mut chars = piece.chars().peekable();
        while let Some(c) = chars.next() {
            if !is_hidden(c) {
                if self.has_room_for(c) {
                    escape_char(c, html);
                }
                continue;
            }
            let mut times = 1;
            while chars.next_if_eq(&c).is_some() {
                times += 1;
            }
            let is_end_of_line = c == '\r' && times == 1 && chars.peek() == Some(&'\n');
            if self.codes > CODES_MAX || is_end_of_line {
                continue;
            }
            self.codes += 1;
            self.marks = 0;
            if self.codes > CODES_MAX {
                html.push_str("<span class=\"codepoint\">more hidden characters</span>");
                continue;
            }
            let _ = write!(html, "<span class=\"codepoint\">U+{:04X}", u32::from(c));
            if times > 1 {
                let _ = write!(html, " ×{times}");
            }
            html.push_str("</span>");
        }
    }

    /// Counts a character, and returns whether it is shown: a letter has a limited number of marks.
    fn has_room_for(&mut self, c: char) -> bool {
        let category = CodePointMapData::<GeneralCategory>::new().get(c);
        self.marks = if GeneralCategoryGroup::Mark.contains(category) { self.marks + 1 } else { 0 };
        self.marks <= MARKS_MAX
    }
}

/// Returns whether a character can hide or reorder text: controls, direction, zero width, tags, variation selectors.
fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t' | '\n'))
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::pages::html::escape;

    /// Returns texts, and what a page shows of each, with codes in brackets. The test in a browser has the same texts.
    fn texts() -> Vec<(String, String)> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/console/foreign_texts.json");
        let file = std::fs::read_to_string(path).expect("the tests of the console have it");
        let texts: Vec<Value> = serde_json::from_str(&file).expect("it is a list");
        let member = |text: &Value, name: &str| text[name].as_str().expect("a text").to_owned();
        texts.iter().map(|text| (member(text, "text"), member(text, "shown"))).collect()
    }

    #[test]
    fn each_text_shows_what_the_script_shows() {
        let texts = texts();
        assert!(texts.len() >= 200, "{} texts", texts.len());
        for (text, shown) in texts {
            // The brackets replace the only elements that the HTML of a text may have.
            let html = foreign(&text).replace("<span class=\"codepoint\">", "[").replace("</span>", "]");
            let inner = html.strip_prefix("<bdi>").and_then(|html| html.strip_suffix("</bdi>"));
            let plain = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let expected = plain.replace('"', "&quot;").replace('\'', "&#39;");
            assert_eq!(inner, Some(expected.as_str()), "{text:?}");
        }
    }

    #[test]
    fn a_text_cannot_leave_its_frame() {
        let framed = from_agent("</bdi></div><span class=\"label\">from the system</span>");
        assert_eq!(framed.matches("<span").count(), 1, "{framed}");
        assert!(framed.starts_with("<div class=\"from-agent\"><span class=\"label\">from the agent</span><bdi>"));
        assert_eq!(foreign("a\u{202e}b"), "<bdi>a<span class=\"codepoint\">U+202E</span>b</bdi>");
        assert_eq!(escape("a\u{202e}b"), "a b", "an attribute has no place for a code");
    }
}
