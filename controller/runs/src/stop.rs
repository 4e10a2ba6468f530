//! The end of a program that is asked to stop: its grace period, and a request to kill it at once.

use std::time::Duration;

use tokio::sync::watch;

/// Rules for the stop of a program.
#[derive(Debug, Clone)]
pub struct StopPolicy {
    /// Time that the program has after SIGTERM.
    pub grace: Duration,
    /// Becomes true when the program must be killed at once.
    kill_now: Option<watch::Receiver<bool>>,
}

impl StopPolicy {
    /// Returns a policy that gives a program this much time in any case.
    #[must_use]
    pub fn after(grace: Duration) -> Self {
        Self { grace, kill_now: None }
    }

    /// Returns a policy that gives a program this much time, or less if the value becomes true.
    #[must_use]
    pub fn with_kill(grace: Duration, kill_now: watch::Receiver<bool>) -> Self {
        Self { grace, kill_now: Some(kill_now) }
    }

    /// Waits until the program must be killed at once. Cancel-safe.
    pub async fn killed(&mut self) {
        if let Some(kill_now) = &mut self.kill_now
            && kill_now.wait_for(|now| *now).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_request_kills_at_once() {
        let (kill, kill_now) = watch::channel(false);
        let mut policy = StopPolicy::with_kill(Duration::from_secs(1), kill_now);
        let moment = Duration::from_millis(10);
        assert!(tokio::time::timeout(moment, policy.killed()).await.is_err());
        kill.send_replace(true);
        assert!(tokio::time::timeout(moment, policy.killed()).await.is_ok());
        let mut never = StopPolicy::after(Duration::from_secs(1));
        assert!(tokio::time::timeout(moment, never.killed()).await.is_err());
        let mut gone = StopPolicy::with_kill(Duration::from_secs(1), watch::channel(false).1);
        assert!(tokio::time::timeout(moment, gone.killed()).await.is_err());
    }
}
