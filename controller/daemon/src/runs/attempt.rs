//! One attempt of a run: prepared, driven to its end, and concluded.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::exit;
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_runs::admission;
use sluice_runs::daemon_run::{self, Adopted, DaemonResumption, DaemonRun};
use sluice_runs::observer::{NoObserver, Observation, Observer};
use sluice_runs::outcome::CompletedRun;
use sluice_runs::record::RunRecorder;
use sluice_runs::removal;
use sluice_runs::run_image::choose_bridge;
use sluice_runs::stop::StopPolicy;
use sluice_runs::verdict::{ErrorCode, LimitValues};
use sluice_state::budget::Admitted;
use sluice_state::run::{Cancel, Phase};
use sluice_state::sandboxes::{
    DesiredState, NextAttempt, Sandbox, SandboxError, SandboxState, SandboxStep, SandboxVerdict,
};
use sluice_state::store::{KnownRun, OpenRun, now_us};
use tokio::sync::{mpsc, watch};

use super::call_events::CallReporter;
use super::failure_text::failure_text;
use super::live_run::LiveRun;
use super::retries::wait_before_retry;
use super::service::{PlannedRun, RunService, shown};
use super::steps::take_step;
use crate::context::ApiContext;
use crate::stored_request::StoredRequest;

/// One attempt of a run.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) context: Arc<ApiContext>,
    pub(super) service: RunService,
    pub(super) run: Sandbox,
    pub(super) cancelled: watch::Receiver<Option<Cancel>>,
    pub(super) live: Arc<LiveRun>,
}

/// Reason that an attempt cannot begin.
#[derive(Debug)]
enum Refusal {
    /// For the owner of the run. No other attempt could begin either.
    Owner(String),
    /// For the operator.
    Host(String),
}

/// Another attempt after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// As the word of the failure says.
    ByCode,
    /// None: it would fail for the same reason.
    Never,
}

impl Refusal {
    fn host<E: std::error::Error>(error: E) -> Self {
        Self::Host(error_chain(&error))
    }
}

/// Reports that the program of a run has started.
#[derive(Debug)]
struct StartObserver(mpsc::UnboundedSender<()>);

impl Observer for StartObserver {
    fn observe(&self, observation: Observation<'_>) {
        if let Observation::Entered { phase: Phase::Running, .. } = observation {
            // Nobody waits for it after the end of the attempt.
            let _ = self.0.send(());
        }
    }
}

impl Attempt {
    /// Drives a run that was claimed, whose row has this generation.
    pub(super) async fn begin(self, generation: u32) {
        let (verdict, retry) = match self.prepare(generation).await {
            Ok((run, mut started)) => {
                let cancelled = self.cancelled.clone();
                (self.drive(daemon_run::run(run, cancelled), &mut started).await, Retry::ByCode)
            }
            Err(refusal) => {
                self.take_down().await;
                match refusal {
                    Refusal::Owner(message) => {
                        let code = ErrorCode::CreationFailed.as_str().to_owned();
                        (SandboxVerdict::Failed { code, message: Some(message) }, Retry::Never)
                    }
                    Refusal::Host(error) => (self.failed(ErrorCode::CreationFailed, &error), Retry::ByCode),
                }
            }
        };
        self.conclude(verdict, retry).await;
    }

    /// Goes on with a run that an earlier daemon began. `None` if nothing of the attempt is open any more.
    pub(super) async fn resume(self, open: Option<OpenRun>) {
        let Some(open) = open else {
            let verdict = self.recorded_verdict().await;
            return self.conclude(verdict, Retry::ByCode).await;
        };
        let (observer, mut started) = start_observer();
        let resumption = match self.stored().await {
            Ok(stored) => self.resumption(&stored, observer),
            Err(message) => {
                self.take_down().await;
                return self.conclude(self.failed(ErrorCode::Internal, &message), Retry::ByCode).await;
            }
        };
        let resumed = daemon_run::resume(Arc::clone(&self.service.host), open, resumption, self.cancelled.clone());
        let mut driven = Box::pin(resumed);
        let mut calls = self.calls();
        let adopted = loop {
            tokio::select! {
                adopted = &mut driven => break adopted,
                Some(()) = started.recv() => self.start().await,
                never = calls.follow() => match never {},
            }
        };
        calls.finish().await;
        let verdict = match adopted {
            Ok(Adopted::Completed(completed)) => self.complete(*completed).await,
            Ok(Adopted::TakenDown(_)) => {
                self.failed(ErrorCode::Internal, "the daemon ended while it created or removed the run")
            }
            Err(error) => self.failed(ErrorCode::Internal, &error_chain(&error)),
        };
        self.conclude(verdict, Retry::ByCode).await;
    }

