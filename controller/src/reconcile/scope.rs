//! The scope of a reconciliation: the receipts in question, and the time windows of their rows.

use std::collections::BTreeMap;

use sluice_contract::time::unix_micros;
use sluice_litellm::spend_log::window::{TimeWindow, merged};
use sluice_state::ledger::{BookedReceipt, Filter};
use sluice_state::store::{Store, now_us};

use super::error::ReconcileError;
use super::join::RowScope;
use super::question::ReconcileQuestion;

/// The scope of a reconciliation.
#[derive(Debug, Default)]
pub(super) struct ReconcileScope {
    /// Time windows of rows by account.
    pub(super) windows: BTreeMap<String, Vec<TimeWindow>>,
    /// Filters for the receipts in question.
    pub(super) filters: Vec<Filter>,
    /// Rows in question that have no receipt.
    pub(super) rows: RowScope,
}

impl ReconcileScope {
    /// Returns the scope of a question.
    ///
    /// # Errors
    /// The ledger cannot be read, or does not know the run.
    pub(super) async fn of(store: &Store, question: &ReconcileQuestion) -> Result<Self, ReconcileError> {
        let mut scope = match question {
            ReconcileQuestion::Run { run_id, attempt } => Self::of_run(store, run_id, *attempt).await?,
            ReconcileQuestion::Since { account, from_us } => Self::since(store, account.as_ref(), *from_us).await?,
            ReconcileQuestion::Open { from_us, heard_us } => {
                let mut scope = Self::default();
                let open = Filter { from_us: Some(*from_us), open: true, ..Filter::default() };
                scope.add_open(store, open, *heard_us).await?;
                scope
            }
        };
        for windows in scope.windows.values_mut() {
            *windows = merged(std::mem::take(windows));
        }
        Ok(scope)
    }

    async fn of_run(store: &Store, run_id: &str, attempt: Option<u32>) -> Result<Self, ReconcileError> {
        let span = store.span_of_run(run_id.to_owned(), attempt).await?;
        let (account, from, to) = span.ok_or_else(|| ReconcileError::NoRun(run_id.to_owned()))?;
        let filter = Filter { run_id: Some(run_id.to_owned()), attempt, ..Filter::default() };
        Ok(Self {
            windows: BTreeMap::from([(account, vec![TimeWindow::over(from, to)])]),
            filters: vec![filter],
            rows: RowScope::Run(run_id.to_owned(), attempt),
        })
    }

    async fn since(store: &Store, account: Option<&String>, from_us: i64) -> Result<Self, ReconcileError> {
        let now = now_us();
        let accounts = match account {
            Some(account) => vec![account.clone()],
            None => store.payer_names().await?,
        };
        let of_account = || Filter { account: account.cloned(), ..Filter::default() };
        let window = |account| (account, vec![TimeWindow::over(from_us, now)]);
        let mut scope = Self {
            windows: accounts.into_iter().map(window).collect(),
            filters: vec![Filter { from_us: Some(from_us), to_us: Some(now), ..of_account() }],
            rows: RowScope::Span(from_us, now),
        };
        let earlier = Filter { to_us: Some(from_us - 1), open: true, ..of_account() };
        scope.add_open(store, earlier, i64::MAX).await?;
        Ok(scope)
    }

    /// Adds calls of unknown cost with the windows around them. Their filter names them, since they will not stay open.
    async fn add_open(&mut self, store: &Store, open: Filter, heard_us: i64) -> Result<(), ReconcileError> {
        let mut names = Vec::new();
        for (receipt, heard) in store.receipts_for_reconcile(open).await?.receipts {
            if heard <= heard_us {
                let window = TimeWindow::around(origin_us(&receipt));
                self.windows.entry(receipt.account.clone()).or_default().push(window);
                names.push(receipt.source_reference);
            }
        }
        self.filters.push(Filter { references: Some(names), ..Filter::default() });
        Ok(())
    }
}

fn origin_us(receipt: &BookedReceipt) -> i64 {
    humantime::parse_rfc3339(&receipt.origin).ok().and_then(unix_micros).unwrap_or_default()
}
