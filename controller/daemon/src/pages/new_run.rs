//! The page that creates a run: a form with the choices that the host allows.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sluice_state::ledger::usd;

use super::empty_query::EmptyQuery;
use super::html::{Page, not_logged_in};
use super::new_run_html::{Choices, form};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::extract::Query;
use crate::on_cap::CapTreatment;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::run_policy::RunPolicy;

type Context = State<Arc<ApiContext>>;

/// Maximum number of agents that the form lists.
const AGENTS: u32 = 200;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/sandboxes/new", get(new_run))
}

/// The form of a new run.
async fn new_run(
    State(context): Context,
    principal: Option<Principal>,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> Result<Response, ApiError> {
    let Some(principal) = principal else { return Ok(not_logged_in()) };
    principal.require(Operation::Create)?;
    let Some(policy) = context.policy_of(&principal) else {
        let main = "<p>This host creates no sandboxes: <code>sandbox_enabled</code> is off. An admin sets it, and an upstream \
                    key.</p>\n";
        return Ok(Page::of_console(&principal, "", "New sandbox", "", main.to_owned()).into_response());
    };
    let agents = context.store.list_agents(Some(&principal.owner), None, AGENTS).await?;
    let agents = agents.into_iter().filter(|agent| agent.allow_sandbox && !agent.ephemeral);
    let choices = choices(&policy, &principal.owner, agents.map(|agent| agent.agent_id).collect());
    Ok(Page::of_console(&principal, "new", "New sandbox", "", form(&choices)).into_response())
}

fn choices(policy: &RunPolicy, owner: &str, agents: Vec<String>) -> Choices {
    let projects: Vec<_> =
        policy.projects.iter().filter(|project| project.owners.iter().any(|own| own == owner)).collect();
    let with_repository = projects.iter().filter(|project| project.repository.is_some());
    let mut models = policy.models.clone();
    models.extend(policy.graphs.iter().flat_map(|graph| graph.models.clone()));
    models.sort();
    models.dedup();
    Choices {
        programs: policy.graphs.iter().map(|graph| (graph.graph_id.clone(), graph.name.clone())).collect(),
        agents,
        default_model: policy.models.first().cloned(),
        models,
        repositories: with_repository.map(|project| project.name.clone()).collect(),
        projects: projects.iter().map(|project| project.name.clone()).collect(),
        timeout_s: (policy.limits.timeout_s, policy.limits_max.timeout_s),
        memory: (policy.limits.memory, policy.limits_max.memory),
        cpu_millis: (policy.limits.cpu_millis, policy.limits_max.cpu_millis),
        max_cost: (policy.max_cost, policy.max_cost_max).into(),
        asks: policy.on_cap == CapTreatment::Ask,
    }
}

impl From<(Option<i64>, Option<i64>)> for super::new_run_html::CostChoice {
    fn from((standard, most): (Option<i64>, Option<i64>)) -> Self {
        let show = |nanos: Option<i64>| nanos.map(|nanos| usd(nanos.into()));
        Self { standard: show(standard), most: show(most) }
    }
}
