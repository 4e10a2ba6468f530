//! The streams of a container.
//!
//! A reader that stalls makes a container unkillable: the engine waits for it before it reports any end. So the reader
//! only waits for room in our own output while the program runs and nobody wants it to stop.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bollard::Docker;
use bollard::query_parameters::ResizeContainerTTYOptionsBuilder;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sluice_state::process::Process;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::attach::Streams;
use crate::forward::{Outlet, Piece};
use crate::input::{self, Stdin};
use crate::output::{Capture, Captured};
use crate::tty;

/// How often a reader that waits looks whether the program has ended. The engine cuts the streams 2 s after that.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the engine may take to change the size of a window.
const RESIZE: Duration = Duration::from_secs(2);
/// How much the engine may still hold of a program that has ended; it buffers about 1 MiB for each stream.
const LEFT_MAX: usize = 8 << 20;

/// Where input comes from, and where output goes.
#[derive(Debug)]
pub struct Stdio {
    /// What the program finds on its stdin.
    pub stdin: Stdin,
    /// Whether the program has our terminal.
    pub tty: bool,
    /// How many bytes of both streams together are kept.
    pub max: usize,
    /// Takes all of both streams as they come.
    pub live: Option<Outlet>,
}

/// A running container's output and end.
#[derive(Debug)]
pub struct Attached {
    captures: Arc<Mutex<(Capture, Capture)>>,
    reader: JoinHandle<()>,
    closed: Arc<OnceLock<SystemTime>>,
    pace: watch::Sender<Pace>,
    writer: Option<JoinHandle<()>>,
    /// Tells the container of the size of our window.
    resizer: Option<JoinHandle<()>>,
    exit: JoinHandle<()>,
}

/// How long the reader may wait for room in our own output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As long as it takes: the program waits, too.
    Program,
    /// Until then; what comes later is dropped.
    Until(Instant),
    /// Not at all: the program has ended, and what the engine still holds is taken at once.
    Ended,
}

impl Attached {
    /// Takes the streams of a container that was started. `init` is its first process, where the engine named it.
    pub(super) fn new(
        streams: Streams,
        output: Stdio,
        init: Option<Process>,
        exit: JoinHandle<()>,
        resizer: Option<JoinHandle<()>>,
    ) -> Self {
        let capture = || Capture::new(output.max / 2);
        let captures = Arc::new(Mutex::new((capture(), capture())));
        let writer = match output.stdin {
            Stdin::Closed => None,
            Stdin::Ours => Some(tokio::spawn(write(streams.input, input::read()))),
        };
        let closed = Arc::new(OnceLock::new());
        let (pace, paced) = watch::channel(Pace::Program);
        let (kept, ended) = (Arc::clone(&captures), Arc::clone(&closed));
        let live = output.live.map(|outlet| Live::new(outlet, init, paced));
        let reader = tokio::spawn(async move {
            read(streams.output, kept, live).await;
            // Nothing takes our keys any more. If the engine is gone, Ctrl-C is the way out.
            tty::take_keys();
            let _ = ended.set(SystemTime::now());
        });
        Self { captures, reader, closed, pace, writer, resizer, exit }
    }

    /// Waits until the container has ended, or has closed its output, which mostly is the same. Cancel-safe.
    pub async fn stirred(&mut self) {
        tokio::select! {
            _ = &mut self.exit, if !self.exit.is_finished() => {}
            _ = &mut self.reader, if !self.reader.is_finished() => {}
            else => std::future::pending().await,
        }
    }

    /// When the output ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<SystemTime> {
        self.closed.get().copied()
    }

    /// The program is about to be stopped: from then on nothing waits for our own output longer than this.
    pub fn stop_waiting(&self, within: Duration) {
        self.pace.send_replace(Pace::Until(Instant::now() + within));
    }

    /// Waits until all output of a program that has ended was read. Cancel-safe.
    pub async fn drained(&mut self) {
        self.pace.send_replace(Pace::Ended);
        if !self.reader.is_finished() {
            let _ = (&mut self.reader).await;
        }
    }

    /// Lets go of the streams, and returns what was kept: stdout, stderr.
    #[must_use]
    pub fn finish(self) -> (Captured, Captured) {
        self.reader.abort();
        self.exit.abort();
        self.writer.iter().chain(&self.resizer).for_each(JoinHandle::abort);
        let (out, err) = self.captures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (out.finish(), err.finish())
    }
}

