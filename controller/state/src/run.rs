//! State of a run, and the events that change it.
//!
//! Pure: no clock, no I/O. Only [`Run::apply`] changes the state, and it refuses an event that is not possible in the
//! present phase.

use serde::{Deserialize, Serialize};

/// Phase of a run, as stored and shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Requested; nothing exists yet.
    Pending,
    /// Directories, sidecar and container are being created.
    Creating,
    /// The container was started.
    Running,
    /// The verdict is known; the resources are being removed.
    Completing,
    /// The run has ended, and only its audit file remains.
    Closed,
}

/// End of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerExit {
    /// Exit code: 128 + n after a signal n.
    pub code: i64,
    /// True if the kernel killed a process in it for lack of memory.
    pub oom: bool,
}

/// Request to end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Signal that the controller received.
    pub signal: i32,
}

/// Reason that a run ended. The first one stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// The run was cancelled.
    Cancelled(Cancel),
    /// The deadline passed.
    TimedOut,
    /// The controller of the run was killed; another controller ends it.
    Interrupted,
    /// The sidecar ended before the container.
    SidecarLost,
    /// The container was not started.
    NotStarted(StepFailure),
    /// The container ended.
    Exited(ContainerExit),
    /// Another program removed the container.
    Removed,
    /// The state of the run could not be recorded, so that no controller could have found it.
    Unrecorded(String),
}

/// A step that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// Step that failed.
    pub step: RunStep,
    /// Reason, with advice.
    pub message: String,
}

/// One step of the execution of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStep {
    /// Create the directories, and write the messages into the workspace.
    Prepare,
    /// Start the sidecar, and wait until it accepts calls.
    StartSidecar,
    /// Create the container.
    CreateContainer,
    /// Attach to the container, and start it.
    StartContainer,
    /// Stop the container, by force if necessary.
    StopContainer,
    /// Wait until the sidecar has ended its calls and its audit log.
    DrainSidecar,
    /// Read the audit file, which has the cost of the run.
    Tally,
    /// Remove the container.
    RemoveContainer,
    /// Remove the directories.
    RemoveDirectories,
    /// Record that all resources are gone.
    Close,
}

/// Event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunUpdate {
    /// A step was done.
    Done(RunStep),
    /// A step failed.
    Failed(StepFailure),
    /// The container ended.
    Exited(ContainerExit),
    /// Another program removed the container.
    Removed,
    /// The sidecar ended while it was needed.
    SidecarEnded,
    /// Cancellation was requested.
    Cancelled(Cancel),
    /// The deadline passed.
    DeadlinePassed,
    /// The controller that began this run has ended.
    Orphaned,
    /// The state of the run cannot be recorded.
    Unrecorded(String),
}

/// State of one attempt of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Present phase.
    pub phase: RunPhase,
    /// Reason of the end. When it is set, all resources are removed.
    pub verdict: Option<RunVerdict>,
    /// True if the audit file was read to its end.
    pub tallied: bool,
    /// Failed steps of the removal, newest last.
    pub teardown_failures: Vec<StepFailure>,
}

/// Event that is not possible in the present phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {phase:?} cannot see {event:?}")]
pub struct IllegalEvent {
    /// Phase of the run.
    pub phase: RunPhase,
    /// Event that was reported.
    pub event: Box<RunUpdate>,
}

impl Run {
    /// Returns the state of a requested run.
    #[must_use]
    pub fn new() -> Self {
        Self { phase: RunPhase::Pending, verdict: None, tallied: false, teardown_failures: Vec::new() }
    }

    /// Returns the state after an event.
    ///
    /// The first verdict stays: after it, the controller causes the events of the container.
    ///
    /// # Errors
    /// [`IllegalEvent`] for an event that is not possible.
    pub fn apply(mut self, event: RunUpdate) -> Result<Self, IllegalEvent> {
        use RunPhase::{Closed, Completing, Creating, Pending, Running};
        match (self.phase, event) {
            (
                Pending | Creating,
                RunUpdate::Done(RunStep::Prepare | RunStep::StartSidecar | RunStep::CreateContainer),
            ) => {
                self.phase = Creating;
            }
            (Creating, RunUpdate::Done(RunStep::StartContainer)) => self.phase = Running,
            (Pending | Creating, RunUpdate::Failed(failure)) => self.decide(RunVerdict::NotStarted(failure)),
            (Pending | Creating | Running, RunUpdate::Cancelled(cancel)) => self.decide(RunVerdict::Cancelled(cancel)),
            (Pending | Creating | Running, RunUpdate::Orphaned) => self.decide(RunVerdict::Interrupted),
            (Pending | Creating | Running, RunUpdate::Unrecorded(why)) => self.decide(RunVerdict::Unrecorded(why)),
            (Creating | Running, RunUpdate::DeadlinePassed) => self.decide(RunVerdict::TimedOut),
            (Creating | Running, RunUpdate::SidecarEnded) => self.decide(RunVerdict::SidecarLost),
            (Running, RunUpdate::Exited(exit)) => self.decide(RunVerdict::Exited(exit)),
            (Running, RunUpdate::Removed) => self.decide(RunVerdict::Removed),
            (Completing, RunUpdate::Done(RunStep::Tally)) => self.tallied = true,
            (Completing, RunUpdate::Done(RunStep::Close)) => self.phase = Closed,
            (
                Completing,
                RunUpdate::Done(
                    RunStep::StopContainer
                    | RunStep::DrainSidecar
                    | RunStep::RemoveContainer
                    | RunStep::RemoveDirectories,
                ),
            ) => {}
            (Completing, RunUpdate::Failed(failure)) => self.teardown_failures.push(failure),
            // The resources are removed anyway, and the caller reports the error.
            (Completing | Closed, RunUpdate::Unrecorded(_)) => {}
            // These may arrive together with the event that set the verdict; created resources are removed.
            (
                Completing,
                RunUpdate::Done(RunStep::StartSidecar | RunStep::CreateContainer)
                | RunUpdate::Exited(_)
                | RunUpdate::Removed
                | RunUpdate::SidecarEnded
                | RunUpdate::Cancelled(_)
                | RunUpdate::DeadlinePassed
                | RunUpdate::Orphaned,
            ) => {}
            (phase, event) => return Err(IllegalEvent { phase, event: Box::new(event) }),
        }
        Ok(self)
    }

    fn decide(&mut self, verdict: RunVerdict) {
        self.phase = RunPhase::Completing;
        self.verdict = Some(verdict);
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

impl RunPhase {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Completing => "completing",
            Self::Closed => "closed",
        }
    }
}

impl RunStep {
    /// Returns the words after "cannot" in the error of a failed step.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare the run",
            Self::StartSidecar => "start the sidecar",
            Self::CreateContainer => "create the container",
            Self::StartContainer => "start the container",
            Self::StopContainer => "stop the container",
            Self::DrainSidecar => "end the sidecar",
            Self::Tally => "read the audit file",
            Self::RemoveContainer => "remove the container",
            Self::RemoveDirectories => "remove the run's directories",
            Self::Close => "record the end of the run",
        }
    }
}
