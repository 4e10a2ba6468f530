//! Ends the programs that an earlier daemon has started for clients, lets this daemon start its own, and ends its own
//! programs when the daemon stops. So a program outlives the request that it was started for by at most the time of a
//! restart.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::engine::EngineError;
use sluice_runs::exec::end_leftovers;
use sluice_runs::host::Host;
use sluice_state::store::{RunDriver, StoreError};
use tokio::time::sleep;

use crate::context::ApiContext;
use crate::stop_signal::StopSignal;

/// Time between two tries to inspect all containers.
const AGAIN: Duration = Duration::from_secs(1);

/// Reason that programs of an earlier daemon may still run. The next look tries again.
#[derive(Debug, thiserror::Error)]
enum LeftoverError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Works until the signal.
pub(crate) async fn run(context: Arc<ApiContext>, host: Arc<Host>, mut stop: StopSignal) {
    let begin = async {
        let mut told = None;
        while let Err(error) = end_all(&context, &host).await {
            let text = error_chain(&error);
            if told.as_ref() != Some(&text) {
                (context.log)(&format!("programs of an earlier daemon may still run in sandboxes: {text}"));
                told = Some(text);
            }
            sleep(AGAIN).await;
        }
        if told.is_some() {
            (context.log)("programs of an earlier daemon have ended");
        }
        context.execs.open();
    };
    tokio::select! {
        () = begin => stop.stopped().await,
        () = stop.stopped() => {}
    }
    context.execs.close().await;
}

async fn end_all(context: &ApiContext, host: &Host) -> Result<(), LeftoverError> {
    for run in context.store.open_runs_of(RunDriver::Daemon).await? {
        end_leftovers(host, &run.entry.key).await?;
    }
    Ok(())
}
