//! One attempt of a run: prepared, driven to its end, and concluded.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::exit;
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_runs::admission;
use sluice_runs::daemon_run::DaemonRun;
use sluice_runs::exchange::watch::WatchShare;
use sluice_runs::outcome::CompletedRun;
use sluice_runs::record::RunRecorder;
use sluice_runs::run_image::choose_bridge;
use sluice_runs::stop::StopPolicy;
use sluice_runs::verdict::ErrorCode;
use sluice_state::budget::Admitted;
use sluice_state::run::Cancel;
use sluice_state::sandboxes::{
    DesiredState, NextAttempt, Sandbox, SandboxError, SandboxState, SandboxStep, SandboxVerdict,
};
use sluice_state::store::now_us;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::after_attempt::{failure_code, remove_workspace};
use super::chat_workspace::keep_for_session;
use super::failure_text::failure_text;
use super::kept_commits::bound_kept;
use super::last_look::with_last_look;
use super::receipts::post_again;
use super::resumed::resume;
use super::retries::{Retry, wait_before_retry};
use super::run_signals::{RunSignal, run_signals};
use super::service::{PlannedRun, RunService, shown};
use super::steps::{is_retryable, take_step};
use super::stored_request_error::StoredRequestError;
use crate::context::ApiContext;
use crate::git;
use crate::live_run::{LiveRun, RequestedTimes};
use crate::mount_table::MountTable;
use crate::run_refusal::RunRefusal;
use crate::stored_request::StoredRequest;

mod adoption;
mod follow;

/// Pause before a step that could not be recorded is recorded again: the disk may have room by then.
const STORAGE_AGAIN: Duration = Duration::from_secs(1);

/// One attempt of a run.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) context: Arc<ApiContext>,
    pub(super) service: RunService,
    pub(super) run: Sandbox,
    pub(super) cancelled: watch::Receiver<Option<Cancel>>,
    pub(super) live: Arc<LiveRun>,
    /// State that the watches of all workspaces share.
    pub(super) watches: Arc<WatchShare>,
}

impl Attempt {
    /// Drives an attempt that was claimed. `generation` is the generation of its row.
    pub(super) async fn begin(self, generation: u32) {
        let (verdict, retry) = match self.prepare(generation).await {
            Ok((run, mut signals)) => {
                let driven = self.driven(run);
                let ended = Box::pin(self.follow(driven, &mut signals, self.keeper(), self.files())).await;
                (self.verdict(ended).await, Retry::ByCode)
            }
            Err(refusal) => {
                self.close().await;
                match refusal {
                    RunRefusal::Owner(message) => {
                        let code = ErrorCode::CreationFailed.as_str().to_owned();
                        (SandboxVerdict::Failed { code, message: Some(message) }, Retry::Never)
                    }
                    RunRefusal::Host(error) => (self.failed(ErrorCode::CreationFailed, &error), Retry::ByCode),
                    RunRefusal::Final(error) => (self.failed(ErrorCode::CreationFailed, &error), Retry::Never),
                }
            }
        };
        self.conclude(verdict, retry).await;
    }

