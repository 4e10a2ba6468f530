//! Repeats requests to a forge that may succeed later: API requests and git commands.

use std::future::Future;
use std::time::Duration;

use super::delays::delay;
use super::error::ForgeError;
use crate::error::GitError;

/// A way to wait. Tests pass an implementation that does not wait.
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

/// Failure of a request to a forge.
pub trait RequestFault {
    /// Returns whether the same request may succeed later.
    fn may_succeed_later(&self) -> bool;

    /// Returns the time that the forge asks to wait, if it does.
    fn wait_at_least(&self) -> Option<Duration>;
}

impl RequestFault for ForgeError {
    fn may_succeed_later(&self) -> bool {
        self.is_retryable()
    }

    fn wait_at_least(&self) -> Option<Duration> {
        self.retry_after()
    }
}

impl RequestFault for GitError {
    fn may_succeed_later(&self) -> bool {
        self.is_retryable()
    }

    fn wait_at_least(&self) -> Option<Duration> {
        None
    }
}

/// Repeats a request that fails and may succeed later. The request must be one that can be made twice.
///
/// # Errors
/// The error of the last attempt.
pub async fn retrying<T, E: RequestFault, F: Future<Output = Result<T, E>>>(
    pause: &impl Pause,
    mut request: impl FnMut() -> F,
) -> Result<T, E> {
    let mut nth = 0;
    loop {
        let error = match request().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        nth += 1;
        match delay(nth, error.wait_at_least()).filter(|_| error.may_succeed_later()) {
            Some(time) => pause.pause(time).await,
            None => return Err(error),
        }
    }
}
