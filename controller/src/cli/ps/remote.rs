//! Runs of a daemon, over its API.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sluice_client::{ApiClient, ApiListedSandbox, ApiRequest, ApiSandbox, ApiSandboxPage};
use sluice_contract::Account;
use sluice_contract::time::unix_micros;

use super::super::error::CommandError;
use super::super::named_run::LIVE_STATES;
use super::PsArgs;
use super::row::{ApiUsage, RunView};

#[derive(Deserialize)]
struct UsagePage {
    groups: Vec<Group>,
    unsettled_runs: Vec<UnsettledRun>,
}

/// A run whose bill is not final.
#[derive(Deserialize)]
struct UnsettledRun {
    run: String,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    calls: u64,
    cost_usd: Option<String>,
}

/// Returns the runs that flags select, newest first.
pub(super) async fn runs(api: &ApiClient, args: &PsArgs, since_us: Option<i64>) -> Result<Vec<RunView>, CommandError> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    let states = if args.all { None } else { Some(LIVE_STATES) };
    loop {
        let request = ApiRequest::get(&["sandboxes"]).query("limit", "500").query_of("state", states);
        let page: ApiSandboxPage = api.send(request.query_of("cursor", cursor.as_deref())).await?;
        let read = page.sandboxes.len();
        let is_young = |listed: &ApiListedSandbox| {
            let created_us = humantime::parse_rfc3339_weak(&listed.sandbox.created_at).ok().and_then(unix_micros);
            since_us.is_none_or(|since| created_us.is_some_and(|created| created >= since))
        };
        let young: Vec<_> = page.sandboxes.into_iter().filter(is_young).collect();
        let is_last = young.len() < read;
        found.extend(young);
        cursor = page.next_cursor;
        if is_last || cursor.is_none() {
            break;
        }
    }
    if let Some(account) = args.account.as_ref().map(Account::as_str) {
        found.retain(|listed| listed.sandbox.billing_account_id == account);
    }
    let sandboxes: Vec<&ApiSandbox> = found.iter().map(|listed| &listed.sandbox).collect();
    let mut used = usage(api, &sandboxes).await?;
    let view = |listed: &ApiListedSandbox| {
        RunView::of_listed(listed, used.remove(&key_of(&listed.sandbox)).unwrap_or_default())
    };
    Ok(found.iter().map(view).collect())
}

/// Returns calls and cost of one run.
pub(in crate::cli) async fn usage_of(api: &ApiClient, sandbox: &ApiSandbox) -> Result<ApiUsage, CommandError> {
    let mut used = usage(api, &[sandbox]).await?;
    Ok(used.remove(&key_of(sandbox)).unwrap_or_default())
}

/// Returns calls and cost of runs: one request for each account. For an account that the token does not have, they are
/// unknown.
async fn usage(api: &ApiClient, runs: &[&ApiSandbox]) -> Result<BTreeMap<String, ApiUsage>, CommandError> {
    let accounts: BTreeSet<_> = runs.iter().map(|run| run.billing_account_id.as_str()).collect();
    let only = if let [run] = runs { Some(run.sandbox_id.as_str()) } else { None };
    let oldest = runs.last().map(|run| run.created_at.as_str());
    let mut all = BTreeMap::new();
    for account in accounts {
        let request = ApiRequest::get(&["usage"]).query("by", "run").query("account", account);
        let request = request.query_of("run_id", only).query_of("since", oldest);
        let sums = match api.send::<UsagePage>(request).await {
            Ok(sums) => sums,
            Err(error) if error.failure().is_some_and(|failure| failure.status == 404) => continue,
            Err(error) => return Err(error.into()),
        };
        let unsettled: BTreeSet<_> = sums.unsettled_runs.into_iter().map(|unsettled| unsettled.run).collect();
        let without_calls = |run: &ApiSandbox| {
            let key = key_of(run);
            let is_final = run.is_ended() && !unsettled.contains(&key);
            (key, ApiUsage { calls: Some(0), cost_usd: is_final.then(|| "0".to_owned()) })
        };
        all.extend(runs.iter().copied().filter(|run| run.billing_account_id == account).map(without_calls));
        let used = |group: Group| (group.name, ApiUsage { calls: Some(group.calls), cost_usd: group.cost_usd });
        all.extend(sums.groups.into_iter().map(used));
    }
    Ok(all)
}

/// Returns `RUN.ATTEMPT`.
fn key_of(sandbox: &ApiSandbox) -> String {
    format!("{}.{}", sandbox.sandbox_id, sandbox.attempt)
}
