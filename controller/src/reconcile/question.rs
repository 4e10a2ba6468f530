//! The question of a reconciliation, and the entries that it may post.

/// Receipts and rows that a reconciliation compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileQuestion {
    /// Receipts and rows of a run, or of one attempt of it.
    Run {
        /// Id of the run.
        run_id: String,
        /// Number of the attempt; none is all attempts.
        attempt: Option<u32>,
    },
    /// Calls of one account, or of each account, since a time; and earlier calls of unknown cost.
    Since {
        /// Account; none is each account that has receipts.
        account: Option<String>,
        /// Time in microseconds since 1970.
        from_us: i64,
    },
    /// Only calls of unknown cost.
    Open {
        /// Earliest time of the call in microseconds since 1970.
        from_us: i64,
        /// Latest time of the last entry about the call in microseconds since 1970.
        heard_us: i64,
    },
}

/// Entries that a reconciliation may post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostingPermission {
    /// Costs that were unknown.
    Settle,
    /// Also the spend log's numbers in place of the ledger's, if they differ.
    Correct,
}
