//! Approvals: questions of the system to a person when a cap is reached, or a branch is to be published. An agent cannot make
//! one.
//!
//! A decision names the digest of the approval that the person saw, and the first decision is final. A raised cap, the
//! hold on the account's budget and the decision are one transaction. The sidecar gets the decision afterwards: values
//! are absolute, so a daemon that was killed in between can send it again.

use crate::random_id::random_id;

mod ask;
mod decide;
mod error;
mod old_key;
mod publication;
mod rows;
mod rules;

pub use ask::{ApprovalAsk, ApprovalOutcome};
pub use decide::DecisionRequest;
pub use error::ApprovalError;
pub use publication::PublicationAsk;
pub(crate) use publication::close_published;
pub use rows::Approval;
pub use rules::{ApprovalDecision, RaisableCap, propose, raised_run_cap};

/// Returns a new id of an approval.
#[must_use]
pub fn approval_id() -> String {
    random_id("apr-")
}

#[cfg(test)]
mod tests;
