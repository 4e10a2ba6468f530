//! The key of one start of a run: `RUN.ATTEMPT`.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

use crate::RunId;

/// One start of a run. A retry is the same run with the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The run.
    pub run_id: RunId,
    /// Number of the start, from 0.
    pub attempt: u32,
}

/// A text that is not a run key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a run key; write RUN.ATTEMPT, such as r1.0")]
pub struct NotARunKey;

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run_id, self.attempt)
    }
}

impl FromStr for RunKey {
    type Err = NotARunKey;

    fn from_str(text: &str) -> Result<Self, NotARunKey> {
        let (run_id, attempt) = text.rsplit_once('.').ok_or(NotARunKey)?;
        let run_id = run_id.parse().map_err(|_| NotARunKey)?;
        // `+0` and `007` are numbers too, and several texts would name one key.
        if attempt != "0" && attempt.starts_with(['+', '0']) {
            return Err(NotARunKey);
        }
        Ok(Self { run_id, attempt: attempt.parse().map_err(|_| NotARunKey)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_key_has_one_text() {
        for text in ["r1.0", "r1.7", "r-1_a.10", "r1.4294967295"] {
            assert_eq!(text.parse::<RunKey>().map(|key| key.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "r1", "r1.", ".0", "r1.+0", "r1.-0", "r1.00", "r1.007", "r1. 1", "r1.4294967296", "r1.0.0"] {
            assert_eq!(text.parse::<RunKey>(), Err(NotARunKey), "{text}");
        }
    }
}
