//! The command line of each agent in a sandbox, from the directories that `tests/setup/agents.sh` made.

use std::path::{Path, PathBuf};

/// An agent without its prompt.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    /// Name of the agent's task: letters, digits and dashes.
    pub(crate) name: String,
    /// Flags of `sluice run`, except the flags for mounts and variables.
    flags: Vec<String>,
    /// Directories of this host that the sandbox sees read-only, each with its path there.
    pub(crate) mounts: Vec<(PathBuf, String)>,
    /// Variables of the sandbox.
    pub(crate) env: Vec<(String, String)>,
    /// The program in the sandbox with its arguments; the prompt follows them.
    pub(crate) argv: Vec<String>,
    /// Options of the task: see `tests/python/agent_provider.py`.
    pub(crate) options: String,
    /// Arguments after the prompt.
    pub(crate) after: Vec<String>,
}

impl Agent {
    fn new<A: AsRef<str>>(name: &str, argv: impl IntoIterator<Item = A>) -> Self {
        let argv = argv.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let name = name.replace(['.', ':', '/'], "-");
        let (flags, mounts, env, after) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { name, flags, mounts, env, argv, options: String::new(), after }
    }

    /// Returns all flags of `sluice run`; `--volume` and `--env` are flags of `docker run` as well.
    pub(crate) fn all_flags(&self) -> Vec<String> {
        let mounts =
            self.mounts.iter().map(|(host, at)| ["--volume".to_owned(), format!("{}:{at}:ro", host.display())]);
        let env = self.env.iter().map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")]);
        self.flags.iter().cloned().chain(mounts.chain(env).flatten()).collect()
    }

    /// Adds options of the task, and a name that distinguishes the tasks of one agent.
    pub(crate) fn with(mut self, name: &str, options: &str) -> Self {
        self.name = format!("{}-{name}", self.name);
        self.options = format!("{} {options}", self.options).trim().to_owned();
        self
    }

    /// Adds flags of `sluice run`.
    pub(crate) fn flags<A: AsRef<str>>(mut self, flags: impl IntoIterator<Item = A>) -> Self {
        self.flags.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        self
    }

    /// Adds arguments after the prompt.
    pub(crate) fn after<A: AsRef<str>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.after.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Mounts a directory of `.cache/agents` at the path `at` in the sandbox.
    fn sees(mut self, directory: &str, at: &str) -> Self {
        let made = format!("{}/../.cache/agents/{directory}", env!("CARGO_MANIFEST_DIR"));
        assert!(
            Path::new(&made).exists(),
            "the agents are missing: run `make test` or `make test-agents`, or tests/setup/agents.sh all"
        );
        self.mounts.push((made.into(), at.to_owned()));
        self
    }

