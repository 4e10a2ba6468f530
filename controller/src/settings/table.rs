//! All settings: names, environment variables, defaults.
//!
//! Pure.

use sluice_runs::sandbox_user;
use sluice_runs::sidecar_user::DEFAULT_UIDS;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct SettingItem {
    /// Name in the configuration file; with dashes, name of the flag.
    pub name: &'static str,
    /// Names of environment variables, Sluice's own first.
    pub variables: &'static [&'static str],
    /// Default value.
    pub default: Option<&'static str>,
    /// Description for people.
    pub help: &'static str,
}

macro_rules! items {
    ($($name:literal $variable:literal $(or $also:literal)? = $default:expr, $help:literal;)*) => {
        &[$(SettingItem { name: $name, variables: &[$variable $(, $also)?], default: $default, help: $help }),*]
    };
}

/// All settings, in the order in which they are shown.
pub const ITEMS: &[SettingItem] = items![
    "upstream" "SLUICE_UPSTREAM" = None, "where calls go: http://HOST:PORT, https://HOST or unix:/PATH; a final /v1 is left out";
    "ca" "SLUICE_CA" = None, "a file with the certificates to trust for an https upstream, in place of the system's";
    "key_file" "SLUICE_KEY_FILE" = None, "a file with the upstream's key, readable by its owner alone";
    "key" "SLUICE_KEY" = None, "the key itself; it has no flag, since every user of the host can read command lines";
    "key_mode" "SLUICE_KEY_MODE" = Some("master"), "the key that a sidecar gets: master (the one of key_file), per-run (a virtual key), auto";
    "spend_key_file" "SLUICE_SPEND_KEY_FILE" = None, "a file with a key that may read LiteLLM's spend log; default: the upstream's key";
    "reconcile" "SLUICE_RECONCILE" = Some("auto"), "whether runs, sweeps and the daemon look up open costs in LiteLLM's spend log: auto or off";
    "state_dir" "SLUICE_STATE_DIR" = Some("/var/lib/sluice"), "where runs, audit files and the database are";
    "docker_host" "SLUICE_DOCKER_HOST" or "DOCKER_HOST" = Some("unix:///var/run/docker.sock"), "the Docker Engine's socket";
    "proxy" "SLUICE_PROXY" = None, "the sidecar's program; default: the sluice-proxy beside sluice, or on PATH";
    "sidecar_uid" "SLUICE_SIDECAR_UID" = Some(DEFAULT_UIDS), "the users of sidecars, one for each run: FIRST-LAST, or one id";
    "sidecar_gid" "SLUICE_SIDECAR_GID" = None, "the group of all sidecars; default: the number of each sidecar's user";
    "listen" "SLUICE_LISTEN" = Some("127.0.0.1:8787"), "the TCP addresses of the daemon, HOST:PORT each; beyond loopback it needs a token and TLS";
    "run_dir" "SLUICE_RUN_DIR" = Some("/run/sluice"), "the directory of the daemon's sockets, for its user alone";
    "tls_cert" "SLUICE_TLS_CERT" = None, "the certificate of the daemon and those that certify it, as PEM";
    "tls_key" "SLUICE_TLS_KEY" = None, "the key of tls_cert, as PEM, readable by its owner alone";
    "behind_proxy" "SLUICE_BEHIND_PROXY" = None, "the origin of a proxy on this host that ends TLS before the daemon: https://NAME";
    "sandbox_enabled" "SLUICE_SANDBOX_ENABLED" = Some("false"), "whether the daemon creates sandboxes: true or false; sluice run always does";
    "images" "SLUICE_IMAGES" = None, "images that requests to the daemon may name beside those of agents: NAME@sha256:DIGEST, or the id of a local one";
    "limits_max" "SLUICE_LIMITS_MAX" = None, "the highest limits of the daemon's runs, also if a request names none, NAME=VALUE each: timeout, memory, cpus, pids, max_calls, max_tokens, max_concurrency, rate, workspace, max_cost_usd; default: run_deadline for timeout, and the largest values that the settings give to runs for the others";
    "max_running" "SLUICE_MAX_RUNNING" = Some("host=20 owner=20 project=5"), "runs of the daemon that may be at work: a number for the host, or NAME=VALUE for host, owner, project";
    "max_queued" "SLUICE_MAX_QUEUED" = Some("1000"), "runs of one owner that may wait in the queue of the daemon";
    "run_deadline" "SLUICE_RUN_DEADLINE" = Some("2h"), "longest time from the first claim of a daemon's run to its end, retries included; at most 24h";
    "workspace_max" "SLUICE_WORKSPACE_MAX" = Some("10g"), "bytes that the workspace of a daemon's run may take on disk, unless its request has limits.workspace";
    "run_idle_timeout" "SLUICE_RUN_IDLE_TIMEOUT" = Some("10m"), "time without work after which a run of the daemon ends, unless its request has limits.idle or ttl_minutes; 0 for never";
    "stuck_timeout" "SLUICE_STUCK_TIMEOUT" = Some("15m"), "the same for a run whose worker says that it works; 0 for never";
    "heartbeat_timeout" "SLUICE_HEARTBEAT_TIMEOUT" = Some("120s"), "time without a heartbeat and without a call after which a run of the daemon ends whose worker sent heartbeats; 0 for never";
    "stale_start" "SLUICE_STALE_START" = Some("3m"), "longest time from the claim of a daemon's run to the start of its program";
    "on_cap" "SLUICE_ON_CAP" = Some("refuse"), "what happens with a call of a daemon's run that would exceed a cap: refuse, or ask (it waits for an approval), unless its request has on_cap";
    "ask_timeout" "SLUICE_ASK_TIMEOUT" = Some("24h"), "how long approvals and questions of the daemon's runs are open; at most 24h; an undecided approval is denied";
    "second_person_usd" "SLUICE_SECOND_PERSON_USD" = None, "dollars above which a raised cap needs the approval of another person than the run's owner and its creator";
    "session_approval_max" "SLUICE_SESSION_APPROVAL_MAX" = None, "dollars up to which a browser session may raise a cap of a cost; without it, each raise needs a token";
    "grant_roots" "SLUICE_GRANT_ROOTS" = None, "directories of the host under which grants of agents may be; without any, there are no grants";
    "uid_range" "SLUICE_UID_RANGE" = Some(sandbox_user::DEFAULT_UIDS), "the users of programs in the daemon's runs, one for each run: FIRST-LAST";
    "metrics_public" "SLUICE_METRICS_PUBLIC" = Some("false"), "whether everyone who reaches the daemon may read /metrics: true or false; otherwise it needs a token of the role admin or metrics";
    "viewer_files" "SLUICE_VIEWER_FILES" = Some("true"), "whether viewers may list and read files of workspaces: true or false; events and diffs, which can quote files, are not limited";
    "chat_remote" "SLUICE_CHAT_REMOTE" = Some("defang"), "what happens with images and HTML in the text of an agent that a chat shows: defang (they become text, outside of fenced code), or keep";
    "chat_hang_up" "SLUICE_CHAT_HANG_UP" = Some("cancel"), "what happens with the run of a chat whose client disconnects: cancel, or keep";
    "chat_resume" "SLUICE_CHAT_RESUME" = Some("30s"), "how long the run of a chat that hung up waits for its client, if that can come back";
    "chat_session" "SLUICE_CHAT_SESSION" = Some("workspace"), "what a turn of a chat with a session passes to the next one: workspace, worker (the running agent, which gets the next turn as a message), or none";
    "chat_session_idle" "SLUICE_CHAT_SESSION_IDLE" = Some("10m"), "how long the worker of a chat session waits for the next turn before it ends; at most 12h";
    "chat_session_keep" "SLUICE_CHAT_SESSION_KEEP" = Some("7d"), "how long the workspace of a chat session is kept after its last turn";
    "chat_session_max" "SLUICE_CHAT_SESSION_MAX" = Some("100"), "how many workspaces of chat sessions are kept for one token, and how many workers live; a new one takes the place of the longest unused";
    "chat_session_space" "SLUICE_CHAT_SESSION_SPACE" = Some("4g"), "how many bytes these workspaces of one token may have together; a larger workspace is not kept";
    "event_rate" "SLUICE_EVENT_RATE" = Some("1200"), "how many events the agent of a run may report in a minute";
    "event_keep" "SLUICE_EVENT_KEEP" = Some("30d"), "how long events that agents report are kept; those of the daemon itself are kept for 90 days at least";
    "events_per_run" "SLUICE_EVENTS_PER_RUN" = Some("100000"), "how many events of a run's agent are kept; a new one removes the oldest";
    "event_disk_free" "SLUICE_EVENT_DISK_FREE" = Some("10"), "how many percent of the disk are free while events of agents are taken, 0 to 50; a disk with 5 GiB free always takes them";
    "image" "SLUICE_IMAGE" = Some("sluice-runtime:latest"), "the image that agents run in";
    "seccomp" "SLUICE_SECCOMP" = None, "a seccomp profile in place of the one that is built in";
    "agent" "SLUICE_AGENT" = Some("sandbox:agent"), "the agent that answers messages";
    "model" "SLUICE_MODEL" = None, "the models that a run may name; the first one is SLUICE_MODEL in the sandbox";
    "account" "SLUICE_ACCOUNT" = Some("default"), "the billing account that pays";
    "timeout" "SLUICE_TIMEOUT" = Some("120s"), "how long a run may take";
    "stop_grace" "SLUICE_STOP_GRACE" = Some("1s"), "how long a program may take to end after it is asked to";
    "memory" "SLUICE_MEMORY" = Some("512m"), "memory of a run, swap included";
    "cpus" "SLUICE_CPUS" = Some("1"), "processors of a run";
    "pids" "SLUICE_PIDS" = Some("256"), "processes and threads of a run";
    "output_max" "SLUICE_OUTPUT_MAX" = Some("2m"), "how much of stdout and stderr is kept for --json and for agents: head and tail, half of it each";
    "record_keep" "SLUICE_RECORD_KEEP" = Some("14d"), "how long the record of a run is kept: request, result, output, logs; 0 keeps none; those of the daemon are kept for an hour at least";
    "record_output" "SLUICE_RECORD_OUTPUT" = Some("256k"), "how much of stdout, and of stderr, the records of sluice run have: the beginning and the end; those of the daemon have output_max";
    "artifacts_max" "SLUICE_ARTIFACTS_MAX" = Some("256m"), "how much of the files in /workspace/out a run of the daemon keeps in its record; 0 keeps none";
    "log_format" "SLUICE_LOG_FORMAT" = Some("text"), "format of messages on stderr: text, or json for one object per line";
    "max_calls" "SLUICE_MAX_CALLS" = None, "maximum number of calls of a run";
    "max_tokens" "SLUICE_MAX_TOKENS" = None, "maximum number of tokens of a run, input and output";
    "max_cost_usd" "SLUICE_MAX_COST_USD" = None, "maximum cost of a run in dollars";
    "hold_usd" "SLUICE_HOLD_USD" = Some("1"), "dollars that a run without max_cost_usd reserves from its account's budget";
    "prices" "SLUICE_PRICES" = None, "a file with prices for reservations, in place of LiteLLM's GET /model/info: the same JSON";
    "rate" "SLUICE_RATE" = None, "maximum rate of a run's calls, such as 5/s";
    "sidecar_memory" "SLUICE_SIDECAR_MEMORY" = None, "memory of a run's sidecar, such as 1g, or none; default: what its other limits need";
    "allow" "SLUICE_ALLOW" = None, "further routes for runs, such as 'POST /v1/rerank'";
    "allow_tool" "SLUICE_ALLOW_TOOL" = None, "types of tools that calls may name in addition to those that the agent runs";
    "allow_beta" "SLUICE_ALLOW_BETA" = None, "further values of the header anthropic-beta";
    "allow_param" "SLUICE_ALLOW_PARAM" = None, "members of bodies that are dropped or refused by default";
    "dialect" "SLUICE_DIALECT" = None, "the members that bodies may have: openai, or vllm for self-hosted models; default: openai";
    "allow_remote_media" "SLUICE_ALLOW_REMOTE_MEDIA" = None, "whether messages may contain URLs that the provider fetches: true or false";
    "pass_response_header" "SLUICE_PASS_RESPONSE_HEADER" = None, "further headers of answers that a sandbox sees";
    "max_body" "SLUICE_MAX_BODY" = None, "maximum size of a call's body; default: 32MiB";
    "max_concurrency" "SLUICE_MAX_CONCURRENCY" = None, "maximum number of concurrent calls of a run; default: 64";
    "first_byte_timeout" "SLUICE_FIRST_BYTE_TIMEOUT" = None, "maximum time to the first byte of an answer; default: 600s";
    "idle_timeout" "SLUICE_IDLE_TIMEOUT" = None, "maximum idle time within an answer; default: 300s";
    "cap_wait" "SLUICE_CAP_WAIT" = None, "how long a call waits for other calls to end if their reservations use up a cap; default: 30s";
    "bound_output" "SLUICE_BOUND_OUTPUT" = None, "whether the sidecar of a run with a cap writes output bounds that fit what is left into calls: auto or off; default: auto";
    "metadata" "SLUICE_METADATA" = None, "a JSON object for every spend row of a run, beside its own names, such as {\"team\":\"search\"}";
    "audit_sync" "SLUICE_AUDIT_SYNC" = Some("call"), "when an audit line counts as written: call (on disk), or off (in the kernel)";
];

