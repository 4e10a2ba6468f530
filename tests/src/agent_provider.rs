//! The provider that leads real agents through a task (`tests/python/agent_provider.py`), called by a real LiteLLM.

use std::process::Command;

use serde_json::Value;
use tokio::sync::OnceCell;

use crate::leash::{Leash, python, python_file};
use crate::litellm::{LiteLlm, json_lines};

/// A provider, and the LiteLLM that calls it.
#[derive(Debug)]
pub struct AgentProvider {
    litellm: LiteLlm,
    provider: Leash,
}

/// Tokens that the provider billed for one answer; each token is counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderBill {
    /// Input that was in no cache.
    pub fresh: u64,
    /// Input that was read from a cache.
    pub cached: u64,
    /// Input that was written to a cache.
    pub written: u64,
    /// Output, with the tokens of thinking.
    pub output: u64,
}

impl AgentProvider {
    /// Returns the instance that this test process shares; the first caller starts it.
    ///
    /// # Panics
    /// As [`LiteLlm::shared`].
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<AgentProvider, String>> = OnceCell::const_new();
        match SHARED.get_or_init(Self::start).await {
            Ok(provider) => provider,
            Err(why) => panic!("{why}"),
        }
    }

    async fn start() -> Result<Self, String> {
        let (provider, port) = Leash::start_listening(
            |directory| {
                let mut command = Command::new(python());
                command.arg(python_file("agent_provider.py")).arg(directory.join("requests.jsonl"));
                command
            },
            "listening on 127.0.0.1:",
        )
        .await?;
        let litellm = LiteLlm::with_provider(&format!("http://127.0.0.1:{port}")).await;
        Ok(Self { litellm, provider })
    }

    /// The LiteLLM whose models this provider answers.
    pub fn litellm(&self) -> &LiteLlm {
        &self.litellm
    }

    /// Every request of one task that reached the provider; the fields are those of `agent_provider.py`.
    pub fn requests(&self, task: &str) -> Vec<Value> {
        let mut requests = json_lines(&self.provider.directory().join("requests.jsonl"));
        requests.retain(|request| request["task"] == task);
        requests
    }
}

impl ProviderBill {
    /// Returns the provider's bill for a request; `None` if the request cost nothing.
    ///
    /// # Panics
    /// When a bill lacks a member.
    pub fn of(request: &Value) -> Option<Self> {
        let bill = request["bill"].as_object()?;
        let tokens = |name: &str| bill[name].as_u64().expect("a bill is made of counts");
        let [fresh, cached, written, output] = ["fresh", "cached", "written", "output"].map(tokens);
        Some(Self { fresh, cached, written, output })
    }
}
