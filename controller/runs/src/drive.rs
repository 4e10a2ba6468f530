//! The loop that drives a run: observe, plan, perform, record. The only writer of a run's state.
//!
//! The loop uses four methods of [`RunResources`]: `snapshot`, `perform`, `wait` and `finish`. They are the interface
//! for another way to execute runs: an engine that offers these four can be driven. A trait is not needed, since there
//! is one engine.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::run::{Cancel, Run, RunPhase, RunStep, RunUpdate, RunVerdict, StepFailure};
use sluice_state::store::{StoreError, now_us};
use tokio::sync::watch;

use crate::host::Host;
use crate::observer::{Observation, Observer};
use crate::plan::{NextAction, plan};
use crate::resources::{PerformedStep, RunResources, TeardownEnd};
use crate::run_clock::RunClock;

mod recorder;

use recorder::Recorder;

/// Values that stay the same while a run is driven.
#[derive(Debug, Clone)]
pub struct DriveContext {
    /// The host.
    pub host: Arc<Host>,
    /// The run and its attempt.
    pub key: RunKey,
    /// Number of times that a controller has taken over the run.
    pub generation: u32,
    /// Maximum duration of the program, from now.
    pub timeout: Duration,
    /// Clock of the timeout; it stops during pauses.
    pub clock: Arc<RunClock>,
    /// Receiver of observations.
    pub observer: Arc<dyn Observer>,
}

/// A run at the end of its loop.
#[derive(Debug)]
pub struct DrivenRun {
    /// The record; closed, unless some resources could not be taken down.
    pub run: Run,
    /// Results of the run.
    pub end: TeardownEnd,
}

/// Drives a run from its present state to its end, or to a state that only a later sweep can take down.
///
/// If the record cannot be written, the run ends, since it could not be found after a crash. Its resources are taken
/// down, and the record's error becomes the last teardown failure.
///
/// # Errors
/// [`StoreError::Stale`] if another controller has taken over the run.
pub async fn drive(
    mut run: Run,
    mut resources: RunResources,
    context: &DriveContext,
    cancelled: &mut watch::Receiver<Option<Cancel>>,
) -> Result<DrivenRun, StoreError> {
    let observer = context.observer.as_ref();
    let mut began = None;
    resources.interrupt_by(cancelled);
    let mut snapshot = resources.snapshot();
    let mut recorder = Recorder::new(snapshot.witness);
    loop {
        if run.verdict.is_none()
            && let Some(cancel) = *cancelled.borrow()
        {
            run = apply(run, RunUpdate::Cancelled(cancel), observer);
        }
        if run.phase == RunPhase::Running && began.is_none() {
            began = Some((Instant::now(), context.clock.stopped(now_us())));
            observer.observe(Observation::Waiting(context.timeout));
        }
        let remaining = began.map_or(context.timeout, |(began, before)| {
            let stopped = context.clock.stopped(now_us()).saturating_sub(before);
            (context.timeout + stopped).saturating_sub(began.elapsed())
        });
        let events = match plan(&run, &snapshot.state, remaining) {
            NextAction::Perform(steps) => perform(&mut resources, &steps, observer).await,
            NextAction::Wait(remaining) => tokio::select! {
                // Both are cancel-safe: the next snapshot has events that are not taken here. A dropped sender cannot cancel.
                event = resources.wait(remaining) => event.into_iter().collect(),
                Ok(()) = cancelled.changed(), if run.verdict.is_none() => vec![],
            },
            NextAction::EndAtDeadline => vec![RunUpdate::DeadlinePassed],
            NextAction::Finish | NextAction::GiveUp => {
                return Ok(DrivenRun { run: recorder.finish(run), end: resources.finish() });
            }
        };
        for event in events {
            // A step that a cancellation interrupts has not failed by itself.
            let event = match (event, *cancelled.borrow()) {
                (RunUpdate::Failed(_), Some(cancel)) if run.verdict.is_none() => RunUpdate::Cancelled(cancel),
                (event, _) => event,
            };
            run = apply(run, event, observer);
        }
        snapshot = resources.snapshot();
        match recorder.record(&run, &snapshot, context).await {
            Ok(()) => {}
            Err(StoreError::Stale(key)) => return Err(StoreError::Stale(key)),
            Err(error) => run = apply(run, RunUpdate::Unrecorded(error_chain(&error)), observer),
        }
    }
}

async fn perform(resources: &mut RunResources, steps: &[RunStep], observer: &dyn Observer) -> Vec<RunUpdate> {
    for step in steps {
        observer.observe(Observation::StepBegun(*step));
    }
    let performed = resources.perform(steps).await;
    performed.iter().map(|performed| record(performed, observer)).collect()
}

/// Observes a performed step and converts it into an event. The error of a failed step becomes text.
fn record(performed: &PerformedStep, observer: &dyn Observer) -> RunUpdate {
    let PerformedStep { step, took, result } = performed;
    let (step, took) = (*step, *took);
    match result {
        Ok(()) => {
            observer.observe(Observation::StepDone { step, took });
            RunUpdate::Done(step)
        }
        Err(error) => {
            observer.observe(Observation::StepFailed { step, error, took });
            RunUpdate::Failed(StepFailure { step, message: error_chain(error) })
        }
    }
}

fn apply(run: Run, event: RunUpdate, observer: &dyn Observer) -> Run {
    let before = run.clone();
    let after = run.apply(event).unwrap_or_else(|illegal| {
        // A bug of ours: the run is taken down and the bug is reported.
        let failure = StepFailure { step: RunStep::Close, message: illegal.to_string() };
        Run {
            phase: RunPhase::Completing,
            verdict: before.verdict.clone().or(Some(RunVerdict::NotStarted(failure))),
            ..before.clone()
        }
    });
    if before.phase != after.phase {
        observer.observe(Observation::Entered { phase: after.phase, from: before.phase, at: SystemTime::now() });
    }
    if before.verdict.is_none()
        && let Some(verdict) = &after.verdict
    {
        observer.observe(Observation::Decided(verdict));
    }
    after
}

#[cfg(test)]
mod tests;
