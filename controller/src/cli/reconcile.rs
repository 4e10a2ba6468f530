//! `sluice reconcile`: compares the ledger with LiteLLM's own bill.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluice_contract::{Account, exit};
use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_runs::observer::Observation;
use sluice_runs::signals;
use sluice_state::control_log::ControlEntry;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::AuditArchive;
use sluice_state::store::{Store, now_us};

use super::database::open;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::operator_record;
use super::output::{fail, failure, print, print_object};
use super::parse::{at_least_one_second, reason, run_or_attempt, since};
use super::progress;
use crate::reconcile::{PostingPermission, ReconcileError, ReconcileOutcome, ReconcileQuestion, Reconciliation};
use crate::settings::{Settings, missing};

mod text;

const EXAMPLES: &str = "\
Examples:
  sluice reconcile                                     all accounts, the last 24 hours
  sluice reconcile --run r20261120-163914-1df9af22
  sluice reconcile --account acct-1 --since 2026-11-01 --json | jq .classes
  sluice reconcile --run r20261120-163914-1df9af22 --correct --reason 'checked with the provider'
  sluice reconcile --watch 60s";

const EXIT_CODES: &str = "\
Classes that agree: matched, settled, unknown_settled, late, cache_hit, not_billed; not_yet is undecided.
Classes that do not agree: amount_differs, tokens_differ, missing_there, missing_here, duplicate, unreadable_row.

Exit codes: 0 all agree or are undecided; 122 some do not agree; 125 the comparison failed; 2 usage.";

/// Maximum time that LiteLLM takes to write a row, with a margin.
const WAIT_MAX: Duration = Duration::from_secs(45);
/// Default of `--since`.
const SINCE: &str = "24h";

/// Compares receipts with the rows of LiteLLM's spend log, and posts the costs that were unknown.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct ReconcileArgs {
    /// Compare this run, or one attempt of it
    #[arg(long, value_name = "RUN[.ATTEMPT]", conflicts_with_all = ["account", "since"])]
    run: Option<String>,
    /// Compare the calls of this account [default: each account that has receipts]
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// Compare calls since this time: 2026-11-20, 2026-11-20T16:00:00Z, or 24h ago [default: 24h]; calls of unknown cost
    /// are looked up at any age
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// If amounts or tokens differ, reverse the posted entries and post LiteLLM's numbers
    #[arg(long, requires = "reason")]
    correct: bool,
    /// The reason of a correction, for the control log; required with --correct
    #[arg(long, value_name = "TEXT", requires = "correct", value_parser = reason)]
    reason: Option<String>,
    /// Do not wait for rows that may still come; LiteLLM takes up to 30 s
    #[arg(long)]
    no_wait: bool,
    /// Repeat the comparison, this long after each one, until a signal ends it
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = at_least_one_second)]
    watch: Option<Duration>,
    /// Print one JSON object; with --watch, one object on each line
    #[arg(long)]
    json: bool,
    /// A file with a key that may read the spend log [default: the upstream's key]
    #[arg(long, value_name = "FILE")]
    spend_key_file: Option<String>,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &ReconcileArgs) -> Result<ExitCode, CommandError> {
    let given = args.spend_key_file.iter().map(|file| ("spend_key_file", file.clone())).collect();
    let settings = args.host.settings_with(given).map_err(|error| CommandError::usage(&error))?;
    if settings.litellm.upstream.is_none() {
        return Err(CommandError::usage(&missing("upstream")));
    }
    if settings.litellm.spend_key().is_none() {
        return Err(CommandError::usage(&missing("spend_key_file")));
    }
    let store = open(&settings.host.state_dir).map_err(|error| match error.code {
        exit::USAGE => error,
        _ => CommandError { code: exit::NOT_STARTED, ..error },
    })?;
    let recorded = match args.correct {
        true => Some(operator_record::begin(&settings.host.state_dir, args.entry())?),
        false => None,
    };
    let done = match args.watch {
        None => reconcile_once(args, &settings, &store).await.map(|outcome| {
            show(args, &outcome);
            exit_code(&outcome)
        }),
        Some(every) => watch(args, &settings, &store, every).await,
    };
    match recorded {
        Some(recorded) => recorded.end(done),
        None => done,
    }
}

