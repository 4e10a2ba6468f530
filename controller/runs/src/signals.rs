//! Signals that cancel a run.

use std::io;

use nix::sys::signal::Signal;
use sluice_state::run::Cancel;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const CAUGHT: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Returns a receiver of the first SIGINT, SIGTERM or SIGHUP. Later signals have no effect: the teardown of a run is as fast
/// as possible, each step with a deadline.
///
/// # Errors
/// When the signals cannot be caught.
pub fn cancelled() -> io::Result<watch::Receiver<Option<Cancel>>> {
    let (sender, receiver) = watch::channel(None);
    catch(&sender)?;
    Ok(receiver)
}

/// Sends the first of these signals, unless the run is cancelled already.
///
/// # Errors
/// When the signals cannot be caught.
pub fn catch(sender: &watch::Sender<Option<Cancel>>) -> io::Result<()> {
    for caught in CAUGHT {
        let mut signals = signal(SignalKind::from_raw(caught as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                sender.send_if_modified(|cancel| {
                    cancel.is_none() && cancel.replace(Cancel { signal: caught as i32 }).is_none()
                });
            }
        });
    }
    Ok(())
}

/// Waits for the next of these signals.
pub async fn next() -> Signal {
    let mut signals: Vec<_> =
        CAUGHT.iter().filter_map(|caught| signal(SignalKind::from_raw(*caught as i32)).ok()).collect();
    let next = futures_util::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    CAUGHT[next.1]
}
