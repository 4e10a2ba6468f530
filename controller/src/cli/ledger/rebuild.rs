//! `sluice ledger rebuild`: compares the ledger with all audit files, and adds missing entries.

use std::path::Path;

use sluice_contract::text::{error_chain, sanitize};
use sluice_state::budget::{BudgetLog, LogError};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{AuditArchive, RebuildReport, RestoreReport, Total, dollars};
use sluice_state::store::Store;

use super::super::error::CommandError;

/// Mode of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RebuildMode {
    /// Report differences.
    Check,
    /// Also add missing entries.
    Fill,
}

/// Compares the ledger with the audit files, and the budgets with their log.
pub(in super::super) async fn rebuild(
    state: &Path,
    store: &Store,
    mode: RebuildMode,
) -> Result<RebuildReport, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let keys = match mode {
        RebuildMode::Check => Keys::at(state),
        RebuildMode::Fill => Keys::open(state).map_err(|error| failed(&error))?,
    };
    let public = keys.public().map_err(|error| failed(&error))?;
    let layout = Layout::at(state);
    let archive = AuditArchive { layout: &layout, store, keys: &public };
    let budgets = BudgetLog { layout: &layout, keys: &keys, store };
    let mut rebuilt = match mode {
        RebuildMode::Check => archive.check().await.map_err(|error| failed(&error))?,
        RebuildMode::Fill => {
            let was_new = store.is_new().await.map_err(|error| failed(&error))?;
            let restored = match budgets.restore(&archive).await {
                Ok(restored) => restored,
                // The budgets' error is reported below; the receipts are restored from the files.
                Err(LogError::Forged(..) | LogError::Damaged { .. }) => 0,
                Err(error) => return Err(failed(&error)),
            };
            let mut rebuilt = archive.fill().await.map_err(|error| failed(&error))?;
            let is_old = restored > 0 || (was_new && rebuilt.files > 0);
            rebuilt.restored = is_old.then_some(RestoreReport { budgets: restored, not_known: NOT_KNOWN });
            rebuilt
        }
    };
    let followed = match mode {
        RebuildMode::Check => budgets.inspect().await,
        RebuildMode::Fill => budgets.synchronize().await,
    };
    match followed {
        Ok(None) => {}
        Ok(Some(error)) | Err(error @ (LogError::Ahead { .. } | LogError::Lost(_) | LogError::Forged(..))) => {
            rebuilt.report_budget_log(error_chain(&error));
        }
        Err(error) => return Err(failed(&error)),
    }
    Ok(rebuilt)
}

/// Facts that neither audit files nor the log of budgets contain.
const NOT_KNOWN: &[&str] = &[
    "reservations of ended runs for calls of unknown cost: they are released",
    "costs that sluice reconcile had settled: run it again",
    "lines of audit files that were seen while they were written: from now on their last lines count as seen",
    "ids of runs that have no audit file: they can be used again",
];

/// Returns the report for people.
pub(super) fn text(rebuilt: &RebuildReport) -> String {
    let RebuildReport { files, under_way, pruned, added, restored, sums_renewed, by_files, by_ledger, differences } =
        rebuilt;
    let mut text = String::new();
    for difference in differences {
        let name = difference.source_reference.as_ref().unwrap_or(&difference.run);
        text += &format!("{name}: {}: {}\n", difference.found.as_str(), sanitize(&difference.detail));
    }
    let cost = |total: &Total| dollars(total.nano_usd.unwrap_or(0));
    let pruned = if *pruned > 0 { format!(", {pruned} pruned") } else { String::new() };
    text += &format!("files    {files} read, {under_way} runs under way{pruned}\n");
    text += &format!("added    {} receipts, {} entries\n", added.receipts, added.entries);
    if let Some(RestoreReport { budgets, not_known }) = restored {
        text += &format!("restored {budgets} changes of budgets; the database was lost or old, and does not know:\n");
        text.extend(not_known.iter().map(|what| format!("         - {what}\n")));
    }
    if *sums_renewed > 0 {
        text += &format!("sums     {sums_renewed} were wrong, and all are added up again\n");
    }
    text += &format!("files    {} calls, {}\n", by_files.calls, cost(by_files));
    text += &format!("ledger   {} calls, {}\n", by_ledger.calls, cost(by_ledger));
    let verdict = if differences.is_empty() { "agree" } else { "DIFFER" };
    text + &format!("they {verdict}\n")
}
