//! The outcome of a run: one word and one exit code, from its verdict, its output and its audit log.
//!
//! Pure. The order of the questions is the contract: the audit log, our own actions, memory, then the program.

use serde::{Deserialize, Serialize};
use sluice_contract::{exit, reason};
use sluice_state::run::{Cancel, ContainerExit, RunVerdict, Step};

use crate::envelope::{self, Envelope, EnvelopeError};

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
    /// The account's budget has too little left to start the run.
    InsufficientCredits,
    /// The audit log is incomplete: there may be unknown calls.
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

/// A part of a program's output that never came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLoss {
    /// The engine ended the streams before the program ended.
    CutOff,
    /// The run was adopted by another controller, and its earlier output is gone.
    BeforeAdoption,
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
    /// Reason why a part of the output never came.
    pub output_loss: Option<OutputLoss>,
    /// Memory limit in bytes, if the program was short of memory at the end.
    pub short_of_memory: Option<u64>,
    /// Reason why a part of the output did not reach our stdout or stderr, and its exit code.
    pub output_error: Option<(&'a str, i32)>,
    /// Reason why the audit log is not reliable.
    pub audit_fault: Option<&'a str>,
    /// Message of a call that was refused for its cost.
    pub budget: Option<&'a str>,
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
            let message = format!("the run took longer than --timeout, and was stopped{}", shortage(evidence));
            RunFailure::new(ErrorCode::Timeout, exit::TIMEOUT, message)
        }
        RunVerdict::Interrupted => internal("the controller of the run was killed; another cleaned up".to_owned()),
        RunVerdict::SidecarLost => {
            let message = "the sidecar ended before the run did";
            RunFailure::new(ErrorCode::AuditFailed, exit::AUDIT_INCOMPLETE, message)
        }
        RunVerdict::NotStarted(failure) => {
            let code = match failure.step {
                Step::StartSidecar | Step::CreateContainer | Step::StartContainer => ErrorCode::CreationFailed,
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
        let message = "the run needed more than --memory, and was killed";
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
        let message = told(program_failed(code, answer.ok().as_ref()));
        return Err(RunFailure::new(ErrorCode::ContainerFailed, code, message));
    }
    Err(match answer {
        Ok(Envelope { error: None, .. }) => return Ok(()),
        Ok(Envelope { error: Some(error), .. }) => {
            RunFailure::new(ErrorCode::ContainerFailed, 1, told(format!("{}: {}", error.code, error.message)))
        }
        Err(_) if evidence.output_loss == Some(OutputLoss::BeforeAdoption) => {
            let message = "the answer of the agent is lost: the controller of the run was restarted meanwhile";
            RunFailure::new(ErrorCode::Internal, exit::NOT_STARTED, message)
        }
        Err(error) if evidence.truncated => RunFailure::new(ErrorCode::OutputTruncated, 1, error.to_string()),
        Err(error) => RunFailure::new(ErrorCode::BadEnvelope, 1, error.to_string()),
    })
}

/// Returns a remark that a shortage of memory may be the reason why a run did not end by itself.
fn shortage(evidence: &RunEvidence<'_>) -> String {
    evidence.short_of_memory.map_or(String::new(), |limit| {
        let limit = limit >> 20;
        format!(
            "; it was short of memory (--memory {limit}m): it kept reading pages again that had no room; give it more"
        )
    })
}

fn program_failed(code: i32, answer: Option<&Envelope>) -> String {
    match answer.and_then(|envelope| envelope.error.as_ref()) {
        Some(error) => format!("{}: {}", error.code, error.message),
        None if (129..=128 + 64).contains(&code) => format!("the program was ended by signal {}", code - 128),
        None => format!("the program ended with exit code {code}"),
    }
}

impl ErrorCode {
    /// Returns the word in results.
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
            Self::InsufficientCredits => "insufficient_credits",
            Self::AuditFailed => "audit_failed",
            Self::Cancelled => "cancelled",
            Self::BadEnvelope => "bad_envelope",
            Self::OutputFailed => "output_failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_state::run::StepFailure;

    const GOOD: &str = r#"{"payloads":[{"text":"hello"}],"meta":{"error":null}}"#;
    const FAILED: &str = r#"{"payloads":[],"meta":{"error":{"code":"llm_error","message":"no"}}}"#;

    fn exited(code: i64) -> RunVerdict {
        RunVerdict::Exited(ContainerExit { code, oom: false })
    }

    fn out_of_memory(code: i64) -> RunVerdict {
        RunVerdict::Exited(ContainerExit { code, oom: true })
    }

    fn evidence<'a>(verdict: &'a RunVerdict, stdout: &'a str) -> RunEvidence<'a> {
        RunEvidence {
            verdict,
            contract: Contract::Envelope,
            stdout,
            truncated: false,
            output_loss: None,
            short_of_memory: None,
            output_error: None,
            audit_fault: None,
            budget: None,
            no_connection: None,
        }
    }

    fn word_and_code(evidence: &RunEvidence<'_>) -> (Option<&'static str>, i32) {
        let judgement = judge(evidence);
        (judgement.error.map(|(code, _)| code.as_str()), judgement.exit_code)
    }

