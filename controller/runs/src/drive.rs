//! The one loop: look, plan, perform, record. The only writer of a run's state.

use std::time::{Duration, Instant};

use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, Witness};
use sluice_state::process::Process;
use sluice_state::run::{Cancel, Phase, Run, RunEvent, RunVerdict, Step, StepFailure};
use sluice_state::store::StoreError;
use tokio::sync::watch;

use crate::host::Host;
use crate::plan::{Plan, plan};
use crate::progress::Progress;
use crate::scene::{RunResources, WakeCause};

/// Under whose hand a run goes on.
#[derive(Debug, Clone, Copy)]
pub struct DriveContext<'a> {
    /// The host.
    pub host: &'a Host,
    /// Which start of which run.
    pub key: &'a RunKey,
    /// Which taking over this is.
    pub generation: u32,
    /// How long the program may run.
    pub timeout: Duration,
    /// Who looks on.
    pub progress: &'a Progress,
}

/// Takes a run from where it is to its end, or to where it can only be left to a sweep.
///
/// A record that cannot be kept ends the run: nobody would find it otherwise. What is there is taken down all the
/// same, and what could not be written down is the last setback.
///
/// # Errors
/// When somebody else drives it now.
pub async fn drive(
    mut run: Run,
    scene: &mut RunResources<'_>,
    reins: DriveContext<'_>,
    cancelled: &mut watch::Receiver<Option<Cancel>>,
) -> Result<Run, StoreError> {
    let mut began = None;
    let mut recorded = Recorded::default();
    loop {
        if run.verdict.is_none()
            && let Some(cancel) = *cancelled.borrow()
        {
            run = apply(run, RunEvent::Cancelled(cancel));
        }
        if run.phase == Phase::Running {
            began.get_or_insert_with(Instant::now);
        }
        let left = began.map_or(reins.timeout, |began| reins.timeout.saturating_sub(began.elapsed()));
        let events = match plan(&run, &scene.seen(), left) {
            Plan::Do(steps) => {
                let begun = Instant::now();
                let events = scene.perform(&steps).await;
                reins.progress.performed(&events, begun.elapsed());
                events
            }
            Plan::Wait(left) => tokio::select! {
                // Both are cancel-safe: what is not taken here is seen in the next round.
                woken = scene.stirred(left) => match woken {
                    WakeCause::By(event) => vec![event],
                    WakeCause::ByNothing => vec![],
                },
                _ = cancelled.changed(), if run.verdict.is_none() => vec![],
            },
            Plan::TimeIsUp => vec![RunEvent::DeadlinePassed],
            Plan::Over | Plan::GiveUp => return Ok(recorded.told(run)),
        };
        for event in events {
            run = apply(run, event);
        }
        // A full disk is felt here first. The log has its own answer to that, and the run goes on to hear it.
        recorded.note(scene.witness(), reins).await;
        match recorded.keep(&run, scene.sidecar(), reins).await {
            Ok(()) => {}
            Err(StoreError::Stale(key)) => return Err(StoreError::Stale(key)),
            Err(error) => run = apply(run, RunEvent::Unrecorded(error_chain(&error))),
        }
    }
}

/// What the database knows, and what it should.
#[derive(Default)]
struct Recorded {
    known: Option<(Phase, Option<RunVerdict>, Option<Process>)>,
    missing: Option<String>,
    /// The last line that was seen and not written down; it vouches for those before it.
    unnoted: Option<Witness>,
    why_unnoted: Option<String>,
}

impl Recorded {
    async fn keep(&mut self, run: &Run, sidecar: Option<&Process>, reins: DriveContext<'_>) -> Result<(), StoreError> {
        // The sidecar's pid is worth a write while somebody may have to find it.
        let known = Some((run.phase, run.verdict.clone(), sidecar.filter(|_| run.verdict.is_none()).cloned()));
        if known != self.known {
            let kept = reins.host.store.record(reins.key, reins.generation, run, sidecar).await;
            self.missing = kept.as_ref().err().map(|error| error_chain(error));
            kept?;
            self.known = known;
        }
        Ok(())
    }

    async fn note(&mut self, seen: Option<Witness>, reins: DriveContext<'_>) {
        self.unnoted = seen.or(self.unnoted);
        if let Some(seen) = self.unnoted {
            self.why_unnoted =
                reins.host.store.add_witness(reins.key, seen).await.err().map(|error| error_chain(&error));
            self.unnoted = self.unnoted.filter(|_| self.why_unnoted.is_some());
        }
    }

    /// The run with what is missing.
    fn told(self, mut run: Run) -> Run {
        if let Some(message) = self.missing.or(self.why_unnoted) {
            run.phase = Phase::Completing;
            run.teardown_failures.push(StepFailure { step: Step::Close, message });
        }
        run
    }
}

fn apply(run: Run, event: RunEvent) -> Run {
    let before = run.clone();
    run.apply(event).unwrap_or_else(|illegal| {
        // A fault of ours; the run is taken down, and says so.
        let failure = StepFailure { step: Step::Close, message: illegal.to_string() };
        Run {
            phase: Phase::Completing,
            verdict: before.verdict.clone().or(Some(RunVerdict::NotStarted(failure))),
            ..before
        }
    })
}
