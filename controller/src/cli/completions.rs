//! `sluice completions` and `sluice man`: texts for shells and for `man`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use super::error::CommandError;
use super::output::print;

/// Prints a script that completes commands and flags in a shell.
///
/// bash: sluice completions bash > /etc/bash_completion.d/sluice.
/// zsh: sluice completions zsh > /usr/local/share/zsh/site-functions/_sluice.
/// fish: sluice completions fish > ~/.config/fish/completions/sluice.fish
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes a man page for each command.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// A directory that exists, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "sluice", &mut script);
    print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

pub(super) fn man(args: &ManArgs, command: Command) -> Result<ExitCode, CommandError> {
    let written = clap_mangen::generate_to(command, &args.directory);
    written.map(|()| ExitCode::SUCCESS).map_err(|error| {
        let CommandError { code, message } = CommandError::failed(&error);
        CommandError { code, message: format!("cannot write man pages to {}: {message}", args.directory.display()) }
    })
}
