//! Reconciliation of the ledger with LiteLLM's spend log.
//!
//! Receipts in question (`scope`) → rows of their accounts (`sluice_litellm::spend_log`) → comparison (`join`) → entries for
//! costs that were unknown → comparison once more. So the result is the state after posting, and a second reconciliation
//! finds the same and changes nothing. All decisions are in `join`, which is pure.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sluice_contract::time::duration_micros;
use sluice_litellm::spend_log::SpendLog;
use sluice_litellm::spend_log::row::{SpendRow, UnreadableRow};
use sluice_state::ledger::{BookedReceipt, Settled, Settlement};
use sluice_state::store::{Store, now_us};

pub mod background;
mod error;
pub mod finding;
pub mod join;
mod outcome;
mod question;
pub mod schedule;
mod scope;

pub use error::ReconcileError;
pub use finding::{Finding, FindingClass};
pub use outcome::{AmountSum, ReconcileOutcome};
pub use question::{PostingPermission, ReconcileQuestion};

use finding::Remedy;
use join::{JoinInput, ReceiptInQuestion, join};
use scope::ReconcileScope;

/// A reconciliation.
pub struct Reconciliation<'a> {
    /// The ledger.
    pub store: &'a Store,
    /// The spend log of LiteLLM.
    pub spend_log: SpendLog,
    /// Entries that may be posted.
    pub permission: PostingPermission,
    /// Receiver of messages about work that takes time.
    pub notify: &'a (dyn Fn(&str) + Sync),
}

/// Rows of the accounts in question.
#[derive(Debug, Default)]
struct FoundRows {
    rows: Vec<SpendRow>,
    unreadable: Vec<UnreadableRow>,
    /// Number of rows of other accounts.
    foreign: usize,
}

/// Time between two reads for a row that may still arrive.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of rounds of posting. Another process may settle a receipt meanwhile, so that nothing is posted for it.
const ROUNDS: u32 = 3;

impl Reconciliation<'_> {
    /// Compares both sides, and posts entries for costs that were unknown. With `wait`, it waits at most that long for
    /// rows that may still arrive.
    ///
    /// # Errors
    /// [`ReconcileError`].
    pub async fn run(
        &mut self,
        question: &ReconcileQuestion,
        wait: Option<Duration>,
    ) -> Result<ReconcileOutcome, ReconcileError> {
        let limit_us = wait.map(|wait| now_us().saturating_add(duration_micros(wait)));
        let scope = ReconcileScope::of(self.store, question).await?;
        let mut posted = Settled::default();
        loop {
            let found = self.rows(&scope).await?;
            let findings = self.compare_and_post(&scope, &found, &mut posted).await?;
            let until = findings.iter().filter_map(|finding| finding.until_us).max();
            let Some(until) = until.filter(|_| limit_us.is_some_and(|limit| now_us() < limit)) else {
                return Ok(ReconcileOutcome::of(findings, posted, found.foreign));
            };
            let waiting = findings.iter().filter(|finding| finding.until_us.is_some()).count();
            let left = Duration::from_micros(u64::try_from(until - now_us()).unwrap_or(0));
            (self.notify)(&format!("{waiting} rows may still come, for {} s", left.as_secs() + 1));
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    /// Compares receipts and rows, posts entries, and compares again. An entry may allow further ones: earlier attempts of
    /// a call are posted after the call itself.
    async fn compare_and_post(
        &self,
        scope: &ReconcileScope,
        found: &FoundRows,
        posted: &mut Settled,
    ) -> Result<Vec<Finding>, ReconcileError> {
        let mut findings = join(&self.join_input(scope, found).await?);
        for _ in 0..ROUNDS {
            let settlements = self.settlements(&findings);
            if settlements.is_empty() {
                break;
            }
            let more = self.store.settle(settlements).await?;
            posted.receipts += more.receipts;
            posted.reversed += more.reversed;
            findings = join(&self.join_input(scope, found).await?);
        }
        Ok(findings)
    }

    async fn rows(&mut self, scope: &ReconcileScope) -> Result<FoundRows, ReconcileError> {
        let mut found = FoundRows::default();
        for (account, windows) in &scope.windows {
            (self.notify)(&format!("reading the spend log of {account}"));
            let of_account = self.spend_log.rows(account, windows).await?;
            found.rows.extend(of_account.rows.into_values());
            found.unreadable.extend(of_account.unreadable.into_values());
            found.foreign += of_account.foreign;
        }
        Ok(found)
    }

    /// Returns all facts of a decision, as of now.
    async fn join_input(&self, scope: &ReconcileScope, spend_log: &FoundRows) -> Result<JoinInput, ReconcileError> {
        let (mut receipts, mut under_way) = (HashMap::new(), HashSet::new());
        for filter in &scope.filters {
            let found = self.store.receipts_for_reconcile(filter.clone()).await?;
            under_way.extend(found.under_way);
            receipts.extend(
                found.receipts.into_iter().map(|(receipt, heard_us)| {
                    (receipt.source_reference.clone(), receipt_in_question(receipt, heard_us))
                }),
            );
        }
        let in_question: HashSet<_> = receipts.values().map(|it| it.receipt.call_id.clone()).collect();
        let unreadable = spend_log.unreadable.iter().filter_map(|row| row.names().call_id());
        let names = spend_log.rows.iter().filter_map(SpendRow::call_id).chain(unreadable);
        let names = names.filter(|id| !in_question.contains(*id)).map(str::to_owned).collect();
        let elsewhere = self.store.payers(names).await?;
        let mut receipts: Vec<_> = receipts.into_values().collect();
        receipts.sort_by(|a, b| {
            (&a.receipt.origin, &a.receipt.source_reference).cmp(&(&b.receipt.origin, &b.receipt.source_reference))
        });
        Ok(JoinInput {
            receipts,
            elsewhere,
            under_way,
            rows: spend_log.rows.clone(),
            unreadable: spend_log.unreadable.clone(),
            row_scope: scope.rows.clone(),
            now_us: now_us(),
        })
    }

    fn settlements(&self, findings: &[Finding]) -> Vec<Settlement> {
        let remedies = findings.iter().filter_map(|finding| finding.remedy.as_ref());
        let allowed = remedies.filter_map(|remedy| match (remedy, self.permission) {
            (Remedy::Settle(settlement), _) | (Remedy::Correct(settlement), PostingPermission::Correct) => {
                Some(settlement.clone())
            }
            (Remedy::Correct(_), PostingPermission::Settle) => None,
        });
        allowed.collect()
    }
}

fn receipt_in_question(receipt: BookedReceipt, heard_us: i64) -> ReceiptInQuestion {
    let origin_day = receipt.origin.get(..10).unwrap_or_default().to_owned();
    ReceiptInQuestion { receipt, origin_day, heard_us }
}