    async fn prepare(&self, generation: u32) -> Result<(DaemonRun, mpsc::UnboundedReceiver<RunSignal>), RunRefusal> {
        let Self { context, service, run, .. } = self;
        let stored = self.stored().await?;
        let variables = context.variables.get(&run.key.run_id).unwrap_or_default();
        if let Some(lost) = stored.variables.iter().find(|name| !variables.contains_key(*name)) {
            return Err(RunRefusal::Owner(format!(
                "the value of the variable {lost} was lost when the daemon was restarted: values are kept in memory alone; \
                 create the run anew"
            )));
        }
        self.check_mounts(&stored.mounts).await?;
        let planned = service.planner.plan(run, &stored, &variables).map_err(|error| RunRefusal::Owner(error.0))?;
        let PlannedRun { mut request, record } = planned;
        let host = &service.host;
        request.spec.exchange.keep = stored.keep_workspace;
        resume(host, &stored, &mut request.spec.exchange)?;
        if let Some(repository) = &stored.repository {
            request.spec.clone = Some(Arc::new(git::begin(context, run, repository).await?));
            request.spec.exchange.has_clone = true;
        }
        let warning = choose_bridge(&host.engine, &host.proxy, &mut request).await.map_err(RunRefusal::host)?;
        warning.iter().for_each(|text| (context.log)(&format!("{}: {text}", shown(&run.key))));
        admission::check(host, &request).await.map_err(RunRefusal::host)?;
        if let Some(daemon) = &mut request.spec.daemon {
            daemon.relay_token = Some(context.store.create_run_token(&run.key).await.map_err(RunRefusal::host)?);
        }
        let messages = request.spec.messages.as_deref();
        let recorder = RunRecorder::begin_logged(&host.layout.records(), &run.key, &record, messages)
            .map_err(|error| RunRefusal::Host(format!("the record of the run cannot be written: {error}")))?;
        let (observer, signals) = run_signals(&self.live);
        let observer = with_last_look(observer, context, &run.key);
        let run = DaemonRun {
            host: Arc::clone(host),
            request,
            admitted: Admitted { cap: run.attempt_cap },
            generation,
            stop: StopPolicy::after(service.stop_grace),
            clock: Arc::clone(self.live.clock()),
            recorder,
            observer,
        };
        Ok((run, signals))
    }

    /// Checks that the granted directories can still be mounted: without them, the run would not match its request.
    async fn check_mounts(&self, table: &MountTable) -> Result<(), RunRefusal> {
        let policy = self.context.policy.as_ref();
        let policy = policy.ok_or_else(|| RunRefusal::Host("the daemon creates no sandboxes any more".to_owned()))?;
        policy.grants.check_table(table).await.map_err(RunRefusal::host)
    }

    /// Posts the receipts of a run that is over, and returns its verdict.
    async fn complete(&self, completed: CompletedRun) -> SandboxVerdict {
        let CompletedRun { report, posting, revoking, notes } = completed;
        self.context.monitor.record_timings(&report.timings);
        let unposted = match posting {
            Some(posting) => posting.done().await.err(),
            None => None,
        };
        if let Some(revoking) = revoking
            && let Ok(Err(error)) = revoking.await
        {
            (self.context.log)(&format!("{}: its virtual key is not deleted: {error}", shown(&self.run.key)));
        }
        if let Some(error) = unposted {
            let text = error_chain(&error);
            (self.context.log)(&format!("{}: the ledger has not taken its receipts: {text}", shown(&self.run.key)));
            post_again(&self.service.host, error).await;
        }
        remove_workspace(&self.context, &self.run.key).await;
        match &report.exchange.git {
            Some(commits) => {
                Box::pin(git::complete(&self.context, &self.run, commits, report.error_code.is_none())).await;
            }
            None => Box::pin(git::complete_stored(&self.context, &self.run, report.error_code.is_none())).await,
        }
        notes.iter().for_each(|note| (self.context.log)(&format!("{}: {note}", shown(&self.run.key))));
        match report.error_code {
            None => SandboxVerdict::Success,
            Some(code) if code == ErrorCode::Cancelled.as_str() => SandboxVerdict::Cancelled,
            Some(code) => {
                let code = failure_code(&self.context, &self.run.key, code).await;
                let error = report.error_message.unwrap_or_default();
                (self.context.log)(&format!("{}: {code}: {error}", shown(&self.run.key)));
                SandboxVerdict::Failed { code: code.to_owned(), message: Some(failure_text(code, report.exit_code)) }
            }
        }
    }