/// Passes our stdin on, and its end. A program that does not read holds this up, and nothing else.
async fn write(mut input: impl AsyncWrite + Unpin, mut pieces: mpsc::Receiver<Bytes>) {
    while let Some(piece) = pieces.recv().await {
        if input.write_all(&piece).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
    let _ = input.shutdown().await;
}

/// Gives a container's terminal the size of our window.
pub(super) async fn resize(docker: &Docker, name: &str) {
    let Some(size) = tty::size() else { return };
    let options = ResizeContainerTTYOptionsBuilder::new().h(size.rows.into()).w(size.columns.into()).build();
    // A container that has ended has no terminal; its end is found elsewhere.
    let _ = timeout(RESIZE, docker.resize_container_tty(name, options)).await;
}

/// Does the same each time that our window changes.
pub(super) async fn follow_size(docker: Docker, name: String, mut changes: Signal) {
    while changes.recv().await.is_some() {
        resize(&docker, &name).await;
    }
}

async fn read(
    mut output: impl Stream<Item = Piece> + Unpin,
    captures: Arc<Mutex<(Capture, Capture)>>,
    mut live: Option<Live>,
) {
    while let Some(piece) = output.next().await {
        {
            let mut captures = captures.lock().unwrap_or_else(PoisonError::into_inner);
            match &piece {
                Piece::Out(bytes) => captures.0.push(bytes),
                Piece::Err(bytes) => captures.1.push(bytes),
            };
        }
        if let Some(live) = &mut live {
            live.pass(&piece).await;
        }
    }
}

/// Passes output on, and decides what happens to it when our own output is slow.
struct Live {
    outlet: Outlet,
    init: Option<Process>,
    /// Whether `init` was seen to have ended.
    has_ended: bool,
    pace: watch::Receiver<Pace>,
    next_look: Instant,
    /// How much may still be taken without room for it, once the program has ended.
    left: usize,
    /// Once a piece is missing, no later one follows it.
    is_cut: bool,
}

impl Live {
    fn new(outlet: Outlet, init: Option<Process>, pace: watch::Receiver<Pace>) -> Self {
        Self { outlet, init, has_ended: false, pace, next_look: Instant::now(), left: LEFT_MAX, is_cut: false }
    }

    async fn pass(&mut self, piece: &Piece) {
        while !self.is_cut {
            let pace = match *self.pace.borrow_and_update() {
                Pace::Program if self.has_ended => Pace::Ended,
                pace => pace,
            };
            if pace == Pace::Ended && self.left >= piece.len() {
                self.left -= piece.len();
                self.is_cut = !self.outlet.push(piece);
                return;
            }
            let until = if let Pace::Until(until) = pace { until } else { self.next_look };
            tokio::select! {
                biased;
                // Cancel-safe: a piece is taken when this is ready, and not before.
                is_taken = self.outlet.pass(piece) => {
                    self.is_cut = !is_taken;
                    return;
                }
                Ok(()) = self.pace.changed() => {}
                () = sleep_until(until) => match pace {
                    Pace::Until(_) => self.is_cut = true,
                    Pace::Program | Pace::Ended => self.look(),
                }
            }
        }
        self.outlet.drop_piece(piece);
    }

    /// Finds out by itself whether the program has ended: the engine only says so once its streams have.
    fn look(&mut self) {
        self.next_look = Instant::now() + LOOK_EVERY;
        // With the first process of a container all others end, so that nothing writes any more.
        self.has_ended |= self.init.as_ref().is_some_and(|init| !init.is_alive());
    }
}