    /// Mounts `tests/agents`, our own programs, at `/opt/agents`.
    fn sees_programs(mut self) -> Self {
        self.mounts.push((format!("{}/agents", env!("CARGO_MANIFEST_DIR")).into(), "/opt/agents".to_owned()));
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn native(short: &str) -> String {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    format!("/opt/node_modules/{short}-linux-{machine}")
}

/// Codex, with the flags of the guide; `base` is the URL of its calls without `/v1`.
pub(crate) fn codex(model: &str, base: &str) -> Agent {
    let triple = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86_64" };
    let program = format!("{}/vendor/{triple}-unknown-linux-musl/bin/codex", native("@openai/codex"));
    let provider = format!(
        "model_providers.sluice={{name=\"sluice\",base_url=\"{base}/v1\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}}"
    );
    Agent::new(
        &format!("codex-{model}"),
        [
            &program,
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-m",
            model,
            "-c",
            "model_provider=sluice",
            "-c",
            &provider,
            "-c",
            "web_search=disabled",
        ],
    )
    .sees("short/node_modules", "/opt/node_modules")
}

/// Claude Code.
pub(crate) fn claude(model: &str) -> Agent {
    let program = format!("{}/claude", native("@anthropic-ai/claude-code"));
    Agent::new(&format!("claude-{model}"), [&program, "--dangerously-skip-permissions", "--model", model, "-p"])
        .sees("short/node_modules", "/opt/node_modules")
}

/// A program of ours on Vercel's AI SDK.
pub(crate) fn ai_sdk(model: &str) -> Agent {
    Agent::new(&format!("ai-sdk-{model}"), ["node", "/opt/agents/ai_sdk.mjs", model])
        .sees("short/node_modules", "/opt/node_modules")
        .sees_programs()
}

/// A program of ours that makes one call with an SDK of OpenAI or Anthropic (`vendor`), as it is installed, for Node.
pub(crate) fn node_sdk(vendor: &str, model: &str) -> Agent {
    Agent::new(&format!("{vendor}-node"), ["node", "/opt/agents/one_call.mjs", vendor, model])
        .sees("short/node_modules", "/opt/node_modules")
        .sees_programs()
}

/// A program of ours that makes one call with an SDK of OpenAI or Anthropic (`vendor`) for Python.
pub(crate) fn python_sdk(vendor: &str, model: &str) -> Agent {
    Agent::new(&format!("{vendor}-python"), ["python3", "-B", "/opt/agents/one_call.py", vendor, model])
        .sees("frameworks", "/opt/python")
        .sees_programs()
        .env("PYTHONPATH", "/opt/python")
}

fn framework(name: &str, program: &str, model: &str) -> Agent {
    Agent::new(&format!("{name}-{model}"), ["python3", "-B", &format!("/opt/agents/{program}"), model])
        .sees("frameworks", "/opt/python")
        .sees_programs()
        .env("PYTHONPATH", "/opt/python")
}

/// A program of ours on LangGraph.
pub(crate) fn langgraph(model: &str) -> Agent {
    framework("langgraph", "langgraph_agent.py", model)
}

/// A program of ours on pydantic-ai.
pub(crate) fn pydantic_ai(model: &str) -> Agent {
    framework("pydantic-ai", "pydantic_agent.py", model)
}

/// A program of ours on OpenAI's Agents SDK for Python; `api` is `chat` or `responses`.
pub(crate) fn agents_sdk(model: &str, api: &str) -> Agent {
    // The SDK sends traces to OpenAI, and waits for seconds at its end if it cannot.
    framework(&format!("agents-sdk-{api}"), "openai_agents.py", model)
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1")
        .env("AGENT_API", api)
}

/// A program of ours on OpenAI's Agents SDK for JavaScript.
pub(crate) fn agents_sdk_js(model: &str) -> Agent {
    Agent::new(&format!("agents-sdk-js-{model}"), ["node", "/opt/agents/openai_agents.mjs", model])
        .sees("long/node_modules", "/opt/node_modules")
        .sees_programs()
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1")
}

/// opencode; it needs more memory than others.
pub(crate) fn opencode(model: &str) -> Agent {
    let program = format!("{}/bin/opencode", native("opencode"));
    // The image's configuration names the model of the run for titles.
    let of_provider = model.split_once('/').map_or(model, |(_, name)| name);
    Agent::new(&format!("opencode-{model}"), [&program, "run", "-m", model])
        .sees("long/node_modules", "/opt/node_modules")
        .flags(["--model", of_provider])
}

/// aider, which edits by text and has no tools.
pub(crate) fn aider(model: &str) -> Agent {
    let start = "git init -q . && exec python3 -B -m aider \"$@\"";
    let flags = ["--no-check-update", "--no-show-model-warnings", "--yes-always", "--edit-format", "diff"];
    Agent::new(&format!("aider-{model}"), ["sh", "-c", start, "aider", "--model", model])
        .more(flags)
        .more(["--message"])
        .with("edit", "edit")
        .sees("aider", "/opt/python")
        .env("PYTHONPATH", "/opt/python")
        .env("AIDER_ANALYTICS", "false")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
}

/// mini-swe-agent.
pub(crate) fn mini_swe_agent(model: &str) -> Agent {
    let argv = ["python3", "-B", "-m", "minisweagent.run.mini", "-y", "--exit-immediately", "-m", model, "-t"];
    Agent::new(&format!("mini-{model}"), argv)
        .sees("mini", "/opt/python")
        .env("PYTHONPATH", "/opt/python")
        .env("MSWEA_CONFIGURED", "true")
        .env("MSWEA_COST_TRACKING", "ignore_errors")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
}

impl Agent {
    fn more<A: AsRef<str>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }
}
