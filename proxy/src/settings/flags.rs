//! The flags, with their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sluice_contract::Usd;

use super::units;
use crate::abort::AbortMode;
use crate::audit::SyncMode;
use crate::body::params::ServerKind;
use crate::caps::OutputBounds;
use crate::harden::UserChoice;
use crate::hold::OnCap;

const EXAMPLES: &str = "\
Examples:
  # carry the calls of run r1, billed to acct-1, to a LiteLLM on this host; the key comes by stdin
  printf '%s' \"$LITELLM_KEY\" | sluice-proxy --run-id r1 --account acct-1 \\
      --socket /run/r1/llm.sock --upstream http://127.0.0.1:4000 --audit /var/log/sluice/r1.0.jsonl

  # one model, at most 100 calls and 2 dollars, by the prices of LiteLLM's GET /model/info
  sluice-proxy … --model gpt-4o-mini --max-calls 100 --max-cost-usd 2 --prices prices.json

  # say what the flags would do, and bind nothing: exit 0; 78 a start would fail; 64 usage
  sluice-proxy check …

  # in a sandbox, lead localhost:8080 to a sidecar's socket; see sluice-proxy bridge --help
  sluice-proxy bridge --socket /llm-sock/llm.sock -- python3 app.py

  # call it
  curl --unix-socket /run/r1/llm.sock http://localhost/v1/chat/completions \\
      -d '{\"model\":\"gpt-4o-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'";

const EXITS: &str = "\
Each flag can also be set in the environment, as SLUICE_SOCKET, SLUICE_RUN_ID and so on; the flag wins.

Exit codes: 0 ended in order · 3 calls had to be cut · 64 usage · 66 a file is not there · 70 internal
  73 cannot create the socket · 74 audit log · 77 permission · 78 configuration";

