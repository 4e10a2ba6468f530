//! Recovery of an audit file after a crash: continue after its last complete line, or refuse the file.
//!
//! Pure: bytes in, a plan out. Only a torn last line is repaired. A crash causes no other damage, so that any other
//! fault is left as evidence.

use crate::audit_log::AuditLog;
use crate::chain::{Chain, ChainReader};
use crate::hash::Hash;
use crate::reader::{Fault, lines};
use crate::record::Open;

/// Owner that a file must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the members of `open`")]
pub struct AuditOwner<'a> {
    pub run_id: &'a str,
    pub attempt: u32,
    pub billing_account_id: &'a str,
}

/// Plan to continue a file.
#[derive(Debug, Clone)]
pub struct RecoveryPlan {
    /// Offset of the end of the last complete line. All bytes after it are to be moved aside and cut off.
    pub keep: u64,
    /// Number of bytes that are cut off, now or by an earlier restart.
    pub torn: u64,
    /// Hash of these bytes.
    pub sha256: Hash,
    /// End of the chain, where the next line is added.
    pub chain: Chain,
    /// Content of the complete lines, with the open calls, which will never have an outcome.
    pub log: AuditLog,
}

/// Reason why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A complete line is wrong.
    #[error("it is damaged")]
    Damaged(#[source] Fault),
    /// The file has its `close`.
    #[error("it was closed in order")]
    Closed,
    /// The file has another owner.
    #[error("it belongs to run {run_id}, attempt {attempt}, of account {billing_account_id}")]
    OtherRun {
        /// Run of the file.
        run_id: String,
        /// Start of that run.
        attempt: u32,
        /// Account that paid.
        billing_account_id: String,
    },
    /// The file has no complete line, and does not begin like an audit file.
    #[error("it is not an audit file")]
    NotAnAuditFile,
}

/// Plans how a run's file continues. `aside` has the bytes that an earlier restart cut off at the same position, before
/// it could record the cut; empty otherwise.
///
/// # Errors
/// [`Unusable`]; then nothing may be written.
pub fn plan(bytes: &[u8], aside: &[u8], owner: &AuditOwner<'_>) -> Result<RecoveryPlan, Unusable> {
    let mut reader = ChainReader::<AuditLog>::default();
    let mut lines = lines(bytes);
    for line in &mut lines {
        line.and_then(|line| reader.take(line)).map_err(Unusable::Damaged)?;
    }
    let (log, tail) = (reader.sink(), lines.tail());
    match log.open() {
        Some(open) => is_of(open, owner)?,
        None => begins_as_open(tail, owner)?,
    }
    if log.close().is_some() {
        return Err(Unusable::Closed);
    }
    let torn = if tail.is_empty() { aside } else { tail };
    Ok(RecoveryPlan {
        keep: lines.cursor().offset,
        torn: torn.len() as u64,
        sha256: Hash::of(torn),
        chain: reader.end(),
        log: reader.into_sink(),
    })
}

fn is_of(open: &Open<'_>, owner: &AuditOwner<'_>) -> Result<(), Unusable> {
    let found =
        AuditOwner { run_id: &open.run_id, attempt: open.attempt, billing_account_id: &open.billing_account_id };
    if found == *owner {
        return Ok(());
    }
    Err(Unusable::OtherRun {
        run_id: open.run_id.to_string(),
        attempt: open.attempt,
        billing_account_id: open.billing_account_id.to_string(),
    })
}

/// Refuses to cut a file that this writer did not begin: a mistyped path may name any file.
fn begins_as_open(tail: &[u8], owner: &AuditOwner<'_>) -> Result<(), Unusable> {
    let beginning = format!("{{\"attempt\":{},\"billing_account_id\":\"", owner.attempt);
    let shorter = tail.len().min(beginning.len());
    if tail[..shorter] == beginning.as_bytes()[..shorter] { Ok(()) } else { Err(Unusable::NotAnAuditFile) }
}
