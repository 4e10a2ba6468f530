//! Removes the remains of killed controllers: containers and directories without a live run.

use std::sync::Arc;
use std::time::Duration;

use sluice_runs::host::Host;
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::removal;
use sluice_runs::sweep::{SweepMode, SweepScope, sweep};

use crate::context::ApiContext;
use crate::loops::{LoopFault, LoopTimer, every};
use crate::stop_signal::StopSignal;

/// Sweeps at the start and again and again.
const TIMER: LoopTimer = LoopTimer { name: "sweep", period: Duration::from_secs(300), first: Duration::ZERO };

/// Sweeps until the signal. The orchestrator manages runs of the daemon: only finished ones are removed here.
pub(crate) async fn run(context: Arc<ApiContext>, host: Arc<Host>, stop: StopSignal) {
    let (loops, log) = (Arc::clone(&context.loops), context.log);
    every(TIMER, loops, log, stop, || turn(Arc::clone(&host), log)).await;
}

async fn turn(host: Arc<Host>, log: fn(&str)) -> Result<(), LoopFault> {
    let observer: Arc<dyn Observer> = Arc::new(NoObserver);
    let swept = sweep(&host, SweepMode::Remove, SweepScope::OneShot, &observer).await;
    for left in swept.iter().flatten() {
        let result = left.reason.as_deref().unwrap_or("removed");
        log(&format!("sweep: {} {}: {result}", left.kind, left.name));
    }
    let runs = host.layout.runs_directory();
    // Directories that were renamed at the end of their runs. A task that is cut leaves the rest for the next sweep.
    let _ = tokio::task::spawn_blocking(move || drop(removal::remove_all(&runs, None, None))).await;
    swept?;
    Ok(())
}
