//! Reasons that a run of this test fails.

use std::error::Error;
use std::fmt;

/// A promise that was broken, or a test that could not be made: both fail.
#[derive(Debug)]
pub(crate) struct ChaosFault {
    /// Calls whose records are missing from the audit log.
    pub(crate) lost: u64,
    message: String,
}

impl ChaosFault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { lost: 0, message: message.into() }
    }

    pub(crate) fn losing(lost: usize, message: impl Into<String>) -> Self {
        Self { lost: lost as u64, message: message.into() }
    }

    /// Adds a place or a time to the text.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for ChaosFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Error> From<E> for ChaosFault {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
