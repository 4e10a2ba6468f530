//! The times between attempts, and between reads of a pull request.
//!
//! Pure.

use std::time::Duration;

/// Number of retries after the first attempt.
const RETRIES: u32 = 3;
/// Maximum time that a forge can make a retry wait.
const AFTER_MAX: Duration = Duration::from_secs(60);
/// Maximum number of further reads of a pull request until the forge has decided whether it can be merged: 65 s in all.
const POLLS: u32 = 9;
/// Maximum time between two reads.
const POLL_MAX: Duration = Duration::from_secs(10);

/// Returns the time before the `nth` retry, from 1: 1, 2 and 4 s. If a forge requests a longer time, that time is used,
/// up to a minute.
#[must_use]
pub fn delay(nth: u32, asked: Option<Duration>) -> Option<Duration> {
    let own = (1..=RETRIES).contains(&nth).then(|| Duration::from_secs(1 << (nth - 1)))?;
    Some(own.max(asked.unwrap_or_default().min(AFTER_MAX)))
}

/// Returns the time before the `nth` further read of a pull request that the forge has not decided, from 1.
#[must_use]
pub(super) fn poll_delay(nth: u32) -> Option<Duration> {
    (1..=POLLS).contains(&nth).then(|| Duration::from_secs(1 << (nth - 1).min(4)).min(POLL_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_wait_one_two_and_four_seconds() {
        let seconds = |nth, asked| delay(nth, asked).map(|time| time.as_secs());
        assert_eq!([0, 1, 2, 3, 4].map(|nth| seconds(nth, None)), [None, Some(1), Some(2), Some(4), None]);
        assert_eq!(seconds(1, Some(Duration::from_secs(30))), Some(30));
        assert_eq!(seconds(2, Some(Duration::from_secs(86_400))), Some(60));
        assert_eq!(seconds(4, Some(Duration::from_secs(1))), None);
    }

    #[test]
    fn polling_ends_after_a_minute() {
        let times: Vec<u64> = (1..).map_while(poll_delay).map(|time| time.as_secs()).collect();
        assert_eq!(times, [1, 2, 4, 8, 10, 10, 10, 10, 10]);
    }
}
