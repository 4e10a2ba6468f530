//! Chance that can be had again: the same seed makes the same choices.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A generator (splitmix64): small, and good enough to choose victims and moments.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for a part that runs beside others: the seed decides, and not who is faster.
    pub(crate) fn fork(&self, number: u64) -> Self {
        Self(Self(self.0 ^ number.wrapping_mul(0xA24B_AED4_963E_E407)).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is above 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap_or(0)]
    }

    /// Up to so long, to the microsecond.
    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(longest.as_micros()).unwrap_or(u64::MAX).max(1)))
    }
}

/// A seed that nobody has chosen.
pub(crate) fn any_seed() -> u64 {
    // Each state is keyed by the system's random numbers.
    RandomState::new().build_hasher().finish() & 0xFFFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let draw = |mut random: Random| -> Vec<u64> { (0..64).map(|_| random.below(1000)).collect() };
        assert_eq!(draw(Random::seeded(7)), draw(Random::seeded(7)));
        assert_eq!(draw(Random::seeded(7).fork(3)), draw(Random::seeded(7).fork(3)));
        assert_ne!(draw(Random::seeded(7).fork(3)), draw(Random::seeded(7).fork(4)));
        assert_ne!(draw(Random::seeded(7)), draw(Random::seeded(8)));
    }
}
