//! `sluice attach`: the output and the events of a run, as they come.

use std::process::ExitCode;

use clap::Args;
use sluice_client::{
    ApiClient, ApiEventStream, ApiLogStream, ApiRequest, ApiSandboxDetail, ClientError, LogSelection, StreamItem,
    StreamSelection,
};
use sluice_runs::terminal::SanitizedWriter;

use super::error::CommandError;
use super::events;
use super::host_args::HostArgs;
use super::logs;
use super::named_run;
use super::output::{DataStream, say_lines};
use super::run_status::RunStatus;
use super::server_args::ServerArgs;
use super::wait::EXIT_CODES;

/// Events that only show that the worker lives.
const HEARTBEAT: &str = "agent.heartbeat";

const EXAMPLES: &str = "\
Examples:
  sluice attach nightly
  sluice attach nightly 2>events.log                    the output alone on the terminal";

/// Shows the output of a daemon's run on stdout and its events on stderr, from the beginning until it has ended, and exits as
/// the run did. Ctrl-C leaves the run alone.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct AttachArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Reason that the run is not shown to its end.
enum AttachFault {
    /// The reader of stdout is gone.
    Reader(std::io::Error),
    /// The daemon does not answer, or answers with an error.
    Failed(CommandError),
}

impl From<ClientError> for AttachFault {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) async fn run(args: &AttachArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let shown = tokio::try_join!(show_events(&api, &id), show_output(&api, &id));
    match shown {
        Ok(((), run)) => Ok(logs::exit_code(&RunStatus::of_api(&run))),
        Err(AttachFault::Reader(error)) => logs::reader_gone(&error),
        Err(AttachFault::Failed(error)) => Err(error),
    }
}

async fn show_events(api: &ApiClient, id: &str) -> Result<(), AttachFault> {
    let selection = StreamSelection { sandbox: Some(id.to_owned()), types: None, after: Some(0) };
    let mut stream = ApiEventStream::new(api, selection);
    loop {
        match stream.next().await? {
            StreamItem::Event(event) if event.event_type != HEARTBEAT => say_lines(&events::line(&event)),
            StreamItem::End(_) => return Ok(()),
            _ => {}
        }
    }
}

/// Shows the output, and returns the run when it has ended.
async fn show_output(api: &ApiClient, id: &str) -> Result<ApiSandboxDetail, AttachFault> {
    let mut stdout = DataStream::sanitized();
    let mut stderr = SanitizedWriter::new(std::io::stderr());
    let mut selection = LogSelection { sandbox: id.to_owned(), follow: true, ..LogSelection::default() };
    loop {
        // Read before the output, so that all output of an ended run is included.
        let run: ApiSandboxDetail = api.send_again(ApiRequest::get(&["sandboxes", id])).await?;
        selection.follow_attempt(&run.sandbox);
        let mut output = ApiLogStream::new(api, selection.clone());
        while let Some(line) = output.next().await? {
            selection.after = line.position;
            let bytes = line.missing.map_or_else(|| line.bytes(), logs::left_out);
            let put = if line.stream == "stderr" { stderr.put(&bytes) } else { stdout.put(&bytes) };
            put.map_err(AttachFault::Reader)?;
        }
        if run.sandbox.is_ended() {
            return Ok(run);
        }
    }
}
