//! `sluice usage`: sums of receipts.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use sluice_contract::text::sanitize;
use sluice_state::ledger::{GroupBy, GroupSum, Total, Unsettled, UsageTable};

use super::database::open_for_queries;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{dash, print, print_json, terminal_width};
use super::receipts::quoted;
use super::selection::{SelectionArgs, check_run};
use super::server_args::ServerArgs;
use super::table::{Column, Table};

mod remote;

pub(super) use remote::{sums, text as text_of, unsettled_lines as unsettled_lines_of};

const EXAMPLES: &str = "\
Examples:
  sluice usage --by model
  sluice usage --account acct-1 --since 2026-11-01 --until 2026-12-01      acct-1 in November
  sluice usage --by day --since 2026-11-01 --csv > november.csv";

/// Sums up receipts.
///
/// An amount that comes late counts in the day on which it was booked: later corrections never change the sum of a month
/// that is over.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct UsageArgs {
    /// Group sums by this [default: account]
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<GroupFlag>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a head line: one line for each group
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Grouping of sums, as the flag names it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum GroupFlag {
    /// Account that pays.
    Account,
    /// Attempt of a run.
    Run,
    /// Requested model.
    Model,
    /// Day in which a receipt or an entry counts (UTC).
    Day,
}

impl From<GroupFlag> for GroupBy {
    fn from(flag: GroupFlag) -> Self {
        match flag {
            GroupFlag::Account => Self::Account,
            GroupFlag::Run => Self::Run,
            GroupFlag::Model => Self::Model,
            GroupFlag::Day => Self::Day,
        }
    }
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
    let by = args.by.map_or(GroupBy::Account, GroupBy::from);
    let filter = args.selection.filter()?;
    if let Some(api) = args.server.named(&args.host)? {
        remote::print_sums(&api, args, by, &filter).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = args.host.state_dir()?;
    let store = open_for_queries(&state)?;
    check_run(&store, &filter).await?;
    let table = store.usage(by, filter).await.map_err(|error| CommandError::failed(&error))?;
    if args.json {
        let UsageTable { groups, total, unsettled } = table;
        print_json(&UsageObject { by: by.as_str(), groups: GroupSum::all(groups), total, unsettled_runs: &unsettled });
    } else if args.csv {
        print(&csv(by, &table));
    } else {
        print(&text(by, &table));
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns; the first one has the name of the grouping.
const fn columns(by: &'static str) -> [Column; 7] {
    [
        Column::text(by).cut(),
        Column::number("calls").optional(2),
        Column::number("open").optional(3),
        Column::number("reserved, $").optional(4),
        Column::number("in").optional(1),
        Column::number("out").optional(1),
        Column::number("cost, $"),
    ]
}

fn text(by: GroupBy, table: &UsageTable) -> String {
    let UsageTable { groups, total, unsettled } = table;
    let mut lines = Table::new(terminal_width(), columns(by.as_str()));
    for (name, total) in groups.iter().map(|(name, total)| (name.as_str(), total)).chain([("total", total)]) {
        lines.row([
            name.to_owned(),
            total.calls.to_string(),
            total.open.to_string(),
            dash(total.reserved_usd()),
            dash(total.usage.input),
            dash(total.usage.output),
            dash(total.cost_usd()),
        ]);
    }
    lines.take() + &unsettled_lines(unsettled)
}

/// Head line. The names are stable, and say the unit.
const CSV_HEAD: &str = "by,name,calls,open_calls,reserved_usd,input_tokens,output_tokens,cached_input_tokens,\
                        cache_write_tokens,reasoning_tokens,total_tokens,cost_usd,cost_nano_usd\r\n";

fn csv(by: GroupBy, table: &UsageTable) -> String {
    let number = |number: Option<i128>| number.map_or_else(String::new, |number| number.to_string());
    let line = |(name, total): (&String, &Total)| {
        let tokens = total.usage;
        let cells = [
            by.as_str().to_owned(),
            quoted(name),
            total.calls.to_string(),
            total.open.to_string(),
            total.reserved_usd().unwrap_or_default(),
            number(tokens.input),
            number(tokens.output),
            number(tokens.cached_input),
            number(tokens.cache_write),
            number(tokens.reasoning),
            number(tokens.total),
            total.cost_usd().unwrap_or_default(),
            number(total.nano_usd),
        ];
        cells.join(",") + "\r\n"
    };
    CSV_HEAD.to_owned() + &table.groups.iter().map(line).collect::<String>()
}

/// Returns a line for each run that is not settled.
pub(super) fn unsettled_lines(runs: &[Unsettled]) -> String {
    runs.iter().map(|run| format!("not settled  {}: {}\n", run.run, sanitize(&run.reason))).collect()
}
