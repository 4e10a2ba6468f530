//! States of a daemon's run, and the steps between them.
//!
//! Pure.

use std::fmt;

use crate::run::RunPhase;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SandboxState {
    /// The run waits in the queue.
    Pending,
    /// The run was claimed; its resources are being created.
    Creating,
    /// The program works.
    Running,
    /// The resources are being removed, or the program has said that it is done.
    Completing,
    /// The run has succeeded, or was cancelled.
    Completed,
    /// The run has failed.
    Failed,
}

/// State that its owner wants a run to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DesiredState {
    /// The run works to its end.
    Running,
    /// The run is paused.
    Paused,
    /// The run is stopped.
    Stopped,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxVerdict {
    /// The program succeeded.
    Success,
    /// A person cancelled it.
    Cancelled,
    /// The run failed.
    Failed {
        /// One word for the reason.
        code: String,
        /// The reason, for people.
        message: Option<String>,
    },
}

/// A step in the life of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxStep {
    /// A daemon takes the run from the queue.
    Claim,
    /// The program has started.
    Start,
    /// The program said that it is done. It may still work, and nothing is decided.
    Complete,
    /// The program works again.
    Resume,
    /// The outcome is known.
    Decide(SandboxVerdict),
    /// All resources of the run are gone.
    Finish,
    /// The run ends before any of its resources exist.
    Drop(SandboxVerdict),
    /// Another attempt follows automatically.
    Retry,
    /// A person requests another attempt of a run that has ended.
    Reopen,
}

/// A step that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {state} cannot take the step {step}; read its state first")]
pub struct IllegalStep {
    /// Present state.
    pub state: SandboxState,
    /// Name of the step.
    pub step: &'static str,
}

impl SandboxState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Creating, Self::Running, Self::Completing, Self::Completed, Self::Failed];

    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Creating => "CREATING",
            Self::Running => "RUNNING",
            Self::Completing => "COMPLETING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// Returns the state of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Returns true if the run has ended.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Returns true if something of the run may exist.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Creating | Self::Running | Self::Completing)
    }

    /// Returns the state of a run of `sluice run`, and its verdict if it has ended.
    #[must_use]
    pub fn of_one_shot(phase: RunPhase, error_code: Option<&str>) -> (Self, Option<SandboxVerdict>) {
        match (phase, error_code) {
            (RunPhase::Pending, _) => (Self::Pending, None),
            (RunPhase::Creating, _) => (Self::Creating, None),
            (RunPhase::Running, _) => (Self::Running, None),
            (RunPhase::Completing, _) => (Self::Completing, None),
            (RunPhase::Closed, None) => (Self::Completed, Some(SandboxVerdict::Success)),
            (RunPhase::Closed, Some("cancelled")) => (Self::Completed, Some(SandboxVerdict::Cancelled)),
            (RunPhase::Closed, Some(code)) => {
                (Self::Failed, Some(SandboxVerdict::Failed { code: code.to_owned(), message: None }))
            }
        }
    }
}

impl DesiredState {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }

    /// Returns the state of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Running, Self::Paused, Self::Stopped].into_iter().find(|state| state.as_str() == word)
    }
}

impl SandboxVerdict {
    /// Returns the outcome as a word.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Cancelled => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns the word and the reason of a failure.
    #[must_use]
    pub fn failure(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Failed { code, message } => (Some(code), message.as_deref()),
            Self::Success | Self::Cancelled => (None, None),
        }
    }

    fn end(&self) -> SandboxState {
        if matches!(self, Self::Failed { .. }) { SandboxState::Failed } else { SandboxState::Completed }
    }
}

impl SandboxStep {
    /// Returns the name of the step. People request both kinds of another attempt as `retry`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Start => "start",
            Self::Complete => "complete",
            Self::Resume => "resume",
            Self::Decide(_) => "decide",
            Self::Finish => "finish",
            Self::Drop(_) => "drop",
            Self::Retry | Self::Reopen => "retry",
        }
    }
}

