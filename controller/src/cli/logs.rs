//! `sluice logs`: shows the recorded output and logs of a run.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_contract::exit;
use sluice_state::layout::Layout;
use sluice_state::records::{CONTROLLER_LOG, OUTPUT_INDEX, RESULT, RecordedStream, SIDECAR_LOG};
use sluice_state::sandboxes::{Sandbox, SandboxState};
use sluice_state::store::{KnownRun, RunDriver, Store};

use super::database::open_for_queries;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::HostArgs;
use super::output::{DataStream, failure, say};
use super::parse::since;
use super::run_status::RunStatus;
use super::server_args::ServerArgs;
use super::wait::{EXIT_CODES, failure as failure_of};

mod line_selection;
mod remote;
mod source;

use line_selection::{LineFlags, LineSelection};
use source::LogSource;
pub(super) use source::left_out;

/// Time between two reads of the record of a run in progress.
const EVERY: Duration = Duration::from_millis(200);

/// Maximum time between the end of a run's output and the end of the run.
const END_WITHIN: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  sluice logs -f nightly; echo $?
  sluice logs r20261120 --stderr
  sluice logs nightly --since 10m --grep error --tail 20
  sluice logs -f --server https://sluice.example.org --token-file alice.token nightly";

/// Shows what a run wrote: stdout on stdout, stderr on stderr. The record has the beginning and the end of each stream.
///
/// With --follow it goes on until the run has ended, and exits as the run did.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct LogsArgs {
    /// The run: its id, the name of a daemon's run, or the beginning of its id
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
    /// Show lines since this time: 2026-11-20, 2026-11-20T16:00:00Z, or how long ago, such as 10m. Runs of
    /// the daemon only
    #[arg(long, value_name = "TIME", conflicts_with_all = ["sidecar", "controller"])]
    since: Option<String>,
    /// Show the last N lines of what is there, and with --follow what comes after them. For a run of sluice run, the last N
    /// of each stream
    #[arg(long, short = 'n', value_name = "N")]
    tail: Option<usize>,
    /// Show lines with this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Print one JSON object in a line: stream, time and text of each line of both streams. For a run of sluice run, the
    /// time is null
    #[arg(long, conflicts_with_all = ["sidecar", "controller"])]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &LogsArgs) -> Result<ExitCode, CommandError> {
    let flags = args.line_flags()?;
    if let Some(api) = args.server.named(&args.host)? {
        return remote::show(&api, args, flags).await;
    }
    let (state, keep) = args.host.records()?;
    let store = open_for_queries(&state)?;
    let layout = Layout::at(&state);
    let mut run = find_run(&store, &args.run).await?;
    let names_attempt = args.run == run.entry.key.to_string();
    loop {
        if let Some(code) = show_attempt((args, &flags), &store, &layout, &run, keep).await? {
            return Ok(code);
        }
        let newest = find_run(&store, run.entry.key.run_id.as_str()).await?;
        if names_attempt || newest.entry.key == run.entry.key {
            return ended(&store, &run).await;
        }
        // The daemon retries the run automatically.
        run = newest;
    }
}

/// Shows the output of an attempt. Returns `None` at the end of the followed output, otherwise the end of the command.
async fn show_attempt(
    (args, flags): (&LogsArgs, &LineFlags),
    store: &Store,
    layout: &Layout,
    run: &KnownRun,
    keep: Duration,
) -> Result<Option<ExitCode>, CommandError> {
    if !has_record(store, run, layout, args.follow).await? {
        return match sandbox_of(store, run).await? {
            Some(sandbox) if !sandbox.state.is_ended() => {
                let key = &run.entry.key;
                let message = format!("run {key} has not begun, and so has no output; sluice logs -f waits for it");
                Err(CommandError { code: exit::FAILED, message })
            }
            // It ended in the queue, or its record is no longer kept.
            Some(_) if args.follow => Ok(None),
            sandbox => Err(no_record(run, sandbox.as_ref(), keep)),
        };
    }
    let mut sources = args.sources(layout, run, flags)?;
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        // The end is checked first, so that output written before it is read after it.
        let is_over = !args.follow || is_over(store, run, layout).await?;
        for source in &mut sources {
            let shown = source.show_new().and_then(|()| if is_over { source.finish() } else { source.caught_up() });
            match shown {
                Ok(()) => {}
                Err(error) => return reader_gone(&error).map(Some),
            }
        }
        if is_over {
            return Ok((!args.follow).then_some(ExitCode::SUCCESS));
        }
    }
}

