//! The end of a task, which is reported once.

use tokio::task::JoinHandle;

/// A task that reports its end once, even if it ends before the first wait.
#[derive(Debug)]
pub(super) struct TaskEnd(Option<JoinHandle<()>>);

impl TaskEnd {
    /// Takes a task.
    pub(super) fn of(task: JoinHandle<()>) -> Self {
        Self(Some(task))
    }

    /// Waits until the task has ended. After this has returned once, a later call waits for ever. Cancel-safe.
    pub(super) async fn reported(&mut self) {
        match &mut self.0 {
            Some(task) => {
                let _ = task.await;
                self.0 = None;
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until the task has ended, and returns at once if that was reported. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        if self.0.is_some() {
            self.reported().await;
        }
    }

    /// Ends the task.
    pub(super) fn abort(&self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Bug: the end of a short program was noticed a second late, because its tasks had ended before they were awaited.
    #[tokio::test]
    async fn an_end_that_came_before_is_reported_once() {
        let task = tokio::spawn(async {});
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        let mut end = TaskEnd::of(task);

        assert!(end.reported().now_or_never().is_some(), "reported");
        assert!(end.reported().now_or_never().is_none(), "reported again");
        assert!(end.ended().now_or_never().is_some(), "it stays ended");
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_loses_no_end() {
        let (end_it, is_ended) = tokio::sync::oneshot::channel::<()>();
        let mut end = TaskEnd::of(tokio::spawn(async { drop(is_ended.await) }));

        assert!(end.reported().now_or_never().is_none(), "it works");
        drop(end_it);
        end.reported().await;
    }
}
