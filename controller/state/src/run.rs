//! What a run is and what can happen to it.
//!
//! Pure: no clock, no I/O. The record changes by [`Run::apply`] alone, and an event that cannot have happened is
//! refused by name.

use serde::{Deserialize, Serialize};

/// Where a run stands; stored, and shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Requested; nothing exists yet.
    Pending,
    /// Directories, sidecar and container are being made.
    Creating,
    /// The container was started.
    Running,
    /// Decided; what exists is being taken down.
    Completing,
    /// Over, and nothing is left of it but its audit file.
    Closed,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerExit {
    /// Its exit code: 128 + n when a signal n ended it.
    pub code: i64,
    /// Whether the kernel killed something in it for want of memory.
    pub oom: bool,
}

/// Who asked for a run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// The signal that we got.
    pub signal: i32,
}

/// Why a run ended: the first thing that decided it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// We were told to stop it.
    Cancelled(Cancel),
    /// It took longer than it may.
    TimedOut,
    /// Its controller was killed, and this is another one.
    Interrupted,
    /// Its sidecar went away before the container did.
    SidecarLost,
    /// It never started.
    NotStarted(StepFailure),
    /// The container ended.
    Exited(ContainerExit),
    /// Somebody else removed the container.
    Removed,
    /// Where it stood could not be written down, and nobody would have found it.
    Unrecorded(String),
}

/// A step that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// What could not be done.
    pub step: Step,
    /// Why, with what to do.
    pub message: String,
}

/// One thing to do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Make the directories, and put the messages into the workspace.
    Prepare,
    /// Spawn the sidecar and wait until it carries calls.
    StartSidecar,
    /// Create the container.
    CreateContainer,
    /// Attach to the container, and start it.
    StartContainer,
    /// End the container, whatever it does about it.
    StopContainer,
    /// Let the sidecar end its calls and its log.
    DrainSidecar,
    /// Read the audit file: what the run cost.
    Tally,
    /// Remove the container.
    RemoveContainer,
    /// Remove the directories.
    RemoveDirectories,
    /// Write down that nothing is left.
    Close,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// A step was done.
    Done(Step),
    /// A step failed.
    Failed(StepFailure),
    /// The container ended.
    Exited(ContainerExit),
    /// Somebody else removed the container.
    Removed,
    /// The sidecar ended while it was needed.
    SidecarEnded,
    /// We were told to stop.
    Cancelled(Cancel),
    /// The time is up.
    DeadlinePassed,
    /// The controller that began this run is gone.
    Orphaned,
    /// Where it stands cannot be written down.
    Unrecorded(String),
}

/// The record of one start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where it stands.
    pub phase: Phase,
    /// What decided it; from then on everything is taken down.
    pub verdict: Option<RunVerdict>,
    /// Whether its audit file was read to the end.
    pub tallied: bool,
    /// Steps of taking down that failed, newest last.
    pub teardown_failures: Vec<StepFailure>,
}

/// An event that cannot have happened to a run in this phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {phase:?} cannot see {event:?}")]
pub struct IllegalEvent {
    /// Where the run stood.
    pub phase: Phase,
    /// What was reported.
    pub event: Box<RunEvent>,
}

impl Run {
    /// A run that was asked for.
    #[must_use]
    pub fn new() -> Self {
        Self { phase: Phase::Pending, verdict: None, tallied: false, teardown_failures: Vec::new() }
    }

    /// The record after an event.
    ///
    /// The first verdict stands: whatever a container does after we stopped it is our doing.
    ///
    /// # Errors
    /// [`IllegalEvent`]; the record is as it was.
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
            // What is there is taken down all the same; who sees it through tells.
            (Completing | Closed, RunEvent::Unrecorded(_)) => {}
            // Side by side with the step that decided: what was made is seen, and taken down.
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
    /// The word in the database and in output.
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
    /// What could not be done, when it failed: `cannot …`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "make the run's directories",
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
