//! The amounts that one call asks of the caps, and the share of the remainder that it gets.
//!
//! Pure.

/// Smallest output bound that a call is given: a response with fewer tokens would end before it says anything.
pub const OUTPUT_FLOOR: u64 = 1024;

/// Maximum amounts that a call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapRequest {
    /// Tokens of the call without the response.
    pub tokens: u64,
    /// Femto-USD of the call without the response, if there are prices.
    pub femtos: u128,
    /// The response, if its length can be bounded.
    pub output: Option<OutputRequest>,
    /// True if the amounts are an upper bound. A guess takes no more than what is left: it must not refuse a call
    /// that would have fitted.
    pub strict: bool,
}

/// Amounts for the response of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputRequest {
    /// Tokens of one response, as the client or the model bounds them. If they do not fit, fewer are granted.
    pub wanted: u64,
    /// Number of responses.
    pub choices: u64,
    /// Femto-USD for a token.
    pub femtos: u128,
    /// Smallest number of tokens that is granted, unless fewer are wanted.
    pub least: u64,
    /// True if the client or the model bounds the response; otherwise `wanted` is assumed.
    pub is_bounded: bool,
}

/// Setting of the operator about output bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputBounds {
    /// The sidecar writes a bound into a call that names none, or one that does not fit what is left.
    #[default]
    Auto,
    /// Calls keep the bounds that their clients wrote. A bound that does not fit is a reason to refuse the call.
    Off,
}

impl OutputBounds {
    /// Returns the value of the flag.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

impl CapRequest {
    /// Returns tokens and femto-USD with responses of `each` tokens.
    pub(super) fn with(&self, each: u64) -> (u128, u128) {
        let output = self.output.unwrap_or_default();
        let tokens = u128::from(each) * u128::from(output.choices);
        (u128::from(self.tokens) + tokens, self.femtos.saturating_add(tokens.saturating_mul(output.femtos)))
    }

    pub(super) fn is_priced(&self) -> bool {
        self.femtos > 0 || self.output.is_some_and(|output| output.femtos > 0)
    }

    /// Returns true if the length of the response is only assumed, and the sidecar may not bound it.
    pub(super) fn is_assumed(&self, bounds: OutputBounds) -> bool {
        bounds == OutputBounds::Off && self.output.is_some_and(|output| !output.is_bounded)
    }

    pub(super) fn wanted(&self) -> u64 {
        self.output.map_or(0, |output| output.wanted)
    }
}

/// Remainder of a run's caps; `None` is unlimited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remainder {
    pub(super) tokens: Option<u128>,
    pub(super) femtos: Option<u128>,
}

impl Remainder {
    pub(super) fn holds(&self, (tokens, femtos): (u128, u128)) -> bool {
        self.tokens.is_none_or(|left| tokens <= left) && self.femtos.is_none_or(|left| femtos <= left)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens == Some(0) || self.femtos == Some(0)
    }

    /// Returns the longest response that fits, up to the one wanted.
    fn longest(&self, request: &CapRequest) -> Option<u64> {
        let output = request.output?;
        let (tokens, femtos) = request.with(0);
        let by = |left: Option<u128>, used: u128, each: u128| match (left, each) {
            (None, _) => Some(u128::MAX),
            (Some(left), 0) => (used <= left).then_some(u128::MAX),
            (Some(left), each) => left.checked_sub(used).map(|left| left / each),
        };
        let choices = u128::from(output.choices);
        let longest = by(self.tokens, tokens, choices)?.min(by(self.femtos, femtos, choices * output.femtos)?);
        Some(u64::try_from(longest).unwrap_or(u64::MAX).min(output.wanted))
    }

    /// Returns the output tokens to reserve for each response: as wanted, or half of what fits, so that another call
    /// can be made at the same time. With `Off`, it is all that is wanted, or what fits if the length is only assumed.
    pub(super) fn grant(&self, request: &CapRequest, bounds: OutputBounds) -> Option<u64> {
        let granted = |counted: &CapRequest| bounded(request, self.longest(counted)?, bounds);
        // A guess about the prompt must not refuse the call.
        let beside = CapRequest { tokens: 0, femtos: 0, ..*request };
        granted(request).or_else(|| granted(&beside).filter(|_| !request.strict))
    }
}

/// Returns the output tokens to reserve for each response, if at most `longest` fit.
fn bounded(request: &CapRequest, longest: u64, bounds: OutputBounds) -> Option<u64> {
    let wanted = request.wanted();
    if longest >= wanted {
        return Some(wanted);
    }
    if bounds == OutputBounds::Off {
        return request.is_assumed(bounds).then_some(longest);
    }
    let least = request.output.map_or(OUTPUT_FLOOR, |output| output.least.max(OUTPUT_FLOOR));
    let granted = (longest / 2).max(least).min(wanted);
    (granted <= longest).then_some(granted)
}
