//! The shape of help texts and of errors of the command line, for all commands alike.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};

/// The description comes before the examples, which commands have as their `before_help`.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The flags of the host that commands do not use. They are accepted all the same: a script may give all commands the same
/// ones.
const UNUSED: [(&[&str], &[&str]); 3] = [
    (
        &["ledger", "budget", "audit", "backup", "restore", "prune", "token", "webhook"],
        &["docker_host", "upstream", "ca", "key_file", "proxy"],
    ),
    // These commands may call a daemon; --ca verifies its certificate.
    (
        &[
            "receipts", "usage", "ps", "inspect", "logs", "wait", "retry", "fail", "events", "exec", "cp", "agent",
            "send", "attach", "interrupt", "messages", "pause", "resume", "approvals", "approve", "deny", "answer",
            "open", "top", "compare",
        ],
        &["docker_host", "upstream", "key_file", "proxy"],
    ),
    (&["agents"], &["upstream", "ca", "key_file", "proxy", "state_dir"]),
];

/// Returns the command line with the shape of its help texts.
pub(super) fn shaped(mut command: Command) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in &names {
        let unused = UNUSED.iter().find(|(commands, _)| commands.contains(&name.as_str())).map_or(&[][..], |row| row.1);
        command = command.mut_subcommand(name, |command| with_template(hidden(command, unused)));
    }
    command.help_template(TEMPLATE)
}

fn with_template(command: Command) -> Command {
    command.help_template(TEMPLATE).mut_subcommands(with_template)
}

/// Hides flags of a command and of its subcommands.
fn hidden(command: Command, flags: &[&str]) -> Command {
    let command = command.mut_args(|arg| {
        let is_unused = flags.contains(&arg.get_id().as_str());
        if is_unused { arg.hide(true) } else { arg }
    });
    command.mut_subcommands(|command| hidden(command, flags))
}

/// Removes the tip to write a flag after `--`: there it would be a program to run.
pub(super) fn without_tip(mut error: Error) -> Error {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let kept: Vec<_> = tips.into_iter().filter(|tip| !tip.to_string().contains("as a value, use")).collect();
        if !kept.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(kept));
        }
    }
    error
}
