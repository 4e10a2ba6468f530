//! The rates of one model: which of them a call may be billed at, and the amounts.
//!
//! Pure.

use sluice_contract::record::Usage;

use crate::media::Family;

/// Femto-USD in a nano-USD.
pub const FEMTOS_PER_NANO: u128 = 1_000_000;

/// What one model costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {
    pub(super) rates: Vec<Rate>,
    /// The most that the model writes in one answer.
    pub max_output: Option<u64>,
    /// The most that the model reads.
    pub max_input: Option<u64>,
    /// How images are billed.
    pub family: Option<Family>,
    /// Something beside tokens is billed as well, such as a search of the model's own.
    pub beyond_tokens: bool,
}

/// One price of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) side: RateSide,
    /// It holds for prompts of more tokens than this.
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

/// What a call must have for a rate to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateCondition {
    Nothing,
    /// A tier of service that the call names.
    Tier,
    /// A cache that keeps longer than usual.
    LongCache,
    /// Sound in the prompt.
    AudioInput,
    /// Sound in the answer.
    AudioOutput,
}

/// What decides which rates hold for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateFactors {
    /// Tokens of the prompt, at most.
    pub input: u64,
    /// A tier of service is named.
    pub service_tier: bool,
    /// The prompt is to be cached for longer than usual.
    pub long_cache: bool,
    /// There is sound in the prompt.
    pub audio_input: bool,
    /// There may be sound in the answer.
    pub audio_output: bool,
}

impl Price {
    /// Femto-USD of a token of the prompt, at most.
    #[must_use]
    pub fn input(&self, terms: &RateFactors) -> u128 {
        self.most(terms, &[RateSide::Input, RateSide::CacheRead, RateSide::CacheWrite])
    }

    /// Femto-USD of a token of the answer, at most.
    #[must_use]
    pub fn output(&self, terms: &RateFactors) -> u128 {
        self.most(terms, &[RateSide::Output])
    }

    fn most(&self, terms: &RateFactors, sides: &[RateSide]) -> u128 {
        let rates = self.rates.iter().filter(|rate| sides.contains(&rate.side) && rate.holds(terms));
        rates.map(|rate| rate.femtos).max().unwrap_or(0)
    }

    /// Nano-USD for what the provider counted, rounded up: each class of tokens at the dearest rate that holds for it.
    #[must_use]
    pub fn of_usage(&self, usage: &Usage, terms: &RateFactors) -> i64 {
        let output = usage.output.unwrap_or(0);
        let all = usage.all().saturating_sub(output);
        let terms = RateFactors { input: all, ..*terms };
        let read = usage.cached_input.unwrap_or(0).min(all);
        let written = usage.cache_write.unwrap_or(0).min(all - read);
        let fresh = all - read - written;
        let plain = self.most(&terms, &[RateSide::Input]);
        let or_plain = |side| match self.most(&terms, &[side]) {
            0 => plain,
            rate => rate,
        };
        let femtos = u128::from(fresh) * plain
            + u128::from(read) * or_plain(RateSide::CacheRead)
            + u128::from(written) * or_plain(RateSide::CacheWrite)
            + u128::from(output) * self.output(&terms);
        nanos(femtos)
    }
}

impl Rate {
    fn holds(&self, terms: &RateFactors) -> bool {
        let has_needs = match self.needs {
            RateCondition::Nothing => true,
            RateCondition::Tier => terms.service_tier,
            RateCondition::LongCache => terms.long_cache,
            RateCondition::AudioInput => terms.audio_input,
            RateCondition::AudioOutput => terms.audio_output,
        };
        // Some providers take the dearer rate from the threshold on.
        has_needs && terms.input >= self.above
    }
}

/// Femto-USD as nano-USD, rounded up.
#[must_use]
pub fn nanos(femtos: u128) -> i64 {
    // Without prices, and dividing wide numbers is slow.
    if femtos == 0 {
        return 0;
    }
    i64::try_from(femtos.div_ceil(FEMTOS_PER_NANO)).unwrap_or(i64::MAX)
}

/// Prices that are as dear as both.
pub(super) fn dearer_of(known: Option<Price>, other: &Price) -> Price {
    let Some(mut known) = known else { return other.clone() };
    known.rates.extend(&other.rates);
    known.max_output = known.max_output.max(other.max_output);
    known.max_input = known.max_input.max(other.max_input);
    known.beyond_tokens |= other.beyond_tokens;
    if known.family != other.family {
        known.family = Some(Family::Unknown);
    }
    known
}
