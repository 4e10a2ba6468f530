//! A list of runs as a table that fits into the terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use sluice_contract::text::sanitize;

use super::super::output::dash;
use super::RunView;

const HEAD: [&str; 9] = ["RUN", "STARTED (UTC)", "TIME", "AGENT", "MODEL", "CALLS", "COST, $", "EXIT", "STATE"];
/// Columns with texts of any length, which are cut first.
const CUT_FIRST: [usize; 2] = [4, 3];
/// Columns with numbers.
const NUMBERS: [usize; 4] = [2, 5, 6, 7];
/// Minimum width of a column that is cut.
const CUT_MIN: usize = 6;
const GAP: usize = 2;

/// Returns the width of the terminal at stdout; `None` if stdout is not a terminal.
pub(super) fn width_of_stdout() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col;
    io::stdout().is_terminal().then_some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Formats the runs. Texts are cut where a line would be longer than `width`.
pub(super) fn text(runs: &[RunView], width: Option<usize>) -> String {
    let head = HEAD.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(runs.iter().map(cells)).collect();
    let mut widths = [0; HEAD.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    if let Some(width) = width {
        fit(&mut widths, width);
    }
    rows.iter().map(|row| line(row, &widths, width)).collect()
}

fn cells(run: &RunView) -> [String; HEAD.len()] {
    let calls =
        if run.open_calls > 0 { format!("{} ({} open)", run.calls, run.open_calls) } else { run.calls.to_string() };
    // A program has the name of its file only.
    let program = run.program.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    [
        run.run.clone(),
        run.started.get(..19).unwrap_or(&run.started).replace('T', " "),
        humantime::format_duration(Duration::from_secs(run.age_s)).to_string().replace(' ', ""),
        program.unwrap_or(&run.agent).to_owned(),
        dash(run.model.as_ref()),
        calls,
        dash(run.cost_usd.as_ref()),
        dash(run.exit_code),
        run.state.clone(),
    ]
    .map(|cell| sanitize(&cell))
}

/// Makes the columns with texts narrower until a line fits, or until they cannot be narrower.
fn fit(widths: &mut [usize; HEAD.len()], width: usize) {
    for column in CUT_FIRST {
        let total = widths.iter().sum::<usize>() + GAP * (HEAD.len() - 1);
        let surplus = total.saturating_sub(width);
        widths[column] = widths[column].saturating_sub(surplus).max(widths[column].min(CUT_MIN));
    }
}

fn line(row: &[String; HEAD.len()], widths: &[usize; HEAD.len()], width: Option<usize>) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        let cell = cut(cell, *width);
        let fill = " ".repeat(width - cell.chars().count());
        let gap = if column == 0 { "" } else { "  " };
        line += &if NUMBERS.contains(&column) { format!("{gap}{fill}{cell}") } else { format!("{gap}{cell}{fill}") };
    }
    let line = line.trim_end();
    width.map_or_else(|| line.to_owned(), |width| cut(line, width)) + "\n"
}

/// Returns a text of at most this many characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_into_a_narrow_terminal() {
        let mut widths = [20, 19, 4, 30, 300, 5, 8, 4, 10];
        fit(&mut widths, 120);
        assert_eq!(widths, [20, 19, 4, 28, 6, 5, 8, 4, 10]);
        let mut row = HEAD.map(str::to_owned);
        row[4] = "a-model-with-a-long-name".to_owned();
        for width in [120, 80, 20] {
            let line = line(&row, &widths, Some(width));
            assert!(line.trim_end().chars().count() <= width, "{line}");
        }
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("é漢🦀x", 3)], ["abc", "ab…", "é漢…"]);
    }
}
