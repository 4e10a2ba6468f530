//! Ends the programs that an earlier daemon has started for clients, lets this daemon start its own, and ends those at its
//! end. So a restart is the longest time by which a program outlives the request that it was started for.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::exec::end_leftovers;
use sluice_runs::host::Host;
use sluice_state::store::RunDriver;
use tokio::time::sleep;

use crate::context::ApiContext;
use crate::stop_signal::StopSignal;

/// Time between two tries to inspect all containers.
const AGAIN: Duration = Duration::from_secs(1);

/// Works until the signal.
pub(crate) async fn run(context: Arc<ApiContext>, host: Arc<Host>, mut stop: StopSignal) {
    let begin = async {
        let mut told = None;
        while let Err(error) = end_all(&context, &host).await {
            if told.as_ref() != Some(&error) {
                (context.log)(&format!("programs of an earlier daemon may still run in sandboxes: {error}"));
                told = Some(error);
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

async fn end_all(context: &ApiContext, host: &Host) -> Result<(), String> {
    let open = context.store.open_runs().await.map_err(|error| error_chain(&error))?;
    for run in open.iter().filter(|run| run.entry.driver == RunDriver::Daemon) {
        end_leftovers(host, &run.entry.key).await.map_err(|error| error_chain(&error))?;
    }
    Ok(())
}
