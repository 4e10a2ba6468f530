//! The flags of `sluice run`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::super::host_args::HostArgs;
use super::super::parse::{one_route, one_word};
use super::super::server_args::ServerArgs;
use crate::settings::separator;

const EXAMPLES: &str = "\
Examples:
  sluice run --model gpt-4o-mini \"say hello\"
  sluice run --model gpt-4o-mini --messages chat.json --json
  sluice run --agent claude --model claude-sonnet-4-5 --repo . --patch fix.diff \"fix the failing test\"
  sluice run --agent claude --model claude-sonnet-4-5 --repo .:rw < task.txt
  sluice run --model gpt-4o-mini --repo .:ro --timeout 10m -- python3 /workspace/repo/agent.py
  sluice run --quiet -- sha256sum < archive.tar
  sluice run -d --name nightly --model gpt-4o-mini -- make test; sluice logs -f nightly
  sluice run --memory 64m -- sh -c 'exit 42'; echo $?";

const EXIT_CODES: &str = "\
Exit codes: 0 ok; the program's own; 120 the audit log is incomplete, or the sidecar ended early;
121 a cap was reached, or the account's budget has too little left; 124 timeout; 125 it did not
start; 126 the program cannot be started; 127 no such program; 128+n ended by signal n. If the
output of a program cannot be written: 141 the reader is gone; 74 any other error, such as a full
disk, or if files of the run could not be brought out.";