    #[test]
    fn every_end_has_its_word_and_code() {
        let start = StepFailure { step: Step::StartContainer, message: "no".into() };
        let prepare = StepFailure { step: Step::Prepare, message: "no".into() };
        let rows = [
            (exited(0), GOOD, None, 0),
            (out_of_memory(0), GOOD, None, 0),
            (exited(0), FAILED, Some("container_failed"), 1),
            (exited(42), GOOD, Some("container_failed"), 42),
            (out_of_memory(137), "", Some("oom_killed"), 137),
            (exited(137), "", Some("container_failed"), 137),
            (exited(0), "hello", Some("bad_envelope"), 1),
            (RunVerdict::TimedOut, "", Some("timeout"), 124),
            (RunVerdict::Cancelled(Cancel { signal: 2 }), "", Some("cancelled"), 130),
            (RunVerdict::Interrupted, "", Some("internal"), 125),
            (RunVerdict::SidecarLost, GOOD, Some("audit_failed"), 120),
            (RunVerdict::Removed, "", Some("container_failed"), 137),
            (RunVerdict::Unrecorded("disk is full".into()), GOOD, Some("internal"), 125),
            (RunVerdict::NotStarted(start), "", Some("creation_failed"), 125),
            (RunVerdict::NotStarted(prepare), "", Some("internal"), 125),
        ];
        for (verdict, stdout, word, code) in &rows {
            assert_eq!(word_and_code(&evidence(verdict, stdout)), (*word, *code), "{verdict:?}");
        }
    }

    #[test]
    fn a_stopped_run_names_its_memory_shortage() {
        for (verdict, is_named) in [
            (RunVerdict::TimedOut, true),
            (RunVerdict::Cancelled(Cancel { signal: 2 }), true),
            (exited(3), false),
            (out_of_memory(137), false),
        ] {
            let short = judge(&RunEvidence { short_of_memory: Some(64 << 20), ..evidence(&verdict, "") });
            let enough = judge(&evidence(&verdict, ""));
            let said = |judgement: &Judgement| judgement.error.clone().expect("it failed").1;
            assert_eq!(said(&short).contains("short of memory (--memory 64m)"), is_named, "{verdict:?}");
            assert!(!said(&enough).contains("short of memory"), "{verdict:?}");
        }
    }

    #[test]
    fn a_failed_program_is_told_with_the_missing_connection() {
        let reason = "a call found no connection to https://h:1 (tls: no TLS)";
        for (verdict, stdout, named) in [(exited(1), "", true), (exited(0), FAILED, true), (exited(0), GOOD, false)] {
            let judgement = judge(&RunEvidence { no_connection: Some(reason), ..evidence(&verdict, stdout) });
            let told = judgement.error.is_some_and(|(_, message)| message.ends_with(reason));
            assert_eq!(told, named, "{verdict:?} {stdout}");
        }
    }

    #[test]
    fn an_incomplete_log_comes_first() {
        for verdict in [exited(0), out_of_memory(137), RunVerdict::TimedOut] {
            let evidence = RunEvidence { audit_fault: Some("no close"), ..evidence(&verdict, GOOD) };
            assert_eq!(word_and_code(&evidence), (Some("audit_failed"), 120));
        }
    }

    #[test]
    fn a_cap_counts_when_the_program_failed() {
        for (verdict, stdout, word, code) in [
            (exited(1), FAILED, Some("budget_exceeded"), 121),
            (exited(0), FAILED, Some("budget_exceeded"), 121),
            (exited(0), GOOD, None, 0),
        ] {
            let evidence = RunEvidence { budget: Some("too_many_calls"), ..evidence(&verdict, stdout) };
            assert_eq!(word_and_code(&evidence), (word, code));
        }
    }

    #[test]
    fn a_lost_part_of_an_answer_fails_the_run() {
        let verdict = exited(0);
        for (loss, contract, stdout, expected) in [
            (OutputLoss::CutOff, Contract::Envelope, GOOD, (Some("internal"), 125)),
            (OutputLoss::CutOff, Contract::Plain, "", (Some("internal"), 125)),
            (OutputLoss::BeforeAdoption, Contract::Envelope, "", (Some("internal"), 125)),
            (OutputLoss::BeforeAdoption, Contract::Envelope, GOOD, (None, 0)),
            (OutputLoss::BeforeAdoption, Contract::Plain, "", (None, 0)),
        ] {
            let lost = RunEvidence { output_loss: Some(loss), contract, ..evidence(&verdict, stdout) };
            assert_eq!(word_and_code(&lost), expected, "{loss:?} {contract:?}");
        }
    }

    #[test]
    fn output_that_cannot_be_written_fails_the_run() {
        for (verdict, word, code) in [
            (RunVerdict::Cancelled(Cancel { signal: SIGPIPE }), "output_failed", 141),
            (exited(0), "output_failed", 141),
            (exited(3), "output_failed", 141),
            (RunVerdict::Cancelled(Cancel { signal: 2 }), "cancelled", 130),
            (RunVerdict::TimedOut, "timeout", 124),
        ] {
            let evidence = RunEvidence {
                output_error: Some(("no reader", 141)),
                contract: Contract::Plain,
                ..evidence(&verdict, "")
            };
            assert_eq!(word_and_code(&evidence), (Some(word), code), "{verdict:?}");
        }
    }

    #[test]
    fn truncation_counts_when_it_broke_the_envelope() {
        let verdict = exited(0);
        let broken = RunEvidence { truncated: true, ..evidence(&verdict, "{\"payloads\":[{") };
        assert_eq!(word_and_code(&broken), (Some("output_truncated"), 1));
        let plain = RunEvidence { contract: Contract::Plain, ..broken };
        assert_eq!(word_and_code(&plain), (None, 0));
    }
}
