//! The signal by which all parts of the daemon stop.

use tokio::sync::watch;

/// Sends the signal; dropping it sends the signal too.
#[derive(Debug)]
pub struct StopSender(watch::Sender<bool>);

/// Receives the signal.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

/// Returns both ends.
#[must_use]
pub fn stop_signal() -> (StopSender, StopSignal) {
    let (sender, receiver) = watch::channel(false);
    (StopSender(sender), StopSignal(receiver))
}

impl StopSender {
    /// Sends the signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl StopSignal {
    /// Waits for the signal.
    pub async fn stopped(&mut self) {
        // An error means that the sender is gone, which counts as the signal.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Returns whether the signal was sent.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}
