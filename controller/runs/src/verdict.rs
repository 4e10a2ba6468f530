//! What a run comes to: from what decided it, what it printed and what its log says, to one word and one exit code.
//!
//! Pure. The order of the questions is the contract: the log, our own doing, memory, then the program.

use serde::{Deserialize, Serialize};
use sluice_state::run::{Cancel, RunVerdict, Step};

use crate::envelope::{self, Envelope};

const SIGPIPE: i32 = nix::libc::SIGPIPE;

/// Why a run is not ok; stable words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// It took longer than it may.
    Timeout,
    /// It needed more memory than it may.
    OomKilled,
    /// The program ended with another code than 0, or says itself that it failed.
    ContainerFailed,
    /// A fault of ours, or of the machine.
    Internal,
    /// The agent wrote more than is kept, and its envelope is broken by that.
    OutputTruncated,
    /// The container could not be started.
    CreationFailed,
    /// A cap on calls, tokens or dollars ended it.
    BudgetExceeded,
    /// Its account's budget has too little left for it to begin.
    InsufficientCredits,
    /// The audit log is incomplete: there may be calls that nobody knows of.
    AuditFailed,
    /// It was told to stop.
    Cancelled,
    /// The agent printed something else than an envelope.
    BadEnvelope,
    /// The program's output could not be written to our stdout or stderr.
    OutputFailed,
}

/// How the program's stdout is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contract {
    /// One envelope.
    #[default]
    Envelope,
    /// The answer itself.
    Plain,
}

/// What is known of a run when it is over.
#[derive(Debug, Clone, Copy)]
pub struct RunEvidence<'a> {
    /// What decided it.
    pub verdict: &'a RunVerdict,
    /// What stdout means.
    pub contract: Contract,
    /// Stdout, as far as it was kept.
    pub stdout: &'a str,
    /// Whether it was longer.
    pub truncated: bool,
    /// Whether some of the program's output never came.
    pub lost_output: bool,
    /// Its limit in bytes, if it was short of memory at the end.
    pub short_of_memory: Option<u64>,
    /// Why some of its output did not reach our stdout or stderr, and the exit code for that.
    pub unwritten: Option<(&'a str, i32)>,
    /// Why the audit log cannot be relied on, if so.
    pub audit_fault: Option<&'a str>,
    /// What was said of a call that was refused for money, if one was.
    pub budget: Option<&'a str>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// None when it is ok.
    pub error: Option<(ErrorCode, String)>,
    /// What `sluice run` ends with.
    pub exit_code: i32,
    /// The answer.
    pub content: String,
}

