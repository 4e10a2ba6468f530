//! Title and body of pull requests, and the message of a squash or merge commit.
//!
//! Pure. The operator's account at the forge posts these texts, so text by an agent, or by the person who requested the
//! run, must have no effect in them: no command of a bot, mention, word that closes an issue, image or link. Such texts
//! are in fenced code. Only the title is outside it, and there, blanks separate the characters that have an effect.

use std::fmt::Write;

use crate::path_text::is_invisible;

/// Maximum number of characters of a fenced text, with the blanks before its lines.
pub const FENCED_MAX: usize = 4000;
/// Maximum number of characters of a title, with its ticket.
pub const TITLE_MAX: usize = 200;
/// Number of backticks of the shortest fence.
const FENCE_MIN: usize = 3;

/// Facts of a run that its pull request shows.
#[derive(Debug, Clone, Copy)]
pub struct PullRequestFacts<'a> {
    /// Ticket of the task.
    pub ticket: Option<&'a str>,
    /// Title of the task.
    pub title: Option<&'a str>,
    /// Task of the run.
    pub asked: &'a str,
    /// Report of the agent.
    pub done: &'a str,
    /// Cost of the run, with its currency.
    pub cost: &'a str,
    /// Id of the run.
    pub run_id: &'a str,
    /// Hash of the last line of the run's audit log.
    pub audit_head: &'a str,
}

/// Returns the title: `[ticket] title`, or the run's id if there is neither.
#[must_use]
pub fn title(facts: &PullRequestFacts<'_>) -> String {
    let ticket = facts.ticket.map(inert).filter(|ticket| !ticket.is_empty());
    let text = facts.title.map(inert).filter(|title| !title.is_empty());
    let title = match (ticket, text) {
        (Some(ticket), Some(title)) => format!("[{ticket}] {title}"),
        (Some(ticket), None) => format!("[{ticket}] run {}", inert(facts.run_id)),
        // A bot reads a line that begins with a slash as its command.
        (None, Some(title)) if title.starts_with('/') => format!("Task: {title}"),
        (None, Some(title)) => title,
        (None, None) => format!("Run {}", inert(facts.run_id)),
    };
    cut(&title, TITLE_MAX)
}

/// Returns the body, in Markdown.
#[must_use]
pub fn body(facts: &PullRequestFacts<'_>) -> String {
    let mut body = format!("Sluice opened this pull request for run {}.\n\n", code(facts.run_id));
    let _ = write!(body, "Asked:\n\n{}\n", fenced(facts.asked));
    let _ = write!(body, "Done, in the words of the agent, not checked by a person:\n\n{}\n", fenced(facts.done));
    let _ = writeln!(body, "Cost: {}  ", code(facts.cost));
    let _ = writeln!(body, "Run: {}  ", code(facts.run_id));
    let _ = writeln!(body, "Audit head: {}", code(facts.audit_head));
    body
}

/// Returns the rest of the message of a squash or merge commit, after the title. It has no text of the agent.
#[must_use]
pub fn commit_message(facts: &PullRequestFacts<'_>) -> String {
    format!("Sluice-Run: {}\nSluice-Audit-Head: {}\n", token(facts.run_id), token(facts.audit_head))
}

/// Returns a text in fenced code, where it is shown and does nothing: the fence is longer than any run of backticks in the
/// text, and each line begins with a blank.
fn fenced(text: &str) -> String {
    let text = visible(text);
    let text = text.trim_matches('\n');
    let mut lines = String::new();
    let mut characters = 0;
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        let length = line.chars().count() + 2;
        let room = FENCED_MAX.saturating_sub(CUT_LINE.chars().count() + 2);
        // The last line may use the space of the line that marks a cut.
        let fits = characters + length <= if rest.peek().is_none() { FENCED_MAX } else { room };
        if !fits {
            let part: String = line.chars().take(room.saturating_sub(characters + 2)).collect();
            if !part.is_empty() {
                let _ = writeln!(lines, " {part}");
            }
            let _ = writeln!(lines, " {CUT_LINE}");
            break;
        }
        let _ = writeln!(lines, " {line}");
        characters += length;
    }
    let fence = "`".repeat(FENCE_MIN.max(longest_run(&lines) + 1));
    format!("{fence}text\n{lines}{fence}\n")
}

/// Line after a text that was cut.
const CUT_LINE: &str = "[...]";

fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or(0)
}

/// Returns a value of ours as inline code. Characters that do not occur in ids and amounts are left out.
fn code(value: &str) -> String {
    format!("`{}`", token(value))
}

fn token(value: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '$' | ' ' | ',');
    let text: String = value.chars().filter(allowed).take(128).collect();
    let text = text.trim();
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Returns a text with each character that controls, hides or changes the direction of others replaced by its number,
/// `<U+202E>`. Line ends become `\n`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => shown.push(character),
            // The line feed follows.
            '\r' if characters.peek() == Some(&'\n') => {}
            _ if character.is_control() || is_invisible(character) => {
                let _ = write!(shown, "<U+{:04X}>", character as u32);
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// Returns a text as one line without active parts: mentions, references to issues, links and marks of bots are taken apart
/// by a blank, brackets become parentheses, and backticks apostrophes.
fn inert(text: &str) -> String {
    let shown = visible(text).replace(['\n', '\t'], " ");
    let mut line = String::with_capacity(shown.len());
    let mut characters = shown.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        match character {
            '[' => line.push('('),
            ']' => line.push(')'),
            '`' => line.push('\''),
            '<' => line.push('('),
            '>' => line.push(')'),
            '*' => line.push('-'),
            _ => line.push(character),
        }
        let acts = match character {
            '@' | '#' | '!' => !next.is_whitespace(),
            // `GH-1` is a reference to an issue, but `[GH-1]` has no word before it that closes one.
            '-' => next.is_ascii_digit() && is_after_word(&line),
            '/' => next == '/',
            _ => false,
        };
        if acts {
            line.push(' ');
        }
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if the line ends with `gh-` that follows another word.
fn is_after_word(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.strip_suffix("gh-").is_some_and(|before| {
        !before.trim().is_empty() && !before.ends_with(|character: char| character.is_ascii_alphanumeric())
    })
}

/// Cuts a line to this many characters.
fn cut(line: &str, most: usize) -> String {
    if line.chars().count() <= most {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(most - 3).collect();
    // A mark such as `@` must not come directly before the dots.
    cut.truncate(cut.trim_end_matches([' ', '@', '#', '!', '/']).len());
    cut + "..."
}

#[cfg(test)]
mod tests;
