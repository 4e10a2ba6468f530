//! Tokens of calls.
//!
//! Pure.

use serde::{Deserialize, Serialize};

use super::INTEGER_MAX;
use crate::encode::{WriteJson, write_members};

/// Tokens as the provider counted them; a count that it did not give is null.
///
/// `input` is all input: fresh tokens, tokens read from a prompt cache (`cached_input`) and tokens written to one
/// (`cache_write`); `output` has the tokens of `reasoning`. Earlier sidecars wrote the Messages API's own counts: in
/// their files `total` is null on that route, and `input` leaves out both cached classes. So a null `total` beside
/// other counts tells the two apart, and [`Usage::inclusive`] reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the provider's fields")]
pub struct Usage {
    /// Input tokens that were written to a cache.
    pub cache_write: Option<u64>,
    /// Input tokens that were read from a cache.
    pub cached_input: Option<u64>,
    /// Input tokens.
    pub input: Option<u64>,
    /// Output tokens, with those of reasoning.
    pub output: Option<u64>,
    /// Output tokens of reasoning.
    pub reasoning: Option<u64>,
    /// All tokens.
    pub total: Option<u64>,
}

impl Usage {
    /// Returns whether the provider counted any token: a usage of zeros is a placeholder.
    #[must_use]
    pub fn any(&self) -> bool {
        let classes = [self.input, self.output, self.total, self.cached_input, self.cache_write, self.reasoning];
        classes.into_iter().flatten().any(|tokens| tokens > 0)
    }

    /// Returns these tokens with `input` as all input, and with a total.
    ///
    /// Counts that have a total are returned as they are. Counts without one come from the Messages API, whose input
    /// leaves out the cached classes.
    #[must_use]
    pub fn inclusive(self) -> Self {
        let sum = |classes: &[Option<u64>]| {
            let known = classes.iter().copied().flatten();
            known.reduce(u64::saturating_add).map(|sum| sum.min(INTEGER_MAX))
        };
        if self.total.is_some() {
            return self;
        }
        let input = sum(&[self.input, self.cached_input, self.cache_write]);
        Self { input, total: sum(&[input, self.output]), ..self }
    }

    /// Returns all tokens: the provider's total, or the sum of input and output, where that is more.
    #[must_use]
    pub fn all(&self) -> u64 {
        let usage = self.inclusive();
        let both = usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
        usage.total.unwrap_or(0).max(both)
    }

    /// Adds another call's tokens, class by class. A sum that no line can hold stays at the largest one that a line
    /// can: absurd counts of an upstream must not make the last record invalid.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more).min(INTEGER_MAX));
            }
        };
        add(&mut self.cache_write, other.cache_write);
        add(&mut self.cached_input, other.cached_input);
        add(&mut self.input, other.input);
        add(&mut self.output, other.output);
        add(&mut self.reasoning, other.reasoning);
        add(&mut self.total, other.total);
    }
}

impl WriteJson for Usage {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { cache_write, cached_input, input, output, reasoning, total });
    }
}
