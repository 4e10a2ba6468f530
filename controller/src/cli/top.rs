//! `sluice top`: the unfinished runs, and their spending.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluice_contract::{Usd, units};
use sluice_state::ledger::usd;
use tokio::time::Instant;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{dash, failure, print, print_json, terminal_width};
use super::ps::{RunView, open_runs};
use super::server_args::ServerArgs;
use super::table::{Column, Table};

/// Moves the cursor of a terminal to its first position, and clears the rest of the screen.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

const EXAMPLES: &str = "\
Examples:
  sluice top
  sluice top --every 10s
  sluice top --json | jq -r '.runs[].run'";

/// Shows live runs, with their calls and costs, until Ctrl-C. The most expensive ones come first.
///
/// Off a terminal, and with --once or --json, it shows them once.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct TopArgs {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::time)]
    every: Duration,
    /// Show the runs once
    #[arg(long)]
    once: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Costs at the previous reading, with their time.
struct Before {
    at: Instant,
    costs: BTreeMap<String, i64>,
}

pub(super) async fn run(args: &TopArgs) -> Result<ExitCode, CommandError> {
    let is_live = stdout().is_terminal() && !args.once && !args.json;
    let mut before = None;
    loop {
        let mut runs = open_runs(&args.server, &args.host).await?;
        runs.sort_by_key(|run| std::cmp::Reverse(cost_of(run)));
        if args.json {
            print_json(&json!({ "runs": runs }));
        } else {
            let table = text(&runs, before.as_ref());
            if is_live {
                clear();
            }
            print(&table);
        }
        if !is_live || failure().is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        let costs = runs.iter().filter_map(|run| Some((run.run.clone(), cost_of(run)?))).collect();
        before = Some(Before { at: Instant::now(), costs });
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(args.every) => {}
        }
    }
}

/// Clears the terminal. The sequence is ours, and so is not sanitised.
fn clear() {
    use std::io::Write;
    // The next write reports a failure.
    let _ = stdout().write_all(CLEAR);
}

/// Returns the known cost of a run in nano-USD.
fn cost_of(run: &RunView) -> Option<i64> {
    run.cost_usd.as_deref().and_then(|cost| Usd::parse(cost).ok()).map(|cost| cost.to_nanos())
}

const COLUMNS: [Column; 8] = [
    Column::text("run"),
    Column::text("name").cut().optional(2),
    Column::text("state"),
    Column::text("age").optional(1),
    Column::number("calls").optional(3),
    Column::number("open").optional(4),
    Column::number("cost, $"),
    Column::number("$ a minute").optional(5),
];

fn text(runs: &[RunView], before: Option<&Before>) -> String {
    let mut table = Table::new(terminal_width(), COLUMNS);
    for run in runs {
        table.row([
            run.run.clone(),
            dash(run.name.clone()),
            run.shown_state(),
            humantime::format_duration(Duration::from_secs(run.age_s)).to_string(),
            dash(run.calls),
            dash(run.open_calls),
            dash(run.cost_usd.clone()),
            dash(before.and_then(|before| burn(run, before))),
        ]);
    }
    if runs.is_empty() {
        table.note("no run is live");
    }
    table.take()
}

/// Returns the dollars per minute that a run has spent since the previous reading.
fn burn(run: &RunView, before: &Before) -> Option<String> {
    let (now, then) = (cost_of(run)?, before.costs.get(&run.run)?);
    let passed = i128::try_from(before.at.elapsed().as_millis()).unwrap_or(i128::MAX).max(1);
    Some(usd(i128::from(now.saturating_sub(*then)) * 60_000 / passed))
}
