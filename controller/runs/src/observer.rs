//! Observations of a run while it is driven, for a terminal, an event log or a test.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_state::run::{RunPhase, RunStep, RunVerdict};

use crate::step_error::StepError;

/// One observation.
#[derive(Debug, Clone, Copy)]
pub enum Observation<'a> {
    /// A step is about to be performed.
    StepBegun(RunStep),
    /// A step was performed.
    StepDone {
        /// The step.
        step: RunStep,
        /// Duration of the step.
        took: Duration,
    },
    /// A step failed.
    StepFailed {
        /// The step.
        step: RunStep,
        /// Reason; it says if a retry can succeed.
        error: &'a StepError,
        /// Duration of the step.
        took: Duration,
    },
    /// The run has entered a phase. Its record follows.
    Entered {
        /// The phase.
        phase: RunPhase,
        /// The phase before.
        from: RunPhase,
        /// Time of the change.
        at: SystemTime,
    },
    /// The program runs. This is its remaining time.
    Waiting(Duration),
    /// The run has its verdict; from here on, its resources are taken down.
    Decided(&'a RunVerdict),
    /// A remark for people.
    Note(&'a str),
}

/// Receives observations. A call must return quickly: the run waits for it.
pub trait Observer: Debug + Send + Sync {
    /// Takes one observation.
    fn observe(&self, observation: Observation<'_>);
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _: Observation<'_>) {}
}

/// Passes each observation to several observers, in their order.
#[derive(Debug, Clone, Default)]
pub struct Observers(pub Vec<Arc<dyn Observer>>);

impl Observer for Observers {
    fn observe(&self, observation: Observation<'_>) {
        self.0.iter().for_each(|observer| observer.observe(observation));
    }
}
