//! The rates of one model: which of them a call may be billed at, and the amounts.
//!
//! Pure.

use sluice_contract::record::Usage;

use crate::media::Family;

/// Number of femto-USD in a nano-USD.
pub const FEMTOS_PER_NANO: u128 = 1_000_000;

/// Price of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {
    pub(super) rates: Vec<Rate>,
    /// Maximum number of tokens that the model writes in one response.
    pub max_output: Option<u64>,
    /// Maximum number of tokens that the model reads.
    pub max_input: Option<u64>,
    /// Family by which images are billed.
    pub family: Option<Family>,
    /// True if more than tokens is billed, such as a search by the model itself.
    pub beyond_tokens: bool,
}

/// One price for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) side: RateSide,
    /// Number of tokens in a prompt from which on the rate holds.
    pub(super) above: u64,
    pub(super) needs: RateCondition,
    pub(super) femtos: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateSide {
    Input,
    CacheRead,
    CacheWrite,
    Output,
}

/// Condition under which a rate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateCondition {
    Nothing,
    /// A tier of service that the call names.
    Tier,
    /// A cache that lasts longer than usual.
    LongCache,
    /// Sound in the prompt.
    AudioInput,
    /// Sound in the response.
    AudioOutput,
}

/// Factors that decide which rates hold for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateFactors {
    /// Maximum number of tokens of the prompt.
    pub input: u64,
    /// True if a tier of service is named.
    pub service_tier: bool,
    /// True if the prompt is to be cached for longer than usual.
    pub long_cache: bool,
    /// True if there is sound in the prompt.
    pub audio_input: bool,
    /// True if there may be sound in the response.
    pub audio_output: bool,
}

impl Price {
    /// Returns the dearest femto-USD for a token of the prompt.
    #[must_use]
    pub fn input(&self, factors: &RateFactors) -> u128 {
        self.most(factors, &[RateSide::Input, RateSide::CacheRead, RateSide::CacheWrite])
    }

    /// Returns the dearest femto-USD for a token of the response.
    #[must_use]
    pub fn output(&self, factors: &RateFactors) -> u128 {
        self.most(factors, &[RateSide::Output])
    }

    fn most(&self, factors: &RateFactors, sides: &[RateSide]) -> u128 {
        let rates = self.rates.iter().filter(|rate| sides.contains(&rate.side) && rate.holds(factors));
        rates.map(|rate| rate.femtos).max().unwrap_or(0)
    }

    /// Returns nano-USD for the tokens that the provider counted, rounded up: each class of tokens at the dearest
    /// rate that holds for it.
    #[must_use]
    pub fn of_usage(&self, usage: &Usage, factors: &RateFactors) -> i64 {
        let output = usage.output.unwrap_or(0);
        let all = usage.all().saturating_sub(output);
        let factors = RateFactors { input: all, ..*factors };
        let read = usage.cached_input.unwrap_or(0).min(all);
        let written = usage.cache_write.unwrap_or(0).min(all - read);
        let fresh = all - read - written;
        let plain = self.most(&factors, &[RateSide::Input]);
        let or_plain = |side| match self.most(&factors, &[side]) {
            0 => plain,
            rate => rate,
        };
        let femtos = u128::from(fresh) * plain
            + u128::from(read) * or_plain(RateSide::CacheRead)
            + u128::from(written) * or_plain(RateSide::CacheWrite)
            + u128::from(output) * self.output(&factors);
        nanos(femtos)
    }
}

impl Rate {
    fn holds(&self, factors: &RateFactors) -> bool {
        let has_needs = match self.needs {
            RateCondition::Nothing => true,
            RateCondition::Tier => factors.service_tier,
            RateCondition::LongCache => factors.long_cache,
            RateCondition::AudioInput => factors.audio_input,
            RateCondition::AudioOutput => factors.audio_output,
        };
        // Some providers bill the dearer rate from the threshold on.
        has_needs && factors.input >= self.above
    }
}

/// Returns femto-USD as nano-USD, rounded up.
#[must_use]
pub fn nanos(femtos: u128) -> i64 {
    // The usual case without prices; a division of wide numbers is slow.
    if femtos == 0 {
        return 0;
    }
    i64::try_from(femtos.div_ceil(FEMTOS_PER_NANO)).unwrap_or(i64::MAX)
}

/// Merges two prices into one that is at least as dear as each.
pub(super) fn dearer_of(known: Option<Price>, other: &Price) -> Price {
    let Some(mut known) = known else { return other.clone() };
    known.rates.extend(&other.rates);
    // If the longest response of one is not known, that of both is not.
    known.max_output = known.max_output.zip(other.max_output).map(|(known, other)| known.max(other));
    known.max_input = known.max_input.max(other.max_input);
    known.beyond_tokens |= other.beyond_tokens;
    if known.family != other.family {
        known.family = Some(Family::Unknown);
    }
    known
}
