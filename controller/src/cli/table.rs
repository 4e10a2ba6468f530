//! A table that fits the terminal.
//!
//! Pure. On a terminal, long texts are shortened, and then the least important columns are left out. Elsewhere, nothing
//! is shortened, because a script may read it.

use sluice_contract::text::sanitize;

/// Minimum width of a shortened column.
const CUT_MIN: usize = 6;
/// Blanks between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    head: &'static str,
    is_number: bool,
    can_be_cut: bool,
    /// Columns with a higher number are left out first; columns with 0 are never left out.
    rank: u8,
}

impl Column {
    /// Returns a column of texts, which stays whole.
    pub(super) const fn text(head: &'static str) -> Self {
        Self { head, is_number: false, can_be_cut: false, rank: 0 }
    }

    /// Returns a column of numbers, aligned to the right.
    pub(super) const fn number(head: &'static str) -> Self {
        Self { is_number: true, ..Self::text(head) }
    }

    /// Allows the column's texts to be shortened.
    pub(super) const fn cut(self) -> Self {
        Self { can_be_cut: true, ..self }
    }

    /// Allows the column to be left out, before those with a lower rank.
    pub(super) const fn optional(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line<const N: usize> {
    Cells([String; N]),
    Text(String),
}

/// A table, which can be printed in parts. The first part decides the widths.
#[derive(Debug, Clone)]
pub(super) struct Table<const N: usize> {
    columns: [Column; N],
    /// Width of the terminal; none off a terminal.
    terminal: Option<usize>,
    lines: Vec<Line<N>>,
    /// Width of each column, once they are decided; `None` for a column that is left out.
    widths: Option<[Option<usize>; N]>,
}

impl<const N: usize> Table<N> {
    /// Returns a table with its head line.
    pub(super) fn new(terminal: Option<usize>, columns: [Column; N]) -> Self {
        let head = Line::Cells(columns.map(|column| column.head.to_owned()));
        Self { columns, terminal, lines: vec![head], widths: None }
    }

    /// Adds a row. Its texts may be foreign.
    pub(super) fn row(&mut self, cells: [String; N]) {
        self.lines.push(Line::Cells(cells.map(|cell| sanitize(&cell))));
    }

    /// Adds a line that is not part of the columns.
    pub(super) fn note(&mut self, text: &str) {
        self.lines.push(Line::Text(sanitize(text)));
    }

    /// Returns the number of lines that were not taken yet.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Takes the text of the lines that were added since the last time.
    pub(super) fn take(&mut self) -> String {
        let lines = std::mem::take(&mut self.lines);
        let widths = *self.widths.get_or_insert_with(|| fit(&self.columns, natural(&lines), self.terminal));
        lines.iter().map(|line| self.text(line, &widths)).collect()
    }

    fn text(&self, line: &Line<N>, widths: &[Option<usize>; N]) -> String {
        let cells = match line {
            Line::Text(text) => return format!("{text}\n"),
            Line::Cells(cells) => cells,
        };
        let mut text = String::new();
        for ((column, cell), width) in self.columns.iter().zip(cells).zip(widths) {
            let Some(width) = width else { continue };
            let cell = if column.can_be_cut && self.terminal.is_some() { cut(cell, *width) } else { cell.clone() };
            let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if text.is_empty() { "" } else { "  " };
            text += &if column.is_number { format!("{gap}{fill}{cell}") } else { format!("{gap}{cell}{fill}") };
        }
        let text = text.trim_end();
        self.terminal.map_or_else(|| text.to_owned(), |terminal| cut(text, terminal)) + "\n"
    }
}

fn natural<const N: usize>(lines: &[Line<N>]) -> [usize; N] {
    let mut widths = [0; N];
    for line in lines {
        let Line::Cells(cells) = line else { continue };
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// Makes columns narrower until a line fits, the last ones first, then leaves out those with the highest rank.
fn fit<const N: usize>(columns: &[Column; N], natural: [usize; N], terminal: Option<usize>) -> [Option<usize>; N] {
    let mut widths = natural.map(Some);
    let Some(terminal) = terminal else { return widths };
    let total = |widths: &[Option<usize>; N]| {
        let shown = widths.iter().flatten();
        (shown.clone().sum::<usize>() + GAP * shown.count()).saturating_sub(GAP)
    };
    for index in (0..N).rev().filter(|index| columns[*index].can_be_cut) {
        let surplus = total(&widths).saturating_sub(terminal);
        widths[index] = Some(natural[index].saturating_sub(surplus).max(natural[index].min(CUT_MIN)));
    }
    let mut by_rank: Vec<usize> = (0..N).filter(|index| columns[*index].rank > 0).collect();
    by_rank.sort_by_key(|index| columns[*index].rank);
    while total(&widths) > terminal
        && let Some(index) = by_rank.pop()
    {
        widths[index] = None;
    }
    widths
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

    const COLUMNS: [Column; 4] = [
        Column::text("run"),
        Column::number("cost, $"),
        Column::text("agent").cut().optional(1),
        Column::text("model").cut().optional(2),
    ];

    #[test]
    fn a_line_fits_the_terminal() {
        let whole = [27, 8, 13, 300];
        for (width, expected) in [
            (120, [Some(27), Some(8), Some(13), Some(66)]),
            (60, [Some(27), Some(8), Some(13), Some(6)]),
            (54, [Some(27), Some(8), Some(7), Some(6)]),
            (48, [Some(27), Some(8), Some(6), None]),
            (40, [Some(27), Some(8), None, None]),
        ] {
            assert_eq!(fit(&COLUMNS, whole, Some(width)), expected, "in {width} columns");
        }
        assert_eq!(fit(&COLUMNS, whole, None), whole.map(Some));
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("é漢🦀x", 3)], ["abc", "ab…", "é漢…"]);
    }

    #[test]
    fn only_a_terminal_shortens_texts() {
        let shown = |terminal| {
            let mut table = Table::new(terminal, COLUMNS);
            table.row(["r1", "0.5", "codex", &"m".repeat(60)].map(str::to_owned));
            table.note("  a note");
            table.take()
        };
        let head = "run  cost, $  agent  model\n";
        let narrow = format!("{head}r1       0.5  codex  {}…\n  a note\n", "m".repeat(19));
        assert_eq!(shown(Some(41)), narrow);
        assert_eq!(shown(None), format!("{head}r1       0.5  codex  {}\n  a note\n", "m".repeat(60)));
    }

    #[test]
    fn parts_have_the_widths_of_the_first_one() {
        let mut table = Table::new(None, [Column::text("a"), Column::text("b")]);
        table.row(["four", "x"].map(str::to_owned));
        assert_eq!(table.take(), "a     b\nfour  x\n");
        table.row(["seventh", "\u{1b}y"].map(str::to_owned));
        let text = table.take();
        assert!(text.starts_with("seventh  ") && !text.contains('\u{1b}'), "{text:?}");
        assert_eq!(table.len(), 0);
    }
}
