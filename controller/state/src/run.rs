//! State of a run, and the events that change it.
//!
//! Pure: no clock, no I/O. Only [`Run::apply`] changes the state, and it refuses an event that is not possible in the
//! present phase.

use serde::{Deserialize, Serialize};

/// Phase of a run, as stored and shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
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
    pub step: Step,
    /// Reason, with advice.
    pub message: String,
}

/// One step of the execution of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
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
pub enum RunEvent {
    /// A step was done.
    Done(Step),
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
    pub phase: Phase,
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
    pub phase: Phase,
    /// Event that was reported.
    pub event: Box<RunEvent>,
}

impl Run {
    /// Returns the state of a requested run.
    #[must_use]
    pub fn new() -> Self {
        Self { phase: Phase::Pending, verdict: None, tallied: false, teardown_failures: Vec::new() }
    }

    /// Returns the state after an event.
    ///
    /// The first verdict stays: after it, the controller causes the events of the container.
    ///
    /// # Errors
    /// [`IllegalEvent`] for an event that is not possible.
    pub fn apply(mut self, event: RunEvent) -> Result<Self, IllegalEvent> {
        use Phase::{Closed, Completing, Creating, Pending, Running};
        match (self.phase, event) {
            (Pending | Creating, RunEvent::Done(Step::Prepare | Step::StartSidecar | Step::CreateContainer)) => {
                self.phase = Creating;
            }
            (Creating, RunEvent::Done(Step::StartContainer)) => self.phase = Running,
            (Pending | Creating, RunEvent::Failed(failure)) => self.decide(RunVerdict::NotStarted(failure)),
            (Pending | Creating | Running, RunEvent::Cancelled(cancel)) => self.decide(RunVerdict::Cancelled(cancel)),
            (Pending | Creating | Running, RunEvent::Orphaned) => self.decide(RunVerdict::Interrupted),
            (Pending | Creating | Running, RunEvent::Unrecorded(why)) => self.decide(RunVerdict::Unrecorded(why)),
            (Creating | Running, RunEvent::DeadlinePassed) => self.decide(RunVerdict::TimedOut),
            (Creating | Running, RunEvent::SidecarEnded) => self.decide(RunVerdict::SidecarLost),
            (Running, RunEvent::Exited(exit)) => self.decide(RunVerdict::Exited(exit)),
            (Running, RunEvent::Removed) => self.decide(RunVerdict::Removed),
            (Completing, RunEvent::Done(Step::Tally)) => self.tallied = true,
            (Completing, RunEvent::Done(Step::Close)) => self.phase = Closed,
            (
                Completing,
                RunEvent::Done(
                    Step::StopContainer | Step::DrainSidecar | Step::RemoveContainer | Step::RemoveDirectories,
                ),
            ) => {}
            (Completing, RunEvent::Failed(failure)) => self.teardown_failures.push(failure),
            // The resources are removed anyway, and the caller reports the error.
            (Completing | Closed, RunEvent::Unrecorded(_)) => {}
            // These may arrive together with the event that set the verdict; created resources are removed.
            (
                Completing,
                RunEvent::Done(Step::StartSidecar | Step::CreateContainer)
                | RunEvent::Exited(_)
                | RunEvent::Removed
                | RunEvent::SidecarEnded
                | RunEvent::Cancelled(_)
                | RunEvent::DeadlinePassed
                | RunEvent::Orphaned,
            ) => {}
            (phase, event) => return Err(IllegalEvent { phase, event: Box::new(event) }),
        }
        Ok(self)
    }

    fn decide(&mut self, verdict: RunVerdict) {
        self.phase = Phase::Completing;
        self.verdict = Some(verdict);
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

impl Phase {
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

impl Step {
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
