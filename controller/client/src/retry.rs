//! Pauses between attempts to reach a daemon.

use std::time::Duration;

use tokio::time::sleep;

use crate::error::ClientError;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Counts consecutive failed attempts, and the pauses between them.
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

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The error of the last attempt, if it is permanent, or if the pauses since the last success add up to `most`.
    pub(crate) async fn wait(&mut self, error: ClientError, most: Duration) -> Result<(), ClientError> {
        let pause = if error.may_pass() { self.pause(most) } else { None };
        sleep(pause.ok_or(error)?).await;
        Ok(())
    }

    fn pause(&mut self, most: Duration) -> Option<Duration> {
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