    fn resumption(&self, stored: &StoredRequest, observer: Arc<dyn Observer>) -> DaemonResumption {
        let limits = LimitValues {
            timeout: Some(Duration::from_secs(stored.limits.timeout_s)),
            memory: Some(stored.limits.memory),
            output: Some(self.service.output_max),
        };
        DaemonResumption {
            contract: self.service.planner.contract(stored),
            limits,
            output_max: self.service.output_max,
            stop: StopPolicy::after(self.service.stop_grace),
            observer,
        }
    }

    async fn prepare(&self, generation: u32) -> Result<(DaemonRun, mpsc::UnboundedReceiver<()>), Refusal> {
        let Self { context, service, run, .. } = self;
        let stored = self.stored().await.map_err(Refusal::Host)?;
        let variables = context.variables.get(&run.key.run_id).unwrap_or_default();
        if let Some(lost) = stored.variables.iter().find(|name| !variables.contains_key(*name)) {
            return Err(Refusal::Owner(format!(
                "the value of the variable {lost} was lost when the daemon was restarted: values are kept in memory alone; \
                 create the run anew"
            )));
        }
        let planned = service.planner.plan(run, &stored, &variables).map_err(|error| Refusal::Owner(error.0))?;
        let PlannedRun { mut request, record } = planned;
        let host = &service.host;
        let warning = choose_bridge(&host.engine, &host.proxy, &mut request).await.map_err(Refusal::host)?;
        warning.iter().for_each(|text| (context.log)(&format!("{}: {text}", shown(&run.key))));
        admission::check(host, &request).await.map_err(Refusal::host)?;
        let messages = request.spec.messages.as_deref();
        let recorder = RunRecorder::begin_logged(&host.layout.records(), &run.key, &record, messages)
            .map_err(|error| Refusal::Host(format!("the record of the run cannot be written: {error}")))?;
        let (observer, started) = start_observer();
        let run = DaemonRun {
            host: Arc::clone(host),
            request,
            admitted: Admitted { cap: run.attempt_cap },
            generation,
            stop: StopPolicy::after(service.stop_grace),
            recorder,
            observer,
        };
        Ok((run, started))
    }

    async fn drive<E: std::error::Error>(
        &self,
        driven: impl Future<Output = Result<CompletedRun, E>>,
        started: &mut mpsc::UnboundedReceiver<()>,
    ) -> SandboxVerdict {
        let mut driven = Box::pin(driven);
        let mut calls = self.calls();
        let completed = loop {
            tokio::select! {
                completed = &mut driven => break completed,
                Some(()) = started.recv() => self.start().await,
                never = calls.follow() => match never {},
            }
        };
        calls.finish().await;
        match completed {
            Ok(completed) => self.complete(completed).await,
            Err(error) => self.failed(ErrorCode::Internal, &error_chain(&error)),
        }
    }

    fn calls(&self) -> CallReporter {
        CallReporter::new(Arc::clone(&self.context), self.run.clone(), Arc::clone(&self.live))
    }

    async fn start(&self) {
        let start = |run: &Sandbox| (run.state == SandboxState::Creating).then_some(SandboxStep::Start);
        let started = take_step(&self.context.store, &self.run.key.run_id, "the program has started", start).await;
        self.report(started.map(|_| ()));
    }

    /// Posts the receipts of a run that is over, and returns its verdict.
    async fn complete(&self, completed: CompletedRun) -> SandboxVerdict {
        let CompletedRun { report, posting, revoking, notes } = completed;
        if let Some(posting) = posting
            && let Err(error) = posting.done().await
        {
            let error = error_chain(&error);
            (self.context.log)(&format!("{}: the ledger has not taken its receipts: {error}", shown(&self.run.key)));
        }
        if let Some(revoking) = revoking
            && let Ok(Err(error)) = revoking.await
        {
            (self.context.log)(&format!("{}: its virtual key is not deleted: {error}", shown(&self.run.key)));
        }
        self.remove_workspace().await;
        notes.iter().for_each(|note| (self.context.log)(&format!("{}: {note}", shown(&self.run.key))));
        match report.error_code {
            None => SandboxVerdict::Success,
            Some(code) if code == ErrorCode::Cancelled.as_str() => SandboxVerdict::Cancelled,
            Some(code) => {
                let error = report.error_message.unwrap_or_default();
                (self.context.log)(&format!("{}: {code}: {error}", shown(&self.run.key)));
                SandboxVerdict::Failed { code: code.to_owned(), message: Some(failure_text(code, report.exit_code)) }
            }
        }
    }

