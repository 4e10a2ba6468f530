//! Asks the engine for a sign of life, again and again.

use std::sync::Arc;
use std::time::Duration;

use sluice_runs::host::Host;
use tokio::time::{MissedTickBehavior, interval};

use super::Monitor;
use crate::stop_signal::StopSignal;

/// Name of the loop.
pub(crate) const NAME: &str = "engine";
/// Time between two questions.
const EVERY: Duration = Duration::from_secs(10);

/// Asks until the signal. The result of the last question is on the board of loops.
pub(crate) async fn run(host: Arc<Host>, monitor: Arc<Monitor>, mut stop: StopSignal) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            () = stop.stopped() => return,
            answer = host.engine.ping() => monitor.loops.record(NAME, &answer),
        }
    }
}
