//! Bold and coloured words on a terminal.
//!
//! Text of a sandbox cannot have styles, since its control characters become spaces: so bold distinguishes our words from
//! the words of a program on the same terminal. Every styled text is ours; foreign text is sanitised before.

use std::io::IsTerminal;

/// Style of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// A word of ours.
    Bold,
    /// Success.
    Green,
    /// Success with a limitation, or nothing done.
    Yellow,
    /// Failure.
    Red,
}

/// The styles that a stream shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Styles {
    /// No styles: the stream is not a terminal, or its terminal has none.
    None,
    /// All styles but colours: NO_COLOR is set.
    NoColor,
    /// All styles.
    All,
}

impl Styles {
    /// Returns the styles of a stream.
    pub(super) fn of(stream: &impl IsTerminal) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self::choose(stream.is_terminal(), variable("TERM").as_deref(), variable("NO_COLOR").as_deref())
    }

    fn choose(is_terminal: bool, term: Option<&str>, no_color: Option<&str>) -> Self {
        match (is_terminal, term, no_color) {
            (false, ..) | (_, None | Some("" | "dumb"), _) => Self::None,
            (true, Some(_), Some(set)) if !set.is_empty() => Self::NoColor,
            _ => Self::All,
        }
    }

    /// Returns a word in a style, as far as the stream shows it.
    pub(super) fn paint(self, style: Style, word: &str) -> String {
        let code = match (self, style) {
            (Self::None, _) => return word.to_owned(),
            (_, Style::Bold) => "1",
            (Self::NoColor, Style::Green) => return word.to_owned(),
            (Self::NoColor, Style::Yellow | Style::Red) => "1",
            (Self::All, Style::Green) => "32",
            (Self::All, Style::Yellow) => "33",
            (Self::All, Style::Red) => "1;31",
        };
        format!("\x1b[{code}m{word}\x1b[0m")
    }

    /// Returns the lines with their first words in bold.
    pub(super) fn labels(self, lines: &str) -> String {
        let label = |line: &str| {
            let at = line.find(' ').unwrap_or(line.len());
            format!("{}{}", self.paint(Style::Bold, &line[..at]), &line[at..])
        };
        lines.split_inclusive('\n').map(label).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_with_styles_has_them() {
        for (is_terminal, term, no_color, expected) in [
            (false, Some("xterm"), None, Styles::None),
            (true, Some("dumb"), None, Styles::None),
            (true, None, None, Styles::None),
            (true, Some("xterm"), Some("1"), Styles::NoColor),
            (true, Some("xterm"), Some(""), Styles::All),
            (true, Some("xterm"), None, Styles::All),
        ] {
            assert_eq!(Styles::choose(is_terminal, term, no_color), expected, "{term:?} {no_color:?}");
        }
        assert_eq!(Styles::None.paint(Style::Red, "FAIL"), "FAIL");
        assert_eq!(Styles::NoColor.paint(Style::Green, "pass"), "pass");
        assert_eq!(Styles::All.paint(Style::Green, "pass"), "\x1b[32mpass\x1b[0m");
        assert_eq!(Styles::NoColor.labels("run  r1\ncost  $1\n"), "\x1b[1mrun\x1b[0m  r1\n\x1b[1mcost\x1b[0m  $1\n");
    }
}
