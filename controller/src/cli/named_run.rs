//! Runs of a daemon by id, name, or the beginning of an id.

use sluice_client::{ApiClient, ApiRequest, ApiSandboxDetail, ApiSandboxPage};
use sluice_contract::RunKey;

use super::error::CommandError;
use super::output::say;

/// States of runs that have not ended, as a query of the API names them.
pub(super) const LIVE_STATES: &str = "PENDING,CREATING,RUNNING,COMPLETING";

/// Maximum number of runs that an error names.
const NAMED_MAX: usize = 10;
/// Maximum number of pages of runs that are read for a prefix.
const PAGES_MAX: usize = 20;

/// Finds the run that a user names: an id, the name of a live run, else of the newest one that has ended, or a unique
/// prefix of an id. If the user did not give the full id, the id is printed to stderr. A request that a restart of the
/// daemon interrupts is sent again.
pub(super) async fn find(api: &ApiClient, name: &str) -> Result<ApiSandboxDetail, CommandError> {
    let unknown = || {
        CommandError::wrong_usage(format!(
            "there is no run '{name}' at {}; sluice ps --all lists all runs",
            api.server()
        ))
    };
    if name.is_empty() {
        return Err(unknown());
    }
    if let Some(run) = show(api, name).await? {
        if run.sandbox.sandbox_id != name {
            say(&format!("run {}", run.sandbox.sandbox_id));
        }
        return Ok(run);
    }
    // A user may copy RUN.ATTEMPT from a list.
    let name = name.parse::<RunKey>().map_or_else(|_| name.to_owned(), |key| key.run_id.to_string());
    let found = with_prefix(api, &name).await?;
    match &found[..] {
        [] => Err(unknown()),
        [id] => {
            say(&format!("run {id}"));
            show(api, id).await?.ok_or_else(unknown)
        }
        several => {
            let more = if several.len() > NAMED_MAX { ", and more" } else { "" };
            let named = several[..several.len().min(NAMED_MAX)].join(", ");
            Err(CommandError::wrong_usage(format!("'{name}' is the beginning of several runs: {named}{more}")))
        }
    }
}

async fn show(api: &ApiClient, name: &str) -> Result<Option<ApiSandboxDetail>, CommandError> {
    match api.send_until_whole(ApiRequest::get(&["sandboxes", name])).await {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.failure().is_some_and(|failure| failure.status == 404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the ids with this prefix: all of them, or more than an error names.
async fn with_prefix(api: &ApiClient, prefix: &str) -> Result<Vec<String>, CommandError> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..PAGES_MAX {
        let request = ApiRequest::get(&["sandboxes"]).query("q", prefix).query("limit", "500");
        let page: ApiSandboxPage = api.send_until_whole(request.query_of("cursor", cursor.as_deref())).await?;
        let ids = page.sandboxes.into_iter().map(|listed| listed.sandbox.sandbox_id);
        found.extend(ids.filter(|id| id.starts_with(prefix)));
        cursor = page.next_cursor;
        if cursor.is_none() || found.len() > NAMED_MAX {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use sluice_state::sandboxes::SandboxState;

    use super::LIVE_STATES;

    #[test]
    fn live_states_are_those_that_have_not_ended() {
        let live = SandboxState::ALL.into_iter().filter(|state| !state.is_ended());
        let words: Vec<_> = live.map(SandboxState::as_str).collect();
        assert_eq!(LIVE_STATES, words.join(","));
    }
}
