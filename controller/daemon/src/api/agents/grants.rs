//! Grants in a registration: checked before they are recorded.

use http::StatusCode;
use serde_json::json;

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::grants::{GRANTS_MAX, GrantRefusal};

/// Checks the grants of an agent, and returns them as the database keeps them.
///
/// # Errors
/// 422, with the number of the grant, from 0.
pub(super) async fn checked(context: &ApiContext, grants: Vec<String>) -> Result<String, ApiError> {
    if grants.len() > GRANTS_MAX {
        return Err(ApiError::invalid("grants", format!("an agent has at most {GRANTS_MAX} grants")));
    }
    let text = json!(grants).to_string();
    if grants.is_empty() {
        return Ok(text);
    }
    let Some(policy) = &context.policy else { return Err(outside(0)) };
    let policy = policy.grants.clone();
    // A read from a network file system can block.
    let check = move || {
        let check = |(index, grant): (usize, &String)| policy.check(grant).map_err(|refusal| refused(index, refusal));
        grants.iter().enumerate().try_for_each(check)
    };
    tokio::task::spawn_blocking(check).await.map_err(|error| ApiError::internal(&error))??;
    Ok(text)
}

fn outside(index: usize) -> ApiError {
    let message = "a grant lies under a directory of the setting grant_roots, and this one does not";
    unprocessable("grant_outside_roots", index, message)
}

fn refused(index: usize, refusal: GrantRefusal) -> ApiError {
    match refusal {
        GrantRefusal::Invalid(_) => {
            let message = "a grant is the absolute path of a directory on the host, without . and .. and a final /";
            ApiError::invalid("grants", message).with_details(json!({ "field": "grants", "index": index }))
        }
        GrantRefusal::OutsideRoots(_) => outside(index),
        GrantRefusal::Forbidden { .. } => {
            let message = "a grant must not hold, nor lie in, what no sandbox may see: the state of sluice, its sockets and \
                           keys, the engine's socket, /etc, /run, /proc, /sys, /dev";
            unprocessable("grant_forbidden", index, message)
        }
        GrantRefusal::Unusable(error) => {
            let message = "a grant is a directory, without a link in its path, where only root can replace a part of the \
                           path, and which other users can enter; details.reason says what this one lacks";
            let details = json!({ "field": "grants", "index": index, "reason": error.fault.word() });
            unprocessable("grant_unusable", index, message).with_details(details)
        }
    }
}

fn unprocessable(code: &'static str, index: usize, message: &str) -> ApiError {
    let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
    error.with_details(json!({ "field": "grants", "index": index }))
}
