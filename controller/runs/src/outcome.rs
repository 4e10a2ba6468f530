//! The completion of a driven run: judged, recorded, reported.

use std::sync::Arc;

use sluice_contract::exhausted::Exhausted;
use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, exit};
use sluice_state::ledger::{ImplausibleCost, PendingPost};
use sluice_state::run::{Run, RunPhase, RunVerdict, StepFailure};
use sluice_state::store::StoreError;
use tokio::task::JoinHandle;

use crate::drive::DrivenRun;
use crate::forward::Printer;
use crate::host::Host;
use crate::report::{ReportParts, RunReport};
use crate::resources::TeardownEnd;
use crate::verdict::{Contract, ErrorCode, Judgement, LimitValues, OutputLoss, RunEvidence, judge};
use crate::virtual_key::RevokeError;
use crate::{signals, tty};

/// A completed run.
#[derive(Debug)]
pub struct CompletedRun {
    /// Report.
    pub report: RunReport,
    /// Pending receipts; the answer does not wait for the ledger.
    pub posting: Option<PendingPost>,
    /// Pending deletion of the virtual key; the answer does not wait for LiteLLM.
    pub revoking: Option<JoinHandle<Result<(), RevokeError>>>,
    /// Remarks for people, one per line.
    pub notes: Vec<String>,
}

/// A run that ended before all of its resources were taken down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteRun {
    /// A step of the teardown failed.
    #[error("cannot {}: {}", .0.step.as_str(), .0.message)]
    Step(StepFailure),
    /// No step failed, but the run was not closed.
    #[error("the run did not come to its end")]
    NotClosed,
}

/// Completes one run.
#[derive(Debug)]
pub struct Completion {
    /// Host.
    pub host: Arc<Host>,
    /// Run and attempt.
    pub key: RunKey,
    /// Number of times that a controller has taken over the run.
    pub generation: u32,
    /// Meaning of stdout.
    pub contract: Contract,
    /// Limits of the run.
    pub limits: LimitValues,
}

impl Completion {
    /// Judges the run, records the judgement, posts the receipts and writes the report.
    ///
    /// # Errors
    /// [`StoreError`] when the judgement cannot be recorded.
    pub async fn finish(self, driven: DrivenRun, printer: Option<Printer>) -> Result<CompletedRun, StoreError> {
        let DrivenRun { run, end } = driven;
        let TeardownEnd {
            totals,
            output,
            output_loss,
            is_short_of_memory,
            is_create_pending: _,
            timings,
            audit,
            collected,
            mut notes,
        } = end;
        let stdout = output.0.text();
        let verdict = run.verdict.as_ref().expect("a run that is over has a verdict");
        let implausible = totals.implausible.first().map(ImplausibleCost::describe);
        let mut evidence = RunEvidence {
            verdict,
            contract: self.contract,
            stdout: &stdout,
            truncated: output.0.left_out() > 0 || output_loss == Some(OutputLoss::LogFull),
            output_loss,
            limits: self.limits,
            is_short_of_memory,
            output_error: None,
            audit_fault: totals.fault.as_deref(),
            budget: totals.budget.as_deref(),
            implausible: implausible.as_deref(),
            no_connection: totals.no_connection.as_deref(),
        };
        let judged =
            |evidence: &RunEvidence<'_>| with_leftovers(with_lost_files(judge(evidence), &collected.errors), &run);
        let mut judgement = judged(&evidence);
        self.record(&judgement, &run).await?;
        // If this process is killed before the receipts are posted, the next run posts them.
        let posting = audit.map(|audit| self.host.store.ingest(audit));
        if let Some(mut printer) = printer {
            // All resources are gone. The output may not be completely printed yet.
            if let Err(error) = printer.finish(signals::next()).await {
                let reason = error_chain(&error);
                evidence.output_error = Some((&reason, error.exit_code()));
                judgement = judged(&evidence);
                self.record(&judgement, &run).await?;
            } else if printer.dropped() > 0 {
                notes.push(format!("{} bytes of output were dropped: they were not read in time", printer.dropped()));
            }
        }
        // The program's whole output is on the terminal; our own messages follow.
        tty::restore();
        if judgement.error.as_ref().is_none_or(|(code, _)| *code != ErrorCode::BudgetExceeded) {
            notes.extend(totals.litellm_budgets.iter().map(Exhausted::advice));
        }
        notes.extend(collected.report.lines());
        let report = RunReport::new(ReportParts {
            key: &self.key,
            judgement,
            oom_seen: matches!(verdict, RunVerdict::Exited(exit) if exit.oom),
            short_of_memory: is_short_of_memory,
            output,
            totals,
            exchange: collected.report,
            audit_file: self.host.layout.run(&self.key).audit.display().to_string(),
            timings,
        });
        Ok(CompletedRun { report, posting, revoking: None, notes })
    }

    async fn record(&self, judgement: &Judgement, run: &Run) -> Result<(), StoreError> {
        let code = judgement.error.as_ref().map(|(code, _)| code.as_str());
        let recorded = self.host.store.record_result(&self.key, self.generation, code, judgement.exit_code).await;
        // The judgement of an incomplete run already says that a record is missing.
        if check_closed(run).is_ok() { recorded } else { Ok(()) }
    }
}

/// Checks that all resources of a run were taken down.
///
/// # Errors
/// [`IncompleteRun`].
pub fn check_closed(run: &Run) -> Result<(), IncompleteRun> {
    match (run.phase, run.teardown_failures.last()) {
        (RunPhase::Closed, _) => Ok(()),
        (_, Some(failure)) => Err(IncompleteRun::Step(failure.clone())),
        (_, None) => Err(IncompleteRun::NotClosed),
    }
}

/// Adds files that could not be exported to a judgement. They make an otherwise successful run fail.
fn with_lost_files(judgement: Judgement, errors: &[String]) -> Judgement {
    if errors.is_empty() {
        return judgement;
    }
    let lost = errors.join("; ");
    match judgement.error {
        Some((code, message)) => Judgement { error: Some((code, format!("{message}; {lost}"))), ..judgement },
        None => {
            let error = Some((ErrorCode::OutputFailed, lost));
            Judgement { error, exit_code: exit::OUTPUT_FAILED.into(), ..judgement }
        }
    }
}

/// Adds leftovers to a judgement. They fail a run that was ok otherwise.
fn with_leftovers(judgement: Judgement, run: &Run) -> Judgement {
    let Err(reason) = check_closed(run) else { return judgement };
    let left = format!("something of the run is left ({reason}); sluice sweep removes it");
    match judgement.error {
        Some((code, message)) => Judgement { error: Some((code, format!("{message}; {left}"))), ..judgement },
        None => {
            let error = Some((ErrorCode::Internal, left));
            Judgement { error, exit_code: exit::NOT_STARTED.into(), ..judgement }
        }
    }
}
