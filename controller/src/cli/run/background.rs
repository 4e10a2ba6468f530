//! Reconciliation during a run.

use std::path::PathBuf;
use std::time::Duration;

use sluice_state::store::Store;

use crate::reconcile::background::ReconcileLoop;
use crate::settings::LitellmSettings;

/// Time before the first look. The run has started by then, and needed the processors for that.
const DELAY: Duration = Duration::from_millis(500);

/// Starts the loop that settles open costs, on a thread with its own connection to the database: the run never waits for
/// a page that is parsed or a row that is written. The thread ends with the process; the next one continues its work.
pub(super) fn start(settings: &LitellmSettings, database: PathBuf) {
    let settings = settings.clone();
    std::thread::spawn(move || {
        let Ok(store) = Store::open(&database) else { return };
        let Some(reconcile) = ReconcileLoop::new(&settings, store) else { return };
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            runtime.block_on(reconcile.run(DELAY));
        }
    });
}
