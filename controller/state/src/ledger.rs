//! The ledger: one receipt for each call that was about to go upstream, for ever.
//!
//! A receipt and what came of it are separate rows, and rows are only added: `pending` is a receipt without an entry,
//! and each later status is an entry. An amount is the sum of entries; what was wrong is taken back by an entry with
//! the opposite numbers. All of it follows from the audit files (`ingest`), so it can be built again from them
//! (`rebuild`). Every total that is shown anywhere is made here (`total`, `sums`), and exact: nano-USD in `i64`, sums in
//! `i128`.

use sluice_contract::RunKey;

use crate::store::StoreError;

mod backup;
mod bill;
mod entry;
mod ingest;
mod post;
mod query;
mod rebuild;
mod settle;
mod status;
mod sums;
mod total;

pub use bill::{BookedEntry, BookedReceipt, Tokens};
pub use entry::{CACHE_HIT, LedgerEntry, RETRY, ReceiptRow, SOURCE};
pub use ingest::{AuditSource, LedgerRows, ParsedAudit, Row, TrustLevel, Writer, read, unknown_key};
pub use post::{PendingPost, Posted};
pub use query::{Filter, ListedReceipt, Selection, Unsettled};
pub(crate) use query::{key, of_run, read_to_end};
pub use rebuild::{AuditArchive, Difference, Found, Rebuilt, Restored};
pub use settle::{PriceSource, ReconcilableReceipts, SPEND_LOG, Settled, Settlement};
pub use status::{ReceiptStatus, reference, status};
pub use sums::UsageTable;
pub use total::{Group, Sums, Total, total, usd};

/// Why the ledger did not take something, or cannot tell.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Something else is known under this name. Neither is changed; somebody has to look.
    #[error("the ledger has another {reference}: its hash is {known}, and the audit file's is {found}")]
    Conflict {
        /// The name.
        reference: String,
        /// The hash in the ledger.
        known: String,
        /// The one that came now.
        found: String,
    },
    /// The call has come to another end already.
    #[error("the ledger has {reference} as {status} already, which this cannot follow")]
    Late {
        /// The name of what came now.
        reference: String,
        /// How the receipt stands.
        status: &'static str,
    },
    /// SQLite found the file to be broken.
    #[error("the database is damaged: {0}; restore a backup, then sluice ledger rebuild")]
    Damaged(String),
    /// An audit file cannot be read.
    #[error("cannot read the audit file of run {0}")]
    UnreadablePage(RunKey, #[source] std::io::Error),
    /// The audit files cannot be listed.
    #[error("cannot list {0}")]
    NoFiles(std::path::PathBuf, #[source] std::io::Error),
    /// The copy cannot be made.
    #[error("cannot write {0}")]
    Backup(std::path::PathBuf, #[source] std::io::Error),
    /// The database said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LedgerError {
    /// Whether the ledger knows something else, so that it refuses what a file says.
    #[must_use]
    pub fn is_contradiction(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Late { .. })
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        if crate::store::is_damage(&error) { Self::Damaged(error.to_string()) } else { Self::Store(error.into()) }
    }
}

#[cfg(test)]
mod tests;
