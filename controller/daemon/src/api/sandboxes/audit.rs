//! The records of a run's audit file, while its sidecar writes it and after the end.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_contract::Hash;
use sluice_contract::audit_line::AuditLine;
use sluice_contract::reader::Cursor;
use sluice_state::audit_tail::{TailError, read_lines};
use sluice_state::witness;
use tokio::task::spawn_blocking;

use super::audit_record::shown;
use super::logs::attempt;
use super::lookup;
use crate::api::Context;
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Maximum number of records in an answer, and number of their bytes from which no further record is added.
const RECORDS_MAX: u32 = 1000;
const BYTES_MAX: usize = 1 << 20;

/// Selection of records.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// `position` of the last record that the client has.
    #[serde(default)]
    after: u64,
    /// Number of records, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
}

/// Reason that no records can be read.
#[derive(Debug, thiserror::Error)]
enum AuditReadError {
    #[error("no record ends at this position")]
    Position,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tail(#[from] TailError),
}

/// Returns records of a run's audit file, one JSON object in a line: `{position, sha256, record}`. The hash is that of the line
/// in the file, which `prev` of the next record states. What concerns the host is left out of a record. An answer has at most
/// 1,000 records: ask again, until nothing comes.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/audit",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), AuditQuery),
    responses(
        (status = 200, body = String, content_type = "application/octet-stream"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 410, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn audit(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<AuditQuery>,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let limit = query.limit.unwrap_or(RECORDS_MAX);
    if !(1..=RECORDS_MAX).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("limit is a number from 1 to {RECORDS_MAX}")));
    }
    let path = context.layout.run(&key).audit;
    let read = spawn_blocking(move || lines(&path, query.after, limit));
    let lines = match read.await.map_err(|error| ApiError::internal(&error))? {
        Ok(lines) => lines,
        Err(AuditReadError::Position) => {
            let message = "after is the position of a record that the client has, or 0";
            return Err(ApiError::invalid("after", message));
        }
        Err(error) => return Err(ApiError::internal(&error)),
    };
    let name = format!("attachment; filename=\"{key}.audit.ndjson\"");
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, lines).into_response())
}

/// Reads records from a position on.
fn lines(path: &Path, after: u64, limit: u32) -> Result<String, AuditReadError> {
    if after > 0 {
        check_position(path, after)?;
    }
    let (mut lines, mut count) = (String::new(), 0);
    read_lines(path, &mut Cursor { line: 1, offset: after }, |line| {
        if let Some(text) = view(line) {
            lines += &text;
            count += 1;
        }
        if count < limit && lines.len() < BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(lines)
}

/// Checks that a line ends at this position.
fn check_position(path: &Path, after: u64) -> Result<(), AuditReadError> {
    let file: File = match witness::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(AuditReadError::Position),
        file => file?,
    };
    let mut before = [0];
    match file.read_exact_at(&mut before, after - 1) {
        Ok(()) if before == *b"\n" => Ok(()),
        Ok(()) => Err(AuditReadError::Position),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(AuditReadError::Position),
        // The number exceeds the maximum offset of a file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(AuditReadError::Position),
        Err(error) => Err(error.into()),
    }
}

fn view(line: &AuditLine<'_>) -> Option<String> {
    let record: Map<String, Value> = serde_json::from_slice(line.bytes).ok()?;
    let position = line.offset + line.bytes.len() as u64;
    let object = json!({ "position": position, "sha256": Hash::of(line.bytes).to_string(), "record": shown(record) });
    Some(format!("{object}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("one object in a line")).collect()
    }

    #[test]
    fn a_walk_has_each_record_once() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proxy/contract/tests/golden/signed.jsonl");
        let all = parse(&lines(&path, 0, RECORDS_MAX).expect("it is a log"));
        let (mut walked, mut after) = (Vec::new(), 0);
        loop {
            let page = parse(&lines(&path, after, 2).expect("it is a log"));
            let Some(last) = page.last() else { break };
            after = last["position"].as_u64().expect("a number");
            assert!(page.len() <= 2);
            walked.extend(page);
        }
        assert!(walked == all && all.len() > 5);
        for pair in all.windows(2) {
            assert_eq!(pair[0]["sha256"], pair[1]["record"]["prev"]);
        }
    }

    #[test]
    fn a_position_within_a_record_is_refused() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        for after in [1, u64::MAX] {
            assert!(matches!(lines(&path, after, 1), Err(AuditReadError::Position)));
        }
        assert_eq!(lines(&path, 0, 1).expect("no file has no records"), "");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proxy/contract/tests/golden/torn.jsonl");
        std::fs::copy(&golden, &path).expect("there is room");
        let all = parse(&lines(&path, 0, RECORDS_MAX).expect("it is a log"));
        let ends: Vec<_> = all.iter().filter_map(|line| line["position"].as_u64()).collect();
        for after in 1..=std::fs::metadata(&path).expect("it is there").len() + 1 {
            assert_eq!(lines(&path, after, 1).is_ok(), ends.contains(&after), "{after}");
        }
        for after in [i64::MAX.unsigned_abs(), u64::MAX] {
            assert!(matches!(lines(&path, after, 1), Err(AuditReadError::Position)), "{after}");
        }
    }
}
