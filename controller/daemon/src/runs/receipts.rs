//! Receipts that could not be posted at the end of their run.

use std::time::Duration;

use sluice_runs::host::Host;
use sluice_state::ledger::{AuditArchive, LedgerError};
use tokio::time::sleep;

/// Time between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// Posts the receipts of closed runs, and retries while the disk is full. Permanent faults need `sluice ledger`.
pub(super) async fn post_again(host: &Host, mut error: LedgerError) {
    while error.is_retryable() {
        sleep(AGAIN).await;
        let Ok(keys) = host.keys.public() else { return };
        let archive = AuditArchive { layout: &host.layout, store: &host.store, keys: &keys };
        match archive.catch_up().await {
            Ok(()) => return,
            Err(next) => error = next,
        }
    }
}
