//! Tests of the words, exit codes and messages for all outcomes.

use std::time::Duration;

use sluice_state::run::StepFailure;

use super::*;

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
        limits: LimitValues::default(),
        is_short_of_memory: false,
        output_error: None,
        audit_fault: None,
        budget: None,
        implausible: None,
        no_connection: None,
    }
}

fn word_and_code(evidence: &RunEvidence<'_>) -> (Option<&'static str>, i32) {
    let judgement = judge(evidence);
    (judgement.error.map(|(code, _)| code.as_str()), judgement.exit_code)
}

#[test]
fn every_end_has_its_word_and_code() {
    let start = StepFailure { step: RunStep::StartContainer, message: "no".into() };
    let prepare = StepFailure { step: RunStep::Prepare, message: "no".into() };
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
        (RunVerdict::NotStarted(prepare), "", Some("creation_failed"), 125),
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
        let limits = LimitValues { memory: Some(64 << 20), ..LimitValues::default() };
        let short = judge(&RunEvidence { is_short_of_memory: true, limits, ..evidence(&verdict, "") });
        let enough = judge(&evidence(&verdict, ""));
        let said = |judgement: &Judgement| judgement.error.clone().expect("it failed").1;
        assert_eq!(said(&short).contains("short of memory, with 64m (--memory)"), is_named, "{verdict:?}");
        assert!(!said(&enough).contains("short of memory"), "{verdict:?}");
    }
}

#[test]
fn a_limit_is_named_with_its_value() {
    let (timed_out, exited, signalled) = (RunVerdict::TimedOut, exited(0), exited(137));
    let killed = out_of_memory(137);
    let (timeout, memory) = (Some(Duration::from_secs(90)), Some(1 << 29));
    let set = LimitValues { timeout, memory, output: Some(10) };
    for (verdict, truncated, limits, words) in [
        (&timed_out, false, set, "longer than 1m 30s (--timeout), and"),
        (&killed, false, set, "more memory than 512m (--memory), and"),
        (&signalled, false, set, "ended by signal 9; the run may have needed more memory than 512m (--memory)"),
        (&exited, true, set, "longer than 10 bytes (--output-max), so"),
        (&timed_out, false, LimitValues::default(), "longer than --timeout, and"),
    ] {
        let judgement = judge(&RunEvidence { truncated, limits, ..evidence(verdict, "{\"pay") });
        let (_, message) = judgement.error.expect("it failed");
        assert!(message.contains(words), "{message}");
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
        let evidence =
            RunEvidence { output_error: Some(("no reader", 141)), contract: Contract::Plain, ..evidence(&verdict, "") };
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
