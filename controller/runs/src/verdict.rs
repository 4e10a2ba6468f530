//! The outcome of a run: one word and one exit code, from its verdict, its output and its audit log.
//!
//! Pure. The order of the checks is the contract: the audit log, false costs, failed output, our own actions,
//! memory, then the program.

use serde::{Deserialize, Serialize};
use sluice_contract::{exit, reason};
use sluice_state::run::{Cancel, ContainerExit, RunStep, RunVerdict};

use crate::envelope::{self, Envelope, EnvelopeError};

mod limits;

pub use limits::LimitValues;

const SIGPIPE: i32 = nix::libc::SIGPIPE;

/// Reason why a run is not ok; stable words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The run exceeded its timeout.
    Timeout,
    /// The program needed more memory than its limit.
    OomKilled,
    /// The program ended with another code than 0, or reported a failure.
    ContainerFailed,
    /// A fault of Sluice or of the machine.
    Internal,
    /// The agent wrote more than is captured, which broke its envelope.
    OutputTruncated,
    /// The container could not be started.
    CreationFailed,
    /// A cap on calls, tokens or dollars ended the run.
    BudgetExceeded,
    /// The answer to a call stated a cost that cannot be true.
    ImplausibleCost,
    /// The account's budget has too little left to start the run.
    InsufficientCredits,
    /// The audit log is incomplete, so there may be unknown calls; or the sidecar ended before the run, which then had
    /// no model.
    AuditFailed,
    /// The run was cancelled.
    Cancelled,
    /// The agent's output is not an envelope.
    BadEnvelope,
    /// The program's output could not be written to our stdout or stderr.
    OutputFailed,
}

/// Meaning of the program's stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contract {
    /// One envelope.
    #[default]
    Envelope,
    /// The answer itself.
    Plain,
}

/// Reason why a part of a program's output is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLoss {
    /// The engine ended the streams before the program ended.
    CutOff,
    /// The run was adopted by another controller, and its earlier output is gone.
    BeforeAdoption,
    /// The program wrote more than the engine's log holds.
    LogFull,
}

/// Facts about a run that is over.
#[derive(Debug, Clone, Copy)]
pub struct RunEvidence<'a> {
    /// Verdict of the run.
    pub verdict: &'a RunVerdict,
    /// Meaning of stdout.
    pub contract: Contract,
    /// Captured stdout.
    pub stdout: &'a str,
    /// True if stdout was longer.
    pub truncated: bool,
    /// Reason why a part of the output is missing.
    pub output_loss: Option<OutputLoss>,
    /// Limits of the run.
    pub limits: LimitValues,
    /// True if the program was short of memory at the end.
    pub is_short_of_memory: bool,
    /// Reason why a part of the output did not reach our stdout or stderr, and its exit code.
    pub output_error: Option<(&'a str, i32)>,
    /// Reason why the audit log is not reliable.
    pub audit_fault: Option<&'a str>,
    /// Message of a call that was refused for its cost.
    pub budget: Option<&'a str>,
    /// Message about a cost that cannot be true.
    pub implausible: Option<&'a str>,
    /// Message about calls that found no connection to the upstream.
    pub no_connection: Option<&'a str>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// `None` when the run is ok.
    pub error: Option<(ErrorCode, String)>,
    /// Exit code of `sluice run`.
    pub exit_code: i32,
    /// Answer of the program.
    pub content: String,
}

/// Reason why a run is not ok.
struct RunFailure {
    code: ErrorCode,
    exit_code: i32,
    message: String,
}

impl RunFailure {
    fn new(code: ErrorCode, exit_code: impl Into<i32>, message: impl Into<String>) -> Self {
        Self { code, exit_code: exit_code.into(), message: message.into() }
    }
}

/// Judges a run.
#[must_use]
pub fn judge(evidence: &RunEvidence<'_>) -> Judgement {
    let answer = match evidence.contract {
        Contract::Plain => Ok(Envelope { content: evidence.stdout.to_owned(), error: None }),
        Contract::Envelope => envelope::parse(evidence.stdout),
    };
    let content = answer.as_ref().map(|envelope| envelope.content.clone()).unwrap_or_default();
    let result = judge_run(evidence).and_then(|exit| judge_program(exit, answer, evidence));
    match result {
        Ok(()) => Judgement { error: None, exit_code: 0, content },
        Err(RunFailure { code, exit_code, message }) => Judgement { error: Some((code, message)), exit_code, content },
    }
}

