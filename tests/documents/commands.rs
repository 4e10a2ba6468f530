//! Shell commands in the `sh` blocks of a page.

use std::process::{Command, Stdio};

/// One command of a page.
#[derive(Debug)]
pub(crate) struct ShellCommand {
    /// Path of the page, in the checkout.
    pub(crate) page: String,
    /// Line of its first word.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Returns the commands of a page, in order. A command is as many lines as the shell needs.
pub(crate) fn commands_of(page: &str, text: &str) -> Vec<ShellCommand> {
    let mut commands = Vec::new();
    let mut in_block = false;
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match line {
            "```sh" => in_block = true,
            _ if line.starts_with("```") => {
                assert!(open.is_none(), "{page}: a command is open at the end of its block: {open:?}");
                in_block = false;
            }
            _ if in_block => {
                let (first, text) = open.take().unwrap_or_else(|| (index + 1, String::new()));
                let text = if text.is_empty() { line.to_owned() } else { format!("{text}\n{line}") };
                if text.trim().is_empty() || (text.trim_start().starts_with('#') && !text.contains('\n')) {
                    continue;
                }
                if text.ends_with('\\') || !is_complete(&text) {
                    open = Some((first, text));
                } else {
                    commands.push(ShellCommand { page: page.to_owned(), line: first, text });
                }
            }
            _ => {}
        }
    }
    commands
}

/// Returns whether the shell can parse the text.
fn is_complete(text: &str) -> bool {
    let parsed = Command::new("bash").args(["-n", "-c", text]).stderr(Stdio::null()).status();
    parsed.expect("there is bash").success()
}
