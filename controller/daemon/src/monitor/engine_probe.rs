//! Checks the engine periodically.

use std::sync::Arc;
use std::time::Duration;

use sluice_runs::host::Host;

use crate::loops::{LoopFault, LoopTimer, Loops, every};
use crate::monitor::Monitor;
use crate::stop_signal::StopSignal;

/// Name of the loop.
pub(crate) const NAME: &str = "engine";
const TIMER: LoopTimer = LoopTimer { name: NAME, period: Duration::from_secs(10), first: Duration::ZERO };

/// Checks until the signal. The state of the loop has the last result.
pub(crate) async fn run(host: Arc<Host>, monitor: Arc<Monitor>, loops: Arc<Loops>, log: fn(&str), stop: StopSignal) {
    every(TIMER, loops, log, stop, || {
        let (host, monitor) = (Arc::clone(&host), Arc::clone(&monitor));
        async move {
            let asked = ask(&host, &monitor).await;
            if asked.is_err() {
                monitor.host.set_engine_version(None);
            }
            asked
        }
    })
    .await;
}

/// Checks the engine once, and asks for its version unless it is known since the last failure.
async fn ask(host: &Host, monitor: &Monitor) -> Result<(), LoopFault> {
    host.engine.ping().await?;
    if monitor.host.engine_version().is_none() {
        monitor.host.set_engine_version(Some(host.engine.info().await?.version));
    }
    Ok(())
}
