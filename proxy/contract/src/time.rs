//! Times as microseconds since 1970, as audit files and the state database have them.
//!
//! Pure: the caller reads the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Converts a time into microseconds since 1970; `None` for a time before 1970 or after the year 294,000.
#[must_use]
pub fn unix_micros(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// Converts microseconds since 1970 into a time. A negative number becomes 1970.
#[must_use]
pub fn from_unix_micros(us: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us.max(0).cast_unsigned())
}

/// Converts a duration into microseconds, at most [`i64::MAX`].
#[must_use]
pub fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_microseconds() {
        let time = UNIX_EPOCH + Duration::new(1, 2_999);
        assert_eq!(unix_micros(time), Some(1_000_002));
        assert_eq!(from_unix_micros(1_000_002), UNIX_EPOCH + Duration::new(1, 2_000));
        assert_eq!(unix_micros(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(from_unix_micros(-5), UNIX_EPOCH);
        assert_eq!((duration_micros(Duration::from_millis(3)), duration_micros(Duration::MAX)), (3_000, i64::MAX));
    }
}
