//! Adoption of an attempt with an open row: it is continued until no resource of it is left.
//!
//! After a run is concluded, no task manages its attempt: a container would continue to run, and a hold would stay. So
//! a run is concluded only when the row of its attempt is closed, and a step that fails before that is tried again.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::daemon_run::{self, Adopted, DaemonResumption, DaemonRun};
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::outcome::IncompleteRun;
use sluice_runs::stop::StopPolicy;
use sluice_runs::sweep;
use sluice_runs::verdict::{ErrorCode, LimitValues};
use sluice_state::run::RunPhase;
use sluice_state::sandboxes::{SandboxState, SandboxVerdict};
use sluice_state::store::{KnownRun, OpenRun, StoreError};
use tokio::time::sleep;

use super::Attempt;
use crate::git;
use crate::runs::last_look::with_last_look;
use crate::runs::retries::Retry;
use crate::runs::run_signals::run_signals;
use crate::runs::service::shown;
use crate::stored_request::StoredRequest;

/// Time after which a failed step is tried again: the engine may answer by then, or the disk may have room.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Attempt {
    /// Continues a run that an earlier daemon began. `open` is `None` if the row of the attempt is not open.
    pub(in crate::runs) async fn resume(self, open: Option<OpenRun>) {
        let open = match open {
            Some(open) => Some(open),
            None => self.reopened().await,
        };
        let (verdict, retry) = match open {
            Some(open) => Box::pin(self.adopt(open)).await,
            None => (self.closed().await, Retry::ByCode),
        };
        self.conclude(verdict, retry).await;
    }

    /// Drives a prepared attempt to its end, and returns it as [`Attempt::resumed`] does.
    pub(super) async fn driven(&self, run: DaemonRun) -> Option<Adopted> {
        let observer = Arc::clone(&run.observer);
        let driven = Box::pin(daemon_run::run(run, self.cancelled.clone())).await;
        let open = self.open().await;
        let fault = match driven {
            Ok(completed) if open.is_none() => return Some(Adopted::Completed(Box::new(completed))),
            Ok(completed) => completed.report.error_message.unwrap_or_default(),
            Err(error) => error_chain(&error),
        };
        (self.context.log)(&format!("{} has not ended yet: {fault}", shown(&self.run.key)));
        let open = open?;
        sleep(TRY_AGAIN).await;
        if let Ok(stored) = self.stored().await {
            return self.resumed(open, &stored, observer).await;
        }
        self.close().await;
        None
    }

    /// Continues an attempt with an open row to its end.
    async fn adopt(&self, open: OpenRun) -> (SandboxVerdict, Retry) {
        let stored = match self.stored().await {
            Ok(stored) => stored,
            Err(error) => {
                self.close().await;
                return (self.failed(ErrorCode::Internal, &error_chain(&error)), error.retry());
            }
        };
        let (observer, mut signals) = run_signals(&self.live);
        let resumed = self.resumed(open, &stored, with_last_look(observer, &self.context, &self.run.key));
        let mut files = self.files();
        files.adopt();
        // Boxed, as the other large futures here: the stack of a task's thread is small.
        let ended = Box::pin(self.follow(resumed, &mut signals, self.keeper().adopting(), files)).await;
        (self.verdict(ended).await, Retry::ByCode)
    }

    /// Resumes an attempt until its row is closed. `None` if another controller has closed it.
    async fn resumed(&self, mut open: OpenRun, stored: &StoredRequest, observer: Arc<dyn Observer>) -> Option<Adopted> {
        let mut is_reported = false;
        loop {
            let resumption = self.resumption(stored, Arc::clone(&observer)).await;
            let host = Arc::clone(&self.service.host);
            let resumed = Box::pin(daemon_run::resume(host, open, resumption, self.cancelled.clone())).await;
            let next = self.open().await;
            let fault = match resumed {
                Ok(adopted) if next.is_none() => return Some(adopted),
                Ok(_) => IncompleteRun::NotClosed.to_string(),
                Err(error) => error_chain(&error),
            };
            open = next?;
            if !is_reported {
                (self.context.log)(&format!("{} is not continued yet: {fault}", shown(&self.run.key)));
                is_reported = true;
            }
            sleep(TRY_AGAIN).await;
        }
    }

    /// Returns the verdict of an attempt whose row is closed.
    pub(super) async fn verdict(&self, ended: Option<Adopted>) -> SandboxVerdict {
        match ended {
            Some(Adopted::Completed(completed)) => Box::pin(self.complete(*completed)).await,
            Some(Adopted::TakenDown(_)) => {
                Box::pin(git::complete_stored(&self.context, &self.run, false)).await;
                self.failed(ErrorCode::Internal, "the daemon ended while it created or removed the run")
            }
            None => self.closed().await,
        }
    }

    async fn resumption(&self, stored: &StoredRequest, observer: Arc<dyn Observer>) -> DaemonResumption {
        let limits = LimitValues {
            timeout: Some(Duration::from_secs(stored.limits.timeout_s)),
            memory: Some(stored.limits.memory),
            output: Some(self.service.output_max),
        };
        let collector = self.service.planner.collector(stored);
        let clone = git::adopted(&self.context, &self.run, stored, collector).await.unwrap_or_else(|error| {
            (self.context.log)(&format!("{}: its clone is not found: {}", shown(&self.run.key), error_chain(&error)));
            None
        });
        DaemonResumption {
            contract: self.service.planner.contract(stored),
            limits,
            output_max: self.service.output_max,
            stop: StopPolicy::after(self.service.stop_grace),
            clock: Arc::clone(self.live.clock()),
            observer,
            clone,
        }
    }

    /// Removes the resources of an attempt that cannot continue, and closes its row, if it is open.
    pub(super) async fn close(&self) {
        let mut is_reported = false;
        while let Some(open) = self.open().await {
            let observer: Arc<dyn Observer> = Arc::new(NoObserver);
            let Err(error) = sweep::take_down(&self.service.host, &open, &observer).await else { continue };
            if !is_reported {
                (self.context.log)(&format!("{} is not removed yet: {}", shown(&self.run.key), error_chain(&error)));
                is_reported = true;
            }
            sleep(TRY_AGAIN).await;
        }
    }

    /// Returns the row of the attempt, if it is open. Waits while the database cannot be read.
    async fn open(&self) -> Option<OpenRun> {
        let open = self.until_known(|| self.context.store.open_runs()).await;
        open.into_iter().find(|open| open.entry.key == self.run.key)
    }

    /// Reopens and returns the row of an attempt, if it was closed without a result.
    async fn reopened(&self) -> Option<OpenRun> {
        let key = &self.run.key;
        let is_open = self.until_known(|| self.context.store.reopen_unjudged(key)).await;
        if is_open { self.open().await } else { None }
    }

    async fn until_known<T, R>(&self, read: impl Fn() -> R) -> T
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        let mut is_reported = false;
        loop {
            match read().await {
                Ok(known) => return known,
                Err(error) if !is_reported => {
                    let text = error_chain(&error);
                    (self.context.log)(&format!("{}: its row is not known yet: {text}", shown(&self.run.key)));
                    is_reported = true;
                }
                Err(_) => {}
            }
            sleep(TRY_AGAIN).await;
        }
    }

    /// Returns the verdict of an attempt whose row was closed before its end was concluded. The earlier daemon may have been
    /// killed between any two steps of its branch.
    async fn closed(&self) -> SandboxVerdict {
        let verdict = self.recorded_verdict().await;
        Box::pin(git::complete_stored(&self.context, &self.run, verdict == SandboxVerdict::Success)).await;
        verdict
    }

    async fn recorded_verdict(&self) -> SandboxVerdict {
        match self.until_known(|| self.context.store.find_run(&self.run.key)).await {
            Some(KnownRun { exit_code: None, .. }) => {
                self.failed(ErrorCode::Internal, "the daemon ended before it recorded the result of the run")
            }
            Some(known) => match SandboxState::of_one_shot(RunPhase::Closed, known.error_code.as_deref()) {
                (_, Some(verdict)) => verdict,
                _ => SandboxVerdict::Success,
            },
            None => self.failed(ErrorCode::Internal, "its record is gone"),
        }
    }
}
