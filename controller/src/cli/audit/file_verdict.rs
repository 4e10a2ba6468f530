//! The result of the verification of one file, as text and as JSON.

use std::path::Path;

use serde_json::json;
use sluice_contract::{Fault, RunKey, Verdict, Witness, exit, verdict};
use sluice_state::ledger;

/// Result of the verification of one file.
pub(super) enum FileVerdict {
    /// The verdict, and the lines of the file that were seen while it was written.
    Verdict(Box<Verdict>, Vec<Witness>),
    /// Valid as far as it can be checked, but the database does not know its run.
    UnknownRun(Box<Verdict>, RunKey),
    /// Valid up to its signature, whose key is not trusted here.
    UnknownKey(Box<Fault>),
    /// The file cannot be read.
    Unreadable(std::io::Error),
}

impl FileVerdict {
    /// Returns the exit code.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Verdict(verdict, _) => verdict.exit_code(),
            Self::UnknownRun(..) => exit::UNKNOWN_RUN,
            Self::UnknownKey(_) => exit::UNKNOWN_KEY,
            Self::Unreadable(_) => exit::UNREADABLE,
        }
    }

    /// Returns one line for people. A file that is consistent with itself may still be forged.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Unreadable(reason) => format!("unreadable: {reason}"),
            Self::UnknownRun(verdict, key) => format!(
                "unknown to this database: it has never seen run {key}; a database that was lost or is an old copy learns of it \
                 by sluice ledger rebuild; the file itself is {verdict}"
            ),
            Self::UnknownKey(fault) => format!("signed by an unknown key: {}", ledger::unknown_key_advice(fault)),
            Self::Verdict(verdict, seen) => match verdict.report() {
                Some(report) if proofs(report, seen).is_empty() => {
                    // Without a signature, a key proves nothing.
                    let fix =
                        if report.seal == verdict::Seal::None { "give --against" } else { "give --key, or --against" };
                    format!("{verdict}; NOT PROVEN that nobody rewrote it whole: {fix}")
                }
                _ => verdict.to_string(),
            },
        }
    }
}

/// Returns the JSON object of a file.
pub(super) fn object(path: &Path, answer: &FileVerdict) -> serde_json::Value {
    let (word, detail) = match answer {
        FileVerdict::Unreadable(reason) => ("unreadable", json!({ "reason": reason.to_string() })),
        FileVerdict::UnknownRun(verdict, _) => {
            ("unknown_run", verdict.report().map_or(json!(null), |report| report_object(report, &[])))
        }
        FileVerdict::UnknownKey(fault) => {
            ("unknown_key", json!({ "line": fault.line, "expected": fault.expected, "found": fault.found }))
        }
        FileVerdict::Verdict(verdict, seen) => match verdict.as_ref() {
            Verdict::Complete(report) => ("complete", report_object(report, seen)),
            Verdict::Incomplete(report) => ("incomplete", report_object(report, seen)),
            Verdict::Tampered(fault) => (
                "tampered",
                json!({
                    "line": fault.line,
                    "what": fault.kind.as_str(),
                    "expected": fault.expected,
                    "found": fault.found,
                }),
            ),
        },
    };
    json!({ "file": path, "verdict": word, "exit_code": answer.exit_code(), "detail": detail })
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
