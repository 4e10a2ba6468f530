//! Posting of audit files: their rows are added to the ledger.

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::LedgerError;
use super::audit_rows::Row;
use super::audit_source::TrustLevel;
use super::insert::{Posted, PostingResult, insert_row, record_reading};
use super::parsed_audit::ParsedAudit;
use crate::store::{Store, StoreError, now_us};

/// A posting in progress.
#[derive(Debug)]
pub struct PendingPost(oneshot::Receiver<Result<PostingResult, LedgerError>>);

impl PendingPost {
    /// Waits for the end of the posting.
    ///
    /// # Errors
    /// The reason that the posting is incomplete.
    pub async fn done(self) -> Result<Posted, LedgerError> {
        self.0.await.map_err(|_| StoreError::Closed)?.map(|posting| posting.added)
    }
}

impl Store {
    /// Posts an audit file. It counts as read when all of its rows are in the ledger; existing rows are compared.
    ///
    /// The posting starts after the writes that were submitted before, even if it is not awaited.
    #[must_use]
    pub fn ingest(&self, reading: ParsedAudit) -> PendingPost {
        PendingPost(self.submit(move |connection| post_file(connection, &reading, now_us())))
    }

    /// Posts several audit files with few commits. Returns one result for each file, in their order.
    ///
    /// # Errors
    /// Errors of SQLite; then the files may be posted again.
    pub async fn ingest_all(
        &self,
        readings: Vec<ParsedAudit>,
    ) -> Result<Vec<Result<PostingResult, LedgerError>>, LedgerError> {
        self.write(move |connection| {
            let (now, mut results) = (now_us(), Vec::with_capacity(readings.len()));
            let mut readings = readings.into_iter().peekable();
            while let Some(first) = readings.peek() {
                if !first.is_one_piece() {
                    results.extend(readings.next().map(|long| post_file(connection, &long, now)));
                    continue;
                }
                let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let mut rows = 0;
                while rows < ROWS_A_COMMIT
                    && let Some(reading) = readings.next_if(ParsedAudit::is_one_piece)
                {
                    let posted = post_in_savepoint(&mut transaction, &reading, now);
                    match &posted {
                        Ok(PostingResult { added: Posted { receipts, entries }, .. }) => rows += receipts + entries + 1,
                        Err(error) if error.is_contradiction() => {
                            record_reading(
                                &transaction,
                                &reading,
                                TrustLevel::Conflict,
                                Some(&error.to_string()),
                                now,
                            )?;
                        }
                        Err(LedgerError::Store(_)) => return posted.map(|_| Vec::new()),
                        Err(_) => {}
                    }
                    results.push(posted);
                }
                transaction.commit()?;
            }
            Ok(results)
        })
        .await
    }
}

/// Number of rows after which a transaction is committed, so that others may write.
const ROWS_A_COMMIT: u64 = 16_384;

/// Posts one file in a transaction with several files: either completely or not at all.
fn post_in_savepoint(
    transaction: &mut Transaction<'_>,
    reading: &ParsedAudit,
    now: i64,
) -> Result<PostingResult, LedgerError> {
    let savepoint = transaction.savepoint()?;
    let mut posted = PostingResult::default();
    for rows in reading.rows()? {
        post_all(&savepoint, &rows?, now, &mut posted)?;
    }
    record_reading(&savepoint, reading, reading.trust_level, reading.fault.as_deref(), now)?;
    savepoint.commit()?;
    Ok(posted)
}

/// Posts one file, and records a conflict.
fn post_file(connection: &mut Connection, reading: &ParsedAudit, now: i64) -> Result<PostingResult, LedgerError> {
    let posted = post_pieces(connection, reading, now);
    if let Err(error) = posted.as_ref()
        && error.is_contradiction()
    {
        // So that later totals show it.
        let _ = record_conflict(connection, reading, Some(&error.to_string()));
    }
    posted
}

/// Posts one file: a long one in several commits, so that other writers get their turn. The last commit records that the
/// file was read.
fn post_pieces(connection: &mut Connection, reading: &ParsedAudit, now: i64) -> Result<PostingResult, LedgerError> {
    let mut posted = PostingResult::default();
    let mut pieces = reading.rows()?.peekable();
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(rows) = pieces.next() {
            post_all(&transaction, &rows?, now, &mut posted)?;
        }
        let is_last = pieces.peek().is_none();
        if is_last {
            record_reading(&transaction, reading, reading.trust_level, reading.fault.as_deref(), now)?;
        }
        transaction.commit()?;
        if is_last {
            return Ok(posted);
        }
    }
}

fn post_all(transaction: &Connection, rows: &[Row], now: i64, posted: &mut PostingResult) -> Result<(), LedgerError> {
    rows.iter().try_for_each(|(receipt, entry)| insert_row(transaction, receipt, entry.as_ref(), now, posted))
}

/// Records that the ledger refused a file.
fn record_conflict(connection: &mut Connection, reading: &ParsedAudit, fault: Option<&str>) -> Result<(), LedgerError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    record_reading(&transaction, reading, TrustLevel::Conflict, fault, now_us())?;
    Ok(transaction.commit()?)
}
