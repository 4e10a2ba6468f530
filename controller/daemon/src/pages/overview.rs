//! The pages of agents, spending, the host and chats, as they are before their script runs.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sluice_state::ledger::{Filter, GroupBy};
use sluice_state::store::now_us;

use super::empty_query::EmptyQuery;
use super::html::{Page, not_logged_in};
use super::overview_html::{HostFacts, agent_rows, balances, chat_page, host_facts, host_refusal, totals};
use crate::api_error::ApiError;
use crate::chat::catalog::catalog;
use crate::context::ApiContext;
use crate::extract::Query;
use crate::permission::Operation;
use crate::principal::Principal;

type Context = State<Arc<ApiContext>>;

/// Maximum number of agents of a page without its script.
const AGENTS: u32 = 200;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/agents", get(agents))
        .route("/spending", get(spending))
        .route("/host", get(host))
        .route("/chat", get(chat))
}

/// The registered agents.
async fn agents(
    State(context): Context,
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    let scope = principal.require(Operation::Read)?;
    let agents = context.store.list_agents(scope.owner(), None, AGENTS).await?;
    Ok(Page::of_console(&principal, "agents", "Agents", "", agent_rows(&agents)).into_response())
}

/// Costs by account, and the budgets of accounts.
async fn spending(
    State(context): Context,
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    let scope = principal.require(Operation::Read)?;
    let filter = Filter { owner: scope.owner().map(str::to_owned), ..Filter::default() };
    let mut usage = context.store.usage(GroupBy::Account, filter).await?;
    usage.groups.retain(|account, _| scope.has_account(account));
    let mut budgets = context.store.budgets(None).await?;
    budgets.retain(|(account, ..)| scope.has_account(account));
    let main = format!("{}{}", balances(&budgets), totals(&usage));
    Ok(Page::of_console(&principal, "spending", "Spending", "", main).into_response())
}

/// State of the host, for admins.
async fn host(
    State(context): Context,
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    principal.require(Operation::Read)?;
    let main = match principal.may(Operation::Monitor) {
        None => host_refusal(context.policy.is_some()),
        Some(_) => {
            let figures = context.store.figures(context.monitor.read.get(), now_us()).await?;
            host_facts(&HostFacts {
                version: env!("CARGO_PKG_VERSION"),
                not_ready: context.readiness.reasons().into_keys().collect(),
                runs: figures.runs.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
                sidecars: figures.sidecars,
                running_max: context.policy.as_deref().map(|policy| policy.running_max),
            })
        }
    };
    Ok(Page::of_console(&principal, "host", "Host", "", main).into_response())
}

/// A chat with an agent. Without its script it only shows the agents.
async fn chat(
    State(context): Context,
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    principal.require(Operation::Chat)?;
    let agents = catalog(context.policy_of(&principal).as_deref(), &[]).agents;
    let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
    Ok(Page::of_console(&principal, "chat", "Chat", "", chat_page(&names)).into_response())
}
