//! Signals that cancel a run.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sluice_state::run::Cancel;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Time within which several signals count as one.
const TOGETHER: Duration = Duration::from_millis(20);
const CAUGHT: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Returns a receiver of the first SIGINT, SIGTERM or SIGHUP. Later signals have no effect.
///
/// # Errors
/// When the signals cannot be caught.
pub fn cancelled() -> io::Result<watch::Receiver<Option<Cancel>>> {
    let (sender, receiver) = watch::channel(None);
    catch(&sender, &watch::channel(false).0)?;
    Ok(receiver)
}

/// Sends the first of these signals to `cancel`, unless the run is cancelled already. A later SIGINT or SIGTERM sets
/// `kill`: the program must end at once. SIGHUP does not, since the end of a terminal can send it twice.
/// A signal that comes together with the first one does not either: `timeout(1)` sends it to the process and to its group.
///
/// # Errors
/// When the signals cannot be caught.
pub fn catch(cancel: &watch::Sender<Option<Cancel>>, kill: &watch::Sender<bool>) -> io::Result<()> {
    let first = Arc::new(OnceLock::new());
    for caught in CAUGHT {
        let mut signals = signal(SignalKind::from_raw(caught as i32))?;
        let (cancel, kill, first) = (cancel.clone(), kill.clone(), Arc::clone(&first));
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let is_first = cancel.send_if_modified(|cancel| {
                    cancel.is_none() && cancel.replace(Cancel { signal: caught as i32 }).is_none()
                });
                let is_later = first.get_or_init(Instant::now).elapsed() >= TOGETHER;
                if !is_first && is_later && caught != Signal::SIGHUP {
                    kill.send_replace(true);
                }
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