/// Returns the exit of the program, if only the program decides about the run.
fn judge_run<'a>(evidence: &RunEvidence<'a>) -> Result<&'a ContainerExit, RunFailure> {
    let internal = |message: String| RunFailure::new(ErrorCode::Internal, exit::NOT_STARTED, message);
    if let Some(fault) = evidence.audit_fault {
        return Err(RunFailure::new(ErrorCode::AuditFailed, exit::AUDIT_INCOMPLETE, fault));
    }
    if let Some(message) = evidence.implausible {
        // It also explains why the daemon has stopped the run.
        return Err(RunFailure::new(ErrorCode::ImplausibleCost, exit::BUDGET, message));
    }
    // A failed write stops a run like SIGPIPE; any other cause came before it.
    let is_cause =
        matches!(evidence.verdict, RunVerdict::Cancelled(Cancel { signal: SIGPIPE }) | RunVerdict::Exited(_));
    if let Some((reason, code)) = evidence.output_error.filter(|_| is_cause) {
        return Err(RunFailure::new(ErrorCode::OutputFailed, code, reason));
    }
    Err(match evidence.verdict {
        RunVerdict::Cancelled(cancel) => {
            let message = format!("the run was cancelled{}", shortage(evidence));
            RunFailure::new(ErrorCode::Cancelled, 128 + cancel.signal, message)
        }
        RunVerdict::TimedOut => {
            let limit = evidence.limits.timeout();
            let message = format!("the run took longer than {limit}, and was stopped{}", shortage(evidence));
            RunFailure::new(ErrorCode::Timeout, exit::TIMEOUT, message)
        }
        RunVerdict::Interrupted => internal("the controller of the run was killed; another cleaned up".to_owned()),
        RunVerdict::SidecarLost => {
            // The audit file is complete: otherwise, its fault is reported before this verdict.
            let message =
                "the sidecar ended before the run did, so the program had no model any more; the audit log is complete";
            RunFailure::new(ErrorCode::AuditFailed, exit::AUDIT_INCOMPLETE, message)
        }
        RunVerdict::NotStarted(failure) => {
            let code = match failure.step {
                RunStep::Prepare | RunStep::StartSidecar | RunStep::CreateContainer | RunStep::StartContainer => {
                    ErrorCode::CreationFailed
                }
                _ => ErrorCode::Internal,
            };
            let message = format!("cannot {}: {}", failure.step.as_str(), failure.message);
            RunFailure::new(code, exit::NOT_STARTED, message)
        }
        RunVerdict::Removed => {
            RunFailure::new(ErrorCode::ContainerFailed, 137, "the container of the run was removed from outside")
        }
        RunVerdict::Exited(_) if evidence.output_loss == Some(OutputLoss::CutOff) => {
            internal("the engine cut the run's output off; what it wrote later is lost".to_owned())
        }
        RunVerdict::Unrecorded(why) => internal(format!("cannot record the state of the run: {why}")),
        RunVerdict::Exited(exit) => return Ok(exit),
    })
}

/// Judges a program that has ended by itself.
fn judge_program(
    container: &ContainerExit,
    answer: Result<Envelope, EnvelopeError>,
    evidence: &RunEvidence<'_>,
) -> Result<(), RunFailure> {
    let code = i32::try_from(container.code).unwrap_or(255);
    if container.oom && code == 137 {
        let limit = evidence.limits.memory();
        let message = format!("the run needed more memory than {limit}, and was killed");
        return Err(RunFailure::new(ErrorCode::OomKilled, code, message));
    }
    let has_failed = code != 0 || answer.as_ref().is_ok_and(|envelope| envelope.error.is_some());
    if let Some(refused) = evidence.budget.filter(|_| has_failed) {
        return Err(RunFailure::new(ErrorCode::BudgetExceeded, exit::BUDGET, refused));
    }
    let told = |message: String| match evidence.no_connection {
        Some(reason) => format!("{message}; {reason}"),
        None => message,
    };
    if code != 0 {
        let message = told(program_failed(code, answer.ok().as_ref(), &evidence.limits));
        return Err(RunFailure::new(ErrorCode::ContainerFailed, code, message));
    }
    Err(match answer {
        Ok(Envelope { error: None, .. }) => return Ok(()),
        Ok(Envelope { error: Some(error), .. }) => {
            RunFailure::new(ErrorCode::ContainerFailed, 1, told(error.to_string()))
        }
        Err(_) if evidence.output_loss == Some(OutputLoss::BeforeAdoption) => {
            let message = "the answer of the agent is lost: the controller of the run was restarted meanwhile";
            RunFailure::new(ErrorCode::Internal, exit::NOT_STARTED, message)
        }
        Err(_) if evidence.truncated => {
            let limit = evidence.limits.output();
            let message = format!("the answer of the agent was longer than {limit}, so its middle is missing");
            RunFailure::new(ErrorCode::OutputTruncated, 1, message)
        }
        Err(error) => RunFailure::new(ErrorCode::BadEnvelope, 1, error.to_string()),
    })
}

/// Returns a remark that a shortage of memory may have kept a run from ending by itself.
fn shortage(evidence: &RunEvidence<'_>) -> String {
    if !evidence.is_short_of_memory {
        return String::new();
    }
    let limit = evidence.limits.memory();
    format!("; it was short of memory, with {limit}: it kept reading pages again that had no room; give it more")
}

fn program_failed(code: i32, answer: Option<&Envelope>, limits: &LimitValues) -> String {
    match answer.and_then(|envelope| envelope.error.as_ref()) {
        Some(error) => error.to_string(),
        // The engine does not report every program that the kernel kills for lack of memory.
        None if code == 137 => {
            let limit = limits.memory();
            format!("the program was ended by signal 9; the run may have needed more memory than {limit}")
        }
        None if (129..=128 + 64).contains(&code) => format!("the program was ended by signal {}", code - 128),
        None => format!("the program ended with exit code {code}"),
    }
}

impl ErrorCode {
    /// Returns the word that results use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::OomKilled => "oom_killed",
            Self::ContainerFailed => "container_failed",
            Self::Internal => "internal",
            Self::OutputTruncated => "output_truncated",
            Self::CreationFailed => "creation_failed",
            Self::BudgetExceeded => reason::BUDGET_EXCEEDED,
            Self::ImplausibleCost => "implausible_cost",
            Self::InsufficientCredits => "insufficient_credits",
            Self::AuditFailed => "audit_failed",
            Self::Cancelled => "cancelled",
            Self::BadEnvelope => "bad_envelope",
            Self::OutputFailed => "output_failed",
        }
    }
}

#[cfg(test)]
mod tests;
