//! Reconciliation and removal of old records, during a run and in the daemon.

use std::time::{Duration, SystemTime};

use sluice_daemon::monitor::FindingCounter;
use sluice_runs::repository_retention::remove_old_repositories;
use sluice_state::layout::Layout;
use sluice_state::record_retention::remove_old_records;
use sluice_state::store::Store;

use crate::git_home::git_home;
use crate::reconcile::background::ReconcileLoop;
use crate::settings::{LitellmSettings, RecordSettings};

/// Time before the first check. The run has started by then, and needed the processors for that.
const DELAY: Duration = Duration::from_millis(500);

/// Starts the loop that settles open costs, on a thread with its own connection to the database: the run never waits for
/// a page that is parsed or a row that is written. The thread ends with the process; the next one continues its work.
///
/// First, the thread removes old records: that takes a moment, and most runs are short.
///
/// A daemon counts the findings.
pub(in crate::cli) fn start(
    litellm: &LitellmSettings,
    records: RecordSettings,
    layout: Layout,
    counter: Option<FindingCounter>,
) {
    let litellm = litellm.clone();
    std::thread::spawn(move || {
        let Ok(store) = Store::open(&layout.database()) else { return };
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            tokio::time::sleep(DELAY).await;
            // The next run tries again.
            let _ = remove_old_records(&layout, &store, records.keep).await;
            let _ = remove_old_repositories(&git_home(layout.state()), &store, records.keep, SystemTime::now()).await;
            if let Some(reconcile) = ReconcileLoop::new(&litellm, store) {
                reconcile.counted_by(counter).run(Duration::ZERO).await;
            }
        });
    });
}
