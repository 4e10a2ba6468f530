//! The agents of `sluice run --agent`: agents from `catalogue.toml`, and from the configuration file.
//!
//! Pure. The configuration file can replace single fields of an agent of the catalogue, or add agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_runs::blueprint::reserved_variable;
use sluice_runs::verdict::Contract;
use toml::{Table, Value};

const CATALOGUE: &str = include_str!("agent_catalogue/catalogue.toml");

/// An agent and its needs in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatalogueAgent {
    /// Id, `sandbox:NAME`; `--agent NAME` finds it, too.
    pub agent_id: String,
    /// Graph that its calls are booked on; default: its id.
    #[serde(default)]
    pub graph_id: String,
    /// Name for people.
    #[serde(default)]
    pub name: String,
    /// Description for people.
    #[serde(default)]
    pub description: String,
    /// Program and arguments, after the image's entrypoint, with placeholders.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Format of its stdout: an envelope, or the answer itself.
    #[serde(default)]
    pub output: Contract,
    /// Environment variables, with placeholders. The user's variables replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Image, if the agent has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command that builds its image, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Value of the setting `memory`, unless the user sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Value of the setting `timeout`, unless the user sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// An entry of the configuration file that is not a valid agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentEntryError {
    /// The entry is not a table.
    #[error("agents: write each agent as a table, [[agents]]")]
    NotATable,
    /// A field is missing, unknown, or not of its type.
    #[error("agents: {}{message}", label(agent))]
    Fields {
        /// Id of the agent; empty if it has none.
        agent: String,
        /// Reason. It may quote a value.
        message: String,
    },
    /// The entry has no id or no program.
    #[error("agents: {}each one needs an agentId and an argv", label(.0))]
    Incomplete(String),
    /// The environment of the agent sets a variable that it may not set.
    #[error("agents: env of {agent}: {variable} {reason}")]
    Variable {
        /// Id of the agent.
        agent: String,
        /// Name of the variable.
        variable: String,
        /// Reason.
        reason: &'static str,
    },
}

/// Values of an agent's placeholders.
#[derive(Debug, Clone, Copy)]
pub struct Placeholders<'a> {
    /// Message of the run.
    pub message: Option<&'a str>,
    /// Models that the run may name.
    pub models: &'a [String],
}

/// Id of the agent that answers if no other is named.
pub const DEFAULT_AGENT: &str = "sandbox:agent";

/// Returns the agents of the catalogue.
#[must_use]
pub fn catalogue() -> Vec<CatalogueAgent> {
    read(Value::Array(Vec::new())).expect("a test reads the catalogue")
}

/// Returns the agents of the catalogue with the changes and additions of `[[agents]]` of the configuration file.
///
/// # Errors
/// The first entry that is not valid.
pub fn read(configured: Value) -> Result<Vec<CatalogueAgent>, AgentEntryError> {
    let mut tables = entries(CATALOGUE.parse::<Table>().ok().and_then(|mut file| file.remove("agents")))?;
    for entry in entries(Some(configured))? {
        match tables.iter_mut().find(|table| is_same(id(table), id(&entry))) {
            Some(table) => overlay(table, entry),
            None => tables.push(entry),
        }
    }
    tables.into_iter().map(agent).collect()
}

/// Returns the agent that `--agent` names, by its id or by the NAME of `sandbox:NAME`.
#[must_use]
pub fn find<'a>(agents: &'a [CatalogueAgent], asked: &str) -> Option<&'a CatalogueAgent> {
    let exact = agents.iter().find(|agent| agent.agent_id == asked);
    exact.or_else(|| agents.iter().find(|agent| is_same(&agent.agent_id, asked)))
}

impl CatalogueAgent {
    /// Returns whether its arguments have a placeholder for the message of a run. Other agents read `messages.json`.
    #[must_use]
    pub fn takes_message(&self) -> bool {
        self.argv.iter().any(|argument| argument.contains("{message}"))
    }

