//! A program that an owner starts in a live sandbox.
//!
//! It runs as the run's own user, without privileges, in the limits of the container, and shares the sandbox with the agent:
//! its output may come from the agent. Its time and its output are bounded; output beyond the bound is counted and dropped,
//! so that a slow reader never holds the container.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sluice_contract::RunKey;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::blueprint::{container_name, identity};
use crate::engine::{EngineError, ExecSpec};
use crate::forward::OutputChunk;
use crate::host::Host;
use crate::plan::ContainerState;
use crate::rundir;

mod leftovers;
mod process_tree;
mod request;

pub use leftovers::end_leftovers;
use process_tree::ProcessTree;
use request::MARKER;
pub use request::{ExecRefused, ExecRequest};

/// Maximum number of bytes of output.
pub const OUTPUT_MAX: u64 = 8 << 20;
/// Prefix of the engine's text in place of the output of a program that it cannot start. It may name the container.
const ENGINE_ERROR: &[u8] = b"OCI runtime exec failed";
/// Maximum length of that text.
const ENGINE_ERROR_MAX: usize = 4 << 10;
/// Number of chunks of input that may wait for the program.
const INPUT_CHUNKS: usize = 16;
/// Time within which the engine starts a program, also on a busy machine. A program that starts later ends with the run.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Time between two looks at a program.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Time within which the engine reports the end of a program whose output has ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Reason why a program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The request breaks a rule.
    #[error(transparent)]
    Refused(#[from] ExecRefused),
    /// The run has no running program.
    #[error("run {0} has no running container")]
    NotRunning(RunKey),
    /// The engine did not start it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The user of the run cannot be read, for example because the run is over.
    #[error("cannot look up the user of the run")]
    User(#[source] io::Error),
}

/// A started program.
#[derive(Debug)]
pub struct RunningExec {
    /// Controls the program.
    pub control: ExecControl,
    /// Output of the program, bounded as a whole; it ends with the program.
    pub output: mpsc::UnboundedReceiver<OutputChunk>,
    /// End of the program. If this value is dropped, the program continues until its time limit.
    pub end: JoinHandle<ExecEnd>,
}

/// Controls a started program.
#[derive(Debug, Clone)]
pub struct ExecControl {
    host: Arc<Host>,
    id: String,
    input: mpsc::Sender<ExecInput>,
    cancel: watch::Sender<bool>,
}

#[derive(Debug)]
enum ExecInput {
    Bytes(Bytes),
    Close,
}

/// The reason why a program was ended before its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStop {
    /// The caller requested it.
    Cancelled,
    /// The time is over.
    TimedOut,
    /// The engine could not start it: the program or the directory does not exist.
    NotStarted,
}

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecEnd {
    /// Exit code, if the engine knows it.
    pub exit_code: Option<i64>,
    /// Reason why it was ended.
    pub stopped: Option<ExecStop>,
    /// Number of bytes of stdout and of stderr, including dropped bytes.
    pub bytes: [u64; 2],
    /// True if bytes were dropped.
    pub truncated: bool,
}

/// Starts a program in the container of a live run.
///
/// # Errors
/// [`ExecError`].
pub async fn start(host: &Arc<Host>, key: &RunKey, request: ExecRequest) -> Result<RunningExec, ExecError> {
    request.check()?;
    let found = host.engine.find(&container_name(key), &identity(key, &host.instance)).await?;
    let found = found.filter(|found| found.state == ContainerState::Running);
    let container = found.ok_or_else(|| ExecError::NotRunning(key.clone()))?;
    let uid = rundir::sandbox_uid(&host.layout.run(key)).map_err(ExecError::User)?;
    let marker = format!("{MARKER}={}", uuid::Uuid::new_v4().simple());
    let ExecRequest { argv, env, cwd, timeout, tty } = request;
    let mut env: Vec<String> = env.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push(marker.clone());
    let spec = ExecSpec { argv, env, cwd, uid, tty };
    let id = host.engine.create_exec(&container.id, &spec).await?;
    let tree = ProcessTree { init: container.init, marker: marker.into_bytes() };
    let streams = match host.engine.start_exec(&id, tty).await {
        Ok(streams) => streams,
        Err(error) => {
            // The program may have started even if the engine's answer is missing.
            tree.kill(None).await;
            return Err(error.into());
        }
    };
    let (input, chunks) = mpsc::channel(INPUT_CHUNKS);
    let writer = tokio::spawn(write(streams.input, chunks));
    let (sender, output) = mpsc::unbounded_channel();
    let (cancel, cancelled) = watch::channel(false);
    let driver = ExecDriver { host: Arc::clone(host), id: id.clone(), tree, timeout };
    let end = tokio::spawn(async move {
        let end = driver.drive(streams.output, sender, cancelled).await;
        writer.abort();
        end
    });
    Ok(RunningExec { control: ExecControl { host: Arc::clone(host), id, input, cancel }, output, end })
}