/// Runs one agent, or one program, in a container without a network.
///
/// The answer goes to stdout; progress and a receipt go to stderr.
#[derive(Debug, Default, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(in crate::cli) struct RunArgs {
    /// The message to the agent; '-', or a pipe in its place, is stdin. Other users of the host can see MESSAGE in ps
    #[arg(value_name = "MESSAGE", conflicts_with_all = ["messages", "message_file"])]
    pub(super) message: Option<String>,
    /// A program and its arguments, in place of an agent; its output is the answer
    #[arg(last = true, value_name = "ARGV")]
    pub(super) argv: Vec<String>,
    /// A file with messages for the agent: a JSON array as in the OpenAI API; '-' is stdin
    #[arg(long, value_name = "FILE")]
    pub(super) messages: Option<PathBuf>,
    /// A file with the message to the agent, which keeps it out of sluice's own command line
    #[arg(long, value_name = "FILE", conflicts_with = "messages")]
    pub(super) message_file: Option<PathBuf>,
    /// Pass stdin to a program after --, also if it is a terminal; a pipe or a file is passed without this flag
    #[arg(long, short)]
    pub(super) interactive: bool,
    /// Give the terminal to a program after --, for its own user interface; with -i also the keys: -it
    #[arg(long, short)]
    pub(super) tty: bool,
    /// The agent, such as claude or codex; see sluice agents [default: sandbox:agent]
    #[arg(long, value_name = "ID")]
    pub(super) agent: Option<String>,
    /// A model that the run may use; repeat for more, the first one is SLUICE_MODEL [default: the setting model;
    /// without it, an agent and a run of the daemon need --model, and any other program may use each model with a plain
    /// name: no a2a/NAME, no NAME:online]
    #[arg(long, value_name = "NAME", value_parser = one_word)]
    pub(super) model: Vec<String>,
    /// The billing account that pays [default: default]
    #[arg(long, value_name = "ID")]
    pub(super) account: Option<String>,
    /// The id of the run, which can be used once [default: an id with the time]
    #[arg(long, value_name = "ID")]
    pub(super) run_id: Option<String>,
    /// Print one JSON object in place of the answer
    #[arg(long)]
    pub(super) json: bool,
    /// Print neither progress nor a receipt
    #[arg(long, short)]
    pub(super) quiet: bool,

    /// The image, which may be any one for a program after -- [default: the agent's image, or sluice-runtime:latest]
    #[arg(long, value_name = "IMAGE", help_heading = "The sandbox")]
    pub(super) image: Option<String>,
    /// An environment variable of the sandbox; NAME alone passes on the variable of this process; repeat for more
    #[arg(long, short, value_name = "NAME[=VALUE]", help_heading = "The sandbox")]
    pub(super) env: Vec<String>,
    /// A file with environment variables, one NAME=VALUE or NAME in a line; repeat for more
    #[arg(long, value_name = "FILE", help_heading = "The sandbox")]
    pub(super) env_file: Vec<PathBuf>,
    /// Copy a file to /workspace/NAME [default: its own name]; repeat for more
    #[arg(long, value_name = "FILE[:NAME]", help_heading = "Files in and out")]
    pub(super) file: Vec<String>,
    /// Write the changes of the run to the repository as a patch for git apply; the directory itself is not changed
    #[arg(long, value_name = "FILE", requires = "repo", help_heading = "Files in and out")]
    pub(super) patch: Option<PathBuf>,
    /// Copy the files that the run leaves in /workspace/out ($SLUICE_OUT) to a new or empty directory
    #[arg(long, value_name = "DIR", help_heading = "Files in and out")]
    pub(super) out: Option<PathBuf>,
    /// Keep the workspace after the run, and say where it is
    #[arg(long, help_heading = "Files in and out")]
    pub(super) keep_workspace: bool,
    /// A directory for /workspace/repo. Read-only, it is mounted; with :rw or --patch the run works on a copy, and with :rw
    /// its changes are made in the directory at the end. Or the address of a repository: the run works on a clone, with a
    /// branch of its own that it may push
    #[arg(long, value_name = "DIR[:ro|:rw]|URL[#BRANCH]", help_heading = "Files in and out")]
    pub(super) repo: Option<String>,
    /// The ticket of the task, for the name of the branch and the title of the pull request
    #[arg(long, value_name = "TICKET", requires = "repo", help_heading = "Branch and pull request")]
    pub(super) ticket: Option<String>,
    /// The title of the task, for the same
    #[arg(long, value_name = "TEXT", requires = "repo", help_heading = "Branch and pull request")]
    pub(super) title: Option<String>,
    /// The type of the task: feature, fix, hotfix, refactor, docs, test or chore [default: feature]
    #[arg(long = "type", value_name = "TYPE", requires = "repo", help_heading = "Branch and pull request")]
    pub(super) task_type: Option<String>,
    /// Publish the branch at the end, and open a draft of a pull request; a change of CI files needs sluice push
    #[arg(long, requires = "repo", help_heading = "Branch and pull request")]
    pub(super) pr: bool,
    /// Publication of the branch at the end: approve (by sluice push), auto or never [default: that of the project, or approve]
    #[arg(long, value_name = "RULE", requires = "repo", value_parser = ["approve", "auto", "never"], help_heading = "Branch and pull request")]
    pub(super) publish: Option<String>,
    /// Mount a directory or a file at another path, read-only unless it ends in :rw; repeat for more
    #[arg(long, short, value_name = "SOURCE:PATH[:ro|:rw]", help_heading = "The sandbox")]
    pub(super) volume: Vec<String>,
    /// Memory, swap included [default: the agent's value, or 512m]
    #[arg(long, value_name = "SIZE", help_heading = "The sandbox")]
    memory: Option<String>,
    /// Processors [default: 1]
    #[arg(long, value_name = "N", help_heading = "The sandbox")]
    cpus: Option<String>,
    /// Processes and threads [default: 256]
    #[arg(long, value_name = "N", help_heading = "The sandbox")]
    pids: Option<String>,
    /// A seccomp profile in place of the one that is built in
    #[arg(long, value_name = "FILE", help_heading = "The sandbox")]
    seccomp: Option<String>,

    /// Allow one more route, such as 'POST /v1/rerank', or 'GET /v1/responses/{id}' for the run's own ids; repeat for more
    #[arg(long, value_name = "METHOD /PATH", value_parser = one_route, help_heading = "What calls may say")]
    allow: Vec<String>,
    /// Allow tools of this type, which run outside the sandbox; repeat for more
    #[arg(long, value_name = "TYPE", value_parser = one_word, help_heading = "What calls may say")]
    allow_tool: Vec<String>,
    /// Allow this value of the header anthropic-beta; repeat for more
    #[arg(long, value_name = "VALUE", value_parser = one_word, help_heading = "What calls may say")]
    allow_beta: Vec<String>,
    /// Allow a member of bodies that is dropped or refused by default; repeat for more
    #[arg(long, value_name = "NAME", value_parser = one_word, help_heading = "What calls may say")]
    allow_param: Vec<String>,
    /// The members that bodies may have: openai (those of the public APIs), or vllm (also those of vLLM and SGLang)
    /// [default: openai]
    #[arg(long, value_name = "NAME", help_heading = "What calls may say")]
    dialect: Option<String>,
    /// Allow URLs in messages that the upstream or the provider will fetch
    #[arg(long, help_heading = "What calls may say")]
    allow_remote_media: bool,
    /// Pass a header of answers to the sandbox; repeat for more
    #[arg(long, value_name = "NAME", value_parser = one_word, help_heading = "What calls may say")]
    pass_response_header: Vec<String>,
    /// Maximum size of a call's body [default: 32MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    max_body: Option<String>,
    /// Maximum number of concurrent calls [default: 64]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_concurrency: Option<String>,
    /// Maximum time to the first byte of an answer [default: 600s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    first_byte_timeout: Option<String>,
    /// Maximum idle time within an answer [default: 300s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    idle_timeout: Option<String>,
    /// Maximum time that a call waits for other calls to end, if their reservations use up a cap [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    cap_wait: Option<String>,
    /// Output bound for calls of a run with a cap on tokens or dollars, which fits what is left: auto, or off
    /// [default: auto]
    #[arg(long, value_name = "WHEN", help_heading = "Limits")]
    bound_output: Option<String>,

    /// Maximum time of the program [default: the agent's value, or 120s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    timeout: Option<String>,
    /// Time that the program has to end after it is asked to; then it is killed [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    stop_grace: Option<String>,
    /// Maximum output that is kept for --json and for the answer of an agent: head and tail of stdout and stderr.
    /// The output of a program after -- is passed on in full [default: 2m]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    output_max: Option<String>,
    /// Maximum number of calls of the run
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_calls: Option<String>,
    /// Maximum number of tokens of the run, input and output
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_tokens: Option<String>,
    /// Maximum cost of the run in dollars
    #[arg(long, value_name = "X", help_heading = "Limits")]
    max_cost_usd: Option<String>,
    /// A file with prices for reservations [default: with --max-cost-usd, those of LiteLLM's GET /model/info]
    #[arg(long, value_name = "FILE", help_heading = "Limits")]
    prices: Option<String>,
    /// Maximum rate of calls, such as 5/s
    #[arg(long, value_name = "N/s", help_heading = "Limits")]
    rate: Option<String>,
    /// The key that the sidecar gets: the one of key_file (master), a virtual key of LiteLLM for this run (per-run), or a
    /// virtual key if LiteLLM makes one (auto) [default: master]
    #[arg(long, value_name = "MODE", help_heading = "The host")]
    key_mode: Option<String>,
    /// A JSON object for every spend row of the run, beside its own names. With -d, the metadata of the API: user_id,
    /// session_id, existing_trace_id, trace_user_id, tags, mask_input, mask_output, request_id
    #[arg(long, value_name = "JSON", help_heading = "The host")]
    metadata: Option<String>,
    /// When an audit line counts as written: on disk (call), or in the kernel (off) [default: call]
    #[arg(long, value_name = "WHEN", help_heading = "Limits")]
    audit_sync: Option<String>,

    /// Let a daemon drive the run, print its id, and return: sluice logs -f and sluice wait follow it. Of the other flags of a
    /// run, these apply: --messages, --message-file, --agent, --model, --image, --env, --env-file, --memory, --cpus, --pids,
    /// --timeout, --rate, --max-calls, --max-tokens, --max-cost-usd, --max-concurrency, --metadata, --keep-workspace and
    /// --json; any other is refused
    #[arg(long, short, conflicts_with_all = ["interactive", "tty", "quiet"], help_heading = "The daemon")]
    pub(super) detach: bool,
    /// A name for the run, unique among the live runs of its owner
    #[arg(long, value_name = "NAME", requires = "detach", help_heading = "The daemon")]
    pub(super) name: Option<String>,
    /// A registered agent whose run it is; admins may write OWNER/ID [default: an agent for this run only]
    #[arg(long = "as", value_name = "AGENT", requires = "detach", help_heading = "The daemon")]
    pub(super) as_agent: Option<String>,
    /// A label; repeat for more
    #[arg(long, value_name = "NAME=VALUE", requires = "detach", help_heading = "The daemon")]
    pub(super) label: Vec<String>,
    /// Runs with a higher number, from -100 to 100, begin first [default: 0]
    #[arg(long, value_name = "N", requires = "detach", allow_negative_numbers = true, help_heading = "The daemon")]
    pub(super) priority: Option<i64>,
    /// The full id of a run that must succeed first; repeat for more
    #[arg(long, value_name = "RUN", requires = "detach", help_heading = "The daemon")]
    pub(super) depends_on: Vec<String>,
    /// Treatment of a call that would exceed a cap: refuse, or ask, which lets it wait for sluice approve [default: refuse]
    #[arg(long, value_name = "WORD", requires = "detach", value_parser = ["refuse", "ask"], help_heading = "The daemon")]
    pub(super) on_cap: Option<String>,
    #[command(flatten)]
    pub(super) server: ServerArgs,
    #[command(flatten)]
    pub(super) host: HostArgs,
    /// Settings of an earlier run, in place of those of the environment and the file.
    #[arg(skip)]
    pub(super) recorded: BTreeMap<&'static str, String>,
}

