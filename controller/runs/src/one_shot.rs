//! One run, begun and brought home by this process.

use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::exhausted::Exhausted;
use sluice_contract::text::error_chain;
use sluice_state::budget::{Admission, Admitted, BudgetError, BudgetLog};
use sluice_state::ledger::PendingPost;
use sluice_state::run::{Cancel, Run, RunVerdict};
use sluice_state::store::{RunRow, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::drive::{DriveContext, drive};
use crate::engine::Stdio;
use crate::forward::Printer;
use crate::host::Host;
use crate::progress::Progress;
use crate::report::{Report, ReportParts};
use crate::scene::{RunEnd, RunResources, RunSpec};
use crate::sidecar::{self, SidecarError};
use crate::sweep::check_complete;
use crate::verdict::{Contract, ErrorCode, Judgement, RunEvidence, judge};
use crate::virtual_key::{self, KeyMode, RevokeError};
use crate::{signals, tty};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Which start of which run.
    pub key: RunKey,
    /// The agent, or the one in whose name a program runs.
    pub agent: String,
    /// What stdout means.
    pub contract: Contract,
    /// The rest.
    pub asked: RunSpec,
}

/// A request, and who sees it through.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct OneShot<'a> {
    pub host: &'a Host,
    pub request: RunRequest,
    pub admitted: Admitted,
    pub output: Stdio,
    /// Writes the output that is passed on.
    pub printer: Option<Printer>,
    pub stop_grace: Duration,
    pub progress: &'a Progress,
}

/// A run that is over.
#[derive(Debug)]
pub struct CompletedRun {
    /// What it came to.
    pub report: Report,
    /// Its receipts on their way into the ledger; nobody needs to wait for that to have the answer.
    pub posting: Option<PendingPost>,
    /// Its virtual key on its way out of LiteLLM, if it may have one; nobody needs to wait for that either.
    pub revoking: Option<JoinHandle<Result<(), RevokeError>>>,
    /// What somebody should know of it, a line each.
    pub notes: Vec<String>,
}

/// Lets the sidecar's program check what this controller passes on unread, so that nothing is held for a run that cannot
/// begin.
///
/// # Errors
/// What is wrong with it.
pub async fn check(host: &Host, request: &RunRequest) -> Result<(), SidecarError> {
    let RunSpec { models, prices, sidecar_flags, upstream, account, .. } = &request.asked;
    let mut flags: Vec<String> = models.iter().map(|model| format!("--model={model}")).collect();
    flags.extend(prices.iter().map(|file| format!("--prices={}", file.display())));
    flags.extend_from_slice(sidecar_flags);
    if sidecar::needs_check(&flags) {
        sidecar::check(&host.proxy, &host.layout, &request.key, account, upstream, &flags).await?;
    }
    Ok(())
}

/// Writes down that it was asked for, with what it holds of its account's budget. Also returns what is wrong with the log of
/// budgets, if anything.
///
/// # Errors
/// [`BudgetError::Short`]: then nothing was written down. And when its record cannot be kept.
pub async fn admit(host: &Host, request: &RunRequest) -> Result<(Admitted, Option<String>), BudgetError> {
    let RunRequest { key, agent, asked, .. } = request;
    let log = BudgetLog { layout: &host.layout, keys: &host.keys, store: &host.store };
    let note = log.ready(&asked.account).await?;
    let entry = RunRow {
        key: key.clone(),
        account: asked.account.clone(),
        agent: agent.clone(),
        model: asked.models.first().cloned(),
        image: asked.image.clone(),
        owner: host.owner.clone(),
    };
    let admitted = host.store.admit(Admission { entry, cap: asked.max_cost, default: asked.hold }).await?;
    Ok((admitted, note.map(|error| error_chain(&error))))
}

