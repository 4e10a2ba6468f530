//! Answers to clients of held requests.
//!
//! Pure.

use sluice_contract::control::HoldCause;

use crate::refusal::{Denial, Reason, Refusal};

/// Seconds after which a client tries again. The AI SDK ignores 60 and more, and Claude Code fails then.
const RETRY_AFTER: u32 = 5;

/// Returns the refusal of a request that has waited, and whose client tries again.
pub(crate) fn try_again(cause: HoldCause) -> Refusal {
    let (reason, message) = match cause {
        HoldCause::Paused => (Reason::Paused, "the operator has paused this run; try again in 5 seconds"),
        HoldCause::MaxCalls | HoldCause::MaxTokens | HoldCause::MaxCostUsd => (
            Reason::ApprovalPending,
            "this run is at a cap, and the operator was asked to raise it; try again in 5 seconds",
        ),
    };
    Refusal::new(reason, message).retry_after(RETRY_AFTER)
}

/// Returns the refusal of a request that cannot wait, since as many as may do so already.
pub(crate) fn full(cause: HoldCause) -> Refusal {
    let message = "as many calls of this run wait as may; the operator was asked; try again in 5 seconds".to_owned();
    try_again(cause).with_message(message)
}

/// Returns the final refusal of a request that the operator has denied.
pub(crate) fn denied(refusal: Refusal, denial: Denial) -> Refusal {
    let message = format!("the operator did not allow this call: {}", refusal.message);
    refusal.with_message(message).denied(denial)
}

/// Returns the final refusal of a request that no person has decided on in all attempts of its client.
pub(crate) fn undecided(refusal: Refusal) -> Refusal {
    let message = format!("the operator did not decide on this call in time: {}", refusal.message);
    refusal.with_message(message).denied(Denial::First)
}