/// Returns the result of a command that cannot write its output.
pub(super) fn reader_gone(error: &io::Error) -> Result<ExitCode, CommandError> {
    match (failure(), error.kind()) {
        // The failure is reported when the command ends.
        (Some(_), _) => Ok(ExitCode::SUCCESS),
        (None, io::ErrorKind::BrokenPipe) => Ok(ExitCode::from(exit::READER_GONE)),
        (None, _) => Err(CommandError::failed(error)),
    }
}

/// Returns whether the run has a record. If the output is followed, waits for the record of a run that has not begun.
async fn has_record(store: &Store, run: &KnownRun, layout: &Layout, follow: bool) -> Result<bool, CommandError> {
    let record = layout.records().of(&run.entry.key);
    let mut look = tokio::time::interval(EVERY);
    loop {
        if record.exists() {
            return Ok(true);
        }
        let may_begin = follow && sandbox_of(store, run).await?.is_some_and(|sandbox| !sandbox.state.is_ended());
        if !may_begin {
            return Ok(false);
        }
        look.tick().await;
    }
}

/// Waits for the end of a run whose output has ended, and returns its exit code.
async fn ended(store: &Store, run: &KnownRun) -> Result<ExitCode, CommandError> {
    let key = &run.entry.key;
    let closing = async {
        let mut look = tokio::time::interval(EVERY);
        loop {
            look.tick().await;
            let found = store.find_run(key).await.map_err(|error| CommandError::failed(&error))?;
            let sandbox = sandbox_of(store, run).await?;
            let status = found.map(|run| RunStatus::of_rows(&run, sandbox.as_ref()));
            if let Some(status) = status.filter(RunStatus::is_ended) {
                return Ok::<_, CommandError>(status);
            }
        }
    };
    match tokio::time::timeout(END_WITHIN, closing).await {
        Ok(status) => Ok(exit_code(&status?)),
        Err(_) => {
            let message = format!("the controller of run {key} ended before the run; sluice sweep takes it down");
            Err(CommandError { code: exit::FAILED, message })
        }
    }
}

/// Returns the exit code of a run that has ended, and says why it failed.
pub(super) fn exit_code(status: &RunStatus) -> ExitCode {
    let Some((_, error)) = failure_of(status) else { return ExitCode::SUCCESS };
    say(&error.message);
    ExitCode::from(error.code)
}

impl LogsArgs {
    /// Returns whether the output consists of lines, without an error object.
    pub(super) fn is_stream(&self) -> bool {
        self.json
    }

    fn line_flags(&self) -> Result<LineFlags, CommandError> {
        let since_us = self.since.as_deref().map(since).transpose()?;
        Ok(LineFlags { since_us, tail: self.tail, text: self.grep.clone() })
    }

    fn sources(&self, layout: &Layout, run: &KnownRun, flags: &LineFlags) -> Result<Vec<LogSource>, CommandError> {
        let mut sources = self.whole_sources(layout, run);
        if flags.select_all() && !self.json {
            return Ok(sources);
        }
        let record = layout.records().of(&run.entry.key);
        // The record of a run of `sluice run` has the two streams alone. A daemon's run that begins has no index yet.
        let has_index = run.entry.driver == RunDriver::Daemon || record.path(OUTPUT_INDEX).exists();
        if flags.since_us.is_some() && !has_index {
            return Err(CommandError::wrong_usage("--since: the record of a run of sluice run has no times"));
        }
        if has_index && !self.sidecar && !self.controller {
            // The index has the times of lines, and their order across both streams.
            sources = vec![LogSource::output(record.output(0), self.only())];
        }
        let selected = |source: LogSource| source.selecting(LineSelection::new(flags.clone()), self.json.into());
        Ok(sources.into_iter().map(selected).collect())
    }

