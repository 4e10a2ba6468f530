//! `sluice reconcile`: the ledger beside LiteLLM's own bill.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_contract::Account;
use sluice_contract::text::sanitize;
use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_runs::signals;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::AuditArchive;
use sluice_state::store::{Store, now_us};

use super::receipts::{dash, open, run_or_start, since};
use super::{BEFORE_START, Common, Failed, MISMATCH, USAGE, fail, print, print_json, progress};
use crate::reconcile::finding::Side;
use crate::reconcile::{Finding, Outcome, Permission, Question, Reconcile, ReconcileError};
use crate::settings::{Settings, missing};

const EXAMPLES: &str = "\
Examples:
  sluice reconcile                                     all accounts, the last 24 hours
  sluice reconcile --run r20261120-163914-1df9af22
  sluice reconcile --account acct-1 --since 2026-11-01 --json | jq .classes
  sluice reconcile --run r20261120-163914-1df9af22 --correct
  sluice reconcile --watch 60s";

const EXIT_CODES: &str = "\
Classes that are in order: matched, settled, unknown_settled, late, cache_hit, not_billed; not_yet is not decided.
Classes that are not: amount_differs, tokens_differ, missing_there, missing_here, duplicate.

Exit codes: 0 all is in order or not decided; 122 something is not; 125 it cannot be said; 2 usage.";

/// How long LiteLLM may take with a row, and some.
const PATIENCE: Duration = Duration::from_secs(45);
/// What is asked about unless somebody says.
const LAST: &str = "24h";

/// Holds receipts against the rows of LiteLLM's spend log, and posts the costs that were not known.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(super) struct Flags {
    /// This run, or one start of it
    #[arg(long, value_name = "RUN[.ATTEMPT]", conflicts_with_all = ["account", "since"])]
    run: Option<String>,
    /// What this account spent [default: each account that has receipts]
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// What was spent since then: 2026-11-20, 2026-11-20T16:00:00Z, or 24h ago [default: 24h]; what is open is looked
    /// up however old it is
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Where amounts or tokens differ, takes back what was posted and posts what LiteLLM says
    #[arg(long)]
    correct: bool,
    /// Does not wait for rows that may still come; LiteLLM takes up to 30 s
    #[arg(long)]
    no_wait: bool,
    /// Does so again and again, this long after each time, until it is told to stop
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = every)]
    watch: Option<Duration>,
    /// One JSON object; with --watch, one a line
    #[arg(long)]
    json: bool,
    /// A file with a key that may read the spend log [default: the upstream's key]
    #[arg(long, value_name = "FILE")]
    spend_key_file: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let usage = |error: &dyn std::error::Error| Failed::new(USAGE, error);
    let given = flags.spend_key_file.iter().map(|file| ("spend_key_file", file.clone())).collect();
    let settings = flags.common.layers(given).and_then(|layers| layers.settings()).map_err(|error| usage(&error))?;
    if settings.upstream.is_none() {
        return Err(usage(&missing("upstream")));
    }
    if settings.spend_key().is_none() {
        return Err(usage(&missing("spend_key_file")));
    }
    let store = open(&settings.state_dir).map_err(|failed| match failed.code {
        USAGE => failed,
        _ => Failed { code: BEFORE_START, ..failed },
    })?;
    match flags.watch {
        None => {
            let outcome = once(flags, &settings, &store).await?;
            show(flags, &outcome);
            Ok(verdict(&outcome))
        }
        Some(every) => watch(flags, &settings, &store, every).await,
    }
}

async fn once(flags: &Flags, settings: &Settings, store: &Store) -> Result<Outcome, Failed> {
    let failed = |error: &dyn std::error::Error| Failed::new(BEFORE_START, error);
    let question = flags.question()?;
    // What a killed controller has left unread would be missing here.
    catch_up(&settings.state_dir, store).await?;
    let (Some(upstream), Some(key)) = (&settings.upstream, settings.spend_key()) else {
        return Err(failed(&missing("upstream")));
    };
    let spend_log = SpendLog::of(upstream, key, RetryMode::Retry).map_err(|error| failed(&error))?;
    let permission = if flags.correct { Permission::Correct } else { Permission::Settle };
    let observer = if flags.json { progress::silent() } else { progress::on_terminal() };
    let mut reconcile = Reconcile { store, spend_log, permission, observer };
    let wait = (!flags.no_wait).then_some(PATIENCE);
    reconcile.run(&question, wait).await.map_err(|error| match error {
        ReconcileError::NoRun(_) => Failed::new(USAGE, &error),
        error => failed(&error),
    })
}