impl ExecControl {
    /// Passes bytes to the program's stdin, and waits while it has not read the earlier ones. Returns false if its stdin was
    /// closed, or it has ended. Cancel-safe: bytes that were not passed are not passed later.
    pub async fn write(&self, bytes: Bytes) -> bool {
        self.input.send(ExecInput::Bytes(bytes)).await.is_ok()
    }

    /// Closes the program's stdin after the passed bytes. Returns false as [`ExecControl::write`] does.
    pub async fn close_input(&self) -> bool {
        self.input.send(ExecInput::Close).await.is_ok()
    }

    /// Waits until the program's stdin is closed, or it has ended.
    pub async fn input_closed(&self) {
        self.input.closed().await;
    }

    /// Sets the size of the program's terminal.
    ///
    /// # Errors
    /// [`EngineError`], also without a terminal.
    pub async fn resize(&self, rows: u16, columns: u16) -> Result<(), EngineError> {
        self.host.engine.resize_exec(&self.id, rows, columns).await
    }

    /// Ends the program and what it has started.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }
}

/// Drives a started program to its end.
#[derive(Debug)]
struct ExecDriver {
    host: Arc<Host>,
    id: String,
    tree: ProcessTree,
    timeout: Duration,
}

impl ExecDriver {
    async fn drive(
        self,
        mut output: impl Stream<Item = OutputChunk> + Unpin,
        sender: mpsc::UnboundedSender<OutputChunk>,
        mut cancelled: watch::Receiver<bool>,
    ) -> ExecEnd {
        let mut counter = OutputCounter::default();
        let mut stopped = tokio::select! {
            () = counter.forward(&mut output, &sender) => None,
            () = tokio::time::sleep(self.timeout) => Some(ExecStop::TimedOut),
            // If the sender is gone, the program cannot be cancelled.
            Ok(_) = cancelled.wait_for(|cancelled| *cancelled) => Some(ExecStop::Cancelled),
        };
        if stopped.is_some() {
            let _ = tokio::time::timeout(START_WITHIN, self.kill()).await;
            let _ = tokio::time::timeout(END_WITHIN, counter.forward(&mut output, &sender)).await;
        }
        let exit_code = tokio::time::timeout(END_WITHIN, self.exit_code()).await.ok().flatten();
        if exit_code.is_none() && stopped.is_none() {
            // It has closed its output, or was detached from it, and would go on without a limit.
            let _ = tokio::time::timeout(START_WITHIN, self.kill()).await;
        }
        let held = std::mem::take(&mut counter.held);
        if !held.is_empty() && matches!(exit_code, Some(126..=128)) {
            stopped = stopped.or(Some(ExecStop::NotStarted));
        } else {
            counter.send(held, &sender);
        }
        ExecEnd { exit_code, stopped, bytes: counter.bytes, truncated: counter.forwarded < counter.bytes.iter().sum() }
    }

