//! The result of the verification of one file, as text and as JSON.

use std::path::Path;

use serde_json::json;
use sluice_contract::{Fault, RunKey, Verdict, Witness, exit, verdict};
use sluice_state::control_log::{ControlLogFault, ControlSummary};
use sluice_state::ledger::{self, DifferenceKind, Doubt};

/// Result of the verification of one file.
pub(super) enum FileVerdict {
    /// The verdict, and the lines of the file that were seen while it was written.
    Verdict(Box<Verdict>, Vec<Witness>),
    /// Valid as far as it can be checked, but the database does not know its run.
    UnknownRun(Box<Verdict>, RunKey),
    /// Nothing shows an alteration, but no key or witness that this host trusts confirms the file.
    Doubtful(Doubt, Box<Fault>),
    /// Like `Doubtful`, but the command line names the keys that must have signed the file.
    Refused(Doubt, Box<Fault>),
    /// The log of the actions of people and tokens.
    Control(Result<ControlSummary, ControlLogFault>),
    /// The file cannot be read.
    Unreadable(std::io::Error),
}

impl FileVerdict {
    /// Returns the exit code.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Verdict(verdict, _) => verdict.exit_code(),
            Self::UnknownRun(..) => exit::UNKNOWN_RUN,
            Self::Doubtful(Doubt::NotAnAuditFile, _) | Self::Refused(Doubt::NotAnAuditFile, _) => exit::UNREADABLE,
            Self::Doubtful(..) => exit::UNKNOWN_KEY,
            Self::Refused(..) => exit::FAILED,
            Self::Control(Ok(summary)) if summary.has_torn_line => exit::INCOMPLETE,
            Self::Control(Ok(_)) => 0,
            Self::Control(Err(_)) => exit::FAILED,
            Self::Unreadable(_) => exit::UNREADABLE,
        }
    }

    /// Returns the word for the result, such as `complete`.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::UnknownRun(..) => "unknown_run",
            Self::Control(Ok(summary)) if summary.has_torn_line => "incomplete",
            Self::Control(Ok(_)) => "complete",
            Self::Control(Err(_)) => "tampered",
            Self::Doubtful(doubt, _) | Self::Refused(doubt, _) => DifferenceKind::from(*doubt).as_str(),
            Self::Verdict(verdict, _) => match verdict.as_ref() {
                Verdict::Complete(_) => "complete",
                Verdict::Incomplete(_) => "incomplete",
                Verdict::Tampered(_) => "tampered",
            },
        }
    }

    /// Returns one line for people. A file that is consistent with itself may still be forged.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unreadable(reason) => format!("unreadable: {reason}"),
            Self::Control(Ok(summary)) => {
                let word = if summary.has_torn_line { "incomplete: its last line is torn;" } else { "complete:" };
                let ControlSummary { end, .. } = summary;
                format!("{word} {} lines of what people and tokens did, all signed, head {}", end.seq, end.prev)
            }
            Self::Control(Err(fault)) => format!("tampered: {fault}"),
            Self::UnknownRun(verdict, key) => format!(
                "unknown to this database: it has never seen run {key}; a database that was lost or is an old copy learns of it \
                 by sluice ledger rebuild; the file itself is {verdict}"
            ),
            Self::Doubtful(Doubt::NotAnAuditFile, _) | Self::Refused(Doubt::NotAnAuditFile, _) => {
                "not an audit file: its first line is not a record of a sidecar".to_owned()
            }
            Self::Doubtful(Doubt::UnknownKey, fault) => {
                format!("signed by an unknown key: {}", ledger::unknown_key_advice(fault))
            }
            Self::Doubtful(Doubt::Unsigned, _) => {
                "unsigned: the file is consistent, and any user may have written it; sluice \
                                                   ledger import --unsigned takes a file that you vouch for"
                    .to_owned()
            }
            Self::Refused(Doubt::UnknownKey, fault) => format!("signed by another key: {fault}"),
            Self::Refused(Doubt::Unsigned, fault) => format!("unsigned: {fault}"),
            Self::Verdict(verdict, seen) => match verdict.report() {
                Some(report) if proofs(report, seen).is_empty() => {
                    // Without a signature, a key proves nothing.
                    let fix =
                        if report.seal == verdict::Seal::None { "give --against" } else { "give --key, or --against" };
                    format!("{verdict}; NOT PROVEN that the file was not rewritten as a whole: {fix}")
                }
                _ => verdict.to_string(),
            },
        }
    }
}

/// Returns the JSON object of a file.
pub(super) fn object(path: &Path, answer: &FileVerdict) -> serde_json::Value {
    let detail = match answer {
        FileVerdict::Unreadable(reason) => json!({ "reason": reason.to_string() }),
        FileVerdict::Control(Ok(summary)) => json!({ "lines": summary.end.seq, "head": summary.end.prev.to_string() }),
        FileVerdict::Control(Err(fault)) => json!({ "line": fault.line, "reason": fault.reason }),
        FileVerdict::UnknownRun(verdict, _) => {
            verdict.report().map_or(json!(null), |report| report_object(report, &[]))
        }
        FileVerdict::Doubtful(_, fault) | FileVerdict::Refused(_, fault) => fault_object(fault),
        FileVerdict::Verdict(verdict, seen) => match verdict.as_ref() {
            Verdict::Complete(report) | Verdict::Incomplete(report) => report_object(report, seen),
            Verdict::Tampered(fault) => fault_object(fault),
        },
    };
    json!({ "file": path, "verdict": answer.word(), "exit_code": answer.exit_code(), "detail": detail })
}

fn fault_object(fault: &Fault) -> serde_json::Value {
    json!({ "line": fault.line, "what": fault.kind.as_str(), "expected": fault.expected, "found": fault.found })
}

/// Returns the proofs that a consistent file is not forged.
fn proofs(report: &verdict::VerificationReport, seen: &[Witness]) -> Vec<&'static str> {
    let signature = matches!(report.seal, verdict::Seal::Valid(_)).then_some("signature");
    let witness = (!seen.is_empty()).then_some("witness");
    signature.into_iter().chain(witness).collect()
}

fn report_object(report: &verdict::VerificationReport, seen: &[Witness]) -> serde_json::Value {
    let (seal, key_id) = match &report.seal {
        verdict::Seal::None => ("none", None),
        verdict::Seal::Unchecked(id) => ("unchecked", Some(id)),
        verdict::Seal::Valid(id) => ("valid", Some(id)),
    };
    json!({
        "lines": report.lines,
        "head": report.head.to_string(),
        "closed": report.closed,
        "open_calls": report.open_calls,
        "open_holds": report.open_holds,
        "torn_bytes": report.torn,
        "recovered": report.recovered,
        "epochs": report.epochs,
        "signature": seal,
        "vouched_by": proofs(report, seen),
        "key_id": key_id,
        "calls": report.totals.calls,
        "refused": report.totals.refused,
        "unknown": report.totals.unknown,
        "cost_usd": report.totals.cost().to_string(),
    })
}
