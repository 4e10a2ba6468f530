//! Counts the events of the log: all that were committed after the start of the daemon.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunId;
use sluice_state::approvals::ApprovalError;
use sluice_state::events::{EventFilter, LoggedEvent};
use sluice_state::sandboxes::SandboxError;
use sluice_state::store::{Store, StoreError};
use tokio::time::sleep;

use super::Monitor;
use super::measurement::{COUNTED_TYPES, Measurement, closed_approval, needs_run, of_approval, of_event};
use crate::loops::Loops;
use crate::stop_signal::StopSignal;

/// Name of the loop.
const NAME: &str = "metrics";
/// Maximum time after which the log is read without a signal: other processes append too.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of events in one read.
const EVENTS: u32 = 200;

/// The database cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
}

/// Counts events until the signal.
pub(crate) async fn run(store: Store, monitor: Arc<Monitor>, loops: Arc<Loops>, log: fn(&str), mut stop: StopSignal) {
    let mut committed = store.events_committed();
    loop {
        let counted = tokio::select! {
            () = stop.stopped() => return,
            counted = count_new(&store, &monitor) => counted,
        };
        if let Some(line) = loops.record(NAME, LOOK_EVERY, &counted) {
            log(&line);
        }
        let may_have_more = async {
            tokio::select! {
                // An error means that the store is gone.
                changed = committed.changed(), if counted.is_ok() => drop(changed),
                () = sleep(LOOK_EVERY) => {}
            }
            sleep(PAUSE).await;
        };
        tokio::select! {
            () = stop.stopped() => return,
            () = may_have_more => {}
        }
    }
}

/// Counts the events after the position, to the end of the log.
async fn count_new(store: &Store, monitor: &Monitor) -> Result<(), ReadError> {
    let filter =
        EventFilter { types: COUNTED_TYPES.iter().map(ToString::to_string).collect(), ..EventFilter::default() };
    loop {
        let batch = store.events_after(monitor.read.get(), filter.clone(), EVENTS).await?;
        for event in &batch.events {
            measure(store, event).await?.iter().for_each(|measurement| monitor.count(measurement));
            // An event is counted once, also if the next event cannot be counted.
            monitor.read.set(event.seq);
        }
        monitor.read.set(batch.next);
        if batch.is_newest {
            return Ok(());
        }
    }
}

/// Returns the measurement of an event, with the facts of the database about its run or its approval.
async fn measure(store: &Store, event: &LoggedEvent) -> Result<Option<Measurement>, ReadError> {
    let run: Option<RunId> = event.sandbox_id.as_deref().and_then(|id| id.parse().ok());
    let approval = run.as_ref().zip(closed_approval(event));
    if let Some((run, approval)) = approval {
        return Ok(store.find_approval(run, &approval).await?.as_ref().and_then(of_approval));
    }
    let run = match run.filter(|_| needs_run(event)) {
        Some(id) => store.find_sandbox(None, &id).await?,
        None => None,
    };
    Ok(of_event(event, run.as_ref()))
}
