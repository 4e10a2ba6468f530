//! Adoption of a run after its controller is gone. A run that still runs is resumed; any other run is taken down.
//!
//! A run can be resumed as long as its sidecar lives, since only the sidecar carries and records its calls. The sidecar of a
//! one-shot run ends with its controller ([`SidecarLifetime::WithController`]), so a one-shot run is always taken down. The
//! sidecar of a daemon's run outlives its controller ([`SidecarLifetime::Independent`]).
//!
//! [`SidecarLifetime::WithController`]: crate::sidecar::SidecarLifetime::WithController
//! [`SidecarLifetime::Independent`]: crate::sidecar::SidecarLifetime::Independent

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_state::run::{Cancel, Run, RunPhase, RunVerdict};
use sluice_state::store::{OpenRun, now_us};
use tokio::sync::watch;

use crate::blueprint::EXPIRY_MARGIN;
use crate::drive::{DriveContext, drive};
use crate::engine::OutputConfig;
use crate::host::Host;
use crate::observer::Observer;
use crate::outcome::{CompletedRun, Completion};
use crate::plan::{ContainerState, ObservedState, SidecarPhase};
use crate::record::recorded_output;
use crate::resources::RunResources;
use crate::run_clock::RunClock;
use crate::run_clone::AdoptedClone;
use crate::stop::StopPolicy;
use crate::sweep::SweepError;
use crate::verdict::{Contract, LimitValues};

/// Decision about an adopted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// Continue to drive the run, at most for this duration.
    Resume(Duration),
    /// Take it down with the verdict that it has.
    Complete,
    /// Take it down.
    TakeDown,
}

/// An adopted run, as recorded and as observed.
#[derive(Debug, Clone, Copy)]
pub struct AdoptedRun {
    /// Recorded phase; `None` if it is not known.
    pub phase: Option<RunPhase>,
    /// True if the run has its verdict.
    pub has_verdict: bool,
    /// Existing resources.
    pub observed: ObservedState,
    /// Expiry of the container.
    pub expires: Option<SystemTime>,
}

impl AdoptedRun {
    /// Decides what happens to the run.
    ///
    /// A run with a verdict keeps it. A run with a started container is resumed, even if the container has ended
    /// meanwhile or its start was not recorded. An adopted run has no specification and cannot create resources, so all
    /// of them must exist. If the deadline has passed, the run is resumed without time and ends as timed out.
    #[must_use]
    pub fn decide(&self, now: SystemTime) -> Adoption {
        let is_open = matches!(self.phase, Some(RunPhase::Creating | RunPhase::Running));
        let has_started = matches!(self.observed.container, ContainerState::Running | ContainerState::Exited);
        let is_whole = self.observed.directories && self.observed.sidecar == SidecarPhase::Alive;
        match self.expires {
            _ if self.has_verdict && self.phase == Some(RunPhase::Completing) => Adoption::Complete,
            Some(expires) if is_open && has_started && is_whole => {
                let deadline = expires.checked_sub(EXPIRY_MARGIN).unwrap_or(SystemTime::UNIX_EPOCH);
                Adoption::Resume(deadline.duration_since(now).unwrap_or_default())
            }
            _ => Adoption::TakeDown,
        }
    }
}

/// Values that a resumed run does not have on record.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct Resumption {
    pub contract: Contract,
    /// Receives output: attached output from now on, logged output as a whole. Input is not possible.
    pub output: OutputConfig,
    pub stop: StopPolicy,
    pub limits: LimitValues,
    /// Clock of the run's timeout; it stops during pauses.
    pub clock: Arc<RunClock>,
    pub observer: Arc<dyn Observer>,
    /// Clone in the workspace, if the run has one.
    pub clone: Option<AdoptedClone>,
}

/// Result of a resumption.
#[derive(Debug)]
pub enum Resumed {
    /// The run was driven to its end.
    Completed(Box<CompletedRun>),
    /// Nothing was changed: the run can only be taken down.
    Refused(Box<Resumption>),
}

/// Resumes a run of a controller that is gone, and drives the run to its end. A sweep deletes the run's virtual key.
///
/// # Errors
/// [`SweepError`]; [`StoreError::Stale`](sluice_state::store::StoreError::Stale) if another controller adopts the run.
pub async fn resume(
    host: Arc<Host>,
    orphan: OpenRun,
    resumption: Resumption,
    mut cancelled: watch::Receiver<Option<Cancel>>,
) -> Result<Resumed, SweepError> {
    let key = orphan.entry.key.clone();
    let mut resources = RunResources::adopt(&host, &key, orphan.sidecar.clone()).await?;
    let known = host.store.find_run(&key).await?;
    let phase = known.as_ref().and_then(|known| parse_phase(&known.phase));
    let verdict = known.and_then(|known| known.verdict);
    // The container's label has the expiry as computed at the start of the program, without the stops of the clock.
    let stopped = resumption.clock.stopped(now_us());
    let (observed, expires) = (resources.state(), resources.expires().map(|expires| expires + stopped));
    let adopted = AdoptedRun { phase, has_verdict: verdict.is_some(), observed, expires };
    let (run, timeout) = match adopted.decide(SystemTime::now()) {
        Adoption::Resume(timeout) => (Run { phase: RunPhase::Running, ..Run::new() }, timeout),
        Adoption::Complete => (Run { phase: RunPhase::Completing, verdict, ..Run::new() }, Duration::ZERO),
        Adoption::TakeDown => return Ok(Resumed::Refused(Box::new(resumption))),
    };
    let Resumption { contract, output, stop, limits, clock, observer, clone } = resumption;
    let generation = host.store.take_over(&orphan, &host.owner).await?;
    let max = output.max();
    // The clone of a run that was not started has no commits, or is incomplete.
    if let Some(clone) = clone.filter(|_| !matches!(run.verdict, Some(RunVerdict::NotStarted(_)))) {
        resources.adopt_clone(clone).await;
    }
    if observed.container != ContainerState::Absent {
        resources.reattach(output, stop).await?;
    }
    let context = DriveContext { host: Arc::clone(&host), key: key.clone(), generation, timeout, clock, observer };
    let mut driven = Box::pin(drive(run, resources, &context, &mut cancelled)).await?;
    if observed.container == ContainerState::Absent {
        // The engine's copy of the output is gone with the container, but the record has the output.
        driven.end.output = recorded_output(&host.layout.records().of(&key), max)?;
    }
    let completion = Completion { host, key, generation, contract, limits };
    Ok(Resumed::Completed(Box::new(completion.finish(driven, None).await?)))
}

fn parse_phase(word: &str) -> Option<RunPhase> {
    let phases = [RunPhase::Pending, RunPhase::Creating, RunPhase::Running, RunPhase::Completing, RunPhase::Closed];
    phases.into_iter().find(|phase| phase.as_str() == word)
}

#[cfg(test)]
mod tests;
