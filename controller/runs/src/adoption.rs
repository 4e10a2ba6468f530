//! Adoption of a run whose controller is gone: resumed where it still runs, taken down otherwise.
//!
//! A run can be resumed as long as its sidecar lives, since only the sidecar carries and records its calls. The sidecar of a
//! one-shot run ends with its controller ([`SidecarLifetime::WithController`]), so a one-shot run is always taken down. The
//! sidecar of a daemon's run outlives its controller ([`SidecarLifetime::Independent`]).
//!
//! [`SidecarLifetime::WithController`]: crate::sidecar::SidecarLifetime::WithController
//! [`SidecarLifetime::Independent`]: crate::sidecar::SidecarLifetime::Independent

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_state::run::{Cancel, Phase, Run};
use sluice_state::store::OpenRun;
use tokio::sync::watch;

use crate::drive::{DriveContext, drive};
use crate::engine::StdioConfig;
use crate::host::Host;
use crate::observer::Observer;
use crate::outcome::{CompletedRun, Completion};
use crate::plan::{ContainerState, ObservedState, SidecarState};
use crate::resources::RunResources;
use crate::spec::EXPIRY_MARGIN;
use crate::sweep::SweepError;
use crate::verdict::{Contract, LimitValues};

/// Decision about an adopted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// Drive it on, for no longer than this.
    Resume(Duration),
    /// Take it down.
    TakeDown,
}

/// An adopted run, as recorded and as observed.
#[derive(Debug, Clone, Copy)]
pub struct AdoptedRun {
    /// Recorded phase; `None` if it is not known.
    pub phase: Option<Phase>,
    /// Existing resources.
    pub observed: ObservedState,
    /// Expiry of the container.
    pub expires: Option<SystemTime>,
}

impl AdoptedRun {
    /// Decides what happens to the run.
    ///
    /// A container that has started is resumed, also if it has ended meanwhile or if the start was not recorded. A run
    /// without a specification cannot create resources, so each of them has to exist. A passed deadline is a resumption
    /// without time: the run ends as timed out.
    #[must_use]
    pub fn decide(&self, now: SystemTime) -> Adoption {
        let is_open = matches!(self.phase, Some(Phase::Creating | Phase::Running));
        let has_started = matches!(self.observed.container, ContainerState::Running | ContainerState::Exited);
        let is_whole = self.observed.directories && self.observed.sidecar == SidecarState::Alive;
        match self.expires {
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
    /// Receives output from now on. Input is not possible.
    pub output: StdioConfig,
    pub stop_grace: Duration,
    pub observer: Arc<dyn Observer>,
}

/// Resumes a run of a controller that is gone, and drives it to its end. Returns `None` without any change if the run can
/// only be taken down. A sweep deletes its virtual key.
///
/// # Errors
/// [`SweepError`]; [`StoreError::Stale`](sluice_state::store::StoreError::Stale) if another controller adopts the run.
pub async fn resume(
    host: Arc<Host>,
    orphan: OpenRun,
    resumption: Resumption,
    mut cancelled: watch::Receiver<Option<Cancel>>,
) -> Result<Option<CompletedRun>, SweepError> {
    let key = orphan.entry.key.clone();
    let mut resources = RunResources::adopt(&host, &key, orphan.sidecar.clone()).await?;
    let phase = host.store.phase(&key).await?.as_deref().and_then(parse_phase);
    let adopted = AdoptedRun { phase, observed: resources.state(), expires: resources.expires() };
    let Adoption::Resume(timeout) = adopted.decide(SystemTime::now()) else { return Ok(None) };
    let Resumption { contract, output, stop_grace, observer } = resumption;
    let generation = host.store.take_over(&orphan, &host.owner).await?;
    resources.reattach(output, stop_grace).await?;
    let context = DriveContext { host: Arc::clone(&host), key: key.clone(), generation, timeout, observer };
    let run = Run { phase: Phase::Running, ..Run::new() };
    let driven = drive(run, resources, &context, &mut cancelled).await?;
    let completion = Completion { host, key, generation, contract, limits: LimitValues::default() };
    Ok(Some(completion.finish(driven, None).await?))
}

fn parse_phase(word: &str) -> Option<Phase> {
    let phases = [Phase::Pending, Phase::Creating, Phase::Running, Phase::Completing, Phase::Closed];
    phases.into_iter().find(|phase| phase.as_str() == word)
}

#[cfg(test)]
mod tests;
