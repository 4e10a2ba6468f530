//! Pauses between attempts to go on with a stream.
//!
//! Pure.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Attempts without success, one after another.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    failed: u32,
    waited: Duration,
}

impl Retries {
    /// Forgets failures, after a success.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the pause before the next attempt; `None` if a stream was without a connection for `most`.
    pub(crate) fn pause(&mut self, most: Duration) -> Option<Duration> {
        if self.waited >= most {
            return None;
        }
        let pause = FIRST.saturating_mul(1 << self.failed.min(8)).min(LONGEST);
        self.failed += 1;
        self.waited += pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut retries = Retries::default();
        let pauses: Vec<_> = std::iter::from_fn(|| retries.pause(Duration::from_secs(20))).collect();
        assert_eq!(pauses.iter().take(3).map(Duration::as_millis).collect::<Vec<_>>(), [200, 400, 800]);
        assert_eq!(pauses.last(), Some(&LONGEST));
        assert!((20..30).contains(&pauses.iter().sum::<Duration>().as_secs()), "{pauses:?}");
        retries.reset();
        assert_eq!(retries.pause(LONGEST), Some(FIRST));
    }
}
