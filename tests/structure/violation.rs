//! A broken rule.
//!
//! Pure.

use std::fmt;

/// A place that breaks a rule.
#[derive(Debug)]
pub(crate) struct Violation {
    rule: &'static str,
    file: String,
    line: usize,
    what: String,
}

impl Violation {
    /// Describes the violation of a rule at a line.
    pub(crate) fn new(rule: &'static str, file: &str, line: usize, what: String) -> Self {
        Self { rule, file: file.to_owned(), line, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::Violation;

    #[test]
    fn a_violation_names_file_line_and_rule() {
        let violation = Violation::new("rule", "a/b.rs", 3, "too long".to_owned());
        assert_eq!(violation.to_string(), "a/b.rs:3: rule: too long");
    }
}