    /// Deletes the directory that was renamed at the end of the run. What cannot be deleted is left to a sweep.
    async fn remove_workspace(&self) {
        let (runs, own) = (self.context.layout.runs_directory(), self.run.key.to_string());
        let removing = tokio::task::spawn_blocking(move || removal::remove_all(&runs, Some(&own), None));
        let remaining = removing.await.unwrap_or_default().into_iter().find(|it| it.name == self.run.key.to_string());
        if let Some(remaining) = remaining {
            (self.context.log)(&format!(
                "{}: its directory is not removed: {}",
                shown(&self.run.key),
                remaining.reason
            ));
        }
    }

    /// Records the end of the attempt: another one follows, or the run is over. The verdict that was recorded first stays.
    async fn conclude(&self, verdict: SandboxVerdict, retry: Retry) {
        let run_id = &self.run.key.run_id;
        let (store, reason) = (&self.context.store, verdict.failure().0.unwrap_or(verdict.outcome()).to_owned());
        let decide = |run: &Sandbox| {
            let may_decide = run.state.is_active() && run.verdict.is_none();
            may_decide.then(|| SandboxStep::Decide(verdict.clone()))
        };
        let decided = take_step(store, run_id, &reason, decide).await;
        let ended = match decided {
            Ok(run) if run.state == SandboxState::Completing => match self.next_attempt(&run, retry) {
                Some(next) => match store.retry_sandbox(run_id, run.generation, next, now_us()).await {
                    Ok(_) => return,
                    Err(
                        SandboxError::RetriesSpent(_)
                        | SandboxError::CapSpent
                        | SandboxError::Budget(_)
                        | SandboxError::StaleGeneration { .. }
                        | SandboxError::IllegalStep(_),
                    ) => self.finish(&reason).await,
                    Err(error) => Err(error),
                },
                None => self.finish(&reason).await,
            },
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if ended.is_ok() {
            self.context.variables.forget(run_id);
        }
        self.report(ended);
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

    /// Removes what may exist of an attempt that cannot go on, and closes its row.
    async fn take_down(&self) {
        let host = &self.service.host;
        let open = match host.store.open_runs().await {
            Ok(open) => open.into_iter().find(|open| open.entry.key == self.run.key),
            Err(error) => return self.report(Err(error.into())),
        };
        let Some(open) = open else { return };
        let taken = sluice_runs::sweep::take_down(host, &open, &(Arc::new(NoObserver) as Arc<dyn Observer>)).await;
        if let Err(error) = taken {
            (self.context.log)(&format!("{} is not removed: {}", shown(&self.run.key), error_chain(&error)));
        }
    }

    /// Returns the verdict of an attempt that was closed before its end was concluded.
    async fn recorded_verdict(&self) -> SandboxVerdict {
        match self.context.store.find_run(&self.run.key).await {
            Ok(Some(KnownRun { exit_code: None, .. })) => {
                self.failed(ErrorCode::Internal, "the daemon ended before it recorded the result of the run")
            }
            Ok(Some(known)) => match SandboxState::of_one_shot(Phase::Closed, known.error_code.as_deref()) {
                (_, Some(verdict)) => verdict,
                _ => SandboxVerdict::Success,
            },
            Ok(None) => self.failed(ErrorCode::Internal, "its record is gone"),
            Err(error) => self.failed(ErrorCode::Internal, &error_chain(&error)),
        }
    }

    async fn stored(&self) -> Result<StoredRequest, String> {
        let stored = self.context.store.sandbox_request(&self.run.key.run_id).await;
        let text = stored.map_err(|error| error_chain(&error))?.ok_or("its request is gone")?;
        let stored: StoredRequest =
            serde_json::from_str(&text).map_err(|error| format!("its request cannot be read: {error}"))?;
        self.live.set_idle(Duration::from_secs(u64::from(stored.ttl_minutes) * 60));
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

fn start_observer() -> (Arc<dyn Observer>, mpsc::UnboundedReceiver<()>) {
    let (sender, started) = mpsc::unbounded_channel();
    (Arc::new(StartObserver(sender)), started)
}
