//! The verification of a run's audit file, while its sidecar writes it and after the end.

use std::io::{self, BufReader};

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use sluice_contract::verdict::{Seal, TrustAnchors, Verdict, Witness, verify_from};
use sluice_contract::{Fault, PublicKey, RunKey};
use sluice_state::decisions::Decisions;
use sluice_state::layout::Layout;
use sluice_state::witness;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::logs::attempt;
use super::lookup;
use crate::api::Context;
use crate::api::admission::admit_file_work;
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Selection of an attempt.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VerificationQuery {
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
}

/// Result of a verification, as `sluice audit verify` has it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Verification {
    attempt: u32,
    /// `complete`, `incomplete` (also of a live run), `tampered` (also if the file is gone), or `none` before the first record.
    verdict: &'static str,
    /// Number of lines, each with the hash of the one before it.
    lines: u64,
    /// Hash of the last line.
    head: Option<String>,
    /// True if the file has its end.
    closed: bool,
    /// Number of lines that the daemon had seen while they were written. The file has them, unless it is `tampered`.
    witnesses: u64,
    /// `valid`, or `none` before the end of the file.
    signature: &'static str,
    /// Id of the key of the signature, or of the one that has certified it.
    key_id: Option<String>,
    /// Number of calls without an outcome.
    open_calls: u64,
    /// Bytes of a torn last line.
    torn_bytes: u64,
    /// Number of the line that breaks a rule, from 1.
    fault_line: Option<u64>,
    /// Rule that it breaks.
    fault: Option<String>,
}

/// Verifies a run's audit file: the chain of its lines, those that were seen while they were written, and its signature.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/audit/verification",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), VerificationQuery),
    responses(
        (status = 200, body = Verification), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 410, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn verification(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<VerificationQuery>,
) -> Result<Json<Verification>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let counted = admit_file_work(&context, &principal)?;
    // The lines that were seen are read first: the file may grow meanwhile, and must have them.
    let seen = context.store.witnesses(&key).await?;
    let keys = context.keys.public().map_err(|error| ApiError::internal(&error))?;
    let layout = context.layout.clone();
    let verified = spawn_blocking(move || {
        let _counted = counted;
        verify(&layout, &key, &keys, &seen).map(|verdict| Json(shown(key.attempt, verdict, seen.len() as u64)))
    });
    verified.await.map_err(|error| ApiError::internal(&error))?
}

/// Verifies the audit file of a run; `None` before its first record.
///
/// # Errors
/// 410: the file was pruned.
fn verify(layout: &Layout, key: &RunKey, keys: &[PublicKey], seen: &[Witness]) -> Result<Option<Verdict>, ApiError> {
    let trust = TrustAnchors { keys, seen };
    let verdict = match witness::open(&layout.run(key).audit) {
        Ok(file) => verify_from(BufReader::new(file), &trust).map(Some),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) if seen.is_empty() => Ok(None),
        Err(_) => {
            let decisions = Decisions::read(layout, keys).map_err(|error| ApiError::internal(&error))?;
            if decisions.pruned.contains_key(key) {
                let message = "the audit file of this attempt was pruned; an admin has its archive, if there is one";
                return Err(ApiError::new(StatusCode::GONE, "record_removed", message));
            }
            // A file that is gone lacks the lines that were seen, as an empty file does.
            verify_from(io::empty(), &trust).map(Some)
        }
    };
    verdict.map_err(|error| ApiError::internal(&error))
}

fn shown(attempt: u32, verdict: Option<Verdict>, witnesses: u64) -> Verification {
    let word = match &verdict {
        Some(Verdict::Complete(_)) => "complete",
        Some(Verdict::Incomplete(_)) => "incomplete",
        Some(Verdict::Tampered(_)) => "tampered",
        None => "none",
    };
    let nothing = Verification {
        attempt,
        verdict: word,
        lines: 0,
        head: None,
        closed: false,
        witnesses,
        signature: "none",
        key_id: None,
        open_calls: 0,
        torn_bytes: 0,
        fault_line: None,
        fault: None,
    };
    match verdict {
        Some(Verdict::Complete(report) | Verdict::Incomplete(report)) => {
            let (signature, key_id) = match report.seal {
                Seal::Valid(id) => ("valid", Some(id)),
                Seal::None | Seal::Unchecked(_) => ("none", None),
            };
            Verification {
                lines: report.lines,
                head: Some(report.head.to_string()),
                closed: report.closed,
                signature,
                key_id,
                open_calls: report.open_calls.len() as u64,
                torn_bytes: report.torn,
                ..nothing
            }
        }
        Some(Verdict::Tampered(Fault { line, kind, .. })) => {
            Verification { fault_line: Some(line), fault: Some(kind.as_str().to_owned()), ..nothing }
        }
        None => nothing,
    }
}

#[cfg(test)]
mod tests {
    use sluice_contract::Hash;
    use sluice_contract::reader::FaultKind;
    use sluice_state::decisions::{self, Decision, PrunedRun};
    use sluice_state::keys::Keys;

    use super::*;

    #[test]
    fn a_verdict_names_the_line_that_was_altered() {
        let fault = Fault { line: 3, kind: FaultKind::Hash, expected: "a".to_owned(), found: "b".to_owned() };
        let seen = shown(1, Some(Verdict::Tampered(fault)), 2);
        assert_eq!((seen.verdict, seen.fault_line, seen.signature), ("tampered", Some(3), "none"));
        assert_eq!(shown(0, None, 0).verdict, "none");
    }

    #[test]
    fn a_seen_file_that_is_gone_is_tampered() {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&directory.path().join("st")).expect("there is room");
        let own = Keys::open(layout.state()).expect("there is room");
        let public = own.public().expect("they were made");
        let key = RunKey { run_id: "r1".parse().expect("an id"), attempt: 0 };
        let seen = [Witness { seq: 2, head: Hash::of(b"x") }];
        let verified = |seen: &[Witness]| {
            let verdict = verify(&layout, &key, &public, seen).map_err(|error| error.code());
            verdict.map(|verdict| shown(key.attempt, verdict, seen.len() as u64))
        };
        let word = |seen: &[Witness]| verified(seen).map(|verification| verification.verdict);
        assert_eq!(word(&[]), Ok("none"), "the run has not begun");

        let gone = verified(&seen).expect("it is readable");

        assert_eq!((gone.verdict, gone.witnesses, gone.fault_line), ("tampered", 1, Some(1)));
        assert_eq!(gone.fault.as_deref(), Some(FaultKind::Witness.as_str()));
        let run = PrunedRun {
            run: key.to_string(),
            account: "acct-1".to_owned(),
            lines: 3,
            head: Some(Hash::of(b"x").to_string()),
            bytes: 300,
            receipts: 0,
            last_us: 0,
        };
        decisions::record(&layout, &own, Decision::Prune { runs: vec![run] }).expect("there is room");
        assert_eq!(word(&seen), Err("record_removed"));
    }
}