    /// Returns the stream that is shown alone, if a flag names one.
    fn only(&self) -> Option<RecordedStream> {
        match (self.stdout, self.stderr) {
            (true, _) => Some(RecordedStream::Stdout),
            (_, true) => Some(RecordedStream::Stderr),
            _ => None,
        }
    }

    fn whole_sources(&self, layout: &Layout, run: &KnownRun) -> Vec<LogSource> {
        let record = layout.records().of(&run.entry.key);
        let stdout = || DataStream::sanitized();
        let stream = |stream| LogSource::stream(record.stream(stream), stream);
        if self.sidecar {
            // The record gets the log when the run is over.
            let live = layout.sidecar_log(&run.entry.key);
            return vec![LogSource::files(vec![live, record.path(SIDECAR_LOG)], stdout())];
        }
        if self.controller {
            return vec![LogSource::files(vec![record.path(CONTROLLER_LOG)], stdout())];
        }
        match self.only() {
            Some(only) => vec![stream(only).on_stdout()],
            None => RecordedStream::ALL.map(stream).into(),
        }
    }
}

/// Returns whether the record is complete.
async fn is_over(store: &Store, run: &KnownRun, layout: &Layout) -> Result<bool, CommandError> {
    let key = &run.entry.key;
    if let Some(sandbox) = sandbox_of(store, run).await? {
        // After a kill, the daemon takes the run over when it is back.
        return Ok(sandbox.state.is_ended() || sandbox.key != *key);
    }
    if layout.records().of(key).path(RESULT).exists() {
        return Ok(true);
    }
    let now = store.find_run(key).await.map_err(|error| CommandError::failed(&error))?;
    // Another controller may have taken the run over.
    Ok(now.is_none_or(|now| !now.entry.owner.is_alive()))
}

/// Returns the row of a daemon's run.
async fn sandbox_of(store: &Store, run: &KnownRun) -> Result<Option<Sandbox>, CommandError> {
    let found = store.find_sandbox(None, &run.entry.key.run_id).await;
    found.map_err(|error| CommandError::failed(&error))
}

/// Returns the error for a run without a record. `sandbox` is the row of a daemon's run.
pub(super) fn no_record(run: &KnownRun, sandbox: Option<&Sandbox>, keep: Duration) -> CommandError {
    let key = &run.entry.key;
    let message = match sandbox.filter(|sandbox| sandbox.key == *key) {
        Some(sandbox) if matches!(sandbox.state, SandboxState::Pending | SandboxState::Creating) => {
            format!("run {key} has not begun, and so has no record")
        }
        Some(sandbox) if sandbox.claimed_us.is_none() => {
            format!("run {key} ended before it began, and so has no record")
        }
        _ => {
            let keep = spaced(keep);
            format!("run {key} has no record: records are kept for {keep} (record_keep), and then removed")
        }
    };
    CommandError { code: exit::FAILED, message }
}

/// Formats a duration with a space before each unit, such as `14 days`.
fn spaced(duration: Duration) -> String {
    let text = humantime::format_duration(duration).to_string();
    let parts = text.split(' ').map(|part| {
        let (number, unit) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
        format!("{number} {unit}")
    });
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_space_before_each_unit() {
        const DAY: u64 = 24 * 3600;
        for (seconds, text) in [(14 * DAY, "14 days"), (DAY + 7200, "1 day 2 h"), (0, "0 s")] {
            assert_eq!(spaced(Duration::from_secs(seconds)), text);
        }
    }
}
