//! The ledger: one receipt for each call that was about to go upstream.
//!
//! A receipt and its entries are separate rows, and rows are only added: a receipt without an entry is `pending`, and each
//! later status is an entry. The amount of a receipt is the sum of its entries. A wrong entry is reversed by one with the
//! opposite numbers. All rows follow from the audit files (`parsed_audit`, `audit_rows`), so the ledger can be built again
//! from them (`rebuild`). Every displayed total is computed here (`totals`, `usage`), and is exact: nano-USD in `i64`,
//! sums in `i128`.

mod audit_rows;
mod audit_source;
mod backup;
mod booked;
mod compare;
mod entry;
mod error;
mod filter;
mod implausible;
mod import;
mod insert;
mod parsed_audit;
mod post;
mod prune;
mod query;
mod rebuild;
mod receipt_rows;
mod reconcile;
mod run_state;
mod settle;
mod status;
mod totals;
mod usage;
mod void;

pub use audit_rows::{LedgerRows, Row};
pub use audit_source::{AuditSource, TrustLevel, Writer};
pub use booked::{BookedEntry, BookedReceipt, BookedTokens};
pub use compare::{Difference, DifferenceKind, RebuildReport, RestoreReport};
pub use entry::{CACHE_HIT, LedgerEntry, RETRY, ReceiptRow, SOURCE};
pub use error::LedgerError;
pub use filter::Filter;
pub use implausible::{CostBounds, GUESS_FLOOR, IMPLAUSIBLE, IMPLAUSIBLE_FACTOR, ImplausibleCost};
pub use import::{ImportError, ImportedFile, UnsignedFiles};
pub use insert::{LateOutcome, Posted, PostingResult};
pub use parsed_audit::{Doubt, ParsedAudit, read, unknown_key_advice};
pub use post::PendingPost;
pub use prune::{KeptFile, PruneError, PruneOrder, Pruned};
pub use query::{ListSummary, Selection};
pub use rebuild::{AuditArchive, PostedFiles};
pub(crate) use receipt_rows::receipts_of_run;
pub use reconcile::ReconcilableReceipts;
pub use run_state::Unsettled;
pub(crate) use run_state::{ReadState, read_state};
pub use settle::{PriceSource, SPEND_LOG, Settled, Settlement};
pub use status::{ReceiptStatus, reference, status};
pub use totals::{GroupBy, TokenSums, Total, dollars, total, usd};
pub use usage::{GroupSum, UsageTable};
pub use void::{OPERATOR, VOIDED, VoidError, void};

#[cfg(test)]
mod tests;
