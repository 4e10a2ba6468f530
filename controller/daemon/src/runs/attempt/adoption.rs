//! Adoption of an attempt whose row is open: it is continued until nothing of it is left.
//!
//! Nothing looks after an attempt of a run that is concluded: its container would run on, and its hold would stay. So a run
//! is concluded when the row of its attempt is closed, and what fails until then is tried again.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::daemon_run::{self, Adopted, DaemonResumption};
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::outcome::{CompletedRun, IncompleteRun};
use sluice_runs::stop::StopPolicy;
use sluice_runs::sweep::{self, SweepError};
use sluice_runs::verdict::{ErrorCode, LimitValues};
use sluice_state::run::RunPhase;
use sluice_state::sandboxes::{SandboxState, SandboxVerdict};
use sluice_state::store::{KnownRun, OpenRun, StoreError};
use tokio::time::sleep;

use super::Attempt;
use crate::git;
use crate::runs::after_attempt::forget;
use crate::runs::last_look::with_last_look;
use crate::runs::retries::Retry;
use crate::runs::run_signals::run_signals;
use crate::runs::service::shown;
use crate::stored_request::StoredRequest;

/// Time after which a failed step is tried again: the engine may answer by then, or the disk may have room.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Attempt {
    /// Continues a run that an earlier daemon began. `None` if nothing of the attempt is open any more.
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

    /// Returns the verdict of an attempt that this daemon has driven. What is left of it is removed first.
    pub(super) async fn ended<E: std::error::Error>(&self, driven: Result<CompletedRun, E>) -> (SandboxVerdict, Retry) {
        let open = self.open().await;
        let left = match (&driven, &open) {
            (Ok(_), None) => None,
            (Ok(completed), Some(_)) => Some(completed.report.error_message.clone().unwrap_or_default()),
            (Err(error), _) => Some(error_chain(error)),
        };
        if let Some(left) = left {
            (self.context.log)(&format!("{}: {}: {left}", shown(&self.run.key), ErrorCode::Internal.as_str()));
        }
        match (driven, open) {
            (Ok(completed), None) => (Box::pin(self.complete(completed)).await, Retry::ByCode),
            (_, Some(open)) => {
                sleep(TRY_AGAIN).await;
                Box::pin(self.adopt(open)).await
            }
            (Err(_), None) => (self.closed().await, Retry::ByCode),
        }
    }

    /// Continues an attempt whose row is open to its end.
    async fn adopt(&self, mut open: OpenRun) -> (SandboxVerdict, Retry) {
        let stored = match self.stored().await {
            Ok(stored) => stored,
            Err(error) => {
                self.close().await;
                return (self.failed(ErrorCode::Internal, &error_chain(&error)), error.retry());
            }
        };
        let mut is_reported = false;
        loop {
            // Boxed, as the other large futures here: the stack of a task's thread is small.
            let error = match Box::pin(self.continued(open, &stored)).await {
                Ok(verdict) => return (verdict, Retry::ByCode),
                Err(error) => error,
            };
            if !is_reported {
                (self.context.log)(&format!("{} is not continued yet: {}", shown(&self.run.key), error_chain(&error)));
                is_reported = true;
            }
            sleep(TRY_AGAIN).await;
            open = match self.open().await {
                Some(open) => open,
                None => return (self.closed().await, Retry::ByCode),
            };
        }
    }

    /// Continues an attempt, and returns its verdict. After an error, its row is still open, or another controller has it.
    async fn continued(&self, open: OpenRun, stored: &StoredRequest) -> Result<SandboxVerdict, SweepError> {
        let (observer, mut signals) = run_signals(&self.live);
        let observer = with_last_look(observer, &self.context, &self.run.key);
        let resumption = self.resumption(stored, observer).await;
        let resumed = daemon_run::resume(Arc::clone(&self.service.host), open, resumption, self.cancelled.clone());
        let mut files = self.files();
        files.adopt();
        let adopted = Box::pin(self.follow(resumed, &mut signals, self.keeper().adopting(), files)).await?;
        if self.open().await.is_some() {
            return Err(IncompleteRun::NotClosed.into());
        }
        Ok(match adopted {
            Adopted::Completed(completed) => Box::pin(self.complete(*completed)).await,
            Adopted::TakenDown(_) => {
                Box::pin(git::complete_stored(&self.context, &self.run, false)).await;
                self.failed(ErrorCode::Internal, "the daemon ended while it created or removed the run")
            }
        })
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

    /// Opens the row of an attempt again that was closed without its result, and returns it.
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
        forget(&self.context, &self.run.key).await;
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
