//! What a restart does with a file that is there: go on behind its last whole line, or leave it alone.
//!
//! Pure: bytes in, a plan out. Only a torn last line is repaired; anything else that is wrong was not done by
//! a crash, and stays as it is for whoever looks into it.

use crate::audit_log::AuditLog;
use crate::chain::{Chain, ChainReader};
use crate::hash::Hash;
use crate::reader::{Fault, lines};
use crate::record::Open;

/// Whose file it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the members of `open`")]
pub struct AuditOwner<'a> {
    pub run_id: &'a str,
    pub attempt: u32,
    pub billing_account_id: &'a str,
}

/// How a file goes on.
#[derive(Debug, Clone)]
pub struct RecoveryPlan {
    /// Where its last whole line ends; everything behind it is to be kept aside and cut off.
    pub keep: u64,
    /// How many bytes that is.
    pub torn: u64,
    /// Their hash.
    pub sha256: Hash,
    /// Where the chain goes on.
    pub chain: Chain,
    /// What the whole lines say: among it the calls that are open, which no outcome will follow.
    pub log: AuditLog,
}

/// Why a file cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A line before the last is wrong.
    #[error("it is damaged")]
    Damaged(#[source] Fault),
    /// It has its `close`.
    #[error("it was closed in order")]
    Closed,
    /// It is another's.
    #[error("it belongs to run {run_id}, attempt {attempt}, of account {billing_account_id}")]
    OtherRun {
        /// Whose.
        run_id: String,
        /// Which of its starts.
        attempt: u32,
        /// Who paid.
        billing_account_id: String,
    },
    /// It has no whole line, and does not begin as an audit file does.
    #[error("it is no audit file")]
    NotAnAuditFile,
}

/// Plans how a run's file goes on. `aside` is what an earlier restart cut off at this very place, before it
/// could say so; empty otherwise.
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

/// A path that was mistyped may name anything; only what our own writer began is cut off.
fn begins_as_open(tail: &[u8], owner: &AuditOwner<'_>) -> Result<(), Unusable> {
    let beginning = format!("{{\"attempt\":{},\"billing_account_id\":\"", owner.attempt);
    let shorter = tail.len().min(beginning.len());
    if tail[..shorter] == beginning.as_bytes()[..shorter] { Ok(()) } else { Err(Unusable::NotAnAuditFile) }
}
