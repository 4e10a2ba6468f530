//! Texts about the failure of a run, for its owner.
//!
//! Pure. The error itself may name addresses, paths and settings of the host, which are the operator's: it goes to the
//! operator's log and into the record of the run.

/// Returns the text for a failure code. `exit_code` is the one of the run.
#[must_use]
pub fn failure_text(code: &str, exit_code: i32) -> String {
    match code {
        "container_failed" => return format!("the program failed, with exit code {exit_code}"),
        "interrupted" => "the agent was interrupted, and ended",
        "timeout" => "the program took longer than its timeout",
        "oom_killed" => "the program needed more memory than its limit",
        "budget_exceeded" => "a cap of the run on calls, tokens or dollars was reached",
        "implausible_cost" => "the answer to a call stated a cost that cannot be true; it is not posted",
        "insufficient_credits" => "the budget of the account has too little left",
        "bad_envelope" => "the agent's output is not an envelope",
        "output_truncated" => "the agent wrote more than is kept, which broke its envelope",
        "audit_failed" => "the log of the run's calls is incomplete, or its sidecar ended early",
        "creation_failed" => "the run could not be created; the operator's log has the reason",
        _ => "a fault of the host ended the run; the operator's log has the reason",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use sluice_runs::verdict::ErrorCode;

    use super::*;

    #[test]
    fn a_failure_is_told_without_details_of_the_host() {
        assert_eq!(failure_text(ErrorCode::ContainerFailed.as_str(), 42), "the program failed, with exit code 42");
        for code in [ErrorCode::CreationFailed, ErrorCode::Internal, ErrorCode::OutputFailed] {
            assert!(failure_text(code.as_str(), 125).contains("the operator's log"), "{}", code.as_str());
        }
        for code in [ErrorCode::Timeout, ErrorCode::OomKilled, ErrorCode::BudgetExceeded, ErrorCode::AuditFailed] {
            assert!(!failure_text(code.as_str(), 1).contains("the operator's log"), "{}", code.as_str());
        }
    }
}
