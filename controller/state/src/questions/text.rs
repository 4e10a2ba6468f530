//! The text of questions. A sandbox writes it, so it may be hostile.
//!
//! Pure. Characters that draw over other text or change its direction are removed, so that a question cannot look like a
//! text of Sluice.

use std::collections::BTreeSet;

/// Maximum length of a question in characters.
pub const QUESTION_MAX: usize = 1000;
/// Maximum length of an option in characters.
pub const OPTION_MAX: usize = 80;
/// Maximum number of options.
pub const OPTIONS_MAX: usize = 6;

/// A question that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuestionFault {
    /// The question is empty or too long.
    #[error("a question is 1 to {QUESTION_MAX} characters of plain text")]
    Question,
    /// There are too many options, or one of them is empty, too long, or a duplicate.
    #[error("options are at most {OPTIONS_MAX} different texts of 1 to {OPTION_MAX} characters")]
    Options,
}

/// Checks a question, and returns it as it is shown.
///
/// # Errors
/// [`QuestionFault`]
pub fn check_question(question: &str, options: &[String]) -> Result<(String, Vec<String>), QuestionFault> {
    let shown = plain_text(question);
    if !has_length(&shown, QUESTION_MAX) || question.chars().count() > QUESTION_MAX {
        return Err(QuestionFault::Question);
    }
    let options: Vec<_> = options.iter().map(|option| plain_text(option).replace('\n', " ")).collect();
    // Two options that look the same would be two identical buttons.
    let different: BTreeSet<_> = options.iter().map(|option| option.to_lowercase()).collect();
    let are_good = options.len() <= OPTIONS_MAX
        && different.len() == options.len()
        && options.iter().all(|option| has_length(option, OPTION_MAX));
    if are_good { Ok((shown, options)) } else { Err(QuestionFault::Options) }
}

fn has_length(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.chars().count())
}

/// Reduces a text to plain text: removes control characters except line ends, and characters without a shape of their own.
#[must_use]
pub fn plain_text(text: &str) -> String {
    let plain: String = text.chars().filter(|c| *c == '\n' || !(c.is_control() || is_hidden(*c))).collect();
    plain.trim().to_owned()
}

/// Returns whether a character is invisible, or changes the look of others.
fn is_hidden(c: char) -> bool {
    matches!(
        u32::from(c),
        // Soft hyphen, Arabic letter mark, Hangul fillers, Mongolian separators.
        0xAD | 0x61C | 0x115F | 0x1160 | 0x3164 | 0xFFA0 | 0x180B..=0x180F
        // Zero width, directions, line and paragraph separators, invisible operators, isolates.
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F
        // Variation selectors, byte order mark, annotations, tags.
        | 0xFE00..=0xFE0F | 0xFEFF | 0xFFF9..=0xFFFB | 0xE0000..=0xE0FFF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn questions_are_plain_text_of_a_length() {
        let shown = check_question("a\u{202e}b\u{7}\u{200b}\nc\u{e0041}\r", &options(&["yes\n", " no "]));
        assert_eq!(shown, Ok(("ab\nc".to_owned(), options(&["yes", "no"]))));
        assert!(check_question(&"é".repeat(1000), &[]).is_ok());
        for bad in ["", " \n", "\u{200b}", &"a".repeat(1001), &"\u{200b}a".repeat(600)] {
            assert_eq!(check_question(bad, &[]), Err(QuestionFault::Question), "{bad:?}");
        }
    }

    #[test]
    fn options_are_few_short_and_different() {
        for bad in [
            options(&["a", "A"]),
            options(&["a", "a\u{200d}"]),
            options(&[""]),
            options(&["1", "2", "3", "4", "5", "6", "7"]),
            vec!["a".repeat(81)],
        ] {
            assert_eq!(check_question("q", &bad), Err(QuestionFault::Options), "{bad:?}");
        }
        assert!(check_question("q", &options(&["1", "2", "3", "4", "5", &"a".repeat(80)])).is_ok());
    }
}
