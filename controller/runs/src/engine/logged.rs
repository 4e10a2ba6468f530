//! A running container whose output is read from the engine's log.
//!
//! Nothing waits for the reader, so a controller may be killed and another one continues. Each pass reads the log from its
//! first line and skips the part that was taken already. A pass that follows can miss a last line without a newline, so
//! the last pass, after the end of the program, does not follow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::LogsOptionsBuilder;
use futures_util::{Stream, StreamExt, TryStreamExt};
use sluice_state::records::{LoggedBytes, OutputLog, RecordedStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::log_frames::{LogDecoder, LogPiece};
use super::task_end::TaskEnd;
use crate::capture::{Capture, Captured};

/// Maximum number of frames that are taken together.
const FRAMES_AT_ONCE: usize = 256;
/// Time between two passes, when the engine has ended one.
const PASS_AGAIN: Duration = Duration::from_millis(100);
/// Maximum difference of the times of frames that are stored as one piece.
const SAME_TIME_US: i64 = 10_000;
/// Maximum length of such a piece.
const PIECE_MAX: usize = 32 << 10;

/// Receivers of a container's logged output.
#[derive(Debug)]
pub struct LogConfig {
    /// Maximum number of bytes to capture of both streams together.
    pub max: usize,
    /// Size of the engine's log. Beyond it the engine removes output.
    pub log_max: u64,
    /// Stores the output. It may already have a part of the output.
    pub record: Option<OutputLog>,
}

/// Reason why output at the end is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLoss {
    /// The program wrote more than the engine's log holds.
    Full,
    /// The last pass did not end in time.
    Late,
}

/// A running container, its output so far, and its end.
#[derive(Debug)]
pub struct LoggedContainer {
    sink: Arc<Mutex<LogSink>>,
    reader: JoinHandle<()>,
    exit: TaskEnd,
    has_ended: watch::Sender<bool>,
}

/// Takes output in any number of passes.
#[derive(Debug)]
struct LogSink {
    captures: [Capture; 2],
    /// Number of captured bytes of each stream.
    seen: [u64; 2],
    record: Option<OutputLog>,
    record_error: Option<String>,
    /// Stream and time of the first frame.
    first: Option<(RecordedStream, i64)>,
    log_max: u64,
    loss: Option<LogLoss>,
}

impl LoggedContainer {
    /// Reads the log of a container until [`LoggedContainer::drained`].
    pub(super) fn new(docker: Docker, id: String, config: LogConfig, exit: JoinHandle<()>) -> Self {
        let LogConfig { max, log_max, record } = config;
        let sink = Arc::new(Mutex::new(LogSink {
            captures: [Capture::new(max / 2), Capture::new(max / 2)],
            seen: [0; 2],
            first: record.as_ref().and_then(OutputLog::first),
            record,
            record_error: None,
            log_max,
            loss: None,
        }));
        let (has_ended, ended) = watch::channel(false);
        let reader = tokio::spawn(read(docker, id, Arc::clone(&sink), ended));
        Self { sink, reader, exit: TaskEnd::of(exit), has_ended }
    }

    /// Waits until the container may have ended; returns once. Cancel-safe.
    pub async fn changed(&mut self) {
        self.exit.reported().await;
    }

    /// Reads the rest of the output of a program that has ended, but no longer than this.
    pub async fn drained(&mut self, limit: Duration) {
        self.has_ended.send_replace(true);
        if !self.reader.is_finished() && tokio::time::timeout(limit, &mut self.reader).await.is_err() {
            lock(&self.sink).loss.get_or_insert(LogLoss::Late);
        }
    }

    /// Returns captured stdout and stderr, the reason why output is missing, and the error of the record.
    #[must_use]
    pub fn finish(self) -> (Captured, Captured, Option<LogLoss>, Option<String>) {
        self.reader.abort();
        let mut sink = lock(&self.sink);
        sink.record = None;
        let [out, err] = sink.captures.clone();
        (out.finish(), err.finish(), sink.loss, sink.record_error.take())
    }
}

impl Drop for LoggedContainer {
    fn drop(&mut self) {
        self.reader.abort();
        self.exit.abort();
    }
}

impl LogSink {
    /// Returns false if the first frame of a pass or the size of the log shows that the engine may have removed the
    /// beginning of the log.
    fn can_continue(&mut self, first: Option<&LogPiece>, size: u64) -> bool {
        let is_same = first
            .map(|piece| (piece.stream, piece.time_us))
            .is_none_or(|found| *self.first.get_or_insert(found) == found);
        if !is_same || size >= self.log_max {
            self.loss = Some(LogLoss::Full);
        }
        self.loss.is_none()
    }

