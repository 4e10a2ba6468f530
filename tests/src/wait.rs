//! Bounded waits.

use std::time::{Duration, Instant};

/// The longest wait of the test kit; then the test fails.
pub const PATIENCE: Duration = Duration::from_secs(90);

const POLL: Duration = Duration::from_millis(20);

/// Calls `ready` every 20 ms until it returns true, at most for `limit`. Returns true if it did.
///
/// For states that no signal announces. It measures wall time, also where tokio's time is paused.
pub async fn poll(limit: Duration, mut ready: impl AsyncFnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if ready().await {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}
