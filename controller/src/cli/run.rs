//! `sluice run`: one run, from the command line to the receipt.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, exit};
use sluice_runs::blueprint::Volume;
use sluice_runs::engine::StdioConfig;
use sluice_runs::exchange::ExchangeReport;
use sluice_runs::forward::{self, ControlSequences};
use sluice_runs::host::Host;
use sluice_runs::input::Stdin;
use sluice_runs::one_shot::{self, OneShot, RunRequest};
use sluice_runs::outcome::CompletedRun;
use sluice_runs::record::RunRecorder;
use sluice_runs::removal::{self, RemainingDirectory};
use sluice_runs::rundir::SANDBOX_UID;
use sluice_runs::stop::StopPolicy;
use sluice_runs::verdict::Contract;
use sluice_runs::{mount_rights, signals, sweep, tty};
use sluice_state::budget::{Admitted, BudgetError};
use tokio::task::JoinHandle;

use super::error::CommandError;
use super::output::{failure, print, print_object, quote, say, say_lines};
use super::{progress, stderr_log};
use crate::settings::{SettingLayers, Settings};

mod args;
pub(super) mod background;
mod clone;
mod detached;
mod environment;
mod files;
mod image;
mod input;
mod mounts;
mod no_run;
mod publishing;
mod recording;
mod request;
mod request_error;
mod rerun;
pub(super) mod seccomp;
mod watch;

pub(super) use args::RunArgs;
pub(super) use clone::project_of;
use no_run::NoRun;
pub(super) use rerun::{RerunArgs, rerun};

/// Maximum time that the process stays after its answer to remove workspaces; the rest is left to the next process.
const REMOVE_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time to remove workspaces after a signal. Most workspaces need milliseconds.
const REMOVE_AFTER_SIGNAL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: RunArgs) -> Result<ExitCode, CommandError> {
    if args.detach {
        return detached::run(&args).await;
    }
    let as_json = args.json;
    if args.server.is_given() {
        let message = "--server and --token-file are for run -d; leave them out, or add -d".to_owned();
        return report(as_json, Err(CommandError { code: exit::NOT_STARTED, message }.into()));
    }
    report(as_json, run_once(args).await)
}

/// Prints the object of a run that did not start.
fn report(as_json: bool, done: Result<ExitCode, NoRun>) -> Result<ExitCode, CommandError> {
    done.map_err(|refused| {
        if as_json {
            print_object(&refused.to_json());
        }
        refused.error
    })
}

/// Returns the JSON object of a run whose command line is not valid.
pub(super) fn no_run(error: CommandError) -> serde_json::Value {
    NoRun::from(error).to_json()
}

async fn run_once(args: RunArgs) -> Result<ExitCode, NoRun> {
    let before = |error: &dyn std::error::Error| NoRun::before(error);
    let layers = args.host.layers(args.settings()).map_err(|error| before(&error))?;
    let settings = layers.settings().map_err(|error| before(&error))?;
    let mut request = request::read(&args, &settings).await.map_err(|error| before(&error))?;
    let watch = watch::RunWatch::new(&args, &request.key, settings.run.stop_grace);
    warn_of_mounts(&request.spec.volumes);
    let (stop, cancelled) = tokio::sync::watch::channel(None);
    let (kill, kill_now) = tokio::sync::watch::channel(false);
    signals::catch(&stop, &kill).map_err(|error| before(&error))?;
    let host = Arc::new(Host::open(&settings.host).await.map_err(|error| before(&error))?);
    let limitation = image::find(&host.engine, &host.proxy, &settings, &mut request).await;
    limitation.map_err(|error| before(&error))?.iter().for_each(|text| say(&format!("warning: {text}")));
    one_shot::check(&host, &request).await.map_err(|error| before(&error))?;
    watch.begin(&request);
    let admitted = admit(&host, &request).await?;
    let clone = request.spec.clone.clone();
    if let Some(clone) = &clone {
        publishing::begin(&args, &settings, &host, &request.key, clone).await.map_err(|error| before(&error))?;
    }
    let recorder = begin_record(&args, &layers, &settings, &host, &request);
    let has_record = recorder.is_some();
    let (contract, stdin, tty, own) = (request.contract, request.spec.stdin, request.spec.tty, request.key.clone());
    // The terminal is restored however the run ends.
    let restore = tty::TerminalGuard;
    let is_passed_on = contract == Contract::Plain && !args.json;
    let orders = if tty { ControlSequences::Passed } else { ControlSequences::Replaced };
    let forwarded = is_passed_on.then(|| forward::start(orders, stop)).transpose().map_err(|error| before(&error))?;
    let (live, printer) = forwarded.unzip();
    // Output that is completely passed on is not stored.
    let max = if is_passed_on { 0 } else { settings.run.output_max };
    // There is no status line if the program's own output goes to the same terminal.
    let status = if live.is_none() { watch.status_line(host.layout.run(&own).audit) } else { None };
    let once = OneShot {
        host: Arc::clone(&host),
        request,
        admitted,
        output: StdioConfig { stdin, tty, max, live, record: None },
        printer,
        stop: StopPolicy::with_kill(settings.run.stop_grace, kill_now.clone()),
        recorder,
        observer: watch.observer(),
    };
    watch.announce_kill(kill_now);
    if tty && stdin == Stdin::Ours && !args.quiet {
        say(&format!(
            "run {own}: Ctrl-C goes to the program; to stop the run, use sluice cancel {own} in another terminal"
        ));
    }
    background::start(&settings.litellm, settings.record, host.layout.clone(), None);
    // Leftovers of killed controllers are removed during this run: there may be no other process that does it.
    let silent = progress::silent();
    let (done, faults) = tokio::join!(one_shot::run(once, cancelled), sweep::recover_orphans(&host, &silent));
    drop(status);
    report_faults(&faults);
    drop(restore);
    let mut done = done.map_err(|error| before(&error))?;
    if let Some(clone) = &clone {
        publishing::end(&settings, &host, &own, clone, &mut done).await;
    } else if has_record {
        done.notes.extend(patch_advice(&own, &done.report.exchange));
    }
    watch.end(&done.report);
    Ok(finish(args, &host, own.to_string(), contract, done).await)
}

