//! Columns of a table that fits the terminal.
//!
//! Pure. Numbers keep their width, and texts are shortened. Off a terminal nothing is shortened: a script may read it.

/// Minimum width of a shortened column.
const MIN: usize = 8;

/// Widths of the text columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns<const N: usize> {
    widths: [usize; N],
    is_cut: bool,
}

impl<const N: usize> Columns<N> {
    /// Returns the widths for a terminal of this width; `None` is no terminal. `fixed` is the width of everything else.
    pub(super) fn fit(terminal: Option<usize>, fixed: usize, natural: [usize; N]) -> Self {
        let Some(terminal) = terminal else { return Self { widths: natural, is_cut: false } };
        let wanted: usize = natural.iter().sum();
        let free = terminal.saturating_sub(fixed);
        let widths = if wanted <= free { natural } else { natural.map(|width| MIN.max(width * free / wanted)) };
        Self { widths, is_cut: true }
    }

    /// Returns the text of a cell, padded, and shortened on a terminal.
    pub(super) fn cell(&self, column: usize, text: &str) -> String {
        let width = self.widths[column];
        if self.is_cut && text.chars().count() > width {
            let kept: String = text.chars().take(width - 1).collect();
            return format!("{kept}…");
        }
        format!("{text:<width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_to_the_terminal() {
        let narrow = Columns::fit(Some(80), 40, [40, 40]);
        assert_eq!((narrow.cell(0, "short").len(), narrow.cell(1, &"é".repeat(50)).chars().count()), (20, 20));
        assert!(narrow.cell(1, &"é".repeat(50)).ends_with("é…"));
        let tiny = Columns::fit(Some(10), 40, [40]);
        assert_eq!(tiny.cell(0, &"x".repeat(40)), "xxxxxxx…");
        let wide = Columns::fit(Some(200), 40, [10]);
        assert_eq!(
            (wide.cell(0, "x"), wide.cell(0, &"x".repeat(11))),
            ("x         ".to_owned(), format!("{}…", "x".repeat(9)))
        );
    }

    #[test]
    fn nothing_is_shortened_off_a_terminal() {
        let long = "x".repeat(300);
        assert_eq!(Columns::fit(None, 40, [10]).cell(0, &long), long);
    }
}
