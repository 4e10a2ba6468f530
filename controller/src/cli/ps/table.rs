//! A list of runs as a table that fits into the terminal.

use std::time::Duration;

use sluice_contract::text::sanitize;

use super::super::output::dash;
use super::RunView;

/// Columns, the most important ones first: a narrow terminal has no room for the last ones.
const HEAD: [&str; 9] = ["RUN", "STATE", "TIME", "CALLS", "COST, $", "EXIT", "AGENT", "MODEL", "STARTED (UTC)"];
/// Columns with texts of any length, which are cut first.
const CUT_FIRST: [usize; 2] = [7, 6];
/// Columns with numbers.
const NUMBERS: [usize; 4] = [2, 3, 4, 5];
/// Minimum width of a column that is cut.
const CUT_MIN: usize = 6;
const GAP: usize = 2;

/// Formats the runs. Texts are cut where a line would be longer than `width`.
pub(super) fn text(runs: &[RunView], width: Option<usize>) -> String {
    let head = HEAD.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(runs.iter().map(cells)).collect();
    let mut widths = vec![0; HEAD.len()];
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
        run.state.clone(),
        humantime::format_duration(Duration::from_secs(run.age_s)).to_string().replace(' ', ""),
        calls,
        dash(run.cost_usd.as_ref()),
        dash(run.exit_code),
        program.unwrap_or(&run.agent).to_owned(),
        dash(run.model.as_ref()),
        run.started.get(..19).unwrap_or(&run.started).replace('T', " "),
    ]
    .map(|cell| sanitize(&cell))
}

/// Makes the columns with texts narrower until a line fits, then removes the last columns.
fn fit(widths: &mut Vec<usize>, width: usize) {
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
    for column in CUT_FIRST {
        let surplus = total(widths).saturating_sub(width);
        widths[column] = widths[column].saturating_sub(surplus).max(widths[column].min(CUT_MIN));
    }
    while widths.len() > 1 && total(widths) > width {
        widths.pop();
    }
}

fn line(row: &[String; HEAD.len()], widths: &[usize], width: Option<usize>) -> String {
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
        let whole = vec![27, 16, 4, 5, 8, 4, 13, 300, 19];
        for (width, expected) in [
            (120, &[27, 16, 4, 5, 8, 4, 13, 8, 19][..]),
            (100, &[27, 16, 4, 5, 8, 4, 6, 6]),
            (80, &[27, 16, 4, 5, 8, 4]),
            (10, &[27]),
        ] {
            let mut widths = whole.clone();
            fit(&mut widths, width);
            assert_eq!(widths, expected, "in {width} columns");
            let mut row = HEAD.map(str::to_owned);
            row[0] = "r20261122-185037-5f2b9c47.0".to_owned();
            let line = line(&row, &widths, Some(width));
            assert!(line.trim_end().chars().count() <= width, "{line}");
        }
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("é漢🦀x", 3)], ["abc", "ab…", "é漢…"]);
    }
}