    /// Kills the program and what it has started. If the engine has not started it yet, this waits until it has.
    async fn kill(&self) {
        loop {
            // A container that was removed has no programs, and an engine that does not answer starts none.
            let state = self.host.engine.exec_state(&self.id).await.ok();
            self.tree.kill(state.as_ref().and_then(|state| state.pid)).await;
            if state.is_none_or(|state| state.pid.is_some() || state.exit_code.is_some()) {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the exit code: the output of a program can end before the program.
    async fn exit_code(&self) -> Option<i64> {
        loop {
            match self.host.engine.exec_state(&self.id).await {
                Ok(state) if state.exit_code.is_some() => return state.exit_code,
                // A container that was removed has no programs.
                Err(EngineError::Refused(_)) => return None,
                Ok(_) | Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
}

/// Maximum number of forwarded pieces of output.
const PIECES_MAX: u64 = 128 << 10;

/// Counts output, and forwards it up to the bounds.
#[derive(Debug, Default)]
struct OutputCounter {
    bytes: [u64; 2],
    forwarded: u64,
    /// Number of forwarded pieces: each costs additional memory while the client does not read.
    pieces: u64,
    /// First output, which may come from the engine and not from the program.
    held: Vec<OutputChunk>,
}

impl OutputCounter {
    /// Forwards output to its end. Cancel-safe.
    async fn forward(
        &mut self,
        output: &mut (impl Stream<Item = OutputChunk> + Unpin),
        sender: &mpsc::UnboundedSender<OutputChunk>,
    ) {
        while let Some(chunk) = output.next().await {
            let chunks = self.pass(chunk);
            self.send(chunks, sender);
        }
    }

    fn send(&mut self, chunks: Vec<OutputChunk>, sender: &mpsc::UnboundedSender<OutputChunk>) {
        for chunk in chunks {
            if let Some(chunk) = self.take(&chunk) {
                // If the caller is gone, the program continues.
                let _ = sender.send(chunk);
            }
        }
    }

    /// Returns the program's part of the output. Text that may come from the engine is held back until the exit code
    /// decides.
    fn pass(&mut self, chunk: OutputChunk) -> Vec<OutputChunk> {
        let is_engines = !self.held.is_empty() || bytes_of(&chunk).starts_with(ENGINE_ERROR);
        if self.bytes != [0, 0] || !is_engines {
            return vec![chunk];
        }
        self.held.push(chunk);
        let len: usize = self.held.iter().map(|chunk| bytes_of(chunk).len()).sum();
        if len > ENGINE_ERROR_MAX { std::mem::take(&mut self.held) } else { Vec::new() }
    }

    fn take(&mut self, chunk: &OutputChunk) -> Option<OutputChunk> {
        let (stream, bytes) = match chunk {
            OutputChunk::Stdout(bytes) => (0, bytes),
            OutputChunk::Stderr(bytes) => (1, bytes),
        };
        self.bytes[stream] += bytes.len() as u64;
        let left = if self.pieces < PIECES_MAX { OUTPUT_MAX - self.forwarded } else { 0 };
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        // A copy: a slice of a larger buffer would keep the whole buffer in memory.
        let bytes = Bytes::copy_from_slice(&bytes[..room]);
        self.forwarded += room as u64;
        self.pieces += u64::from(room > 0);
        let chunk = if stream == 0 { OutputChunk::Stdout(bytes) } else { OutputChunk::Stderr(bytes) };
        (room > 0).then_some(chunk)
    }
}

fn bytes_of(chunk: &OutputChunk) -> &Bytes {
    match chunk {
        OutputChunk::Stdout(bytes) | OutputChunk::Stderr(bytes) => bytes,
    }
}

async fn write(mut input: impl AsyncWrite + Unpin, mut chunks: mpsc::Receiver<ExecInput>) {
    while let Some(ExecInput::Bytes(bytes)) = chunks.recv().await {
        if input.write_all(&bytes).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
    let _ = input.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_bound_is_counted_and_dropped() {
        let mut counter = OutputCounter::default();
        let chunk = Bytes::from(vec![b'x'; 3 << 20]);
        let taken: Vec<_> = (0..4).filter_map(|_| counter.take(&OutputChunk::Stderr(chunk.clone()))).collect();
        let len = |chunk: &OutputChunk| bytes_of(chunk).len() as u64;
        assert_eq!(taken.iter().map(len).sum::<u64>(), OUTPUT_MAX);
        assert_eq!((counter.bytes, counter.forwarded), ([0, 12 << 20], OUTPUT_MAX));
    }

    #[test]
    fn small_pieces_have_a_bound_too() {
        let mut counter = OutputCounter::default();
        let byte = OutputChunk::Stdout(Bytes::from_static(b"x"));
        let taken = (0..=PIECES_MAX).filter_map(|_| counter.take(&byte)).count() as u64;
        assert_eq!((taken, counter.forwarded, counter.bytes), (PIECES_MAX, PIECES_MAX, [PIECES_MAX + 1, 0]));
    }

    #[test]
    fn words_of_the_engine_are_held_back() {
        let chunk = |text: &str| OutputChunk::Stdout(Bytes::copy_from_slice(text.as_bytes()));
        let mut counter = OutputCounter::default();
        assert!(counter.pass(chunk("OCI runtime exec failed: exec")).is_empty());
        assert!(counter.pass(chunk(" failed: no such file")).is_empty());
        assert_eq!(counter.pass(chunk(&"x".repeat(ENGINE_ERROR_MAX))).len(), 3, "they are never so long");
        let mut later = OutputCounter { bytes: [1, 0], ..OutputCounter::default() };
        assert_eq!(later.pass(chunk("OCI runtime exec failed")).len(), 1);
    }
}
