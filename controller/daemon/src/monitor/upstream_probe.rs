//! Connects to the upstream periodically. No request is sent.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::upstream::negotiate;
use sluice_upstream::Upstream;

use crate::loops::{LoopFault, LoopTimer, Loops, every};
use crate::stop_signal::StopSignal;

/// Name of the loop.
pub(crate) const NAME: &str = "upstream";
const TIMER: LoopTimer = LoopTimer { name: NAME, period: Duration::from_secs(60), first: Duration::ZERO };

/// Connects until the signal. The state of the loop has the last result. No task waits for it: while the upstream
/// does not answer, calls fail and the daemon continues.
pub(crate) async fn run(upstream: Upstream, loops: Arc<Loops>, log: fn(&str), stop: StopSignal) {
    every(TIMER, loops, log, stop, || {
        let upstream = upstream.clone();
        async move {
            negotiate(&upstream).await.map_err(|error| {
                LoopFault::new(format!("runs fail until their upstream answers: {}", error_chain(&error)))
            })
        }
    })
    .await;
}