fn warn_of_mounts(volumes: &[Volume]) {
    for volume in volumes {
        let warnings = [mount_rights::warning(volume, SANDBOX_UID), mount_rights::git_warning(volume)];
        warnings.into_iter().flatten().for_each(|text| say(&format!("warning: {text}")));
    }
}

/// Admits the run. If the budget has too little left, takes down the runs of killed controllers first: they may hold
/// the amount that this run needs.
async fn admit(host: &Arc<Host>, request: &RunRequest) -> Result<Admitted, NoRun> {
    let (admitted, note) = match one_shot::admit(host, request).await {
        Err(BudgetError::Insufficient(_)) => {
            report_faults(&sweep::recover_orphans(host, &progress::silent()).await);
            one_shot::admit(host, request).await?
        }
        admitted => admitted?,
    };
    note.iter().for_each(|note| say(note));
    Ok(admitted)
}

/// Begins the record of the run. If that fails, the run goes on without a record.
fn begin_record(
    args: &RunArgs,
    layers: &SettingLayers,
    settings: &Settings,
    host: &Host,
    request: &RunRequest,
) -> Option<RunRecorder> {
    recording::begin(args, layers, settings, host, request).unwrap_or_else(|error| {
        say(&format!("the run has no record: {}", error_chain(&error)));
        None
    })
}

/// Returns what a person can do with the patch of a run, if its changes are not in the directory anyway.
fn patch_advice(run: &RunKey, exchange: &ExchangeReport) -> Option<String> {
    let is_useful = exchange.repo.is_none() && exchange.patch.as_ref().is_some_and(|patch| patch.files > 0);
    let id = &run.run_id;
    is_useful.then(|| {
        format!("patch: see it with sluice diff {id}, apply it in your work tree with sluice apply {id} --yes")
    })
}

/// Shows the result of a run and removes its workspace. The exit code is decided before.
async fn finish(args: RunArgs, host: &Host, own: String, contract: Contract, mut done: CompletedRun) -> ExitCode {
    let (posting, revoking) = (done.posting.take(), done.revoking.take());
    let code = ExitCode::from(u8::try_from(done.report.exit_code).unwrap_or(255));
    let mut shown = tokio::task::spawn_blocking(move || show(&args, contract, &done));
    tokio::select! {
        _ = &mut shown => {}
        // The run is over, so a further signal is for this process. The reader of stdout may not read.
        _ = signals::next() => drop(tokio::time::timeout(REMOVE_AFTER_SIGNAL, &mut shown).await),
    }
    let removing = remove_workspace(host, own);
    // An error of the ledger does not change the result of the run.
    if let Some(posting) = posting
        && let Err(error) = posting.done().await
    {
        let error = error_chain(&error);
        say(&format!("the ledger has not taken this run: {error}; see sluice ledger rebuild"));
    }
    if let Some(revoking) = revoking
        && let Ok(Err(reason)) = revoking.await
    {
        say(&format!("LiteLLM has not deleted the run's virtual key: {reason}; sluice sweep tries again"));
    }
    let hurried = async {
        signals::next().await;
        // A second signal ends the process at once.
        let _ = tokio::time::timeout(REMOVE_AFTER_SIGNAL, signals::next()).await;
    };
    tokio::select! {
        remaining = removing => report_remaining(remaining.unwrap_or_default()),
        () = hurried => {}
    }
    code
}

/// Removes the workspace on another thread: an agent may have written many files, and the result does not wait for them.
fn remove_workspace(host: &Host, own: String) -> JoinHandle<Vec<RemainingDirectory>> {
    let runs = host.layout.runs_directory();
    tokio::task::spawn_blocking(move || removal::remove_all(&runs, Some(&own), Some(Instant::now() + REMOVE_WITHIN)))
}

fn report_remaining(remaining: Vec<RemainingDirectory>) {
    for RemainingDirectory { name, reason } in remaining {
        say(&format!(
            "the directory of run {name} is not removed yet: {reason}; the next sluice run or sweep goes on with it"
        ));
    }
}

/// Reports runs with calls without a recorded end: they may have cost money, and no other process reports them.
fn report_faults(faults: &[String]) {
    faults.iter().for_each(|fault| say(fault));
}

/// Prints the data to stdout, and the rest to stderr.
fn show(args: &RunArgs, contract: Contract, done: &CompletedRun) {
    let report = &done.report;
    if args.json {
        print_object(report);
    } else if contract == Contract::Envelope && !report.content.is_empty() {
        print(&format!("{}\n", report.content));
    }
    if failure().is_some_and(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        say("the run is over, and its answer could not be written");
    }
    if contract == Contract::Envelope && !report.ok && !args.json {
        quote(&report.stderr);
    }
    if let (Some(code), Some(message)) = (report.error_code, &report.error_message)
        && !watch::RunWatch::has_result_event(args)
    {
        say(&format!("{code}: {message}"));
    }
    if !args.quiet && !stderr_log::is_json() {
        done.notes.iter().for_each(|note| say(note));
        say_lines(&report.receipt());
    }
}
