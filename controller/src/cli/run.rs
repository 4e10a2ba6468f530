//! `sluice run`: one run, from the command line to the receipt.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_contract::text::error_chain;
use sluice_runs::engine::StdioConfig;
use sluice_runs::forward::{self, ControlSequences};
use sluice_runs::host::Host;
use sluice_runs::input::Stdin;
use sluice_runs::observer::Observation;
use sluice_runs::one_shot::{self, OneShot};
use sluice_runs::outcome::CompletedRun;
use sluice_runs::removal::{self, RemainingDirectory};
use sluice_runs::terminal::SanitizedWriter;
use sluice_runs::verdict::Contract;
use sluice_runs::{signals, sweep, tty};
use sluice_state::budget::BudgetError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::CommandError;
use super::output::{print, print_json, say};
use super::progress;

mod args;
mod background;
mod forbidden_mounts;
mod image;
mod input;
mod mount_rights;
mod mounts;
mod no_run;
mod request;
mod request_error;

pub(super) use args::RunArgs;
use no_run::NoRun;

/// Maximum time that the process stays after its answer to remove workspaces; the rest is left to the next process.
const REMOVE_WITHIN: Duration = Duration::from_secs(10);
/// The same after a signal. Most workspaces need milliseconds.
const REMOVE_AFTER_SIGNAL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: RunArgs) -> Result<ExitCode, CommandError> {
    let as_json = args.json;
    run_once(args).await.map_err(|refused| {
        if as_json {
            print_json(&refused.to_json());
        }
        refused.error
    })
}

async fn run_once(args: RunArgs) -> Result<ExitCode, NoRun> {
    let before = |error: &dyn std::error::Error| NoRun::before(error);
    let settings = args.host.settings_with(args.settings()).map_err(|error| before(&error))?;
    let mut request = request::read(&args, &settings).map_err(|error| before(&error))?;
    // A program with the terminal draws on it alone.
    let observer = if args.quiet || args.tty { progress::silent() } else { progress::on_terminal() };
    request.spec.volumes.iter().filter_map(mount_rights::warning).for_each(|text| say(&format!("warning: {text}")));
    let (stop, cancelled) = watch::channel(None);
    signals::catch(&stop).map_err(|error| before(&error))?;
    let host = Arc::new(Host::open(&settings.host).await.map_err(|error| before(&error))?);
    let limitation = image::find(&host.engine, &host.proxy, &settings, &mut request).await;
    limitation.map_err(|error| before(&error))?.iter().for_each(|text| say(&format!("warning: {text}")));
    one_shot::check(&host, &request).await.map_err(|error| before(&error))?;
    let begun = format!("run {}: {}", request.key, request.spec.argv.join(" "));
    observer.observe(Observation::Note(&begun));

    let (admitted, note) = match one_shot::admit(&host, &request).await {
        // Runs of killed controllers may hold the amount that this one needs.
        Err(BudgetError::Insufficient(_)) => {
            report_faults(&sweep::recover_orphans(&host, &progress::silent()).await);
            one_shot::admit(&host, &request).await?
        }
        admitted => admitted?,
    };
    note.iter().for_each(|note| say(note));
    let (contract, stdin, tty, own) = (request.contract, request.spec.stdin, request.spec.tty, request.key.to_string());
    // The terminal is restored however the run ends.
    let restore = tty::TerminalGuard;
    let (max, live, printer) = if contract == Contract::Plain && !args.json {
        let orders = if tty { ControlSequences::Passed } else { ControlSequences::Replaced };
        let (outlet, printer) = forward::start(orders, stop).map_err(|error| before(&error))?;
        // Output that is passed on in full is not kept.
        (0, Some(outlet), Some(printer))
    } else {
        (settings.run.output_max, None, None)
    };
    let once = OneShot {
        host: Arc::clone(&host),
        request,
        admitted,
        output: StdioConfig { stdin, tty, max, live },
        printer,
        stop_grace: settings.run.stop_grace,
        observer,
    };
    if tty && stdin == Stdin::Ours && !args.quiet {
        let pid = std::process::id();
        say(&format!("run {own}: Ctrl-C goes to the program; to stop the run, kill {pid} from another terminal"));
    }
    background::start(&settings.litellm, host.layout.database());
    // Leftovers of killed controllers are removed during this run: there may be no other process that does it.
    let silent = progress::silent();
    let (done, faults) = tokio::join!(one_shot::run(once, cancelled), sweep::recover_orphans(&host, &silent));
    report_faults(&faults);
    drop(restore);
    let done = done.map_err(|error| before(&error))?;
    Ok(finish(args, &host, own, contract, done).await)
}

/// Shows the result of a run and removes its workspace. The exit code is decided before.
async fn finish(args: RunArgs, host: &Host, own: String, contract: Contract, mut done: CompletedRun) -> ExitCode {
    let (posting, revoking) = (done.posting.take(), done.revoking.take());
    let code = ExitCode::from(u8::try_from(done.report.exit_code).unwrap_or(255));
    let shown = tokio::task::spawn_blocking(move || show(&args, contract, &done));
    tokio::select! {
        _ = shown => {}
        // The reader of stdout does not read. The run is over, so a further signal is for this process.
        _ = signals::next() => {}
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

/// Reports runs with calls whose end was not seen: they may have cost something, and no other process reports them.
fn report_faults(faults: &[String]) {
    faults.iter().for_each(|fault| say(fault));
}

/// Prints the data to stdout, and the rest to stderr.
fn show(args: &RunArgs, contract: Contract, done: &CompletedRun) {
    let report = &done.report;
    if args.json {
        print_json(report);
    } else if contract == Contract::Envelope && !report.content.is_empty() {
        print(&format!("{}\n", report.content));
    }
    let mut stderr = SanitizedWriter::new(std::io::stderr());
    if contract == Contract::Envelope && !report.ok && !args.json {
        let _ = stderr.put(report.stderr.as_bytes());
    }
    if let (Some(code), Some(message)) = (report.error_code, &report.error_message) {
        say(&format!("{code}: {message}"));
    }
    if !args.quiet {
        done.notes.iter().for_each(|note| say(note));
        let _ = stderr.put(report.receipt().as_bytes());
    }
}
