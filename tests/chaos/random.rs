//! Choices that a seed repeats.

use std::time::Duration;

use fastrand::Rng;

/// Returns one of the items; there is at least one.
pub(crate) fn pick<T: Copy>(random: &mut Rng, items: &[T]) -> T {
    items[random.usize(..items.len())]
}

/// Returns a time below `longest`, in whole microseconds.
pub(crate) fn moment(random: &mut Rng, longest: Duration) -> Duration {
    Duration::from_micros(random.u64(..u64::try_from(longest.as_micros()).unwrap_or(u64::MAX).max(1)))
}