impl RunArgs {
    /// Returns the flags of a run that has the settings of an earlier one.
    pub(super) fn with_settings(recorded: BTreeMap<&'static str, String>) -> Self {
        Self { recorded, ..Self::default() }
    }

    /// Returns whether a flag requests a branch.
    pub(super) fn wants_branch(&self) -> bool {
        self.pr || self.ticket.is_some() || self.title.is_some() || self.task_type.is_some() || self.publish.is_some()
    }

    /// Returns the flags that are settings, by the names of the settings.
    pub(super) fn settings(&self) -> BTreeMap<&'static str, String> {
        let flags = [
            ("agent", &self.agent),
            ("account", &self.account),
            ("image", &self.image),
            ("memory", &self.memory),
            ("cpus", &self.cpus),
            ("pids", &self.pids),
            ("seccomp", &self.seccomp),
            ("timeout", &self.timeout),
            ("stop_grace", &self.stop_grace),
            ("output_max", &self.output_max),
            ("max_calls", &self.max_calls),
            ("max_tokens", &self.max_tokens),
            ("max_cost_usd", &self.max_cost_usd),
            ("prices", &self.prices),
            ("rate", &self.rate),
            ("key_mode", &self.key_mode),
            ("audit_sync", &self.audit_sync),
            ("max_body", &self.max_body),
            ("max_concurrency", &self.max_concurrency),
            ("first_byte_timeout", &self.first_byte_timeout),
            ("idle_timeout", &self.idle_timeout),
            ("cap_wait", &self.cap_wait),
            ("bound_output", &self.bound_output),
            ("dialect", &self.dialect),
            ("metadata", &self.metadata),
            ("allow_remote_media", &self.allow_remote_media.then(|| true.to_string())),
        ];
        let flags = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        self.recorded.clone().into_iter().chain(flags).chain(self.lists()).collect()
    }

    /// Returns the given flags that a run of a daemon does not take.
    pub(super) fn not_for_daemons(&self) -> Vec<String> {
        const TAKEN: [&str; 14] = [
            "agent", "image", "model", "memory", "cpus", "pids", "timeout", "max_calls", "max_tokens", "max_cost_usd",
            "max_concurrency", "rate", "env", "metadata",
        ];
        let settings = self.settings().into_keys().filter(|name| !TAKEN.contains(name)).map(str::to_owned);
        let others = [
            ("run-id", self.run_id.is_some()),
            ("file", !self.file.is_empty()),
            ("patch", self.patch.is_some()),
            ("out", self.out.is_some()),
            ("repo", self.repo.is_some()),
            ("ticket", self.ticket.is_some()),
            ("title", self.title.is_some()),
            ("type", self.task_type.is_some()),
            ("pr", self.pr),
            ("publish", self.publish.is_some()),
            ("volume", !self.volume.is_empty()),
        ];
        let others = others.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name.to_owned());
        others.chain(settings).map(|name| format!("--{}", name.replace('_', "-"))).collect()
    }

    /// Returns the limits as the API takes them; `None` if no flag sets one.
    pub(super) fn limits_of_daemon(&self) -> Option<Map<String, Value>> {
        let limits = [
            ("timeout", &self.timeout),
            ("memory", &self.memory),
            ("cpus", &self.cpus),
            ("pids", &self.pids),
            ("max_calls", &self.max_calls),
            ("max_tokens", &self.max_tokens),
            ("max_concurrency", &self.max_concurrency),
            ("rate", &self.rate),
        ];
        let given = limits.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
        Some(given.collect::<Map<_, _>>()).filter(|limits| !limits.is_empty())
    }

    /// Returns the metadata of calls.
    pub(super) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// Returns the cap in dollars.
    pub(super) fn cap(&self) -> Option<String> {
        self.max_cost_usd.clone()
    }

    fn lists(&self) -> impl Iterator<Item = (&'static str, String)> {
        let lists = [
            ("model", &self.model),
            ("allow", &self.allow),
            ("allow_tool", &self.allow_tool),
            ("allow_beta", &self.allow_beta),
            ("allow_param", &self.allow_param),
            ("pass_response_header", &self.pass_response_header),
        ];
        lists.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let separator = separator(name).unwrap_or(' ').to_string();
            (name, values.join(&separator))
        })
    }
}
