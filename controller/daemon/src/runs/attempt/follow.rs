//! Work during a run: its start, its calls, its changed files, its pauses and its approvals.

use std::sync::Arc;

use sluice_state::sandboxes::{Sandbox, SandboxState, SandboxStep};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Attempt, STORAGE_AGAIN};
use crate::pause::PauseKeeper;
use crate::runs::after_attempt::forget;
use crate::runs::call_events::CallReporter;
use crate::runs::file_events::FileReporter;
use crate::runs::run_signals::RunSignal;
use crate::runs::service::shown;
use crate::runs::side_tasks::look_after;
use crate::runs::steps::{StepTry, is_retryable, take_step};

impl Attempt {
    /// Returns the reporter of this attempt's changed files.
    pub(super) fn files(&self) -> FileReporter {
        FileReporter::new(Arc::clone(&self.context), self.run.clone(), &self.watches)
    }

    /// Returns the keeper of this attempt's pauses.
    pub(super) fn keeper(&self) -> PauseKeeper {
        let (context, host) = (Arc::clone(&self.context), Arc::clone(&self.service.host));
        PauseKeeper::new(context, host, self.run.key.clone(), Arc::clone(&self.live), self.cancelled.clone())
    }

    /// Waits for the end of a run. Meanwhile, it records the start of the program, its calls and its changed files, and
    /// handles its pauses and approvals.
    pub(super) async fn follow<T>(
        &self,
        driven: impl Future<Output = T>,
        signals: &mut mpsc::UnboundedReceiver<RunSignal>,
        keeper: PauseKeeper,
        mut files: FileReporter,
    ) -> T {
        let mut driven = Box::pin(driven);
        let mut looking = Box::pin(look_after(&self.context, &self.run, &self.live, keeper));
        let mut calls = CallReporter::new(Arc::clone(&self.context), self.run.clone(), Arc::clone(&self.live));
        let mut is_late = false;
        let ended = loop {
            tokio::select! {
                ended = &mut driven => break ended,
                Some(signal) = signals.recv() => match signal {
                    RunSignal::Prepared(at) => files.begin(at),
                    RunSignal::Started => is_late = !self.start(StepTry::First).await,
                    RunSignal::Stopped => files.stop(),
                },
                () = sleep(STORAGE_AGAIN), if is_late => is_late = !self.start(StepTry::Again).await,
                never = calls.follow() => match never {},
                never = files.follow() => match never {},
                never = &mut looking => match never {},
            }
        };
        drop(looking);
        forget(&self.context, &self.run.key).await;
        calls.finish().await;
        files.finish().await;
        ended
    }

    /// Records that the program has started. Returns false if this failed and has to be tried again: without the
    /// record, the run would end as one that did not start in time.
    async fn start(&self, which: StepTry) -> bool {
        let start = |run: &Sandbox| (run.state == SandboxState::Creating).then_some(SandboxStep::Start);
        let started = take_step(&self.context.store, &self.run.key.run_id, "the program has started", start).await;
        let is_done = !started.as_ref().is_err_and(is_retryable);
        match (which, is_done) {
            // The first try has logged the error.
            (StepTry::Again, false) => {}
            (StepTry::Again, true) if started.is_ok() => {
                (self.context.log)(&format!("{}: its start is recorded now", shown(&self.run.key)));
            }
            _ => self.report(started.map(|_| ())),
        }
        is_done
    }
}
