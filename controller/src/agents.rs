//! The agents that can be asked: those of `agents/catalogue.toml`, and those of the configuration file.
//!
//! Pure. The configuration file can replace single fields of an agent of the catalogue, or add agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_runs::blueprint::reserved_variable;
use sluice_runs::verdict::Contract;
use toml::{Table, Value};

const CATALOGUE: &str = include_str!("agents/catalogue.toml");

/// An agent, and what it needs in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    /// Its id, `sandbox:NAME`; `--agent NAME` finds it, too.
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
    /// Its program and arguments, behind the image's entrypoint, with placeholders.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Whether its stdout is an envelope, or the answer itself.
    #[serde(default)]
    pub output: Contract,
    /// Variables that it needs, with placeholders. The user's own replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its image, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The command that builds its image, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The setting `memory`, unless the user sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The setting `timeout`, unless the user sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// The values of an agent's placeholders.
#[derive(Debug, Clone, Copy)]
pub struct Placeholders<'a> {
    /// The message of the run.
    pub message: Option<&'a str>,
    /// The models that it may name.
    pub models: &'a [String],
}

/// The id of the agent that answers where no other is named.
pub const DEFAULT: &str = "sandbox:agent";

/// The agents of the catalogue.
#[must_use]
pub fn catalogue() -> Vec<Agent> {
    read(Value::Array(Vec::new())).expect("a test reads the catalogue")
}

/// The agents of the catalogue, with what `[[agents]]` of the configuration file changes and adds.
///
/// # Errors
/// Which entry is wrong, and why.
pub fn read(configured: Value) -> Result<Vec<Agent>, String> {
    let mut tables = entries(CATALOGUE.parse::<Table>().ok().and_then(|mut file| file.remove("agents")))?;
    for entry in entries(Some(configured))? {
        match tables.iter_mut().find(|table| is_same(id(table), id(&entry))) {
            Some(table) => overlay(table, entry),
            None => tables.push(entry),
        }
    }
    tables.into_iter().map(agent).collect()
}

/// The agent that `--agent` names: by its id, or by the NAME of `sandbox:NAME`.
#[must_use]
pub fn find<'a>(agents: &'a [Agent], asked: &str) -> Option<&'a Agent> {
    let exact = agents.iter().find(|agent| agent.agent_id == asked);
    exact.or_else(|| agents.iter().find(|agent| is_same(&agent.agent_id, asked)))
}

impl Agent {
    /// Whether its arguments have a place for the message of a run; else it reads `messages.json`.
    #[must_use]
    pub fn takes_message(&self) -> bool {
        self.argv.iter().any(|argument| argument.contains("{message}"))
    }

    /// How a missing image of this agent is made.
    #[must_use]
    pub fn image_advice(&self) -> String {
        match (&self.build, &self.image) {
            (Some(build), _) => format!("build it: {build}"),
            (None, Some(_)) => "build it, or pull it".to_owned(),
            (None, None) => "build it: runtime-image/build.sh".to_owned(),
        }
    }

    /// Its program and arguments. An argument with a placeholder that has no value is left out.
    #[must_use]
    pub fn arguments(&self, values: Placeholders<'_>) -> Vec<String> {
        self.argv.iter().filter_map(|argument| values.fill(argument)).collect()
    }

    /// Its variables. One with a placeholder that has no value is left out.
    #[must_use]
    pub fn variables(&self, values: Placeholders<'_>) -> BTreeMap<String, String> {
        self.env.iter().filter_map(|(name, value)| Some((name.clone(), values.fill(value)?))).collect()
    }
}

impl Placeholders<'_> {
    /// One pass, so that a message may have the text of a placeholder.
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

fn entries(value: Option<Value>) -> Result<Vec<Table>, String> {
    let wrong = || "agents: write each agent as a table, [[agents]]".to_owned();
    let Some(Value::Array(values)) = value else { return Err(wrong()) };
    values.into_iter().map(|value| if let Value::Table(table) = value { Ok(table) } else { Err(wrong()) }).collect()
}

fn id(table: &Table) -> &str {
    table.get("agentId").and_then(Value::as_str).unwrap_or_default()
}

/// Whether `asked` is the id of an agent, or its short form.
fn is_same(id: &str, asked: &str) -> bool {
    !asked.is_empty() && (id == asked || id.strip_prefix("sandbox:") == Some(asked))
}

/// Replaces the fields that `entry` states. Its variables stand beside those of the agent.
fn overlay(table: &mut Table, entry: Table) {
    // The command builds the image of the catalogue, and no other one.
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

fn agent(table: Table) -> Result<Agent, String> {
    let name = id(&table).to_owned();
    let mut agent: Agent = table.try_into().map_err(|error: toml::de::Error| format!("agents: {}", error.message()))?;
    if agent.agent_id.is_empty() || agent.argv.is_empty() {
        return Err("agents: each one needs an agentId and an argv".to_owned());
    }
    for variable in agent.env.keys() {
        if let Some(reason) = reserved_variable(variable) {
            return Err(format!("agents: env of {name}: {variable} {reason}"));
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
