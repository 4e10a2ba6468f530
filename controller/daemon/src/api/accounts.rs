//! Chooses the account of a request from the accounts of its token.
//!
//! Pure.

use http::StatusCode;
use serde_json::json;

use crate::api_error::ApiError;
use crate::permission::Scope;

/// Returns the one account of a request; `None` for all accounts.
///
/// # Errors
/// 404 for an account of others, as for a missing one; 422 if the token has several and the request names none.
pub(super) fn asked(scope: Scope<'_>, named: Option<String>) -> Result<Option<String>, ApiError> {
    match (named, scope.accounts()) {
        (Some(account), _) if scope.has_account(&account) => Ok(Some(account)),
        (Some(_), _) => Err(ApiError::not_found()),
        (None, None) => Ok(None),
        (None, Some([only])) => Ok(Some(only.clone())),
        (None, Some(accounts)) => {
            let message = "name one account of this token: ?account=NAME";
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "account_required", message);
            Err(error.with_details(json!({ "field": "account", "accounts": accounts })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Operation;
    use crate::principal::{Principal, Role};

    #[test]
    fn a_token_reaches_its_own_accounts_alone() {
        let asked_by = |role, accounts: &[&str], named: Option<&str>| {
            let principal = Principal::for_tests(role, "alice", accounts);
            let scope = principal.may(Operation::Read).expect("it may read");
            asked(scope, named.map(str::to_owned)).map_err(|error| error.code())
        };
        let some = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(asked_by(Role::Admin, &[], None), Ok(None));
        assert_eq!(asked_by(Role::Admin, &[], Some("acct-9")), some("acct-9"));
        assert_eq!(asked_by(Role::Owner, &["acct-1"], None), some("acct-1"));
        assert_eq!(asked_by(Role::Owner, &["acct-1", "acct-2"], Some("acct-2")), some("acct-2"));
        assert_eq!(asked_by(Role::Viewer, &["acct-1"], Some("acct-9")), Err("not_found"));
        assert_eq!(asked_by(Role::Owner, &["acct-1", "acct-2"], None), Err("account_required"));
        assert_eq!(asked_by(Role::Owner, &[], None), Err("account_required"));
    }
}