async fn reconcile_once(
    args: &ReconcileArgs,
    settings: &Settings,
    store: &Store,
) -> Result<ReconcileOutcome, CommandError> {
    let question = args.question()?;
    // Otherwise, calls would be missing here if a killed controller did not read their audit file.
    catch_up(&settings.host.state_dir, store).await?;
    let (Some(upstream), Some(key)) = (&settings.litellm.upstream, settings.litellm.spend_key()) else {
        return Err(CommandError::not_started(&missing("upstream")));
    };
    let spend_log = SpendLog::of(upstream, key, RetryMode::Retry).map_err(|error| CommandError::not_started(&error))?;
    let permission = if args.correct { PostingPermission::Correct } else { PostingPermission::Settle };
    let observer = if args.json { progress::silent() } else { progress::on_terminal() };
    let notify = |text: &str| observer.observe(Observation::Note(text));
    let mut reconciliation = Reconciliation { store, spend_log, permission, notify: &notify };
    let wait = (!args.no_wait).then_some(WAIT_MAX);
    reconciliation.run(&question, wait).await.map_err(|error| match error {
        ReconcileError::NoRun(_) => CommandError::usage(&error),
        error => CommandError::not_started(&error),
    })
}

/// Repeats the reconciliation until a signal. An error is printed, and the next round follows.
async fn watch(
    args: &ReconcileArgs,
    settings: &Settings,
    store: &Store,
    every: Duration,
) -> Result<ExitCode, CommandError> {
    let mut stopped = signals::cancelled().map_err(|error| CommandError::not_started(&error))?;
    let mut last = ExitCode::SUCCESS;
    loop {
        tokio::select! {
            // Cancel-safe: entries that were posted stay posted, and the rest is left to the next reconciliation.
            _ = stopped.changed() => return Ok(last),
            code = watch_round(args, settings, store) => last = code,
        }
        if failure().is_some() {
            return Ok(last);
        }
        tokio::select! {
            _ = stopped.changed() => return Ok(last),
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn watch_round(args: &ReconcileArgs, settings: &Settings, store: &Store) -> ExitCode {
    match reconcile_once(args, settings, store).await {
        Ok(outcome) => {
            show(args, &outcome);
            exit_code(&outcome)
        }
        Err(error) => {
            if args.json {
                print_line(&error.object());
            }
            fail(&error)
        }
    }
}

async fn catch_up(state: &Path, store: &Store) -> Result<(), CommandError> {
    let keys = Keys::open(state).and_then(|keys| keys.public());
    let keys = keys.map_err(|error| CommandError::not_started(&error))?;
    let archive = AuditArchive { layout: &Layout::at(state), store, keys: &keys };
    // A file that cannot be ingested is flagged in the database, and its calls are missing here.
    let _ = archive.catch_up().await;
    Ok(())
}

impl ReconcileArgs {
    /// Returns the line of the control log about a correction.
    fn entry(&self) -> ControlEntry {
        ControlEntry {
            operation: "reconcile.correct".to_owned(),
            object: self.run.clone().or_else(|| self.account.as_ref().map(Account::to_string)),
            after: Some(json!({ "since": self.since })),
            reason: self.reason.clone(),
            ..ControlEntry::default()
        }
    }

    fn question(&self) -> Result<ReconcileQuestion, CommandError> {
        if let Some(run) = &self.run {
            let (run_id, attempt) = run_or_attempt(run);
            return Ok(ReconcileQuestion::Run { run_id, attempt });
        }
        let from_us = since(self.since.as_deref().unwrap_or(SINCE))?;
        if from_us > now_us() {
            return Err(CommandError::wrong_usage("--since is in the future"));
        }
        Ok(ReconcileQuestion::Since { account: self.account.as_ref().map(Account::to_string), from_us })
    }
}

fn exit_code(outcome: &ReconcileOutcome) -> ExitCode {
    if outcome.ok { ExitCode::SUCCESS } else { ExitCode::from(exit::MISMATCH) }
}

fn show(args: &ReconcileArgs, outcome: &ReconcileOutcome) {
    if !args.json {
        print(&text::text(outcome));
        return;
    }
    let differs = differs(outcome);
    let object = CommandObject::of(differs.as_ref(), outcome);
    if args.watch.is_some() { print_line(&object) } else { print_object(&object) }
}

/// Prints an object on one line, also to a terminal.
fn print_line(object: &impl serde::Serialize) {
    print(&format!("{}\n", serde_json::to_string(object).expect("plain data")));
}

/// Returns the error for a ledger and a bill that do not agree.
fn differs(outcome: &ReconcileOutcome) -> Option<CommandError> {
    let count = outcome.findings.iter().filter(|finding| finding.class.is_mismatch()).count();
    let message = format!("ledger and spend log do not agree: {count} findings");
    (!outcome.ok).then_some(CommandError { code: exit::MISMATCH, message })
}
