//! One reading of all metrics at a time.

use std::time::Duration;

use bytes::Bytes;
use sluice_state::figures::DatabaseFigures;
use sluice_state::sandboxes::SandboxState;
use sluice_state::store::{Store, StoreError, now_us};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Monitor;
use super::instruments::Gauges;

/// Content type of the metrics.
pub(crate) const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Time for which one reading is served to all clients.
const KEPT: Duration = Duration::from_secs(1);

/// The last reading. Clients that arrive while it is made wait for it and get it too, so many clients cost as much as one.
#[derive(Debug, Default)]
pub(crate) struct Scrape(Mutex<Option<(Instant, Bytes)>>);

/// Error of reading the metrics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScrapeError {
    /// The database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The metrics cannot be written as text.
    #[error(transparent)]
    Text(#[from] std::fmt::Error),
}

impl Monitor {
    /// Returns all metrics as text, at most a second old.
    ///
    /// # Errors
    /// [`ScrapeError`]
    pub(crate) async fn text(&self, store: &Store, sse_clients: usize) -> Result<Bytes, ScrapeError> {
        let mut last = self.scrape.0.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(text.clone());
        }
        let now = now_us();
        let figures = store.figures(self.read.get(), now).await?;
        let text = Bytes::from(self.lock().text(&gauges(&figures, (sse_clients, self.held()), now))?);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

fn gauges(figures: &DatabaseFigures, (sse_clients, held_calls): (usize, u64), now_us: i64) -> Gauges {
    Gauges {
        runs: figures.runs.iter().map(|(state, count)| (SandboxState::as_str(*state), *count)).collect(),
        queue_age: age(figures.waiting_since_us, now_us),
        open_receipts: figures.open_receipts,
        open_receipt_age: age(figures.open_receipt_since_us, now_us),
        sse_clients,
        event_lag: age(figures.unread_since_us, now_us),
        held_calls,
    }
}

/// Returns the seconds since a time; 0 without one.
pub(crate) fn age(since_us: Option<i64>, now_us: i64) -> f64 {
    since_us.map_or(0.0, |since| now_us.saturating_sub(since).max(0) as f64 / 1e6)
}
