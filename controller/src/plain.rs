//! Words of others among ours: of an upstream, an engine, an agent, a file.
//!
//! Pure. They are of any length and hold anything; what a message shows of them is neither long, nor a line of its own,
//! nor an order to a terminal.

/// As much as anybody reads of one message, and more than any of ours has.
const MAX: usize = 1200;
/// What is kept of the end of a longer one: what to do stands there.
const END: usize = 300;

/// On one line, and with nothing for a terminal: no escape sequences, no change of the direction of writing.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_order(c) { ' ' } else { c }).collect()
}

/// The same, and no longer than a message may be; the middle gives way.
#[must_use]
pub fn short(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX {
        return plain(text);
    }
    let begin: String = text.chars().take(MAX - END).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{} [...] {}", plain(&begin), plain(&end))
}

fn is_order(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_orders_a_terminal_about() {
        for order in ["\u{1b}[2J", "\u{9b}2J", "\r", "\n", "\u{7}", "\u{7f}", "\u{202e}", "\u{2028}", "\u{2066}"] {
            let text = format!("a{order}é漢");
            let shown = plain(&text);
            assert!(shown.starts_with("a ") && shown.ends_with("é漢"), "{text:?}: {shown:?}");
            assert!(!shown.chars().any(is_order), "{text:?}: {shown:?}");
            assert_eq!(short(&text), shown);
        }
    }

    #[test]
    fn a_long_text_keeps_its_begin_and_its_end() {
        let long = format!("begin {}\u{1b} end; do this", "é".repeat(100_000));
        let shown = short(&long);
        assert!(shown.starts_with("begin é") && shown.ends_with("  end; do this"), "{shown}");
        assert_eq!(shown.chars().count(), MAX + " [...] ".len());
        let fits = "é".repeat(MAX);
        assert_eq!(short(&fits), fits);
    }
}
