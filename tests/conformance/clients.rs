//! The clients that Sluice makes promises about: each is started as its users start it, with all settings at their
//! defaults.

use super::commands::{Agent, ai_sdk, aider, claude, codex, node_sdk, python_sdk};

/// URL of the counter before the sidecar, which records each request of a client.
pub(crate) const COUNTED: &str = "http://localhost:9000";

/// A client, and what a test expects of it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Command line of the client.
    pub(crate) agent: Agent,
    /// Route of its calls.
    pub(crate) route: &'static str,
    /// Beginning of the text that the client prints for an error with status 400.
    pub(crate) error: &'static str,
    /// True if the client exits with a nonzero code after such an error.
    pub(crate) fails: bool,
}

impl Client {
    fn new(agent: Agent, route: &'static str, error: &'static str) -> Self {
        Self { agent, route, error, fails: true }
    }

    /// Name of the agent and of its task.
    pub(crate) fn name(&self) -> &str {
        &self.agent.name
    }
}

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Claude Code, Codex and aider: agents that work on files.
pub(crate) fn agents() -> Vec<Client> {
    let aider = Client::new(aider("openai/gpt-5.5"), CHAT, "litellm.BadRequestError: ");
    vec![
        Client::new(claude("claude-sonnet-5"), MESSAGES, "API Error: 400 "),
        Client::new(codex("gpt-6.1-sol", COUNTED), RESPONSES, "ERROR: {"),
        Client { fails: false, ..aider },
    ]
}

/// All clients: the agents, and a program of ours for each SDK.
pub(crate) fn all() -> Vec<Client> {
    let sdk = "BadRequestError: ";
    let ai = "AI_APICallError";
    let sdks = [
        Client::new(python_sdk("openai", "gpt-5.5"), CHAT, sdk),
        Client::new(python_sdk("anthropic", "claude-sonnet-5"), MESSAGES, sdk),
        Client::new(node_sdk("openai", "gpt-5.5"), RESPONSES, sdk),
        Client::new(node_sdk("anthropic", "claude-sonnet-5"), MESSAGES, sdk),
        Client::new(ai_sdk("gpt-5.5"), RESPONSES, ai),
        Client::new(ai_sdk("claude-sonnet-5"), MESSAGES, ai),
    ];
    agents().into_iter().chain(sdks).collect()
}
