//! Thinking: its size, and its change when the response gets a lower bound.
//!
//! Pure. Anthropic refuses a `thinking.budget_tokens` below 1,024, and one that is not below `max_tokens`. LiteLLM
//! makes such a budget of the word in `reasoning_effort` for Claude models, and does not compare it with the bound.

use super::edit::BodyEdit;
use crate::json::{JsonScalar, StrPrefix};

/// Smallest budget that Anthropic takes.
pub const BUDGET_MIN: u64 = 1024;
/// Smallest bound of a response that leaves tokens for such a budget, and as many beside it.
pub const OUTPUT_MIN: u64 = 2 * BUDGET_MIN;

/// Words that LiteLLM knows, and its budgets for Claude models (`DEFAULT_REASONING_EFFORT_*_THINKING_BUDGET` in
/// `constants.py` of 1.106.2 and 1.109.1), the largest first.
const EFFORTS: [(&str, u64); 6] =
    [("max", 16384), ("xhigh", 8192), ("high", 4096), ("medium", 2048), ("low", 1024), ("minimal", 1024)];

/// Settings of thinking in one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thinking {
    /// Number of tokens, and the range of that number.
    budget: Option<(u64, (u64, u64))>,
    /// Index of the word in [`EFFORTS`], and the range of that word.
    effort: Option<(usize, (u64, u64))>,
    /// Range of the value of `thinking`, if it is an object.
    pub(super) object: Option<(u64, u64)>,
    /// True if the conversation has blocks of thinking. Anthropic refuses a conversation whose last response begins
    /// with such a block when the model may no longer think, and an edit that clears such blocks.
    pub(super) is_needed: bool,
}

impl Thinking {
    /// Takes the value of `budget_tokens`.
    pub(super) fn budget(&mut self, value: JsonScalar<'_>, range: (u64, u64)) {
        let tokens = match value {
            JsonScalar::Number(number) => std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()),
            _ => None,
        };
        self.budget = tokens.map(|tokens| (tokens, range));
    }

    /// Takes the word of `reasoning_effort`, or of `reasoning.effort` on the Responses route.
    pub(super) fn word(&mut self, value: JsonScalar<'_>, range: (u64, u64)) {
        let place = match value {
            JsonScalar::String(StrPrefix { head, .. }) => EFFORTS.iter().position(|(word, _)| word.as_bytes() == head),
            _ => None,
        };
        self.effort = place.map(|place| (place, range));
    }

    /// Returns the smallest bound of the response that leaves tokens for thinking that cannot be switched off.
    #[must_use]
    pub fn least_output(&self, is_claude: bool) -> Option<u64> {
        let has_budget = self.budget.is_some() || is_claude && self.effort.is_some();
        (has_budget && self.is_needed).then_some(OUTPUT_MIN)
    }

    /// Fits the settings to the bound that the sidecar has set. Returns the names of the changed members.
    pub(super) fn fit(
        &self,
        bound: u64,
        is_claude: bool,
        edit: &mut BodyEdit,
        put: &mut Vec<(u64, String)>,
    ) -> [Option<&'static str>; 2] {
        let mut changed = [None; 2];
        let mut replace = |range: (u64, u64), text: String| {
            edit.cut_value(range);
            put.push((range.0, text));
        };
        if let Some((_, range)) = self.budget.filter(|(budget, _)| *budget >= bound) {
            changed[0] = match self.object.filter(|_| bound < OUTPUT_MIN) {
                Some(object) => {
                    replace(object, r#"{"type":"disabled"}"#.to_owned());
                    Some("thinking")
                }
                None => {
                    replace(range, (bound / 2).max(BUDGET_MIN).to_string());
                    Some("thinking.budget_tokens")
                }
            };
        }
        if let Some((_, range)) = self.effort.filter(|(place, _)| is_claude && EFFORTS[*place].1 >= bound) {
            let word = EFFORTS.iter().find(|(_, budget)| *budget <= bound / 2).map_or("none", |(word, _)| word);
            replace(range, format!("\"{word}\""));
            changed[1] = Some("reasoning_effort");
        }
        changed
    }
}
