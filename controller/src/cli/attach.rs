//! `sluice attach`: what a run writes from now on.

use std::process::ExitCode;

use clap::Args;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::logs::{self, LogsArgs};
use super::server_args::ServerArgs;
use super::wait::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  sluice attach nightly; echo $?";

/// Shows what a run writes from now on, stdout on stdout and stderr on stderr, and exits as the run does.
///
/// Ctrl-C leaves the run alone. sluice logs -f begins with what the run has written before.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct AttachArgs {
    /// The run: its id, the name of a daemon's run, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &AttachArgs) -> Result<ExitCode, CommandError> {
    let (server, host) = (args.server.clone(), args.host.clone());
    logs::run(&LogsArgs::from_now_on(args.run.clone(), server, host)).await
}
