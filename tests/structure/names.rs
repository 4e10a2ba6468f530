//! The names of tests.
//!
//! Pure. A name is a sentence that a failing run prints; a long one hides its promise.

use crate::source::Source;
use crate::violation::Violation;

const WORDS_MAX: usize = 9;

/// Returns the tests whose names are too long.
pub(crate) fn violations<'a>(files: impl Iterator<Item = (&'a str, &'a Source)>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in files {
        for (name, line) in tests(source) {
            let words = name.split('_').count();
            if words > WORDS_MAX {
                let what = format!("{name} has {words} words; the limit is {WORDS_MAX}");
                found.push(Violation::new("test names", file, line, what));
            }
        }
    }
    found
}

/// Returns the name and the line of each test function.
fn tests(source: &Source) -> Vec<(&str, usize)> {
    let code = &source.code;
    let marks = ["#[test]", "#[tokio::test"].into_iter().flat_map(|mark| code.match_indices(mark));
    let named = marks.filter_map(|(at, _)| {
        let start = at + code[at..].find("fn ")? + "fn ".len();
        let name = code[start..].split('(').next()?;
        Some((name.trim(), source.line_of(start)))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::violations;
    use crate::source::Source;

    fn found(text: &str) -> Vec<String> {
        let source = Source::parse(text);
        violations([("e2e/a.rs", &source)].into_iter()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_test_name_of_ten_words_is_too_long() {
        for attribute in ["#[test]\nfn", "#[tokio::test]\nasync fn", "#[tokio::test(start_paused = true)]\nasync fn"] {
            assert!(found(&format!("{attribute} a_b_c_d_e_f_g_h_i() {{}}")).is_empty());
            assert_eq!(
                found(&format!("{attribute} a_b_c_d_e_f_g_h_i_j() {{}}")),
                ["e2e/a.rs:2: test names: a_b_c_d_e_f_g_h_i_j has 10 words; the limit is 9"]
            );
        }
    }

    #[test]
    fn other_functions_may_have_long_names() {
        assert!(found("fn a_b_c_d_e_f_g_h_i_j() {}").is_empty());
    }
}
