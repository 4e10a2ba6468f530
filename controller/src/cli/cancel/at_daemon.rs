//! Cancelling runs of a daemon.

use std::process::ExitCode;

use serde_json::json;
use sluice_client::{ApiClient, ApiRequest, ApiSandbox, ApiSandboxPage, ClientError};

use super::super::error::CommandError;
use super::super::named_run::{self, LIVE_STATES};
use super::super::output::{print, print_json};
use super::{CancelArgs, over};

/// Cancels a run.
pub(super) async fn cancel(api: &ApiClient, name: &str, args: &CancelArgs) -> Result<ExitCode, CommandError> {
    let run = named_run::find(api, name).await?.sandbox;
    if run.is_ended() {
        return Err(over(&run.sandbox_id));
    }
    let (key, state) = end(api, &run.sandbox_id, args.wait).await?;
    if args.json {
        print_json(&json!({ "run": key, "state": state.replace(' ', "_") }));
    } else {
        print(&format!("run {key}: {state}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Cancels all live runs that the flags select. They are listed first, and then cancelled one after another.
pub(super) async fn cancel_all(api: &ApiClient, args: &CancelArgs) -> Result<ExitCode, CommandError> {
    let (mut live, mut cursor) = (Vec::<ApiSandbox>::new(), None::<String>);
    loop {
        let request = ApiRequest::get(&["sandboxes"]).query("state", LIVE_STATES).query("limit", "500");
        let page: ApiSandboxPage = api.send(request.query_of("cursor", cursor.as_deref())).await?;
        live.extend(page.sandboxes.into_iter().map(|listed| listed.sandbox));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    live.retain(|run| args.owner.as_ref().is_none_or(|owner| run.owner_id == *owner));
    let mut done = Vec::new();
    for run in &live {
        // A run that waits for others ends with them.
        let (key, state) = end(api, &run.sandbox_id, false).await?;
        done.push(json!({ "run": key, "state": state.replace(' ', "_") }));
        if !args.json {
            print(&format!("run {key}: {state}\n"));
        }
    }
    if args.wait {
        for run in &live {
            api.ended(&run.sandbox_id).await?;
        }
    }
    if args.json {
        print_json(&json!({ "runs": done }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Requests the end of a run, and returns its key and the result.
async fn end(api: &ApiClient, id: &str, wait: bool) -> Result<(String, &'static str), ClientError> {
    let run: ApiSandbox = api.send(ApiRequest::delete(&["sandboxes", id])).await?;
    let key = format!("{id}.{}", run.attempt);
    if run.is_ended() {
        return Ok((key, "over"));
    }
    if wait {
        api.ended(id).await?;
        return Ok((key, "over"));
    }
    Ok((key, "asked to end"))
}
