//! Repeats requests that may succeed later.

use std::future::Future;
use std::time::Duration;

use super::delays::delay;
use super::error::ForgeError;

/// Waits. Tests pass an implementation that does not.
pub trait Pause: Sync {
    /// Waits for this time.
    fn pause(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// Waits by the clock of the runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuntimePause;

impl Pause for RuntimePause {
    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Repeats a request that fails and may succeed later. The request must be idempotent.
///
/// # Errors
/// The error of the last attempt.
pub async fn retrying<T, F: Future<Output = Result<T, ForgeError>>>(
    pause: &impl Pause,
    mut request: impl FnMut() -> F,
) -> Result<T, ForgeError> {
    let mut nth = 0;
    loop {
        let error = match request().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        nth += 1;
        match delay(nth, error.retry_after()).filter(|_| error.is_retryable()) {
            Some(time) => pause.pause(time).await,
            None => return Err(error),
        }
    }
}
