//! The run that a request names: by its id, or by a name of the caller's owner.

use sluice_contract::RunId;
use sluice_state::sandboxes::Sandbox;

use crate::api::names::is_run_name;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::permission::{Operation, Scope};
use crate::principal::Principal;

/// Returns the run with this id, otherwise the live run with this name, otherwise the newest ended run with this name.
/// Admins write `OWNER/NAME` for a run of another owner.
///
/// # Errors
/// 403: the role does not have the operation. 404: there is none, or it is another owner's.
pub(in crate::api) async fn named(
    context: &ApiContext,
    principal: &Principal,
    operation: Operation,
    name: &str,
) -> Result<Sandbox, ApiError> {
    let scope = principal.require(operation)?;
    if let Some(sandbox) = of_id(context, scope, name).await? {
        return Ok(sandbox);
    }
    let (owner, name) = match name.split_once('/') {
        Some((owner, name)) if scope.has_owner(owner) => (owner, name),
        Some(_) => return Err(ApiError::not_found()),
        None => (principal.owner.as_str(), name),
    };
    if !is_run_name(name) {
        return Err(ApiError::not_found());
    }
    context.store.find_sandbox_by_name(owner, name).await?.ok_or_else(ApiError::not_found)
}

/// Returns the run of an id.
///
/// # Errors
/// As of [`named`], except that names are not accepted.
pub(in crate::api) async fn identified(
    context: &ApiContext,
    principal: &Principal,
    operation: Operation,
    id: &str,
) -> Result<Sandbox, ApiError> {
    let scope = principal.require(operation)?;
    of_id(context, scope, id).await?.ok_or_else(ApiError::not_found)
}

async fn of_id(context: &ApiContext, scope: Scope<'_>, id: &str) -> Result<Option<Sandbox>, ApiError> {
    let Ok(id) = id.parse::<RunId>() else { return Ok(None) };
    Ok(context.store.find_sandbox(scope.owner(), &id).await?)
}
