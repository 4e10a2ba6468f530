//! A running container with its streams.
//!
//! A reader that stalls makes a container unkillable: the engine waits for it before it reports any end. So the reader
//! only waits for room in our own output while the program runs and no stop is requested.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::attach::ContainerStreams;
use super::live_output::{ForwardWait, InitProcess, LiveOutput};
use super::task_end::TaskEnd;
use crate::capture::{Capture, Captured};
use crate::forward::{OutputChunk, OutputSender};
use crate::input::{self, Stdin};
use crate::output_record::OutputRecorder;
use crate::tty;

/// Source of a container's input, and receivers of its output.
#[derive(Debug)]
pub struct StdioConfig {
    /// Source of the program's stdin.
    pub stdin: Stdin,
    /// True if the program gets the terminal of this process.
    pub tty: bool,
    /// Maximum number of bytes to capture of both streams together.
    pub max: usize,
    /// Receives both streams completely, as they come.
    pub live: Option<OutputSender>,
    /// Receives a copy of both streams for the record of the run.
    pub record: Option<OutputRecorder>,
}

/// A running container's output and end.
#[derive(Debug)]
pub struct AttachedContainer {
    captures: Arc<Mutex<(Capture, Capture)>>,
    reader: TaskEnd,
    closed: Arc<OnceLock<SystemTime>>,
    wait: watch::Sender<ForwardWait>,
    writer: Option<JoinHandle<()>>,
    /// Task that follows the size of our window.
    resizer: Option<JoinHandle<()>>,
    exit: TaskEnd,
}

impl AttachedContainer {
    /// Takes the streams of a container that was started. `init` is set once the engine has told its first process.
    pub(super) fn new(
        streams: ContainerStreams,
        output: StdioConfig,
        init: Arc<OnceLock<InitProcess>>,
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
        let (wait, waits) = watch::channel(ForwardWait::Unlimited);
        let (captured, ended) = (Arc::clone(&captures), Arc::clone(&closed));
        let record = output.record;
        let live = output.live.map(|sender| LiveOutput::new(sender, init, waits));
        let reader = tokio::spawn(async move {
            read(streams.output, captured, record, live).await;
            // The program no longer reads keys. If the engine is gone, only Ctrl-C ends this process.
            tty::leave_raw_mode();
            let _ = ended.set(SystemTime::now());
        });
        let (reader, exit) = (TaskEnd::of(reader), TaskEnd::of(exit));
        Self { captures, reader, closed, wait, writer, resizer, exit }
    }

    /// Waits until the container has ended or has closed its output. Both mostly happen together; the call returns once
    /// for each. Cancel-safe.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.exit.reported() => {}
            () = self.reader.reported() => {}
        }
    }

    /// Returns the time at which the output ended, if it has.
    #[must_use]
    pub fn closed(&self) -> Option<SystemTime> {
        self.closed.get().copied()
    }

    /// Limits the wait for our own output from now on, since the program is about to be stopped.
    pub fn stop_waiting(&self, within: Duration) {
        self.wait.send_replace(ForwardWait::Until(Instant::now() + within));
    }

    /// Waits until all output of a program that has ended was read. Cancel-safe.
    pub async fn drained(&mut self) {
        self.wait.send_replace(ForwardWait::Skip);
        self.reader.ended().await;
    }

    /// Closes the streams, and returns captured stdout and stderr.
    #[must_use]
    pub fn finish(self) -> (Captured, Captured) {
        self.reader.abort();
        self.exit.abort();
        self.writer.iter().chain(&self.resizer).for_each(JoinHandle::abort);
        let (out, err) = self.captures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (out.finish(), err.finish())
    }
}

/// Forwards our stdin and its end. A program that does not read delays this task only.
async fn write(mut input: impl AsyncWrite + Unpin, mut chunks: mpsc::Receiver<Bytes>) {
    while let Some(chunk) = chunks.recv().await {
        if input.write_all(&chunk).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
    let _ = input.shutdown().await;
}

async fn read(
    mut output: impl Stream<Item = OutputChunk> + Unpin,
    captures: Arc<Mutex<(Capture, Capture)>>,
    record: Option<OutputRecorder>,
    mut live: Option<LiveOutput>,
) {
    while let Some(chunk) = output.next().await {
        {
            let mut captures = captures.lock().unwrap_or_else(PoisonError::into_inner);
            match &chunk {
                OutputChunk::Stdout(bytes) => captures.0.push(bytes),
                OutputChunk::Stderr(bytes) => captures.1.push(bytes),
            };
        }
        if let Some(record) = &record {
            record.record(&chunk);
        }
        if let Some(live) = &mut live {
            live.forward(&chunk).await;
        }
    }
}
