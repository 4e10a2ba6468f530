//! Waiting for the end of a run.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::ApiClient;
use crate::error::ClientError;
use crate::objects::ApiSandboxDetail;
use crate::request::ApiRequest;
use crate::retry::Retries;

/// Time for which the daemon may hold one request open.
const WAIT: Duration = Duration::from_secs(60);
/// Pause before the next request.
const PAUSE: Duration = Duration::from_millis(100);

impl ApiClient {
    /// Waits until a run has ended, also while its daemon restarts.
    ///
    /// # Errors
    /// Same as [`crate::ApiEventStream::next`].
    pub async fn ended(&self, id: &str) -> Result<ApiSandboxDetail, ClientError> {
        let mut retries = Retries::default();
        loop {
            let wait = format!("{}s", WAIT.as_secs());
            let request = ApiRequest::get(&["sandboxes", id, "wait"]).query("timeout", &wait).waiting(WAIT);
            match self.send_optional::<ApiSandboxDetail>(request).await {
                Ok(Some(run)) if run.sandbox.is_ended() => return Ok(run),
                Ok(_) => {
                    retries.reset();
                    sleep(PAUSE).await;
                }
                Err(error) => retries.wait(error, self.limits().without_connection).await?,
            }
        }
    }
}
