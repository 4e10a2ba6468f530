//! The rates of requests and of failed logins.
//!
//! Pure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A token bucket for each key. Full buckets are forgotten.
#[derive(Debug)]
pub(crate) struct RequestRate<K> {
    per_second: f64,
    burst: f64,
    buckets: HashMap<K, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Number of buckets at which full ones are removed.
const SWEEP_FROM: usize = 4096;

impl<K: Hash + Eq> RequestRate<K> {
    /// Returns full buckets of this rate.
    #[must_use]
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: f64::from(burst), buckets: HashMap::new() }
    }

    /// Takes one from the bucket of a key.
    ///
    /// # Errors
    /// The time until a token is available.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        self.take_amount(key, 1, now)
    }

    /// Takes an amount from the bucket of a key. An amount larger than a full bucket is never available.
    ///
    /// # Errors
    /// The time until it is available.
    pub(crate) fn take_amount(&mut self, key: K, amount: u32, now: Instant) -> Result<(), Duration> {
        let amount = f64::from(amount);
        let (per_second, burst) = (self.per_second, self.burst);
        let filled = |bucket: &Bucket| {
            let seconds = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + seconds * per_second).min(burst)
        };
        if self.buckets.len() >= SWEEP_FROM {
            self.buckets.retain(|_, bucket| filled(bucket) < burst);
        }
        let bucket = self.buckets.entry(key).or_insert(Bucket { left: burst, at: now });
        *bucket = Bucket { left: filled(bucket), at: now };
        if bucket.left < amount {
            return Err(Duration::from_secs_f64((amount - bucket.left) / per_second));
        }
        bucket.left -= amount;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (mut rate, start) = (RequestRate::new(50.0, 100), Instant::now());
        for _ in 0..100 {
            assert_eq!(rate.take("a", start), Ok(()));
        }
        let wait = rate.take("a", start).expect_err("the burst is over");
        assert!(wait <= Duration::from_millis(20), "{wait:?}");
        assert_eq!(rate.take("b", start), Ok(()), "each key has its own bucket");
        let later = start + Duration::from_secs(1);
        let passed = (0..200).filter(|_| rate.take("a", later).is_ok()).count();
        assert_eq!(passed, 50);
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let (mut rate, start) = (RequestRate::new(50.0, 100), Instant::now());
        for key in 0..SWEEP_FROM {
            assert_eq!(rate.take(key, start), Ok(()));
        }
        assert_eq!(rate.take(0, start + Duration::from_secs(60)), Ok(()));
        assert_eq!(rate.buckets.len(), 1);
    }
}