/// A round that fails is told, and followed by the next.
async fn watch(flags: &Flags, settings: &Settings, store: &Store, every: Duration) -> Result<ExitCode, Failed> {
    let mut stopped = signals::cancelled().map_err(|error| Failed::new(BEFORE_START, &error))?;
    let mut last = ExitCode::SUCCESS;
    loop {
        let round = async {
            match once(flags, settings, store).await {
                Ok(outcome) => {
                    show(flags, &outcome);
                    verdict(&outcome)
                }
                Err(failed) => {
                    if flags.json {
                        print(&format!("{}\n", failed.as_json()));
                    }
                    fail(&failed)
                }
            }
        };
        tokio::select! {
            // What was posted is posted, and the rest is left to the next one.
            _ = stopped.changed() => return Ok(last),
            code = round => last = code,
        }
        tokio::select! {
            _ = stopped.changed() => return Ok(last),
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn catch_up(state: &Path, store: &Store) -> Result<(), Failed> {
    let failed = |error: &dyn std::error::Error| Failed::new(BEFORE_START, error);
    let keys = Keys::open(state).and_then(|keys| keys.public()).map_err(|error| failed(&error))?;
    let shelf = AuditArchive { layout: &Layout::at(state), store, keys: &keys };
    // A file that cannot be taken is flagged, and its rows are then missing here.
    let _ = shelf.catch_up().await;
    Ok(())
}

impl Flags {
    fn question(&self) -> Result<Question, Failed> {
        if let Some(run) = &self.run {
            let (run_id, attempt) = run_or_start(run);
            return Ok(Question::Run { run_id, attempt });
        }
        let from_us = since(self.since.as_deref().unwrap_or(LAST))?;
        if from_us > now_us() {
            let message = "--since is in the future".to_owned();
            return Err(Failed { code: USAGE, message });
        }
        Ok(Question::Since { account: self.account.as_ref().map(Account::to_string), from_us })
    }
}

fn every(text: &str) -> Result<Duration, String> {
    match sluice_contract::units::time(text)? {
        time if time < Duration::from_secs(1) => Err(format!("'{text}' is too short; give at least 1s")),
        time => Ok(time),
    }
}

fn verdict(outcome: &Outcome) -> ExitCode {
    if outcome.ok { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) }
}

fn show(flags: &Flags, outcome: &Outcome) {
    if !flags.json {
        print(&text(outcome));
    } else if flags.watch.is_some() {
        print(&format!("{}\n", serde_json::to_string(outcome).expect("plain data")));
    } else {
        print_json(outcome);
    }
}

fn text(outcome: &Outcome) -> String {
    let Outcome { ok, classes, findings, receipts, spend_log, posted, foreign_rows } = outcome;
    let mut text: String = findings.iter().map(line).collect();
    let counts: Vec<_> =
        classes.iter().filter(|(_, count)| **count > 0).map(|(class, count)| format!("{count} {class}")).collect();
    let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    text += &format!("found      {counts}\n");
    text += &format!("posted     {} receipts settled, {} entries taken back\n", posted.receipts, posted.reversed);
    text += &format!("ledger     {} receipts, {} nano-USD\n", receipts.count, receipts.nano_usd);
    text += &format!("spend log  {} rows, {} nano-USD\n", spend_log.count, spend_log.nano_usd);
    if *foreign_rows > 0 {
        text += &format!("ignored    {foreign_rows} rows of others, which LiteLLM gave unasked\n");
    }
    text + if *ok { "they agree\n" } else { "they DIFFER\n" }
}

fn line(finding: &Finding) -> String {
    let rows = finding.request_ids.join(" ");
    let name = finding.source_reference.clone().unwrap_or_else(|| format!("{} row {rows}", finding.account));
    let side = |side: &Option<Side>| dash(side.as_ref().and_then(|side| side.nano_usd));
    let amounts = format!("{} here, {} there", side(&finding.ledger), side(&finding.spend_log));
    format!("{}: {}: {} ({amounts})\n", sanitize(&name), finding.class.as_str(), sanitize(&finding.reason))
}
