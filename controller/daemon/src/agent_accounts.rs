//! The account that pays for an agent and its runs.
//!
//! Pure.

use http::StatusCode;

use crate::api_error::ApiError;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::run_policy::RunPolicy;

/// Returns the account that pays for a principal's new objects: its first one, otherwise the account of the host.
///
/// # Errors
/// 422: the principal has no account.
pub(crate) fn default(principal: &Principal, policy: Option<&RunPolicy>) -> Result<String, ApiError> {
    let own = principal.accounts.first().cloned();
    own.or_else(|| policy.map(|policy| policy.account.clone())).ok_or_else(|| {
        let message = "this token has no account, and this host has no default one; make a token with --account";
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "account_required", message)
    })
}

/// Checks that a principal may spend from an account. A principal without accounts spends from the accounts of its agents.
///
/// # Errors
/// 403
pub(crate) fn check(principal: &Principal, account: &str) -> Result<(), ApiError> {
    let has_all = principal.accounts.is_empty() || principal.may(Operation::GrantAgent).is_some();
    if has_all || principal.accounts.iter().any(|own| own == account) {
        return Ok(());
    }
    let message = "the account of this agent is none of this token's; use a token that has it";
    Err(ApiError::new(StatusCode::FORBIDDEN, "account_not_allowed", message))
}