/// Returns the state and the verdict of a run after a step.
///
/// # Errors
/// [`IllegalStep`]; then the run stays as it is.
pub fn after_step(
    state: SandboxState,
    verdict: Option<&SandboxVerdict>,
    step: &SandboxStep,
) -> Result<(SandboxState, Option<SandboxVerdict>), IllegalStep> {
    use SandboxState::{Completed, Completing, Creating, Failed, Pending, Running};
    use SandboxVerdict::{Cancelled, Success};
    match (state, verdict, step) {
        (Pending, _, SandboxStep::Claim) => Ok((Creating, None)),
        (Pending, _, SandboxStep::Drop(verdict)) if *verdict != Success => Ok((verdict.end(), Some(verdict.clone()))),
        (Creating, _, SandboxStep::Start) => Ok((Running, None)),
        (Running, _, SandboxStep::Complete) => Ok((Completing, None)),
        (Completing, None, SandboxStep::Resume) => Ok((Running, None)),
        (Creating | Running, _, SandboxStep::Decide(verdict)) | (Completing, None, SandboxStep::Decide(verdict)) => {
            Ok((Completing, Some(verdict.clone())))
        }
        // A cancellation replaces an earlier verdict. Otherwise, the first verdict stays.
        (Completing, Some(_), SandboxStep::Decide(Cancelled)) => Ok((Completing, Some(Cancelled))),
        (Completing, Some(verdict), SandboxStep::Finish) => Ok((verdict.end(), Some(verdict.clone()))),
        (Completing, Some(SandboxVerdict::Failed { .. }), SandboxStep::Retry) => Ok((Pending, None)),
        (Failed, _, SandboxStep::Reopen) | (Completed, Some(Cancelled), SandboxStep::Reopen) => Ok((Pending, None)),
        (state, _, step) => Err(IllegalStep { state, step: step.name() }),
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::SandboxState::{Completed, Completing, Creating, Failed, Pending, Running};
    use super::*;

    fn failed() -> SandboxVerdict {
        SandboxVerdict::Failed { code: "internal".to_owned(), message: None }
    }

    fn verdicts() -> [SandboxVerdict; 3] {
        [SandboxVerdict::Success, SandboxVerdict::Cancelled, failed()]
    }

    fn steps() -> Vec<SandboxStep> {
        use SandboxStep::{Claim, Complete, Decide, Drop, Finish, Reopen, Resume, Retry, Start};
        let mut steps = vec![Claim, Start, Complete, Resume, Finish, Retry, Reopen];
        steps.extend(verdicts().map(Decide));
        steps.extend(verdicts().map(Drop));
        steps
    }

    /// All states that a run can be in, with their verdicts.
    fn situations() -> Vec<(SandboxState, Option<SandboxVerdict>)> {
        let [success, cancelled, failed] = verdicts().map(Some);
        let mut situations = vec![(Pending, None), (Creating, None), (Running, None), (Completing, None)];
        situations.extend(verdicts().map(|verdict| (Completing, Some(verdict))));
        situations.extend([(Completed, success), (Completed, cancelled), (Failed, failed)]);
        situations
    }

    #[test]
    fn only_these_edges_are_legal() {
        let mut edges = BTreeSet::new();
        for (state, verdict) in situations() {
            for step in steps() {
                if let Ok((next, _)) = after_step(state, verdict.as_ref(), &step) {
                    edges.insert((state, step.name(), next));
                }
            }
        }
        let expected = BTreeSet::from([
            (Pending, "claim", Creating),
            (Pending, "drop", Completed),
            (Pending, "drop", Failed),
            (Creating, "start", Running),
            (Creating, "decide", Completing),
            (Running, "complete", Completing),
            (Running, "decide", Completing),
            (Completing, "resume", Running),
            (Completing, "decide", Completing),
            (Completing, "finish", Completed),
            (Completing, "finish", Failed),
            (Completing, "retry", Pending),
            (Completed, "retry", Pending),
            (Failed, "retry", Pending),
        ]);
        assert_eq!(edges, expected);
    }

    #[test]
    fn every_step_leads_to_a_valid_situation() {
        let situations = situations();
        for (state, verdict) in &situations {
            for step in steps() {
                if let Ok(next) = after_step(*state, verdict.as_ref(), &step) {
                    assert!(situations.contains(&next), "{state} {step:?} {next:?}");
                }
            }
        }
    }

    #[test]
    fn a_decided_run_does_not_work_again() {
        for verdict in verdicts() {
            assert!(after_step(Completing, Some(&verdict), &SandboxStep::Resume).is_err());
        }
        assert!(after_step(Completing, None, &SandboxStep::Finish).is_err());
        assert!(after_step(Completing, Some(&SandboxVerdict::Cancelled), &SandboxStep::Retry).is_err());
        assert!(after_step(Completed, Some(&SandboxVerdict::Success), &SandboxStep::Reopen).is_err());
    }

    #[test]
    fn every_live_run_can_be_cancelled() {
        for (state, verdict) in situations() {
            let cancel = if state == Pending {
                SandboxStep::Drop(SandboxVerdict::Cancelled)
            } else {
                SandboxStep::Decide(SandboxVerdict::Cancelled)
            };
            let cancelled = after_step(state, verdict.as_ref(), &cancel);
            assert_eq!(cancelled.is_ok(), !state.is_ended(), "{state}");
        }
    }

    #[test]
    fn one_shot_runs_have_the_same_words() {
        let closed = |code| SandboxState::of_one_shot(RunPhase::Closed, code);
        assert_eq!(closed(None), (Completed, Some(SandboxVerdict::Success)));
        assert_eq!(closed(Some("cancelled")), (Completed, Some(SandboxVerdict::Cancelled)));
        assert_eq!(closed(Some("internal")), (Failed, Some(failed())));
        assert_eq!(SandboxState::of_one_shot(RunPhase::Running, None), (Running, None));
        for state in SandboxState::ALL {
            assert_eq!(SandboxState::of(state.as_str()), Some(state));
        }
    }
}
