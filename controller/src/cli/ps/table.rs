//! A list of runs as a table.

use std::time::Duration;

use super::super::output::{dash, date_time};
use super::super::table::{Column, Table};
use super::RunView;

/// The most important columns come first: a narrow terminal has no room for the last ones.
const COLUMNS: [Column; 9] = [
    Column::text("RUN"),
    Column::text("STATE").optional(1),
    Column::number("TIME").optional(2),
    Column::number("CALLS").optional(3),
    Column::number("COST, $").optional(4),
    Column::number("EXIT").optional(5),
    Column::text("AGENT").cut().optional(6),
    Column::text("MODEL").cut().optional(7),
    Column::text("STARTED (UTC)").optional(8),
];

/// Formats the runs for a terminal of this width.
pub(super) fn text(runs: &[RunView], terminal: Option<usize>) -> String {
    let mut table = Table::new(terminal, COLUMNS);
    runs.iter().for_each(|run| table.row(cells(run)));
    table.take()
}

fn cells(run: &RunView) -> [String; COLUMNS.len()] {
    let open = run.open_calls.filter(|open| *open > 0).map_or_else(String::new, |open| format!(" ({open} open)"));
    let calls = format!("{}{open}", dash(run.calls));
    // A program has the name of its file only.
    let program = run.program.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    [
        run.run.clone(),
        run.shown_state(),
        humantime::format_duration(Duration::from_secs(run.age_s)).to_string().replace(' ', ""),
        calls,
        dash(run.cost_usd.as_ref()),
        dash(run.exit_code),
        run.name.as_deref().or(program).unwrap_or(&run.agent).to_owned(),
        dash(run.model.as_ref()),
        date_time(&run.started),
    ]
}