/// The Sluice sidecar: one unix socket, one run, one upstream; every call is recorded before it is sent.
#[derive(Debug, Parser)]
#[command(
    name = "sluice-proxy",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SLUICE_BUILD"), ")"),
    before_help = EXAMPLES,
    after_help = EXITS,
    max_term_width = 100,
    help_template = "{about}\n\n{before-help}{usage-heading} sluice-proxy [check] [OPTIONS]\n\n{all-args}{after-help}"
)]
#[allow(missing_docs, reason = "the help texts are the docs")]
pub struct ProxyFlags {
    /// Path to listen on, of at most 107 bytes, in a directory that exists
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET", help_heading = "The run")]
    pub socket: PathBuf,
    /// Destination of calls: http://HOST:PORT, https://HOST or unix:/PATH; a final /v1 is left out
    #[arg(long, value_name = "URL", env = "SLUICE_UPSTREAM", help_heading = "The run")]
    pub upstream: String,
    /// The audit file to create, or to continue after a crash, in a directory that no sandbox sees: not in the
    /// socket's
    #[arg(long, value_name = "PATH", env = "SLUICE_AUDIT", help_heading = "The run")]
    pub audit: PathBuf,
    /// The run: 1 to 63 of a-z, 0-9, '_' and '-'
    #[arg(long, value_name = "ID", env = "SLUICE_RUN_ID", help_heading = "The run")]
    pub run_id: String,
    /// The billing account that pays
    #[arg(long, value_name = "ID", env = "SLUICE_ACCOUNT", help_heading = "The run")]
    pub account: String,
    /// Number of the run's start
    #[arg(long, value_name = "N", default_value_t = 0, env = "SLUICE_ATTEMPT", help_heading = "The run")]
    pub attempt: u32,
    /// The graph that the run belongs to
    #[arg(long, value_name = "G", default_value = "sandbox:agent", env = "SLUICE_GRAPH_ID", help_heading = "The run")]
    pub graph_id: String,
    /// A JSON object for every spend row, beside the run's own names
    #[arg(
        long,
        value_name = "JSON",
        env = "SLUICE_METADATA",
        conflicts_with = "metadata_file",
        help_heading = "The run"
    )]
    pub metadata: Option<String>,
    /// The same, from a file
    #[arg(long, value_name = "FILE", env = "SLUICE_METADATA_FILE", help_heading = "The run")]
    pub metadata_file: Option<PathBuf>,
    /// File with the upstream's key in one line, readable only for its owner; '-' is stdin, read once to its end
    #[arg(long, value_name = "PATH", default_value = "-", env = "SLUICE_KEY_FILE", help_heading = "The run")]
    pub key_file: Option<PathBuf>,

    /// A model that may be named; repeat for more [default: any one plain name]
    #[arg(long, value_name = "NAME", env = "SLUICE_MODEL", value_delimiter = ' ', help_heading = "What calls may say")]
    pub model: Vec<String>,
    /// Open one more route, such as 'POST /v1/rerank', or 'GET /v1/responses/{id}' for the run's own ids; repeat for more
    #[arg(
        long,
        value_name = "METHOD /PATH",
        env = "SLUICE_ALLOW",
        value_delimiter = ';',
        help_heading = "What calls may say"
    )]
    pub allow: Vec<String>,
    /// Pass a body member that is dropped or refused otherwise; thinking.NAME is a member of another one
    #[arg(
        long,
        value_name = "NAME",
        env = "SLUICE_ALLOW_PARAM",
        value_delimiter = ' ',
        help_heading = "What calls may say"
    )]
    pub allow_param: Vec<String>,
    /// Pass an anthropic-beta value, beside those of the SDK and Claude Code
    #[arg(
        long,
        value_name = "VALUE",
        env = "SLUICE_ALLOW_BETA",
        value_delimiter = ' ',
        help_heading = "What calls may say"
    )]
    pub allow_beta: Vec<String>,
    /// Pass tools of this type, beside those that the agent runs; they run outside the sandbox, and the URLs that
    /// they found can be sent back only with --allow-remote-media
    #[arg(
        long,
        value_name = "TYPE",
        env = "SLUICE_ALLOW_TOOL",
        value_delimiter = ' ',
        help_heading = "What calls may say"
    )]
    pub allow_tool: Vec<String>,
    /// Members that bodies may have: those of the public APIs, or also those of vLLM and SGLang (min_p,
    /// chat_template_kwargs, structured_outputs, …)
    #[arg(long, value_enum, default_value_t = DialectFlag::Openai, env = "SLUICE_DIALECT", help_heading = "What calls may say")]
    pub dialect: DialectFlag,
    /// Allow URLs in messages that the upstream or the provider will fetch
    #[arg(long, env = "SLUICE_ALLOW_REMOTE_MEDIA", help_heading = "What calls may say")]
    pub allow_remote_media: bool,
    /// Pass a header of the response to the sandbox
    #[arg(
        long,
        value_name = "NAME",
        env = "SLUICE_PASS_RESPONSE_HEADER",
        value_delimiter = ' ',
        help_heading = "What calls may say"
    )]
    pub pass_response_header: Vec<String>,

    /// Maximum number of calls of the whole run
    #[arg(long, value_name = "N", env = "SLUICE_MAX_CALLS", help_heading = "Caps")]
    pub max_calls: Option<u64>,
    /// Maximum number of tokens of the whole run, input and output
    #[arg(long, value_name = "N", env = "SLUICE_MAX_TOKENS", help_heading = "Caps")]
    pub max_tokens: Option<u64>,
    /// Maximum cost of the whole run, in dollars
    #[arg(long, value_name = "X", value_parser = units::usd, env = "SLUICE_MAX_COST_USD", help_heading = "Caps")]
    pub max_cost_usd: Option<Usd>,
    /// Prices for reservations: the JSON of LiteLLM's GET /model/info
    #[arg(long, value_name = "FILE", env = "SLUICE_PRICES", help_heading = "Caps")]
    pub prices: Option<PathBuf>,
    /// In a run with a cap on tokens or dollars, write an output bound that fits what is left into calls that name none,
    /// or a larger one (auto); or never (off): then a call whose bound does not fit is refused
    #[arg(long, value_enum, default_value_t = BoundsFlag::Auto, env = "SLUICE_BOUND_OUTPUT", help_heading = "Caps")]
    pub bound_output: BoundsFlag,
    /// Treatment of a call that meets a cap of calls, tokens or dollars: it is refused, or it waits for the operator,
    /// who raises the cap or denies the call by the control socket
    #[arg(long, value_enum, default_value_t = OnCapFlag::Refuse, env = "SLUICE_ON_CAP", help_heading = "Caps")]
    pub on_cap: OnCapFlag,
    /// Maximum number of calls at once
    #[arg(long, value_name = "N", default_value_t = 64, env = "SLUICE_MAX_CONCURRENCY", help_heading = "Caps")]
    pub max_concurrency: usize,
    /// Maximum number of calls a second, such as 5/s, with a burst of the same size
    #[arg(long, value_name = "N/s", value_parser = units::rate, env = "SLUICE_RATE", help_heading = "Caps")]
    pub rate: Option<u64>,
    /// Maximum size of a request body; four of them may be held at once
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "32MiB", env = "SLUICE_MAX_BODY", help_heading = "Caps")]
    pub max_body: u64,
    /// Maximum memory of the sidecar, or 'none'; a sidecar that needs more aborts [default: as much as the other
    /// limits need]
    #[arg(long, value_name = "SIZE", value_parser = units::memory, env = "SLUICE_MAX_MEMORY", help_heading = "Caps")]
    pub max_memory: Option<units::MemoryLimit>,
    /// Time after which the run ends, in seconds or as 10m
    #[arg(long, value_name = "SECS", value_parser = units::nonzero_duration, env = "SLUICE_DEADLINE", help_heading = "Caps")]
    pub deadline: Option<Duration>,

    /// Maximum silence until a connection is made
    #[arg(long, value_name = "TIME", value_parser = units::nonzero_duration, default_value = "5s", env = "SLUICE_CONNECT_TIMEOUT", help_heading = "Times")]
    pub connect_timeout: Duration,
    /// Maximum silence until the head of the response; long prefill is legitimate
    #[arg(long, value_name = "TIME", value_parser = units::nonzero_duration, default_value = "600s", env = "SLUICE_FIRST_BYTE_TIMEOUT", help_heading = "Times")]
    pub first_byte_timeout: Duration,
    /// Maximum silence in the middle of a response or a request
    #[arg(long, value_name = "TIME", value_parser = units::nonzero_duration, default_value = "300s", env = "SLUICE_IDLE_TIMEOUT", help_heading = "Times")]
    pub idle_timeout: Duration,
    /// Time that a call waits for others to end, if their reservations leave too little of a cap
    #[arg(long, value_name = "TIME", value_parser = sluice_contract::units::time, default_value = "30s", env = "SLUICE_CAP_WAIT", help_heading = "Times")]
    pub cap_wait: Duration,
    /// Longest time that a call waits for the operator, at a cap or while the run is paused; at most 290s, since clients
    /// give up on an answer after 300s
    #[arg(long, value_name = "TIME", value_parser = units::hold, default_value = "240s", env = "SLUICE_HOLD", help_heading = "Times")]
    pub hold: Duration,
    /// Time that open calls may continue after SIGTERM or the deadline
    #[arg(long, value_name = "TIME", value_parser = sluice_contract::units::time, default_value = "10s", env = "SLUICE_DRAIN", help_heading = "Times")]
    pub drain: Duration,
    /// When a client leaves: read the response on to its usage, within 30 s and 4 MiB, or close at once
    #[arg(long, value_enum, default_value_t = AbortFlag::Drain, env = "SLUICE_ABORT", help_heading = "Times")]
    pub abort: AbortFlag,

    /// Point from which a record counts as written: on disk at each call, or in the kernel
    #[arg(long, value_enum, default_value_t = SyncFlag::Call, env = "SLUICE_AUDIT_SYNC", help_heading = "The host")]
    pub audit_sync: SyncFlag,
    /// The key that signs the end of the audit file: an Ed25519 seed, one line of 64 hex digits; a second line may certify
    /// the key for this run and attempt
    #[arg(long, value_name = "FILE", env = "SLUICE_AUDIT_KEY_FILE", help_heading = "The host")]
    pub audit_key_file: Option<PathBuf>,
    /// Mode of the socket, independent of the umask [default: 0600, or 0666 if the users who may connect are listed]
    #[arg(long, value_name = "MODE", value_parser = units::mode, env = "SLUICE_SOCKET_MODE", help_heading = "The host")]
    pub socket_mode: Option<u32>,
    /// A user that may connect; repeat for more [default: every user whom the mode lets in]
    #[arg(long, value_name = "UID", env = "SLUICE_PEER_UID", value_delimiter = ' ', help_heading = "The host")]
    pub peer_uid: Vec<u32>,
    /// A second socket, by which the operator sees the state, raises caps, and decides on calls that wait, in a directory that no sandbox sees: not in the
    /// socket's. Only the user that starts the sidecar may connect
    #[arg(long, value_name = "PATH", env = "SLUICE_CONTROL", help_heading = "The host")]
    pub control: Option<PathBuf>,
    /// Certificates to trust for https, instead of the system's
    #[arg(long, value_name = "FILE", env = "SLUICE_CA", help_heading = "The host")]
    pub ca: Option<PathBuf>,
    /// The controller, for /api/v1/sandboxes/RUN/(events|messages|interventions|questions|task) and pushes to /git/RUN.git
    #[arg(long, value_name = "URL", env = "SLUICE_RELAY", help_heading = "The host")]
    pub relay: Option<String>,
    /// File with the run's token for the controller
    #[arg(long, value_name = "FILE", env = "SLUICE_RELAY_TOKEN_FILE", help_heading = "The host")]
    pub relay_token_file: Option<PathBuf>,
    /// File of the operator's log, or 'stderr'
    #[arg(long, value_name = "FILE|stderr", default_value = "stderr", env = "SLUICE_LOG", help_heading = "The host")]
    pub log: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SLUICE_LOG_LEVEL", help_heading = "The host")]
    pub log_level: tracing::Level,
    /// Become this user, who should own nothing, once files and socket are open; needs root. The socket's directory
    /// should be writable for the user, who removes the socket at the end. 'root' stays root, without capabilities
    /// [default: 65521 if root starts it, or else the user who does]
    #[arg(long, value_name = "UID[:GID]", env = "SLUICE_USER", help_heading = "The host")]
    pub user: Option<UserChoice>,
    /// End, in order, when the process that started this one ends
    #[arg(long, env = "SLUICE_DIE_WITH_PARENT", help_heading = "The host")]
    pub die_with_parent: bool,
}

