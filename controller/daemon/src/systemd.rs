//! The messages to systemd: ready, alive, stopping. Without systemd they are not sent.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::stop_signal::StopSignal;

/// Says that the daemon takes requests.
pub(crate) fn ready() {
    send(NotifyState::Ready);
}

/// Says that the daemon ends.
pub(crate) fn stopping() {
    send(NotifyState::Stopping);
}

/// Returns the period within which systemd expects a sign of life; `None` without a watchdog.
pub(crate) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Tells systemd twice in each period that the event loop works.
pub(crate) async fn keep_alive(time: Duration, mut stop: StopSignal) {
    let mut ticks = interval(time / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            _ = ticks.tick() => send(NotifyState::Watchdog),
        }
    }
}

fn send(state: NotifyState<'_>) {
    // If the manager is gone, nothing changes here.
    let _ = sd_notify::notify(&[state]);
}
