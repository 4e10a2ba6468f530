//! Asks the engine for a sign of life, again and again.

use std::sync::Arc;
use std::time::Duration;

use sluice_runs::host::Host;

use crate::loops::{LoopTimer, Loops, every};
use crate::stop_signal::StopSignal;

/// Name of the loop.
pub(crate) const NAME: &str = "engine";
const TIMER: LoopTimer = LoopTimer { name: NAME, period: Duration::from_secs(10), first: Duration::ZERO };

/// Asks until the signal. The state of the loop has the result of the last question.
pub(crate) async fn run(host: Arc<Host>, loops: Arc<Loops>, log: fn(&str), stop: StopSignal) {
    every(TIMER, loops, log, stop, || {
        let host = Arc::clone(&host);
        async move { Ok(host.engine.ping().await?) }
    })
    .await;
}
