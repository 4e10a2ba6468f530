//! Output that is forwarded while the program runs, and what happens to it when our own output is slow.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluice_state::process::Process;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::forward::{OutputChunk, OutputSender};

/// Interval in which a waiting reader checks if the program has ended. The engine cuts the streams 2 s after that.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// If the engine has not named the first process after this time, the program counts as ended: about a container that has
/// ended, the engine answers only after it has closed the streams.
const ENGINE_ANSWER: Duration = Duration::from_millis(500);
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

/// The first process of a started container.
#[derive(Debug)]
pub(super) enum InitProcess {
    /// A process of this host.
    Started(Process),
    /// It has ended.
    Ended,
    /// The engine names no process of this host.
    Unknown,
}

/// Forwards output.
pub(super) struct LiveOutput {
    sender: OutputSender,
    /// Unset until the engine has answered.
    init: Arc<OnceLock<InitProcess>>,
    begun: Instant,
    /// True if the program had ended at the last look.
    has_ended: bool,
    wait: watch::Receiver<ForwardWait>,
    next_look: Instant,
    /// Number of bytes that may still be taken without room for them, once the program has ended.
    left: usize,
    /// True once a chunk is missing: no later chunk is forwarded.
    is_cut: bool,
}

impl LiveOutput {
    pub(super) fn new(
        sender: OutputSender,
        init: Arc<OnceLock<InitProcess>>,
        wait: watch::Receiver<ForwardWait>,
    ) -> Self {
        let begun = Instant::now();
        Self { sender, init, begun, has_ended: false, wait, next_look: begun, left: LEFT_MAX, is_cut: false }
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
        self.has_ended = match self.init.get() {
            Some(InitProcess::Started(init)) => !init.is_alive(),
            Some(InitProcess::Ended) => true,
            Some(InitProcess::Unknown) => false,
            None => self.begun.elapsed() > ENGINE_ANSWER,
        };
        if !self.has_ended {
            self.left = LEFT_MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::{io, process};

    use tokio::time::timeout;

    use super::*;
    use crate::forward;
    use crate::terminal::SanitizedWriter;

    /// Output whose reader, the returned socket, does not read.
    fn unread(init: &Arc<OnceLock<InitProcess>>) -> (UnixStream, LiveOutput) {
        let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
        let (stdout, stderr) = (SanitizedWriter::for_pipe(writer), SanitizedWriter::for_pipe(io::sink()));
        let (sender, _) = forward::start_with(stdout, stderr, watch::channel(None).0);
        let wait = watch::channel(ForwardWait::Unlimited).1;
        (reader, LiveOutput::new(sender, Arc::clone(init), wait))
    }

    /// Returns true if this many chunks of 32 KiB are taken without a reader.
    async fn takes(live: &mut LiveOutput, chunks: usize) -> bool {
        let chunk = OutputChunk::Stdout(vec![b'x'; 32 << 10].into());
        let all = async {
            for _ in 0..chunks {
                live.forward(&chunk).await;
            }
        };
        timeout(Duration::from_secs(10), all).await.is_ok()
    }

    /// Bug: the last output of a short program was lost, if it ended before the engine was asked for its first process.
    #[tokio::test(start_paused = true)]
    async fn only_output_of_an_ended_program_does_not_wait() {
        let this = || InitProcess::Started(Process::current().expect("there is /proc"));
        for (init, is_taken) in
            [(Some(InitProcess::Ended), true), (None, true), (Some(InitProcess::Unknown), false), (Some(this()), false)]
        {
            let name = format!("{init:?}");
            let cell = Arc::new(init.map_or_else(OnceLock::new, OnceLock::from));
            let (_reader, mut live) = unread(&cell);

            assert_eq!(takes(&mut live, 100).await, is_taken, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_leaves_room_for_the_last_output() {
        let cell = Arc::new(OnceLock::new());
        let (_reader, mut live) = unread(&cell);
        assert!(takes(&mut live, 100).await, "no answer");
        let mut program = process::Command::new("sleep").arg("600").spawn().expect("there is sleep");
        let pid = i32::try_from(program.id()).expect("a pid");

        cell.set(InitProcess::Started(Process::of(pid).expect("it runs"))).expect("it is unset");
        assert!(!takes(&mut live, 1000).await, "it runs");
        program.kill().expect("it is ours");
        program.wait().expect("it was killed");

        assert!(takes(&mut live, 64).await, "it has ended");
    }
}