/// Runs it, from where it was admitted to its last record.
///
/// # Errors
/// When its record cannot be kept.
pub async fn run(
    once: OneShot<'_>,
    cancelled: &mut watch::Receiver<Option<Cancel>>,
) -> Result<CompletedRun, StoreError> {
    let OneShot { host, request, admitted, output, printer, stop_grace, progress } = once;
    let RunRequest { key, contract, mut asked, .. } = request;
    // What it holds of a budget is its cap: the sidecar keeps it.
    asked.max_cost = admitted.cap;
    let (key, asked) = (&key, &asked);
    let mut scene = RunResources::new(host, key, asked, output, stop_grace);
    let reins = DriveContext { host, key, generation: 0, timeout: asked.timeout, progress };
    let run = drive(Run::new(), &mut scene, reins, cancelled).await?;
    // Its sidecar has ended. Should we be killed before it is done, the next run does it.
    let revoking = (asked.key_mode != KeyMode::Master).then(|| {
        let (store, litellm, key) = (host.store.clone(), asked.litellm(), key.clone());
        tokio::spawn(async move { virtual_key::revoke_of(&store, &litellm?, &key).await })
    });

    let lost_output = scene.lost_output();
    let is_short_of_memory = scene.is_short_of_memory();
    let RunEnd { tally, written, timings, reading, mut notes } = scene.finish();
    let stdout = written.0.text();
    let verdict = run.verdict.as_ref().expect("a run that is over was decided");
    let mut facts = RunEvidence {
        verdict,
        contract,
        stdout: &stdout,
        truncated: written.0.left_out() > 0,
        lost_output,
        short_of_memory: is_short_of_memory.then_some(asked.limits.memory),
        unwritten: None,
        audit_fault: tally.fault.as_deref(),
        budget: tally.budget.as_deref(),
    };
    let mut judgement = with_leftovers(judge(&facts), &run);
    record(host, key, &judgement, &run).await?;
    // Behind all that the answer waits for. Should we be killed before it is done, the next run does it.
    let posting = reading.map(|reading| host.store.ingest(reading));
    if let Some(mut printer) = printer {
        // Nothing is left of the run but the output that its reader has not taken yet.
        if let Err(error) = printer.finish(signals::next()).await {
            let reason = error_chain(&error);
            facts.unwritten = Some((&reason, error.exit_code()));
            judgement = with_leftovers(judge(&facts), &run);
            record(host, key, &judgement, &run).await?;
        } else if printer.dropped() > 0 {
            notes.push(format!("{} bytes of output were dropped: they were not read in time", printer.dropped()));
        }
    }
    // All that the program wrote is on the terminal; what follows is ours.
    tty::restore();
    if judgement.error.as_ref().is_none_or(|(code, _)| *code != ErrorCode::BudgetExceeded) {
        notes.extend(tally.litellm_budgets.iter().map(Exhausted::advice));
    }
    let report = Report::new(ReportParts {
        key,
        judgement,
        oom_seen: matches!(verdict, RunVerdict::Exited(exit) if exit.oom),
        short_of_memory: is_short_of_memory,
        written,
        tally,
        audit_file: host.layout.run(key).audit.display().to_string(),
        timings,
    });
    Ok(CompletedRun { report, posting, revoking, notes })
}

async fn record(host: &Host, key: &RunKey, judgement: &Judgement, run: &Run) -> Result<(), StoreError> {
    let code = judgement.error.as_ref().map(|(code, _)| code.as_str());
    let recorded = host.store.judge(key, 0, code, judgement.exit_code).await;
    // A run of which something is left says so itself.
    if check_complete(run).is_ok() { recorded } else { Ok(()) }
}

/// What could not be taken down is told, and fails a run that was fine otherwise.
fn with_leftovers(judgement: Judgement, run: &Run) -> Judgement {
    let Err(reason) = check_complete(run) else { return judgement };
    let left = format!("something of the run is left ({reason}); sluice sweep removes it");
    match judgement.error {
        Some((code, message)) => Judgement { error: Some((code, format!("{message}; {left}"))), ..judgement },
        None => Judgement { error: Some((ErrorCode::Internal, left)), exit_code: 125, ..judgement },
    }
}
