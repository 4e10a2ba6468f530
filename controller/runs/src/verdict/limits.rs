//! Limits of a run, as its messages name them: value and flag.
//!
//! Pure.

use std::time::Duration;

/// Limits of a run that its messages name. A limit is `None` if another controller began the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitValues {
    /// Maximum time of the program.
    pub timeout: Option<Duration>,
    /// Memory and swap together, in bytes.
    pub memory: Option<u64>,
    /// Maximum captured output, in bytes.
    pub output: Option<u64>,
}

impl LimitValues {
    /// Names the time limit: `2m (--timeout)`.
    #[must_use]
    pub fn timeout(&self) -> String {
        named("--timeout", self.timeout.map(|limit| humantime::format_duration(limit).to_string()))
    }

    /// Names the memory limit: `512m (--memory)`.
    #[must_use]
    pub fn memory(&self) -> String {
        named("--memory", self.memory.map(size))
    }

    /// Names the limit of captured output: `2m (--output-max)`.
    #[must_use]
    pub fn output(&self) -> String {
        named("--output-max", self.output.map(size))
    }
}

fn named(flag: &str, limit: Option<String>) -> String {
    limit.map_or_else(|| flag.to_owned(), |limit| format!("{limit} ({flag})"))
}

/// Formats a number of bytes as a flag takes it.
fn size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        let sizes = [0, 10, 1536, 2 << 10, 64 << 20, 3 << 30].map(size);
        assert_eq!(sizes, ["0 bytes", "10 bytes", "1536 bytes", "2k", "64m", "3g"]);
    }
}