/// Judges a run.
#[must_use]
pub fn judge(facts: &RunEvidence<'_>) -> Judgement {
    let answer = match facts.contract {
        Contract::Plain => Ok(Envelope { content: facts.stdout.to_owned(), error: None }),
        Contract::Envelope => envelope::parse(facts.stdout),
    };
    let content = answer.as_ref().map(|envelope| envelope.content.clone()).unwrap_or_default();
    let failed = |code: ErrorCode, exit_code, message: String| Judgement {
        error: Some((code, message)),
        exit_code,
        content: content.clone(),
    };
    if let Some(fault) = facts.audit_fault {
        return failed(ErrorCode::AuditFailed, 120, fault.to_owned());
    }
    // A failed write stops a run as SIGPIPE does; any other cause of its end was there before that.
    let is_cause = matches!(facts.verdict, RunVerdict::Cancelled(Cancel { signal: SIGPIPE }) | RunVerdict::Exited(_));
    if let Some((reason, code)) = facts.unwritten.filter(|_| is_cause) {
        return failed(ErrorCode::OutputFailed, code, reason.to_owned());
    }
    let exit = match facts.verdict {
        RunVerdict::Cancelled(cancel) => {
            let message = format!("the run was told to stop{}", shortage(facts));
            return failed(ErrorCode::Cancelled, 128 + cancel.signal, message);
        }
        RunVerdict::TimedOut => {
            let message = format!("the run took longer than --timeout, and was stopped{}", shortage(facts));
            return failed(ErrorCode::Timeout, 124, message);
        }
        RunVerdict::Interrupted => {
            return failed(ErrorCode::Internal, 125, "the controller of the run was killed; another cleaned up".into());
        }
        RunVerdict::SidecarLost => {
            return failed(ErrorCode::AuditFailed, 120, "the sidecar ended before the run did".into());
        }
        RunVerdict::NotStarted(failure) => {
            let code = match failure.step {
                Step::StartSidecar | Step::CreateContainer | Step::StartContainer => ErrorCode::CreationFailed,
                _ => ErrorCode::Internal,
            };
            return failed(code, 125, format!("cannot {}: {}", failure.step.as_str(), failure.message));
        }
        RunVerdict::Removed => {
            return failed(ErrorCode::ContainerFailed, 137, "somebody removed the container of the run".into());
        }
        RunVerdict::Exited(_) if facts.lost_output => {
            let message = "the engine cut the run's output off; what it wrote later is lost";
            return failed(ErrorCode::Internal, 125, message.into());
        }
        RunVerdict::Unrecorded(why) => {
            return failed(ErrorCode::Internal, 125, format!("cannot record where the run stands: {why}"));
        }
        RunVerdict::Exited(exit) => exit,
    };
    let code = i32::try_from(exit.code).unwrap_or(255);
    if exit.oom && code == 137 {
        return failed(ErrorCode::OomKilled, code, "the run needed more than --memory, and was killed".into());
    }
    if code != 0 {
        if let Some(refused) = facts.budget {
            return failed(ErrorCode::BudgetExceeded, 121, refused.to_owned());
        }
        return failed(ErrorCode::ContainerFailed, code, program_failed(code, answer.ok().as_ref()));
    }
    match answer {
        Ok(Envelope { error: None, content }) => Judgement { error: None, exit_code: 0, content },
        Ok(Envelope { error: Some(error), .. }) => match facts.budget {
            Some(refused) => failed(ErrorCode::BudgetExceeded, 121, refused.to_owned()),
            None => failed(ErrorCode::ContainerFailed, 1, format!("{}: {}", error.code, error.message)),
        },
        Err(reason) if facts.truncated => failed(ErrorCode::OutputTruncated, 1, reason),
        Err(reason) => failed(ErrorCode::BadEnvelope, 1, reason),
    }
}

