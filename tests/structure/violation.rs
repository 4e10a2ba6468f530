//! A broken rule, and the exceptions that are known.
//!
//! Pure.

use std::collections::BTreeSet;
use std::fmt;

/// A place that breaks a rule.
#[derive(Debug)]
pub(crate) struct Violation {
    rule: &'static str,
    /// The name under which an exception excuses it.
    key: String,
    file: String,
    line: usize,
    what: String,
}

/// A violation that is known: its rule and its key.
pub(crate) type Exception = (&'static str, &'static str);

impl Violation {
    /// Describes the violation of a rule at a line.
    pub(crate) fn new(rule: &'static str, key: &str, file: &str, line: usize, what: String) -> Self {
        Self { rule, key: key.to_owned(), file: file.to_owned(), line, what }
    }

    fn is(&self, exception: &Exception) -> bool {
        (self.rule, self.key.as_str()) == *exception
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Returns a message for each violation without an exception, and for each exception without a violation.
///
/// The messages end with the exceptions that would excuse the violations.
pub(crate) fn verdict(violations: &[Violation], exceptions: &[Exception]) -> Vec<String> {
    let excused = |violation: &&Violation| exceptions.iter().any(|exception| violation.is(exception));
    let broken: Vec<_> = violations.iter().filter(|violation| !excused(violation)).collect();
    let ended = exceptions.iter().filter(|exception| !violations.iter().any(|violation| violation.is(exception)));
    let rows: BTreeSet<_> = broken.iter().map(|violation| (violation.rule, &violation.key)).collect();
    let messages = broken.iter().map(ToString::to_string);
    messages
        .chain(ended.map(|exception| format!("exceptions.rs: no longer occurs, delete it: {exception:?},")))
        .chain(rows.iter().map(|row| format!("as an exception: {row:?},")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Violation, verdict};

    fn violation(key: &str) -> Violation {
        Violation::new("rule", key, "a/b.rs", 3, "too long".to_owned())
    }

    #[test]
    fn a_violation_names_file_line_and_rule() {
        let messages = verdict(&[violation("key")], &[]);
        assert_eq!(messages, ["a/b.rs:3: rule: too long", "as an exception: (\"rule\", \"key\"),"]);
    }

    #[test]
    fn a_known_exception_excuses_its_violation_only() {
        assert!(verdict(&[violation("key"), violation("key")], &[("rule", "key")]).is_empty());
        assert_eq!(verdict(&[violation("key"), violation("other")], &[("rule", "key")]).len(), 2);
        assert_eq!(verdict(&[violation("key")], &[("another rule", "key")]).len(), 3);
    }

    #[test]
    fn an_exception_that_no_longer_occurs_fails() {
        let messages = verdict(&[], &[("rule", "key")]);
        assert_eq!(messages, ["exceptions.rs: no longer occurs, delete it: (\"rule\", \"key\"),"]);
    }
}
