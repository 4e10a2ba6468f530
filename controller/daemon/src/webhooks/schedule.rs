//! When a failed message is tried again.
//!
//! Pure.

use std::time::Duration;

use sluice_contract::time::duration_micros;
use sluice_state::webhooks::{NextTry, WAIT_MAX_US};

/// Time after each failed try but the last: 8 tries within 6 hours.
const WAITS: [Duration; 7] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(20 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(90 * 60),
    Duration::from_micros(WAIT_MAX_US.unsigned_abs()),
];

/// Returns the time of the next try after a failed one. `failed` is the number of tries that failed before it.
pub(super) fn next_try(failed: u32, now_us: i64) -> NextTry {
    match WAITS.get(failed as usize) {
        Some(wait) => NextTry::At(now_us.saturating_add(duration_micros(*wait))),
        None => NextTry::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_tried_eight_times_in_six_hours() {
        let (mut now_us, mut tries, mut waited) = (0, 1, 0);
        while let NextTry::At(us) = next_try(tries - 1, now_us) {
            assert!(us - now_us > waited, "waits grow");
            (waited, now_us, tries) = (us - now_us, us, tries + 1);
        }
        assert_eq!(tries, 8);
        let hours = now_us as f64 / 3.6e9;
        assert!((5.8..=6.0).contains(&hours), "{hours}");
    }
}