    /// Records the end of the attempt: another one follows, or the run is over. The verdict that was recorded first stays.
    /// Waits while the disk is full, because only this task knows the result.
    async fn conclude(&self, verdict: SandboxVerdict, retry: Retry) {
        keep_for_session(&self.context, &self.run.key, verdict == SandboxVerdict::Success).await;
        bound_kept(&self.context, &self.run).await;
        let mut is_reported = false;
        loop {
            let concluded = self.try_conclude(&verdict, retry).await;
            match &concluded {
                Ok(true) => return self.context.variables.forget(&self.run.key.run_id),
                Ok(false) => return,
                Err(error) if is_retryable(error) => {}
                Err(_) => return self.report(concluded.map(drop)),
            }
            if !is_reported {
                self.report(concluded.map(drop));
                is_reported = true;
            }
            sleep(STORAGE_AGAIN).await;
        }
    }

    /// Returns true if the run has ended, and false if another attempt follows.
    async fn try_conclude(&self, verdict: &SandboxVerdict, retry: Retry) -> Result<bool, SandboxError> {
        let run_id = &self.run.key.run_id;
        let (store, reason) = (&self.context.store, verdict.failure().0.unwrap_or(verdict.outcome()).to_owned());
        let decide = |run: &Sandbox| {
            let may_decide = run.state.is_active() && run.verdict.is_none();
            may_decide.then(|| SandboxStep::Decide(verdict.clone()))
        };
        let run = take_step(store, run_id, &reason, decide).await?;
        if run.state != SandboxState::Completing {
            return Ok(true);
        }
        if let Some(next) = self.next_attempt(&run, retry) {
            match store.retry_sandbox(run_id, run.generation, next, now_us()).await {
                Ok(_) => return Ok(false),
                Err(error) if is_retryable(&error) => return Err(error),
                Err(
                    SandboxError::RetriesSpent(_)
                    | SandboxError::CapSpent
                    | SandboxError::Budget(_)
                    | SandboxError::StaleGeneration { .. }
                    | SandboxError::IllegalStep(_),
                ) => {}
                Err(error) => return Err(error),
            }
        }
        self.finish(&reason).await.map(|()| true)
    }

    fn next_attempt(&self, run: &Sandbox, retry: Retry) -> Option<NextAttempt> {
        let (Some(SandboxVerdict::Failed { code, .. }), DesiredState::Running, Retry::ByCode) =
            (&run.verdict, run.desired_state, retry)
        else {
            return None;
        };
        let wait = wait_before_retry(code, &run.retry_on, run.key.attempt, run.max_retries)?;
        let next_try_us = now_us().saturating_add(duration_micros(wait));
        Some(NextAttempt { daemon: self.service.host.owner.clone(), next_try_us, reason: code.clone() })
    }

    async fn finish(&self, reason: &str) -> Result<(), SandboxError> {
        let finish = |run: &Sandbox| (run.state == SandboxState::Completing).then_some(SandboxStep::Finish);
        take_step(&self.context.store, &self.run.key.run_id, reason, finish).await.map(|_| ())
    }

    async fn stored(&self) -> Result<StoredRequest, StoredRequestError> {
        let text = self.context.store.sandbox_request(&self.run.key.run_id).await?;
        let stored: StoredRequest = serde_json::from_str(&text.ok_or(StoredRequestError::Missing)?)?;
        self.live.set_limits(RequestedTimes::of(&stored), stored.limits.workspace);
        Ok(stored)
    }

    /// Logs an error, and returns the verdict for the owner of the run.
    fn failed(&self, code: ErrorCode, error: &str) -> SandboxVerdict {
        let code = code.as_str();
        (self.context.log)(&format!("{}: {code}: {error}", shown(&self.run.key)));
        SandboxVerdict::Failed { code: code.to_owned(), message: Some(failure_text(code, exit::NOT_STARTED.into())) }
    }

    fn report(&self, done: Result<(), SandboxError>) {
        if let Err(error) = done {
            (self.context.log)(&format!("{}: {}", shown(&self.run.key), error_chain(&error)));
        }
    }
}