/// That want of memory may be why a run did not end by itself.
fn shortage(facts: &RunEvidence<'_>) -> String {
    facts.short_of_memory.map_or(String::new(), |limit| {
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
    /// The word in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::OomKilled => "oom_killed",
            Self::ContainerFailed => "container_failed",
            Self::Internal => "internal",
            Self::OutputTruncated => "output_truncated",
            Self::CreationFailed => "creation_failed",
            Self::BudgetExceeded => "budget_exceeded",
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
    use sluice_state::run::{Cancel, ContainerExit, StepFailure};

    const GOOD: &str = r#"{"payloads":[{"text":"hello"}],"meta":{"error":null}}"#;
    const FAILED: &str = r#"{"payloads":[],"meta":{"error":{"code":"llm_error","message":"no"}}}"#;

    fn exited(code: i64, oom: bool) -> RunVerdict {
        RunVerdict::Exited(ContainerExit { code, oom })
    }

    fn facts<'a>(verdict: &'a RunVerdict, stdout: &'a str) -> RunEvidence<'a> {
        RunEvidence {
            verdict,
            contract: Contract::Envelope,
            stdout,
            truncated: false,
            lost_output: false,
            short_of_memory: None,
            unwritten: None,
            audit_fault: None,
            budget: None,
        }
    }

    fn word_and_code(facts: &RunEvidence<'_>) -> (Option<&'static str>, i32) {
        let judgement = judge(facts);
        (judgement.error.map(|(code, _)| code.as_str()), judgement.exit_code)
    }

    #[test]
    fn every_end_has_its_word_and_code() {
        let start = StepFailure { step: Step::StartContainer, message: "no".into() };
        let prepare = StepFailure { step: Step::Prepare, message: "no".into() };
        let rows = [
            (exited(0, false), GOOD, None, 0),
            (exited(0, true), GOOD, None, 0),
            (exited(0, false), FAILED, Some("container_failed"), 1),
            (exited(42, false), GOOD, Some("container_failed"), 42),
            (exited(137, true), "", Some("oom_killed"), 137),
            (exited(137, false), "", Some("container_failed"), 137),
            (exited(0, false), "hello", Some("bad_envelope"), 1),
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
            assert_eq!(word_and_code(&facts(verdict, stdout)), (*word, *code), "{verdict:?}");
        }
    }

    #[test]
    fn want_of_memory_is_named_where_a_run_was_stopped() {
        for (verdict, is_named) in [
            (RunVerdict::TimedOut, true),
            (RunVerdict::Cancelled(Cancel { signal: 2 }), true),
            (exited(3, false), false),
            (exited(137, true), false),
        ] {
            let short = judge(&RunEvidence { short_of_memory: Some(64 << 20), ..facts(&verdict, "") });
            let enough = judge(&facts(&verdict, ""));
            let said = |judgement: &Judgement| judgement.error.clone().expect("it failed").1;
            assert_eq!(said(&short).contains("short of memory (--memory 64m)"), is_named, "{verdict:?}");
            assert!(!said(&enough).contains("short of memory"), "{verdict:?}");
        }
    }

    #[test]
    fn a_broken_log_comes_before_everything() {
        for verdict in [exited(0, false), exited(137, true), RunVerdict::TimedOut] {
            let facts = RunEvidence { audit_fault: Some("no close"), ..facts(&verdict, GOOD) };
            assert_eq!(word_and_code(&facts), (Some("audit_failed"), 120));
        }
    }

    #[test]
    fn a_cap_counts_when_the_program_failed_of_it() {
        for (verdict, stdout, word, code) in [
            (exited(1, false), FAILED, Some("budget_exceeded"), 121),
            (exited(0, false), FAILED, Some("budget_exceeded"), 121),
            (exited(0, false), GOOD, None, 0),
        ] {
            let facts = RunEvidence { budget: Some("too_many_calls"), ..facts(&verdict, stdout) };
            assert_eq!(word_and_code(&facts), (word, code));
        }
    }

    #[test]
    fn an_answer_of_which_a_part_was_lost_is_none() {
        let verdict = exited(0, false);
        assert_eq!(word_and_code(&RunEvidence { lost_output: true, ..facts(&verdict, GOOD) }), (Some("internal"), 125));
    }

    #[test]
    fn output_that_cannot_be_written_fails_the_run_that_it_ended() {
        for (verdict, word, code) in [
            (RunVerdict::Cancelled(Cancel { signal: SIGPIPE }), "output_failed", 141),
            (exited(0, false), "output_failed", 141),
            (exited(3, false), "output_failed", 141),
            (RunVerdict::Cancelled(Cancel { signal: 2 }), "cancelled", 130),
            (RunVerdict::TimedOut, "timeout", 124),
        ] {
            let facts =
                RunEvidence { unwritten: Some(("no reader", 141)), contract: Contract::Plain, ..facts(&verdict, "") };
            assert_eq!(word_and_code(&facts), (Some(word), code), "{verdict:?}");
        }
    }

    #[test]
    fn truncation_counts_when_it_broke_the_envelope() {
        let verdict = exited(0, false);
        let broken = RunEvidence { truncated: true, ..facts(&verdict, "{\"payloads\":[{") };
        assert_eq!(word_and_code(&broken), (Some("output_truncated"), 1));
        let plain = RunEvidence { contract: Contract::Plain, ..broken };
        assert_eq!(word_and_code(&plain), (None, 0));
    }
}
