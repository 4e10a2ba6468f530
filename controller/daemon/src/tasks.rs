//! The background tasks of the daemon. They end together.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::stop_signal::{StopSender, StopSignal, stop_signal};

/// A set of named tasks with one stop signal.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<&'static str>,
    sender: StopSender,
    signal: StopSignal,
}

impl Default for Tasks {
    fn default() -> Self {
        let (sender, signal) = stop_signal();
        Self { set: JoinSet::new(), sender, signal }
    }
}

impl Tasks {
    /// Returns the signal at which all tasks end.
    #[must_use]
    pub fn signal(&self) -> StopSignal {
        self.signal.clone()
    }

    /// Starts a task. It ends after the signal that it receives; a task that ends earlier ends the daemon.
    pub fn spawn<F>(&mut self, name: &'static str, task: impl FnOnce(StopSignal) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = task(self.signal.clone());
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    /// Waits for the first task that ends, and returns its name; `None` for a task that panicked. Never returns without tasks.
    pub async fn first_end(&mut self) -> Option<&'static str> {
        match self.set.join_next().await {
            Some(ended) => ended.ok(),
            None => std::future::pending().await,
        }
    }

    /// Stops all tasks, and waits this long for them; then it aborts the rest. Returns true if all ended by themselves.
    pub async fn stop(mut self, time: Duration) -> bool {
        self.sender.stop();
        let all = async { while self.set.join_next().await.is_some() {} };
        timeout(time, all).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_end_together_and_slow_ones_are_cut() {
        let mut tasks = Tasks::default();
        tasks.spawn("good", |mut stop| async move { stop.stopped().await });
        assert!(tasks.stop(Duration::from_secs(10)).await);
        let mut tasks = Tasks::default();
        tasks.spawn("bad", |_| std::future::pending());
        assert!(!tasks.stop(Duration::from_secs(10)).await);
    }

    #[tokio::test]
    async fn a_task_that_ends_early_is_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("short", |_| async {});
        tasks.spawn("long", |mut stop| async move { stop.stopped().await });
        assert_eq!(tasks.first_end().await, Some("short"));
    }
}
