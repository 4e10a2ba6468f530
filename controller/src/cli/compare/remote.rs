//! A run over the API.

use sluice_client::{ApiClient, ApiEventPage, ApiRequest};
use sluice_state::ledger::{Filter, GroupBy};

use super::super::error::CommandError;
use super::super::named_run;
use super::super::usage::sums;
use super::Compared;

/// Returns the compared values of a run.
pub(super) async fn compared(api: &ApiClient, name: &str) -> Result<Compared, CommandError> {
    let run = named_run::find(api, name).await?;
    let id = run.sandbox.sandbox_id.clone();
    let filter =
        Filter { run_id: Some(id.clone()), account: Some(run.sandbox.billing_account_id.clone()), ..Filter::default() };
    let sums = sums(api, GroupBy::Run, &filter).await?;
    let mut compared = Compared {
        exit_code: run.exit_code,
        model: run.models.first().cloned(),
        ..Compared::of(&run.sandbox).with_sums(&sums["total"])
    };
    let mut cursor = 0;
    loop {
        let request = ApiRequest::get(&["sandboxes", &id, "events"]).query("limit", "500").query("direction", "newer");
        let page: ApiEventPage = api.send(request.query("cursor", &cursor.to_string())).await?;
        page.events.iter().for_each(|event| compared.count(event));
        match page.next_cursor {
            Some(next) => cursor = next,
            None => return Ok(compared),
        }
    }
}
