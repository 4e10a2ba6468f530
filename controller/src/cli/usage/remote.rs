//! Sums of a daemon's ledger, over the API.

use serde_json::{Value, json};
use sluice_client::{ApiClient, ApiRequest};
use sluice_state::ledger::{Filter, GroupBy};

use super::super::error::CommandError;
use super::super::output::{print, print_json, terminal_width};
use super::super::receipts::quoted;
use super::super::sandbox_object::timestamp;
use super::super::table::Table;
use super::{CSV_HEAD, UsageArgs, columns};

/// Prints the sums that flags select.
pub(super) async fn print_sums(
    api: &ApiClient,
    args: &UsageArgs,
    by: GroupBy,
    filter: &Filter,
) -> Result<(), CommandError> {
    if filter.attempt.is_some() {
        return Err(CommandError::wrong_usage("with --server, --run is a run, without an attempt"));
    }
    let sums = sums(api, by, filter).await?;
    let empty = Vec::new();
    let groups = sums["groups"].as_array().unwrap_or(&empty);
    if args.json {
        let (total, unsettled) = (&sums["total"], &sums["unsettled_runs"]);
        print_json(&json!({ "by": by.as_str(), "groups": groups, "total": total, "unsettled_runs": unsettled }));
    } else if args.csv {
        print(&(CSV_HEAD.to_owned() + &groups.iter().map(|group| csv_row(by, group)).collect::<String>()));
    } else {
        let mut table = Table::new(terminal_width(), columns(by.as_str()));
        groups.iter().for_each(|group| table.row(cells(&text(&group["name"]), group)));
        table.row(cells("total", &sums["total"]));
        print(&(table.take() + &unsettled_lines(&sums["unsettled_runs"])));
    }
    Ok(())
}

/// Returns the answer of the API: `groups`, `total` and `unsettled_runs`.
pub(in crate::cli) async fn sums(api: &ApiClient, by: GroupBy, filter: &Filter) -> Result<Value, CommandError> {
    let time = |us: Option<i64>| us.map(timestamp);
    let request = ApiRequest::get(&["usage"])
        .query("by", by.as_str())
        .query_of("account", filter.account.as_deref())
        .query_of("run_id", filter.run_id.as_deref())
        .query_of("model", filter.model.as_deref())
        .query_of("since", time(filter.since_us).as_deref())
        .query_of("until", time(filter.until_us).as_deref());
    Ok(api.send(request).await?)
}

/// Returns a line for each run that is not settled.
pub(in crate::cli) fn unsettled_lines(runs: &Value) -> String {
    let line = |run: &Value| {
        let (run, reason) = (text(&run["run"]), text(&run["reason"]));
        sluice_contract::text::sanitize(&format!("not settled  {run}: {reason}")) + "\n"
    };
    runs.as_array().into_iter().flatten().map(line).collect()
}

/// Returns a value as text; a dash for none.
pub(in crate::cli) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn cells(name: &str, sum: &Value) -> [String; 7] {
    let usage = &sum["usage"];
    [
        name.to_owned(),
        text(&sum["calls"]),
        text(&sum["open"]),
        text(&sum["reserved_usd"]),
        text(&usage["input"]),
        text(&usage["output"]),
        text(&sum["cost_usd"]),
    ]
}

fn csv_row(by: GroupBy, sum: &Value) -> String {
    let plain = |value: &Value| if value.is_null() { String::new() } else { text(value) };
    let usage = &sum["usage"];
    let tokens = ["input", "output", "cached_input", "cache_write", "reasoning", "total"];
    let mut cells = vec![by.as_str().to_owned(), quoted(&text(&sum["name"]))];
    cells.extend(["calls", "open", "reserved_usd"].map(|name| plain(&sum[name])));
    cells.extend(tokens.map(|name| plain(&usage[name])));
    cells.extend(["cost_usd", "nano_usd"].map(|name| plain(&sum[name])));
    cells.join(",") + "\r\n"
}
