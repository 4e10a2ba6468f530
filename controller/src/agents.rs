//! The agents that can be asked: ours in the image, and those of the configuration file.

use serde::{Deserialize, Serialize};

/// An agent that takes messages and prints an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    /// How it is asked for: `sandbox:NAME`.
    pub agent_id: String,
    /// The graph that its calls are booked on; else its id.
    #[serde(default)]
    pub graph_id: String,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Its program and arguments, behind the image's entrypoint.
    pub argv: Vec<String>,
    /// Its image, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The agent in our image.
pub const DEFAULT: &str = "sandbox:agent";

/// All agents: ours, then those of the file, which may take the place of ours.
#[must_use]
pub fn catalog(configured: &[Agent]) -> Vec<Agent> {
    let ours = Agent {
        agent_id: DEFAULT.to_owned(),
        graph_id: DEFAULT.to_owned(),
        name: "Agent".to_owned(),
        description: "sends the messages to the model, and prints its answer".to_owned(),
        argv: ["node", "/opt/sluice/agent/run.mjs"].map(str::to_owned).into(),
        image: None,
    };
    let mut all: Vec<_> = configured.to_vec();
    if !all.iter().any(|agent| agent.agent_id == DEFAULT) {
        all.insert(0, ours);
    }
    all
}

/// Reads `[[agents]]` of the configuration file.
///
/// # Errors
/// Which entry is wrong, and why.
pub fn read(value: toml::Value) -> Result<Vec<Agent>, String> {
    let mut agents: Vec<Agent> =
        value.try_into().map_err(|error: toml::de::Error| format!("agents: {}", error.message()))?;
    for agent in &mut agents {
        if agent.agent_id.is_empty() || agent.argv.is_empty() {
            return Err("agents: each one needs an agentId and an argv".to_owned());
        }
        for text in [&mut agent.graph_id, &mut agent.name] {
            if text.is_empty() {
                text.clone_from(&agent.agent_id);
            }
        }
    }
    Ok(agents)
}
