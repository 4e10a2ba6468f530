//! Registration of agents.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_contract::Account;
use sluice_state::agents::{NewAgent, Registered};
use sluice_state::control_log::ControlEntry;
use utoipa::ToSchema;

use super::{AgentView, entry};
use crate::agent_accounts;
use crate::api::names::{check_agent_id, check_text};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, Query};
use crate::permission::Operation;
use crate::principal::Principal;

const TEXT_MAX: usize = 255;
const METADATA_MAX: usize = 16 << 10;

/// An agent to register.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Registration {
    /// Id, unique for its owner.
    agent_id: String,
    /// Owner. Admins alone.
    owner_id: Option<String>,
    zone_id: Option<String>,
    /// Name for people.
    name: Option<String>,
    /// Account that pays for its runs. Admins alone; the first one of the token otherwise.
    billing_account_id: Option<String>,
    /// True if it may have runs. Admins alone; true otherwise.
    allow_sandbox: Option<bool>,
    /// Host directories that its runs may read, under those of the setting `grant_roots`. Admins alone.
    grants: Option<Vec<String>>,
    /// Data that the owner keeps with the agent, at most 16 KiB.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Registers an agent. One that is registered already stays as it is.
#[utoipa::path(
    post, path = "/api/v1/agents", request_body = Registration,
    responses(
        (status = 201, description = "The new agent", body = AgentView),
        (status = 200, description = "The agent that the owner has already", body = AgentView),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn register(
    State(context): Context,
    principal: Principal,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<Registration>,
) -> Result<Response, ApiError> {
    const OPERATION: &str = "agent.register";
    principal.require(Operation::RegisterAgent)?;
    let new = body.value.checked(&context, &principal).await?;
    let granted: Value = serde_json::from_str(&new.grants).map_err(|error| ApiError::internal(&error))?;
    let entry = ControlEntry {
        request: Some(body.digest),
        after: Some(json!({
            "account": new.billing_account_id, "allow_sandbox": new.allow_sandbox, "grants": granted,
        })),
        ..entry(OPERATION, &new.owner, &new.agent_id)
    };
    let seq = context.record(&principal, entry).await?;
    match context.store.register_agent(new).await {
        Ok(Registered::Created(agent)) => Ok((StatusCode::CREATED, Json(AgentView::of(agent)?)).into_response()),
        Ok(Registered::Existing(agent)) => Ok(Json(AgentView::of(agent)?).into_response()),
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error.into()).await),
    }
}

impl Registration {
    /// Checks all members, and fills in defaults for missing ones.
    async fn checked(self, context: &ApiContext, principal: &Principal) -> Result<NewAgent, ApiError> {
        let is_admins = self.owner_id.is_some()
            || self.billing_account_id.is_some()
            || self.allow_sandbox.is_some()
            || self.grants.is_some();
        if is_admins && principal.may(Operation::GrantAgent).is_none() {
            return Err(ApiError::admin_only());
        }
        check_agent_id(&self.agent_id)?;
        for (field, text) in [("owner_id", &self.owner_id), ("zone_id", &self.zone_id), ("name", &self.name)] {
            text.as_ref().map_or(Ok(()), |text| check_text(field, text, TEXT_MAX))?;
        }
        let account = match self.billing_account_id {
            Some(account) => account,
            None => agent_accounts::default(principal, context.policy.as_deref())?,
        };
        let account: Account =
            account.parse().map_err(|error| ApiError::invalid("billing_account_id", format!("{error}")))?;
        let metadata = Value::Object(self.metadata.unwrap_or_default()).to_string();
        if metadata.len() > METADATA_MAX {
            return Err(ApiError::invalid("metadata", "metadata has at most 16 KiB"));
        }
        Ok(NewAgent {
            owner: self.owner_id.unwrap_or_else(|| principal.owner.clone()),
            agent_id: self.agent_id,
            name: self.name,
            zone_id: self.zone_id,
            billing_account_id: account.to_string(),
            allow_sandbox: self.allow_sandbox.unwrap_or(true),
            // Checked last, because it reads the file system.
            grants: super::grants::checked(context, self.grants.unwrap_or_default()).await?,
            metadata,
        })
    }
}
