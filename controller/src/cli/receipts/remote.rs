//! Receipts of a daemon's ledger, over the API.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_client::{ApiClient, ApiRequest};
use sluice_state::ledger::{Filter, GroupBy};

use super::super::error::CommandError;
use super::super::output::{print, print_json, terminal_width};
use super::super::table::Table;
use super::super::usage::{sums, text_of as text, unsettled_lines_of};
use super::ReceiptsArgs;
use super::list::COLUMNS;

#[derive(Deserialize)]
struct Page {
    receipts: Vec<Value>,
    next_cursor: Option<String>,
}

/// Prints the receipts that flags select, and their sum.
pub(super) async fn print_receipts(api: &ApiClient, args: &ReceiptsArgs, filter: &Filter) -> Result<(), CommandError> {
    let flags = [
        ("--csv", args.csv),
        ("--since", filter.since_us.is_some()),
        ("--until", filter.until_us.is_some()),
        ("an attempt in --run", filter.attempt.is_some()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, is_given)| *is_given) {
        return Err(CommandError::wrong_usage(format!(
            "the API does not take {flag} for receipts; sluice usage --server sums up a period"
        )));
    }
    let receipts = all(api, filter).await?;
    let sums = sums(api, GroupBy::Account, filter).await?;
    let (total, unsettled) = (&sums["total"], &sums["unsettled_runs"]);
    if args.json {
        print_json(&json!({ "receipts": receipts, "total": total, "unsettled_runs": unsettled }));
        return Ok(());
    }
    let mut table = Table::new(terminal_width(), COLUMNS);
    receipts.iter().for_each(|receipt| table.row(cells(receipt)));
    let reserved = total["reserved_usd"].as_str();
    let sum = format!(
        "total    {} receipts, {} open{}; {} tokens in, {} out; {}\n",
        text(&total["calls"]),
        text(&total["open"]),
        reserved.map_or_else(String::new, |reserved| format!(", with ${reserved} reserved for them")),
        text(&total["usage"]["input"]),
        text(&total["usage"]["output"]),
        total["cost_usd"].as_str().map_or_else(|| "no known cost".to_owned(), |cost| format!("${cost}")),
    );
    print(&(table.take() + &sum + &unsettled_lines_of(unsettled)));
    Ok(())
}

async fn all(api: &ApiClient, filter: &Filter) -> Result<Vec<Value>, CommandError> {
    let (mut receipts, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let request = ApiRequest::get(&["receipts"])
            .query("limit", "500")
            .query_of("account", filter.account.as_deref())
            .query_of("run_id", filter.run_id.as_deref())
            .query_of("model", filter.model.as_deref())
            .query_of("cursor", cursor.as_deref());
        let page: Page = api.send(request).await?;
        receipts.extend(page.receipts.into_iter().map(|mut receipt| {
            receipt["created_at"] = receipt["origin"].clone();
            receipt
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(receipts);
        }
    }
}

fn cells(receipt: &Value) -> [String; 8] {
    let usage = &receipt["usage"];
    let run = format!("{}.{}", text(&receipt["run_id"]), text(&receipt["attempt"]));
    [
        text(&receipt["origin"]).get(..19).unwrap_or_default().to_owned(),
        run,
        text(&receipt["account"]),
        text(&receipt["model"]),
        text(&receipt["status"]),
        text(&usage["input"]),
        text(&usage["output"]),
        text(&receipt["cost_usd"]),
    ]
}
