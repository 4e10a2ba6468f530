//! `sluice inspect`: shows all data about one run.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_contract::time::from_unix_micros;
use sluice_runs::record::{RequestRecord, ResultRecord};
use sluice_state::layout::Layout;
use sluice_state::records::{REQUEST, RESULT, RecordedStream, RunRecord, SIDECAR_LOG, StreamPart};
use sluice_state::sandboxes::{Sandbox, WaitCause};
use sluice_state::store::KnownRun;

use super::database::open_for_queries;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::HostArgs;
use super::output::{print, print_json};
use super::ps::RunView;
use super::sandbox_object::object_of;
use super::server_args::ServerArgs;

mod audit_file;
mod remote;
mod text;

/// Number of lines that are shown of the end of a log.
const LINES: usize = 10;

const EXAMPLES: &str = "\
Examples:
  sluice inspect nightly
  sluice inspect r20261120 --json | jq .result.timings";

/// Shows everything that is known of a run: request, result and its cause, times, use, files, and the end of its logs.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct InspectArgs {
    /// The run: its id, the name of a daemon's run, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Everything that is known of a run.
#[derive(Serialize)]
struct Inspection {
    run: RunView,
    /// Reason of the end, as the database has it.
    verdict: Value,
    /// Time of the last change (RFC 3339).
    updated: String,
    /// The recorded request; null without a record.
    request: Option<RequestRecord>,
    /// The recorded result; null for a run that goes on, and without a record.
    result: Option<ResultRecord>,
    /// Reason why there is no record.
    no_record: Option<String>,
    /// Reason why there is no audit file.
    no_audit: Option<String>,
    paths: Value,
    /// The last lines of logs.
    tails: LogTails,
    /// The run as the API shows it; null for a run of `sluice run`.
    sandbox: Value,
}

/// The last lines of logs.
#[derive(Serialize, Default)]
struct LogTails {
    stdout: Vec<String>,
    stderr: Vec<String>,
    sidecar: Vec<String>,
}

pub(super) async fn run(args: &InspectArgs) -> Result<ExitCode, CommandError> {
    let inspection = match args.server.named(&args.host)? {
        Some(api) => remote::inspect(&api, &args.run).await?,
        None => inspect_here(args).await?,
    };
    if args.json {
        print_json(&inspection);
    } else {
        print(&text::text(&inspection));
    }
    Ok(ExitCode::SUCCESS)
}

async fn inspect_here(args: &InspectArgs) -> Result<Inspection, CommandError> {
    let (state, keep) = args.host.records()?;
    let store = open_for_queries(&state)?;
    let run = find_run(&store, &args.run).await?;
    let sandbox = store.find_sandbox(None, &run.entry.key.run_id).await;
    let sandbox = sandbox.map_err(|error| CommandError::failed(&error))?;
    let layout = Layout::at(&state);
    let no_audit = audit_file::reason_of_absence(&store, &layout, &run.entry.key).await?;
    let mut inspected = inspect(&run, sandbox.as_ref(), &layout, keep).map_err(|error| CommandError::failed(&error))?;
    if let Some(sandbox) = &sandbox {
        let cause = store.wait_cause(sandbox).await.map_err(|error| CommandError::failed(&error))?;
        add_wait(&mut inspected.sandbox, sandbox, cause.as_ref(), &layout)?;
        let is_present = sandbox.key == run.entry.key;
        inspected.run = inspected.run.with_cause(cause.as_ref().filter(|_| is_present));
    }
    Ok(Inspection { no_audit, ..inspected })
}

/// Adds what a daemon's run waits for and, while it waits for another attempt, the error of the attempt before. The
/// record of that attempt has the error itself; the database has a text for the owner.
fn add_wait(object: &mut Value, run: &Sandbox, cause: Option<&WaitCause>, layout: &Layout) -> Result<(), CommandError> {
    object["waiting_for"] = json!(cause.map(|cause| cause.waiting_for));
    if let Some(cause) = cause.filter(|cause| cause.waiting_for == "retry") {
        let before = RunKey { run_id: run.key.run_id.clone(), attempt: run.key.attempt.saturating_sub(1) };
        let result = layout.records().of(&before).read_json::<ResultRecord>(RESULT);
        let result = result.map_err(|error| CommandError::failed(&error))?;
        object["error_message"] = json!(result.and_then(|result| result.error_message).or(cause.error_message.clone()));
    }
    Ok(())
}

fn inspect(run: &KnownRun, sandbox: Option<&Sandbox>, layout: &Layout, keep: Duration) -> io::Result<Inspection> {
    let (key, record) = (&run.entry.key, layout.records().of(&run.entry.key));
    let no_record = (!record.exists()).then(|| super::logs::no_record(run, sandbox, keep).message);
    let audit = layout.run(key).audit;
    Ok(Inspection {
        run: RunView::of(run, sandbox, layout),
        verdict: serde_json::to_value(&run.verdict)?,
        updated: humantime::format_rfc3339_seconds(from_unix_micros(run.updated_us)).to_string(),
        request: record.read_json(REQUEST)?,
        result: record.read_json(RESULT)?,
        paths: json!({
            "audit": audit.exists().then(|| audit.display().to_string()),
            "record": no_record.is_none().then(|| record.directory().display().to_string()),
        }),
        no_record,
        no_audit: None,
        tails: tails(&record, &layout.sidecar_log(key))?,
        sandbox: serde_json::to_value(sandbox.map(object_of))?,
    })
}

fn tails(record: &RunRecord, live_sidecar_log: &std::path::Path) -> io::Result<LogTails> {
    let sidecar = std::fs::read(live_sidecar_log).or_else(|_| std::fs::read(record.path(SIDECAR_LOG)));
    Ok(LogTails {
        stdout: last_lines(&stream(record, RecordedStream::Stdout)?),
        stderr: last_lines(&stream(record, RecordedStream::Stderr)?),
        // A run that was not started has no sidecar.
        sidecar: last_lines(&sidecar.unwrap_or_default()),
    })
}

/// Returns the newest part of a stream that is recorded without a gap.
fn stream(record: &RunRecord, stream: RecordedStream) -> io::Result<Vec<u8>> {
    let (mut reader, mut bytes) = (record.stream(stream), Vec::new());
    while let Some(part) = reader.next_part()? {
        match part {
            StreamPart::Bytes(more) => bytes.extend(more),
            StreamPart::Missing(_) => bytes.clear(),
        }
    }
    Ok(bytes)
}

/// Returns the last lines of an output.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| (*line).to_owned()).collect()
}
