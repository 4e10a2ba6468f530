//! Events of this state directory.

use std::time::Duration;

use sluice_client::ApiHeartbeatSummary;
use sluice_contract::exit;
use sluice_state::events::{Direction, EventFilter, EventQuery, TrajectoryQuery};
use sluice_state::sandboxes::SandboxError;
use sluice_state::store::{RunDriver, Store, StoreError};

use super::super::database::open_for_queries;
use super::super::error::CommandError;
use super::super::find_run::find_run;
use super::super::sandbox_object::{event_of, timestamp};
use super::{EventsArgs, FoundEvents, print_new, say_gap};

/// Time between two reads of the database.
const EVERY: Duration = Duration::from_millis(200);
/// Maximum number of events in one read.
const PAGE: u32 = 500;

/// Returns the events that flags select.
pub(super) async fn list(args: &EventsArgs) -> Result<FoundEvents, CommandError> {
    let store = open_for_queries(&args.host.state_dir()?)?;
    let sandbox_id = run_id(&store, args.run()).await?.to_string();
    if args.trajectory {
        return trajectory(&store, args, sandbox_id).await;
    }
    let filter = EventFilter { sandbox_id: Some(sandbox_id), types: args.types.clone(), ..EventFilter::default() };
    let direction = if args.after.is_some() { Direction::Newer } else { Direction::Older };
    let query = EventQuery { filter, text: None, cursor: args.after, direction, limit: args.limit };
    let mut events = store.list_events(query).await.map_err(|error| failed(&error))?.events;
    events.sort_by_key(|event| event.seq);
    Ok(FoundEvents { events: events.into_iter().map(event_of).collect(), heartbeats: None })
}

async fn trajectory(store: &Store, args: &EventsArgs, sandbox_id: String) -> Result<FoundEvents, CommandError> {
    let mut found = FoundEvents { events: Vec::new(), heartbeats: None };
    let mut query = TrajectoryQuery { sandbox_id, types: args.types.clone(), cursor: None, limit: PAGE };
    loop {
        let part = store.trajectory(query.clone()).await.map_err(|error| failed(&error))?;
        found.events.extend(part.events.into_iter().map(event_of));
        found.heartbeats = Some(ApiHeartbeatSummary {
            count: part.heartbeats.count,
            first_heartbeat: part.heartbeats.first_us.map(timestamp),
            last_heartbeat: part.heartbeats.last_us.map(timestamp),
        });
        query.cursor = part.next_cursor;
        if query.cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Shows events until the run has ended, with or without a running daemon.
pub(super) async fn follow(args: &EventsArgs) -> Result<(), CommandError> {
    let store = open_for_queries(&args.host.state_dir()?)?;
    let run_id = match &args.run {
        Some(name) => Some(run_id(&store, name).await?),
        None => None,
    };
    let sandbox_id = run_id.as_ref().map(ToString::to_string);
    let filter = EventFilter { sandbox_id, types: args.types.clone(), ..EventFilter::default() };
    let mut after = match (args.after, &run_id) {
        (Some(after), _) => after,
        (None, Some(_)) => 0,
        (None, None) => store.newest_event().await.map_err(|error| failed(&error))?,
    };
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        // The end is checked first, so that events before it are read after the check.
        let is_over = match &run_id {
            Some(run_id) => {
                let found = store.find_sandbox(None, run_id).await;
                let found = found.map_err(|error: SandboxError| CommandError::failed(&error))?;
                found.is_none_or(|sandbox| sandbox.state.is_ended())
            }
            None => false,
        };
        loop {
            let batch = store.events_after(after, filter.clone(), PAGE).await.map_err(|error| failed(&error))?;
            if let Some(gap) = batch.gap.filter(|_| args.after.is_some()) {
                say_gap(gap.from, gap.to);
            }
            after = batch.next;
            for event in batch.events {
                if !print_new(&event_of(event), args.json) {
                    return Ok(());
                }
            }
            if batch.is_newest {
                break;
            }
        }
        if is_over {
            return Ok(());
        }
    }
}

/// Returns the id of a run that has events.
async fn run_id(store: &Store, name: &str) -> Result<sluice_contract::RunId, CommandError> {
    let run = find_run(store, name).await?;
    let key = &run.entry.key;
    if run.entry.driver == RunDriver::Daemon {
        return Ok(key.run_id.clone());
    }
    let message = format!("run {key} is of sluice run, which has no events; sluice audit show {key} shows its calls");
    Err(CommandError { code: exit::FAILED, message })
}

fn failed(error: &StoreError) -> CommandError {
    CommandError::failed(error)
}
