//! Rule for another attempt after a failed one, and its time.
//!
//! Pure.

use std::time::Duration;

use sluice_state::sandboxes::RETRY_WAIT_MAX_US;

/// Failures that are retried automatically, because they are not results of the program.
pub const RETRIED: [&str; 5] = ["creation_failed", "internal", "stale_start", "heartbeat_timeout", "node_lost"];
/// Wait before the second attempt.
const FIRST: Duration = Duration::from_secs(10);
/// Maximum waiting time.
const LONGEST: Duration = Duration::from_micros(RETRY_WAIT_MAX_US.unsigned_abs());

/// Another attempt after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// The failure code decides.
    ByCode,
    /// No other attempt: it would fail for the same reason.
    Never,
}

/// Returns the time to wait before the attempt after this one; `None` if no attempt follows.
#[must_use]
pub fn wait_before_retry(code: &str, retry_on: &[String], attempt: u32, max_retries: u32) -> Option<Duration> {
    let is_retried = RETRIED.contains(&code) || retry_on.iter().any(|word| word == code);
    (is_retried && attempt < max_retries).then(|| FIRST.saturating_mul(1 << attempt.min(16)).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes() {
        let waits = |attempt| wait_before_retry("internal", &[], attempt, 100).map(|wait| wait.as_secs());
        assert_eq!([0, 1, 2, 3, 4, 5, 30].map(waits), [10, 20, 40, 80, 160, 300, 300].map(Some));
    }

    #[test]
    fn only_some_failures_are_retried_and_only_so_often() {
        let more = ["container_failed".to_owned()];
        for code in RETRIED {
            assert!(wait_before_retry(code, &[], 2, 3).is_some(), "{code}");
            assert_eq!(wait_before_retry(code, &[], 3, 3), None, "{code}");
        }
        for code in ["container_failed", "timeout", "budget_exceeded", "cancelled", "idle_timeout", "ttl_expired"] {
            assert_eq!(wait_before_retry(code, &[], 0, 3), None, "{code}");
        }
        assert!(wait_before_retry("container_failed", &more, 0, 3).is_some());
    }
}
