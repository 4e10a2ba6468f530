//! `sluice usage`: sums of receipts.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use sluice_contract::text::sanitize;
use sluice_state::ledger::{GroupBy, Total, Unsettled, UsageTable};

use super::columns::Columns;
use super::database::open;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{dash, print, print_json, terminal_width};

/// Sums up receipts.
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Group sums by this [default: account]
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<GroupBy>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// The sum of a group.
#[derive(Serialize)]
struct GroupSum {
    name: String,
    #[serde(flatten)]
    total: Total,
}

/// The JSON object of all sums.
#[derive(Serialize)]
struct UsageObject<'a> {
    by: &'static str,
    groups: Vec<GroupSum>,
    total: Total,
    unsettled_runs: &'a [Unsettled],
}

pub(super) async fn run(args: &UsageArgs) -> Result<ExitCode, CommandError> {
    let settings = args.host.settings()?;
    let by = args.by.unwrap_or(GroupBy::Account);
    let store = open(&settings.host.state_dir)?;
    let table = store.usage(by).await.map_err(|error| CommandError::failed(&error))?;
    if args.json {
        let UsageTable { groups, total, unsettled } = table;
        let groups = groups.into_iter().map(|(name, total)| GroupSum { name, total }).collect();
        print_json(&UsageObject { by: by.as_str(), groups, total, unsettled_runs: &unsettled });
    } else {
        print(&text(by, &table));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(by: GroupBy, table: &UsageTable) -> String {
    let UsageTable { groups, total, unsettled } = table;
    let [calls, open, reserved, input, output, cost] = ["calls", "open", "reserved, $", "in", "out", "cost, $"];
    let columns = Columns::fit(terminal_width(), 74, [32]);
    let head = columns.cell(0, by.as_str());
    let mut text = format!("{head} {calls:>8} {open:>8} {reserved:>12} {input:>12} {output:>12} {cost:>16}\n");
    for (name, total) in groups.iter().map(|(name, total)| (name.as_str(), total)).chain([("total", total)]) {
        text += &format!(
            "{} {:>8} {:>8} {:>12} {:>12} {:>12} {:>16}\n",
            columns.cell(0, &sanitize(name)),
            total.calls,
            total.open,
            dash(total.reserved_usd()),
            dash(total.usage.input),
            dash(total.usage.output),
            dash(total.cost_usd()),
        );
    }
    text + &unsettled_lines(unsettled)
}

/// Returns a line for each run that is not settled.
pub(super) fn unsettled_lines(runs: &[Unsettled]) -> String {
    runs.iter().map(|run| format!("not settled  {}: {}\n", run.run, sanitize(&run.reason))).collect()
}
