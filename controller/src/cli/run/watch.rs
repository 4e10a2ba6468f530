//! Progress of a run for its user: lines on a terminal, or JSON lines.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_contract::RunKey;
use sluice_runs::event_log::{EventLog, LogLevel};
use sluice_runs::observer::{Observation, Observer};
use sluice_runs::one_shot::RunRequest;
use sluice_runs::report::RunReport;
use tokio::sync::watch;

use super::super::progress::{self, StatusLine, TerminalProgress};
use super::super::stderr_log;
use super::args::RunArgs;

/// The view of one run on stderr.
pub(super) enum RunWatch {
    /// Nothing is shown.
    Silent,
    /// Lines on a terminal.
    Terminal(Arc<TerminalProgress>),
    /// JSON lines.
    Json(Arc<EventLog>),
}

impl RunWatch {
    /// Returns the view that the flags ask for.
    pub(super) fn new(args: &RunArgs, key: &RunKey, grace: Duration) -> Self {
        if Self::is_unwanted(args) {
            return Self::Silent;
        }
        match stderr_log::of_run(key) {
            Some(log) => Self::Json(Arc::new(log)),
            None if progress::is_visible() => Self::Terminal(Arc::new(TerminalProgress::start(grace))),
            None => Self::Silent,
        }
    }

    /// Returns whether the result of a run, with its error, is reported as an event.
    pub(super) fn has_result_event(args: &RunArgs) -> bool {
        stderr_log::is_json() && !Self::is_unwanted(args)
    }

    /// Returns whether nothing is reported. With a terminal, only the program draws on it.
    fn is_unwanted(args: &RunArgs) -> bool {
        args.quiet || args.tty
    }

    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        match self {
            Self::Silent => progress::silent(),
            Self::Terminal(progress) => Arc::clone(progress) as Arc<dyn Observer>,
            Self::Json(log) => Arc::clone(log) as Arc<dyn Observer>,
        }
    }

    /// Reports the request. The log has no arguments, because other users can often read it.
    pub(super) fn begin(&self, request: &RunRequest) {
        let RunRequest { key, agent, spec, .. } = request;
        if let Self::Json(log) = self {
            let members = json!({
                "account": spec.account, "agent": agent, "models": spec.models, "image": spec.image,
                "timeout_s": spec.timeout.as_secs(),
            });
            return log.write(LogLevel::Info, "run_started", members);
        }
        let observer = self.observer();
        observer.observe(Observation::Note(&format!("run {key}: {}", spec.argv.join(" "))));
        if spec.models.is_empty() {
            observer.observe(Observation::Note(
                "no --model: its calls may name each model of the upstream that has a plain name",
            ));
        }
    }

    /// Reports the result, where no receipt is printed.
    pub(super) fn end(&self, report: &RunReport) {
        let Self::Json(log) = self else { return };
        let level = if report.ok { LogLevel::Info } else { LogLevel::Error };
        let members = json!({
            "ok": report.ok, "exit_code": report.exit_code, "error_code": report.error_code,
            "error_message": report.error_message, "calls": report.receipts.len(), "refused": report.refused,
            "usage": report.usage, "cost_usd": report.cost_usd, "timings": report.timings, "audit": report.audit,
        });
        log.write(level, "run_ended", members);
    }

    /// Starts the status line, on a terminal.
    pub(super) fn status_line(&self, audit: PathBuf) -> Option<StatusLine> {
        match self {
            Self::Terminal(progress) => Some(StatusLine::start(progress, audit)),
            Self::Silent | Self::Json(_) => None,
        }
    }

    /// Reports that the user has requested the end a second time.
    pub(super) fn announce_kill(&self, mut kill_now: watch::Receiver<bool>) {
        let observer = self.observer();
        tokio::spawn(async move {
            if kill_now.wait_for(|now| *now).await.is_ok() {
                observer.observe(Observation::Note("killing the program"));
            }
        });
    }
}