    fn take(&mut self, piece: &LogPiece) {
        let stream = piece.stream as usize;
        let skip = usize::try_from(self.seen[stream].saturating_sub(piece.offset)).unwrap_or(usize::MAX);
        let new = piece.bytes.get(skip..).unwrap_or_default();
        self.captures[stream].push(new);
        self.seen[stream] += new.len() as u64;
        if let Some(record) = &mut self.record {
            let LogPiece { stream, offset, time_us, ref bytes } = *piece;
            if let Err(error) = record.append(LoggedBytes { stream, offset, time_us, bytes }) {
                self.record_error = Some(error.to_string());
                self.record = None;
            }
        }
    }
}

fn lock(sink: &Mutex<LogSink>) -> MutexGuard<'_, LogSink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the log until the container has ended, then once more.
async fn read(docker: Docker, id: String, sink: Arc<Mutex<LogSink>>, mut ended: watch::Receiver<bool>) {
    loop {
        // If the sender is gone, the reader ends too.
        let is_complete = tokio::select! {
            is_complete = pass(&docker, &id, true, &sink) => is_complete,
            _ = ended.wait_for(|ended| *ended) => break,
        };
        if is_complete {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(PASS_AGAIN) => {}
            _ = ended.wait_for(|ended| *ended) => break,
        }
    }
    while !pass(&docker, &id, false, &sink).await {
        tokio::time::sleep(PASS_AGAIN).await;
    }
}

/// Reads the log once. Returns true if no other pass can add anything.
async fn pass(docker: &Docker, id: &str, follow: bool, sink: &Arc<Mutex<LogSink>>) -> bool {
    let options = LogsOptionsBuilder::new().stdout(true).stderr(true).timestamps(true).follow(follow).build();
    let mut is_gone = false;
    let frames = docker.logs(id, Some(options)).inspect_err(|error| {
        is_gone = matches!(error, Error::DockerResponseServerError { status_code: 404, .. });
    });
    // Of a container that was removed, nothing more can be read.
    take_all(frames, follow, sink).await || is_gone
}

async fn take_all<E>(
    frames: impl Stream<Item = Result<LogOutput, E>>,
    follow: bool,
    sink: &Arc<Mutex<LogSink>>,
) -> bool {
    let mut batches = std::pin::pin!(frames.ready_chunks(FRAMES_AT_ONCE));
    let mut decoder = LogDecoder::default();
    let mut is_first = true;
    while let Some(batch) = batches.next().await {
        let count = batch.len();
        let pieces: Vec<LogPiece> = batch.into_iter().map_while(|frame| decode(&mut decoder, frame.ok()?)).collect();
        let is_broken = pieces.len() < count;
        let first = pieces.first().filter(|_| std::mem::take(&mut is_first));
        if !lock(sink).can_continue(first, decoder.size()) {
            return true;
        }
        store(sink, pieces).await;
        if is_broken {
            return false;
        }
    }
    !follow
}

/// Decodes a frame. Anything but a line of the program is an error of the engine: another pass begins.
fn decode(decoder: &mut LogDecoder, frame: LogOutput) -> Option<LogPiece> {
    match frame {
        LogOutput::StdOut { message } => decoder.take(RecordedStream::Stdout, &message).ok(),
        LogOutput::StdErr { message } => decoder.take(RecordedStream::Stderr, &message).ok(),
        LogOutput::StdIn { .. } | LogOutput::Console { .. } => None,
    }
}

/// Stores pieces on another thread, because a disk can be slow. The thread completes its work even if no task waits for it.
async fn store(sink: &Arc<Mutex<LogSink>>, pieces: Vec<LogPiece>) {
    let sink = Arc::clone(sink);
    let stored = tokio::task::spawn_blocking(move || {
        let mut sink = lock(&sink);
        joined(pieces).iter().for_each(|piece| sink.take(piece));
    });
    let _ = stored.await;
}

/// Joins consecutive pieces of one stream, so that short lines are stored together.
fn joined(pieces: Vec<LogPiece>) -> Vec<LogPiece> {
    let mut joined: Vec<LogPiece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last)
                if last.stream == piece.stream
                    && last.bytes.len() + piece.bytes.len() <= PIECE_MAX
                    && piece.time_us.abs_diff(last.time_us) <= SAME_TIME_US.unsigned_abs() =>
            {
                last.bytes.extend(piece.bytes);
            }
            _ => joined.push(piece),
        }
    }
    joined.retain(|piece| !piece.bytes.is_empty());
    joined
}

#[cfg(test)]
mod tests;
