//! `sluice wait`: waits until runs have ended.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluice_client::ApiClient;
use sluice_contract::{exit, units};
use sluice_state::store::Store;

use super::database::open_for_queries;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::HostArgs;
use super::named_run;
use super::object::CommandObject;
use super::output::{print, print_object, say};
use super::run_status::RunStatus;
use super::server_args::ServerArgs;

/// Time between two reads of the database.
const EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  sluice wait r_0f8fad5bd9cb469fa165
  sluice run -d --name nightly --model gpt-4o-mini -- make test && sluice wait nightly
  sluice wait --timeout 10m first second --json | jq .runs";

/// Exit codes of commands that end with a run.
pub(super) const EXIT_CODES: &str = "\
Exit codes: those of sluice run; 124 also heartbeat_timeout, idle_timeout, stuck_running and
ttl_expired; 125 also creation_failed, internal, stale_start, node_lost, dependency_failed,
disk_exceeded, and no daemon is reached; 1 agent_failed, the end of --timeout, or a controller that
was killed; 130 interrupted; 143 cancelled over the API; 2 usage.";

/// Waits until runs have ended, and exits as the first one of them did that has not succeeded.
///
/// A daemon may stop and start again meanwhile.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct WaitArgs {
    /// A run: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN", required = true)]
    run: Vec<String>,
    /// Wait no longer than this in all; a run that goes on then is an error
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    timeout: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &WaitArgs) -> Result<ExitCode, CommandError> {
    let waiting = wait_for_all(args);
    let ended = match args.timeout {
        None => waiting.await?,
        Some(timeout) => {
            let late = |_| CommandError {
                code: exit::FAILED,
                message: format!("not all runs have ended within {}", humantime::format_duration(timeout)),
            };
            tokio::time::timeout(timeout, waiting).await.map_err(late)??
        }
    };
    let failed = ended.iter().find_map(failure);
    if args.json {
        let data = json!({ "runs": ended });
        match &failed {
            None => print_object(&CommandObject::done(data)),
            Some((word, error)) => print_object(&CommandObject::failed_with(word, error, data)),
        }
    } else {
        ended.iter().for_each(|run| print(&format!("{} {}\n", run.run, run.word())));
    }
    Ok(failed.map_or(ExitCode::SUCCESS, |(_, error)| {
        if !args.json {
            say(&error.message);
        }
        ExitCode::from(error.code)
    }))
}

/// Returns the word and the error of a run that has not succeeded.
pub(super) fn failure(run: &RunStatus) -> Option<(String, CommandError)> {
    let code = run.exit_code.filter(|code| *code != 0)?;
    let reason = run.error_message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    let message = format!("run {} ended: {}{reason}", run.run, run.word());
    Some((run.word().to_owned(), CommandError { code, message }))
}

async fn wait_for_all(args: &WaitArgs) -> Result<Vec<RunStatus>, CommandError> {
    let mut ended = Vec::new();
    if let Some(api) = args.server.named(&args.host)? {
        // All names are resolved first, because a name may be given to another run meanwhile.
        let mut ids = Vec::new();
        for name in &args.run {
            ids.push(named_run::find(&api, name).await?.sandbox.sandbox_id);
        }
        for id in ids {
            ended.push(ended_at(&api, &id).await?);
        }
        return Ok(ended);
    }
    let store = open_for_queries(&args.host.state_dir()?)?;
    let mut runs = Vec::new();
    for name in &args.run {
        runs.push(find_run(&store, name).await?.entry.key.run_id);
    }
    for id in runs {
        ended.push(ended_here(&store, id.as_str()).await?);
    }
    Ok(ended)
}

/// Waits for a run at a daemon.
pub(super) async fn ended_at(api: &ApiClient, id: &str) -> Result<RunStatus, CommandError> {
    Ok(RunStatus::of_api(&api.ended(id).await?))
}

/// Waits for the last attempt of a run of this state directory.
async fn ended_here(store: &Store, id: &str) -> Result<RunStatus, CommandError> {
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        let run = find_run(store, id).await?;
        let sandbox = store.find_sandbox(None, &run.entry.key.run_id).await;
        let sandbox = sandbox.map_err(|error| CommandError::failed(&error))?;
        let status = RunStatus::of_rows(&run, sandbox.as_ref());
        if status.is_ended() {
            return Ok(status);
        }
        if sandbox.is_none() && !run.entry.owner.is_alive() {
            let message = format!("the controller of run {id} ended before the run; sluice sweep takes it down");
            return Err(CommandError { code: exit::FAILED, message });
        }
    }
}