/// `--dialect`
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the values of the flag")]
pub enum DialectFlag {
    Openai,
    Vllm,
}

/// `--abort`
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the values of the flag")]
pub enum AbortFlag {
    Drain,
    Cancel,
}

/// `--bound-output`
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the values of the flag")]
pub enum BoundsFlag {
    Auto,
    Off,
}

/// `--on-cap`
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the values of the flag")]
pub enum OnCapFlag {
    Refuse,
    Ask,
}

/// `--audit-sync`
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the values of the flag")]
pub enum SyncFlag {
    Call,
    Off,
}

impl From<DialectFlag> for ServerKind {
    fn from(flag: DialectFlag) -> Self {
        match flag {
            DialectFlag::Openai => Self::OpenAi,
            DialectFlag::Vllm => Self::Vllm,
        }
    }
}

impl From<BoundsFlag> for OutputBounds {
    fn from(flag: BoundsFlag) -> Self {
        match flag {
            BoundsFlag::Auto => Self::Auto,
            BoundsFlag::Off => Self::Off,
        }
    }
}

impl From<OnCapFlag> for OnCap {
    fn from(flag: OnCapFlag) -> Self {
        match flag {
            OnCapFlag::Refuse => Self::Refuse,
            OnCapFlag::Ask => Self::Ask,
        }
    }
}

impl From<AbortFlag> for AbortMode {
    fn from(flag: AbortFlag) -> Self {
        match flag {
            AbortFlag::Drain => Self::Drain,
            AbortFlag::Cancel => Self::Cancel,
        }
    }
}

impl From<SyncFlag> for SyncMode {
    fn from(flag: SyncFlag) -> Self {
        match flag {
            SyncFlag::Call => Self::Call,
            SyncFlag::Off => Self::Off,
        }
    }
}
