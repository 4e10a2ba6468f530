//! The agents that a chat can choose: agents from the configuration, and registered agents.
//!
//! Pure.

use serde::Serialize;
use sluice_state::agents::Agent;
use utoipa::ToSchema;

use super::request::{DEFAULT_AGENT, model_name};
use crate::run_policy::{Graph, RunPolicy};

/// An agent of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogAgent {
    /// `sandbox:NAME`, or the id of a registered agent.
    pub(crate) agent_id: String,
    /// Program of the agent, `sandbox:NAME`.
    pub(crate) graph_id: String,
    /// Name for people.
    pub(crate) name: String,
    /// Description for people.
    pub(crate) description: String,
}

/// The agents of a caller.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Catalog {
    pub(crate) agents: Vec<CatalogAgent>,
    /// Agent of a chat that names none.
    pub(crate) default_agent_id: Option<String>,
}

/// A chosen agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenAgent<'a> {
    pub(crate) graph: &'a Graph,
    /// The registered agent, if it is one.
    pub(crate) agent_id: Option<String>,
}

/// Returns the agents of a caller; none where no sandboxes may be created.
pub(crate) fn catalog(policy: Option<&RunPolicy>, registered: &[Agent]) -> Catalog {
    let Some(policy) = policy else { return Catalog { agents: Vec::new(), default_agent_id: None } };
    let mut agents: Vec<_> = policy.graphs.iter().map(of_graph).collect();
    if let Some(default) = policy.graph(DEFAULT_AGENT) {
        let usable = registered.iter().filter(|agent| is_usable(agent) && policy.graph(&agent.agent_id).is_none());
        agents.extend(usable.map(|agent| CatalogAgent {
            agent_id: agent.agent_id.clone(),
            graph_id: default.graph_id.clone(),
            name: agent.name.clone().unwrap_or_else(|| agent.agent_id.clone()),
            description: "a registered agent".to_owned(),
        }));
    }
    let default = policy.graph(DEFAULT_AGENT).or(policy.graphs.first());
    Catalog { default_agent_id: default.map(|graph| graph.graph_id.clone()), agents }
}

/// Returns the models of `/v1/models`: each agent, and each of its models.
pub(crate) fn models(policy: Option<&RunPolicy>, registered: &[Agent]) -> Vec<String> {
    let mut names = Vec::new();
    for agent in catalog(policy, registered).agents {
        let name = model_name(&agent.agent_id);
        let graph = policy.and_then(|policy| policy.graph(&agent.graph_id));
        let of_agent: Vec<_> =
            graph.iter().flat_map(|graph| &graph.models).map(|model| format!("{name}@{model}")).collect();
        names.push(name);
        names.extend(of_agent);
    }
    names
}

/// Returns a registered agent as the agent of a chat; `None` if its runs may not be created by a chat.
pub(crate) fn choose(policy: &RunPolicy, registered: Agent) -> Option<ChosenAgent<'_>> {
    let graph = policy.graph(DEFAULT_AGENT).filter(|_| is_usable(&registered))?;
    Some(ChosenAgent { graph, agent_id: Some(registered.agent_id) })
}

fn is_usable(agent: &Agent) -> bool {
    agent.allow_sandbox && !agent.ephemeral
}

fn of_graph(graph: &Graph) -> CatalogAgent {
    CatalogAgent {
        agent_id: graph.graph_id.clone(),
        graph_id: graph.graph_id.clone(),
        name: graph.name.clone(),
        description: graph.description.clone(),
    }
}
