//! Output that is forwarded while the program runs, and what happens to it when our own output is slow.

use std::time::Duration;

use sluice_state::process::Process;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::forward::{OutputChunk, OutputSender};

/// Interval in which a waiting reader checks if the program has ended. The engine cuts the streams 2 s after that.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of bytes that the engine may still hold of a program that has ended; it buffers about 1 MiB per stream.
const LEFT_MAX: usize = 8 << 20;

/// Maximum time that the reader waits for room in our own output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForwardWait {
    /// Unlimited: the program waits, too.
    Unlimited,
    /// Until this moment; later chunks are dropped.
    Until(Instant),
    /// No waiting: the program has ended, and the rest is taken from the engine at once.
    Skip,
}

/// Forwards output.
pub(super) struct LiveOutput {
    sender: OutputSender,
    init: Option<Process>,
    /// True once `init` was seen to have ended.
    has_ended: bool,
    wait: watch::Receiver<ForwardWait>,
    next_look: Instant,
    /// Number of bytes that may still be taken without room for them, once the program has ended.
    left: usize,
    /// True once a chunk is missing: no later chunk is forwarded.
    is_cut: bool,
}

impl LiveOutput {
    pub(super) fn new(sender: OutputSender, init: Option<Process>, wait: watch::Receiver<ForwardWait>) -> Self {
        Self { sender, init, has_ended: false, wait, next_look: Instant::now(), left: LEFT_MAX, is_cut: false }
    }

    /// Forwards a chunk, or drops it when it cannot be forwarded in time.
    pub(super) async fn forward(&mut self, chunk: &OutputChunk) {
        while !self.is_cut {
            let wait = match *self.wait.borrow_and_update() {
                ForwardWait::Unlimited if self.has_ended => ForwardWait::Skip,
                wait => wait,
            };
            if wait == ForwardWait::Skip && self.left >= chunk.len() {
                self.left -= chunk.len();
                self.is_cut = !self.sender.send_now(chunk);
                return;
            }
            let until = if let ForwardWait::Until(until) = wait { until } else { self.next_look };
            tokio::select! {
                biased;
                // Cancel-safe: a chunk is taken when this is ready, and not before.
                is_taken = self.sender.send(chunk) => {
                    self.is_cut = !is_taken;
                    return;
                }
                Ok(()) = self.wait.changed() => {}
                () = sleep_until(until) => match wait {
                    ForwardWait::Until(_) => self.is_cut = true,
                    ForwardWait::Unlimited | ForwardWait::Skip => self.look(),
                }
            }
        }
        self.sender.count_dropped(chunk);
    }

    /// Checks if the program has ended: the engine only says so once its streams have ended.
    fn look(&mut self) {
        self.next_look = Instant::now() + LOOK_EVERY;
        // All processes of a container end with its first one, so no process writes any more.
        self.has_ended |= self.init.as_ref().is_some_and(|init| !init.is_alive());
    }
}
