//! Reason words that both programs know. They are stable: scripts, dashboards and agents match on them.
//!
//! Pure.

/// Reason of a refusal: the calls, tokens or dollars of the run are spent or reserved.
pub const BUDGET_EXCEEDED: &str = "budget_exceeded";

/// Reason of a refusal: a person was asked to raise a cap, and the client is to try again.
pub const APPROVAL_PENDING: &str = "approval_pending";

/// Reason of a refusal: the run is paused.
pub const PAUSED: &str = "paused";

/// Reason of a refusal, and status of the health answer: the audit log cannot be written.
pub const AUDIT_UNAVAILABLE: &str = "audit_unavailable";

/// Reason of a refusal, and status of the health answer: the sidecar is stopping.
pub const DRAINING: &str = "draining";

/// Reason in `close`: the disk was full, and calls were refused.
pub const AUDIT_FULL: &str = "audit_full";