/// Settings that become flags of the sidecar as they are; the sidecar checks them.
pub(super) const SIDECAR_FLAGS: [&str; 13] = [
    "allow", "allow_tool", "allow_beta", "allow_param", "pass_response_header", "max_body", "max_concurrency",
    "first_byte_timeout", "idle_timeout", "cap_wait", "bound_output", "dialect", "metadata",
];

/// Returns the character between the values of a setting that takes several. The sidecar's variables use the same ones.
#[must_use]
pub fn separator(name: &str) -> Option<char> {
    match name {
        "allow" => Some(';'),
        "grant_roots" => Some(':'),
        "images"
        | "limits_max"
        | "max_running"
        | "listen"
        | "model"
        | "allow_tool"
        | "allow_beta"
        | "allow_param"
        | "pass_response_header" => Some(' '),
        _ => None,
    }
}

/// Returns whether a list replaces the lower layers' lists, and is not added to them.
pub(super) fn replaces(name: &str) -> bool {
    matches!(name, "listen" | "model" | "images" | "grant_roots") || is_table(name)
}

/// Returns whether the configuration file may give a setting as a table: its text is `NAME=VALUE` for each member.
pub(super) fn is_table(name: &str) -> bool {
    matches!(name, "limits_max" | "max_running")
}

/// Returns the setting of this name.
pub(super) fn find(name: &str) -> Option<&'static SettingItem> {
    ITEMS.iter().find(|item| item.name == name)
}
