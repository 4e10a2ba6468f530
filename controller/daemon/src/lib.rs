//! The daemon of Sluice: its listeners, its permissions, and the HTTP API around state and runs.
//!
//! A request goes `listener → connection → front → api`: accepted and counted, read within its limits, checked for its
//! source and its principal, then routed. Decisions are in pure files.

pub mod access;
mod agent_accounts;
pub mod api;
pub mod api_error;
mod approvals;
mod body_rule;
mod chat;
mod chat_followers;
pub mod chat_settings;
mod client_gone;
mod connection;
mod connection_clock;
mod connection_count;
pub mod context;
mod conversations;
mod credential;
pub mod daemon;
mod event_frames;
pub mod event_intake;
pub mod event_limits;
mod execs;
pub mod extract;
mod front;
mod git;
pub mod grants;
pub mod guardian;
pub mod heartbeats;
pub mod identity;
mod injection;
mod json_bounds;
mod kept_workspaces;
pub mod limits;
pub mod listen_plan;
mod listener;
pub mod live_run;
mod login_report;
pub mod loops;
pub mod monitor;
pub mod mount_table;
pub mod on_cap;
pub mod otel;
mod outbound;
mod pages;
pub mod pause;
mod peer_user;
pub mod permission;
pub mod principal;
pub mod questions;
pub mod readiness;
mod relay;
mod request_rate;
pub mod request_source;
pub mod run_policy;
mod run_refusal;
mod run_task;
pub mod runs;
mod second_person;
mod session_channel;
mod session_cookie;
mod sessions;
pub mod settings;
mod shell_command;
pub mod stop_signal;
pub mod stored_request;
mod stream_count;
mod systemd;
pub mod tasks;
mod timestamp;
pub mod tls;
mod tokens;
pub mod unix_socket;
pub mod upkeep;
pub mod variable_values;
pub mod webhooks;

pub use daemon::{Daemon, DaemonError, RunningDaemon};
pub use limits::HttpLimits;
pub use settings::{DaemonSettings, RunSettings};
pub use upkeep::UpkeepSettings;

#[cfg(test)]
mod test_daemon;
#[cfg(test)]
mod test_sidecar;
#[cfg(test)]
mod tests;
