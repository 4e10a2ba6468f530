//! Runs of a daemon on a real Docker Engine, while the daemon is killed.

#[path = "daemon_runs/exec.rs"]
mod exec;
#[path = "daemon_runs/killed.rs"]
mod killed;
#[path = "daemon_runs/support.rs"]
mod support;
