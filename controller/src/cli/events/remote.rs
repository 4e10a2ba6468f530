//! Events over the API.

use sluice_client::{
    ApiClient, ApiEventPage, ApiEventStream, ApiRequest, Event, StreamItem, StreamSelection, TrajectoryPage,
};

use super::super::error::CommandError;
use super::super::named_run;
use super::{EventsArgs, FoundEvents, print_new, say_gap};

/// Returns the events that flags select.
pub(super) async fn list(api: &ApiClient, args: &EventsArgs) -> Result<FoundEvents, CommandError> {
    let id = named_run::find(api, args.run()).await?.sandbox.sandbox_id;
    if args.trajectory {
        return trajectory(api, args, &id).await;
    }
    let request = ApiRequest::get(&["sandboxes", &id, "events"]).query("limit", &args.limit.to_string());
    let mut request = request.query_of("event_type", types(args).as_deref());
    if let Some(after) = args.after {
        request = request.query("cursor", &after.to_string()).query("direction", "newer");
    }
    let page: ApiEventPage = api.send(request).await?;
    Ok(FoundEvents { events: oldest_first(page.events), heartbeats: None })
}

async fn trajectory(api: &ApiClient, args: &EventsArgs, id: &str) -> Result<FoundEvents, CommandError> {
    let mut found = FoundEvents { events: Vec::new(), heartbeats: None };
    let mut cursor = None::<String>;
    loop {
        let request = ApiRequest::get(&["sandboxes", id, "trajectory"]).query("limit", "1000");
        let request = request.query_of("event_type", types(args).as_deref()).query_of("cursor", cursor.as_deref());
        let page: TrajectoryPage = api.send(request).await?;
        found.events.extend(page.events);
        found.heartbeats = Some(page.heartbeat_summary);
        match page.next_cursor {
            Some(next) => cursor = Some(next.to_string()),
            None => return Ok(found),
        }
    }
}

/// Shows events until the run has ended.
pub(super) async fn follow(api: &ApiClient, args: &EventsArgs) -> Result<(), CommandError> {
    let sandbox = match &args.run {
        Some(name) => Some(named_run::find(api, name).await?.sandbox.sandbox_id),
        None => None,
    };
    let after = args.after.or(sandbox.as_ref().map(|_| 0));
    let mut events = ApiEventStream::new(api, StreamSelection { sandbox, types: types(args), after });
    loop {
        match events.next().await? {
            StreamItem::Snapshot(_) => {}
            StreamItem::Event(event) => {
                if !print_new(&event, args.json) {
                    return Ok(());
                }
            }
            // A stream from the first position begins with a gap that includes removed events of other runs.
            StreamItem::Gap { .. } if args.after.is_none() => {}
            StreamItem::Gap { from, to } => say_gap(from, to),
            StreamItem::End(_) => return Ok(()),
        }
    }
}

fn types(args: &EventsArgs) -> Option<String> {
    (!args.types.is_empty()).then(|| args.types.join(","))
}

fn oldest_first(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| event.seq);
    events
}
