//! `sluice logs`: shows the recorded output and logs of a run.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_contract::exit;
use sluice_state::layout::Layout;
use sluice_state::records::{CONTROLLER_LOG, RESULT, RecordedStream, SIDECAR_LOG};
use sluice_state::store::{KnownRun, Store};

use super::database::open_for_queries;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::HostArgs;
use super::output::{DataStream, failure};

mod source;

use source::LogSource;

/// Time between two looks at the record of a run that goes on.
const EVERY: Duration = Duration::from_millis(200);

/// Shows what a run wrote: stdout on stdout, stderr on stderr. The record has the beginning and the end of each stream.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The run, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Show new output as it comes, until the run is over
    #[arg(long, short)]
    follow: bool,
    /// Show stdout alone
    #[arg(long, group = "source")]
    stdout: bool,
    /// Show stderr alone, on stdout
    #[arg(long, group = "source")]
    stderr: bool,
    /// Show the log of the sidecar
    #[arg(long, group = "source")]
    sidecar: bool,
    /// Show the log of the controller: one JSON object per line
    #[arg(long, group = "source")]
    controller: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &LogsArgs) -> Result<ExitCode, CommandError> {
    let (state, keep) = args.host.records()?;
    let store = open_for_queries(&state)?;
    let run = find_run(&store, &args.run).await?;
    let layout = Layout::at(&state);
    let key = &run.entry.key;
    let record = layout.records().of(key);
    if !record.exists() {
        return Err(no_record(&run, keep));
    }
    let mut sources = args.sources(&layout, &run);
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        // The end comes first: what was written before it is read after it.
        let is_over = !args.follow || is_over(&store, &run, &layout).await?;
        for source in &mut sources {
            match source.show_new() {
                Ok(()) => {}
                // The failure is reported when the command ends.
                Err(_) if failure().is_some() => return Ok(ExitCode::SUCCESS),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(ExitCode::from(exit::READER_GONE));
                }
                Err(error) => return Err(CommandError::failed(&error)),
            }
        }
        if is_over {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

impl LogsArgs {
    fn sources(&self, layout: &Layout, run: &KnownRun) -> Vec<LogSource> {
        let record = layout.records().of(&run.entry.key);
        let stdout = || DataStream::sanitized();
        let stream = |stream| LogSource::stream(record.stream(stream));
        if self.sidecar {
            // The record gets the log when the run is over.
            let live = layout.sidecar_log(&run.entry.key);
            return vec![LogSource::files(vec![live, record.path(SIDECAR_LOG)], stdout())];
        }
        if self.controller {
            return vec![LogSource::files(vec![record.path(CONTROLLER_LOG)], stdout())];
        }
        match (self.stdout, self.stderr) {
            (true, _) => vec![stream(RecordedStream::Stdout)],
            (_, true) => vec![stream(RecordedStream::Stderr)],
            _ => vec![stream(RecordedStream::Stdout), stream(RecordedStream::Stderr).on_stderr()],
        }
    }
}

/// Returns whether nothing is added to the record any more.
async fn is_over(store: &Store, run: &KnownRun, layout: &Layout) -> Result<bool, CommandError> {
    let key = &run.entry.key;
    if layout.records().of(key).path(RESULT).exists() {
        return Ok(true);
    }
    let now = store.find_run(key).await.map_err(|error| CommandError::failed(&error))?;
    // Another controller may have taken the run over.
    Ok(now.is_none_or(|now| !now.entry.owner.is_alive()))
}

/// Returns the error for a run without a record.
pub(super) fn no_record(run: &KnownRun, keep: Duration) -> CommandError {
    let key = &run.entry.key;
    let keep = humantime::format_duration(keep);
    let message = format!("run {key} has no record: records are kept for {keep} (record_keep), and then removed");
    CommandError { code: exit::FAILED, message }
}
