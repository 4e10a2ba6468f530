//! Removes what killed controllers left: containers and directories without a live run.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::host::Host;
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::removal;
use sluice_runs::sweep::{SweepMode, SweepScope, sweep};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ApiContext;
use crate::stop_signal::StopSignal;

/// Time between two sweeps.
const EVERY: Duration = Duration::from_secs(300);

/// Sweeps at the start and again and again. Runs of the daemon are the orchestrator's: of them, only what is over is removed.
pub(crate) async fn run(context: Arc<ApiContext>, host: Arc<Host>, mut stop: StopSignal) {
    let observer: Arc<dyn Observer> = Arc::new(NoObserver);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            _ = ticks.tick() => {}
        }
        let swept = tokio::select! {
            () = stop.stopped() => return,
            swept = sweep(&host, SweepMode::Remove, SweepScope::OneShot, &observer) => swept,
        };
        context.monitor.loops.record("sweep", &swept);
        match swept {
            Ok(leftovers) => leftovers.iter().for_each(|left| {
                let result = left.reason.as_deref().unwrap_or("removed");
                (context.log)(&format!("sweep: {} {}: {result}", left.kind, left.name));
            }),
            Err(error) => (context.log)(&format!("sweep: {}", error_chain(&error))),
        }
        let runs = host.layout.runs_directory();
        // Directories that were renamed at the end of their runs. A task that is cut leaves the rest for the next sweep.
        let _ = tokio::task::spawn_blocking(move || drop(removal::remove_all(&runs, None, None))).await;
    }
}
