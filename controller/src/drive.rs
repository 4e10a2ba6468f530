//! The one loop: look, plan, perform, record. The only writer of a run's state.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::host::Host;
use crate::layout::RunKey;
use crate::plan::{Plan, plan};
use crate::process::Process;
use crate::progress::Progress;
use crate::run::{Cancel, Event, Failure, Phase, Run, Verdict};
use crate::scene::{Scene, Woken};
use crate::store::StoreError;

/// Under whose hand a run goes on.
#[derive(Debug, Clone, Copy)]
pub struct Reins<'a> {
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
/// # Errors
/// When its record cannot be kept: then nobody may go on, and a sweep finds it.
pub async fn drive(
    mut run: Run,
    scene: &mut Scene<'_>,
    reins: Reins<'_>,
    cancelled: &mut watch::Receiver<Option<Cancel>>,
) -> Result<Run, StoreError> {
    let mut began = None;
    let mut recorded = Recorded::default();
    loop {
        if run.verdict.is_none()
            && let Some(cancel) = *cancelled.borrow()
        {
            run = apply(run, Event::Cancelled(cancel));
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
                    Woken::By(event) => vec![event],
                    Woken::ByNothing => vec![],
                },
                _ = cancelled.changed(), if run.verdict.is_none() => vec![],
            },
            Plan::TimeIsUp => vec![Event::DeadlinePassed],
            Plan::Over | Plan::GiveUp => return Ok(run),
        };
        for event in events {
            run = apply(run, event);
        }
        if let Some(seen) = scene.witness() {
            reins.host.store.witness(reins.key, seen).await?;
        }
        recorded.keep(&run, scene.sidecar(), reins).await?;
    }
}

/// What the database knows.
#[derive(Default, PartialEq)]
struct Recorded(Option<(Phase, Option<Verdict>, Option<Process>)>);

impl Recorded {
    async fn keep(&mut self, run: &Run, sidecar: Option<&Process>, reins: Reins<'_>) -> Result<(), StoreError> {
        // The sidecar's pid is worth a write while somebody may have to find it.
        let known = Some((run.phase, run.verdict.clone(), sidecar.filter(|_| run.verdict.is_none()).cloned()));
        if known != self.0 {
            reins.host.store.record(reins.key, reins.generation, run, sidecar).await?;
            self.0 = known;
        }
        Ok(())
    }
}

fn apply(run: Run, event: Event) -> Run {
    let before = run.clone();
    run.apply(event).unwrap_or_else(|illegal| {
        // A fault of ours; the run is taken down, and says so.
        let step = crate::run::Step::Close;
        let failure = Failure { step, message: illegal.to_string() };
        Run {
            phase: Phase::Completing,
            verdict: before.verdict.clone().or(Some(Verdict::NotStarted(failure))),
            ..before
        }
    })
}
