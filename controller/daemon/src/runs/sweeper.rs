//! Removes the remains of killed controllers: containers and directories without a live run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_runs::host::Host;
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::removal;
use sluice_runs::sweep::{Leftover, SweepMode, SweepScope, sweep, swept_entry};

use crate::context::ApiContext;
use crate::loops::{LoopFault, LoopTimer, every};
use crate::stop_signal::StopSignal;

/// Sweeps at the start and again and again.
const TIMER: LoopTimer = LoopTimer { name: "sweep", period: Duration::from_secs(300), first: Duration::ZERO };

/// Sweeps until the signal. The orchestrator manages runs of the daemon: only finished ones are removed here.
pub(crate) async fn run(context: Arc<ApiContext>, host: Arc<Host>, stop: StopSignal) {
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    let recorded = Arc::<Mutex<Vec<Leftover>>>::default();
    every(TIMER, loops, log, stop, || turn(Arc::clone(&context), Arc::clone(&host), Arc::clone(&recorded))).await;
}

/// One sweep. `recorded` has the leftovers of the last one: what cannot be removed is recorded once.
async fn turn(context: Arc<ApiContext>, host: Arc<Host>, recorded: Arc<Mutex<Vec<Leftover>>>) -> Result<(), LoopFault> {
    let observer: Arc<dyn Observer> = Arc::new(NoObserver);
    let found = sweep(&host, SweepMode::DryRun, SweepScope::OneShot, &observer).await?;
    let is_new = *lock(&recorded) != found;
    if !found.is_empty() && is_new {
        // Nothing is removed without a line about it. If the line cannot be written, the next turn begins again.
        context.record_own(swept_entry(&found)).await.map_err(|error| LoopFault::new(error.code()))?;
    }
    *lock(&recorded) = found;
    let swept = sweep(&host, SweepMode::Remove, SweepScope::OneShot, &observer).await;
    for left in swept.iter().flatten() {
        let result = left.reason.as_deref().unwrap_or("removed");
        (context.log)(&format!("sweep: {} {}: {result}", left.kind, left.name));
    }
    let runs = host.layout.runs_directory();
    // Directories that were renamed at the end of their runs. A task that is cut leaves the rest for the next sweep.
    let _ = tokio::task::spawn_blocking(move || drop(removal::remove_all(&runs, None, None))).await;
    swept?;
    Ok(())
}

/// Locks the list. Nothing panics while it is held.
fn lock(recorded: &Mutex<Vec<Leftover>>) -> MutexGuard<'_, Vec<Leftover>> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}