    /// Returns how to make a missing image of this agent.
    #[must_use]
    pub fn image_advice(&self) -> String {
        match (&self.build, &self.image) {
            (Some(build), _) => format!("build it: {build}"),
            (None, Some(_)) => "build it, or pull it".to_owned(),
            (None, None) => "build it: runtime-image/build.sh".to_owned(),
        }
    }

    /// Returns its program and arguments. An argument with a placeholder that has no value is left out.
    #[must_use]
    pub fn arguments(&self, values: Placeholders<'_>) -> Vec<String> {
        self.argv.iter().filter_map(|argument| values.fill(argument)).collect()
    }

    /// Returns its environment variables. One with a placeholder that has no value is left out.
    #[must_use]
    pub fn variables(&self, values: Placeholders<'_>) -> BTreeMap<String, String> {
        self.env.iter().filter_map(|(name, value)| Some((name.clone(), values.fill(value)?))).collect()
    }

    /// Returns whether the agent sets this environment variable.
    #[must_use]
    pub fn sets(&self, name: &str) -> bool {
        self.env.contains_key(name)
    }
}

impl Placeholders<'_> {
    /// Fills a template in one pass, so that a message may contain the text of a placeholder.
    fn fill(self, template: &str) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), template);
        let model = self.models.first().map(String::as_str);
        let small_model = self.models.get(1).map(String::as_str).or(model);
        let places = [("{message}", self.message), ("{model}", model), ("{small_model}", small_model)];
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let place = places.iter().find(|(name, _)| rest.starts_with(name));
            let (text, length) = match place {
                Some((name, value)) => ((*value)?, name.len()),
                None => ("{", 1),
            };
            filled.push_str(text);
            rest = &rest[length..];
        }
        Some(filled + rest)
    }
}

fn entries(value: Option<Value>) -> Result<Vec<Table>, AgentEntryError> {
    let Some(Value::Array(values)) = value else { return Err(AgentEntryError::NotATable) };
    let table = |value| if let Value::Table(table) = value { Ok(table) } else { Err(AgentEntryError::NotATable) };
    values.into_iter().map(table).collect()
}

/// Returns the id of an agent for the beginning of a reason.
fn label(agent: &str) -> String {
    if agent.is_empty() { String::new() } else { format!("{agent}: ") }
}

fn id(table: &Table) -> &str {
    table.get("agentId").and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether `asked` is the id of an agent, or its short form.
fn is_same(id: &str, asked: &str) -> bool {
    !asked.is_empty() && (id == asked || id.strip_prefix("sandbox:") == Some(asked))
}

/// Replaces the fields that `entry` states. Its variables are added to the agent's.
fn overlay(table: &mut Table, entry: Table) {
    // The build command of the catalogue builds only the image of the catalogue.
    if entry.contains_key("image") {
        table.remove("build");
    }
    for (name, value) in entry {
        match (name.as_str(), table.get_mut(&name), value) {
            ("agentId", ..) => {}
            ("env", Some(Value::Table(before)), Value::Table(more)) => before.extend(more),
            (_, _, value) => {
                table.insert(name, value);
            }
        }
    }
}

fn agent(table: Table) -> Result<CatalogueAgent, AgentEntryError> {
    let name = id(&table).to_owned();
    let mut agent: CatalogueAgent = table.try_into().map_err(|error: toml::de::Error| AgentEntryError::Fields {
        agent: name.clone(),
        message: error.message().to_owned(),
    })?;
    if agent.agent_id.is_empty() || agent.argv.is_empty() {
        return Err(AgentEntryError::Incomplete(name));
    }
    for variable in agent.env.keys() {
        if let Some(reason) = reserved_variable(variable) {
            return Err(AgentEntryError::Variable { agent: name, variable: variable.clone(), reason });
        }
    }
    for text in [&mut agent.graph_id, &mut agent.name] {
        if text.is_empty() {
            text.clone_from(&agent.agent_id);
        }
    }
    Ok(agent)
}

#[cfg(test)]
mod tests;
