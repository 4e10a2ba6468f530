//! Forwards a program's output to our own stdout and stderr: completely, immediately, in bounded memory.
//!
//! One thread writes, since a write to a pipe or a terminal can block for ever. The reader of the container's streams
//! waits for room in the queue, so that a slow reader of ours slows the program down. A failed write ends the run.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use sluice_contract::exit;
use sluice_state::run::Cancel;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::terminal::SanitizedWriter;

/// Maximum number of bytes that wait to be written.
const QUEUE_MAX: u32 = 1 << 20;

/// A part of a program's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputChunk {
    /// Bytes of stdout.
    Stdout(Bytes),
    /// Bytes of stderr.
    Stderr(Bytes),
}

/// Reason why a part of a program's output did not reach our stdout or stderr.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The other end of a pipe was closed.
    #[error("the reader of {0} is gone, so the run was stopped")]
    Closed(&'static str),
    /// Another error, such as a full disk.
    #[error("cannot write to {stream}, so the run was stopped")]
    Write {
        /// The stream: stdout or stderr.
        stream: &'static str,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// A signal came while output was still waiting to be written.
    #[error("a signal came before all of the output was written")]
    Abandoned(Signal),
}

/// Takes output from the container's streams.
#[derive(Debug)]
pub struct OutputSender {
    chunks: mpsc::UnboundedSender<QueuedChunk>,
    room: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
}

/// Waits for the thread that writes.
#[derive(Debug)]
pub struct Printer {
    done: oneshot::Receiver<Result<(), ForwardError>>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
struct QueuedChunk {
    chunk: OutputChunk,
    /// Number of bytes that the queue can take again once this is written.
    room: u32,
}

/// A descriptor of ours. Another process can make it non-blocking; a write waits nevertheless.
struct BlockingWriter(File);

/// Treatment of control sequences, where our stdout or stderr is a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlSequences {
    /// Each control character becomes a space.
    Replaced,
    /// Unchanged: the program draws on the terminal.
    Passed,
}

/// Starts the thread. A failed write requests the end of the run with SIGPIPE.
///
/// # Errors
/// When stdout or stderr cannot be duplicated.
pub fn start(controls: ControlSequences, stop: watch::Sender<Option<Cancel>>) -> io::Result<(OutputSender, Printer)> {
    let stdout = stream(io::stdout().as_fd().try_clone_to_owned()?, controls);
    let stderr = stream(io::stderr().as_fd().try_clone_to_owned()?, controls);
    Ok(start_with(stdout, stderr, stop))
}

pub(crate) fn start_with<O: Write + Send + 'static, E: Write + Send + 'static>(
    mut stdout: SanitizedWriter<O>,
    mut stderr: SanitizedWriter<E>,
    stop: watch::Sender<Option<Cancel>>,
) -> (OutputSender, Printer) {
    let (queue, mut chunks) = mpsc::unbounded_channel::<QueuedChunk>();
    let (result, done) = oneshot::channel();
    let room = Arc::new(Semaphore::new(QUEUE_MAX as usize));
    let dropped = Arc::new(AtomicU64::new(0));
    let freed = Arc::clone(&room);
    std::thread::spawn(move || {
        let mut write = || -> Result<(), ForwardError> {
            while let Some(QueuedChunk { chunk, room }) = chunks.blocking_recv() {
                match chunk {
                    OutputChunk::Stdout(bytes) => stdout.put(&bytes).map_err(|error| failed("stdout", error)),
                    OutputChunk::Stderr(bytes) => stderr.put(&bytes).map_err(|error| failed("stderr", error)),
                }?;
                freed.add_permits(room as usize);
            }
            Ok(())
        };
        let written = write();
        if written.is_err() {
            // From here on the reader drops output: the program must not wait for us.
            freed.close();
            stop.send_if_modified(|cancel| {
                cancel.is_none() && cancel.replace(Cancel { signal: Signal::SIGPIPE as i32 }).is_none()
            });
        }
        let _ = result.send(written);
    });
    (OutputSender { chunks: queue, room, dropped: Arc::clone(&dropped) }, Printer { done, dropped })
}

fn stream(fd: OwnedFd, controls: ControlSequences) -> SanitizedWriter<BlockingWriter> {
    let file = File::from(fd);
    let is_sanitized = controls == ControlSequences::Replaced && file.is_terminal();
    let stream = BlockingWriter(file);
    if is_sanitized { SanitizedWriter::for_terminal(stream) } else { SanitizedWriter::for_pipe(stream) }
}

fn failed(stream: &'static str, source: io::Error) -> ForwardError {
    match source.kind() {
        io::ErrorKind::BrokenPipe => ForwardError::Closed(stream),
        _ => ForwardError::Write { stream, source },
    }
}

impl OutputSender {
    /// Takes a chunk as soon as there is room for it; false when no output can be written any more. Cancel-safe: until
    /// it returns true, the chunk was not taken.
    pub async fn send(&self, chunk: &OutputChunk) -> bool {
        // A chunk that is larger than the queue is queued alone.
        let room = u32::try_from(chunk.len()).unwrap_or(QUEUE_MAX).min(QUEUE_MAX);
        match self.room.acquire_many(room).await {
            Ok(permit) => {
                permit.forget();
                self.enqueue(chunk, room)
            }
            Err(_) => false,
        }
    }

    /// Takes a chunk at once, even if the queue is full; false when no output can be written any more.
    pub fn send_now(&self, chunk: &OutputChunk) -> bool {
        !self.room.is_closed() && self.enqueue(chunk, 0)
    }

    /// Counts a chunk that will not be written.
    pub fn count_dropped(&self, chunk: &OutputChunk) {
        self.dropped.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }

    fn enqueue(&self, chunk: &OutputChunk, room: u32) -> bool {
        self.chunks.send(QueuedChunk { chunk: chunk.clone(), room }).is_ok()
    }
}

impl Printer {
    /// Waits until everything is written, or until `signal` comes. Every [`OutputSender`] must be dropped first.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn finish(&mut self, signal: impl Future<Output = Signal>) -> Result<(), ForwardError> {
        tokio::select! {
            biased;
            written = &mut self.done => written.unwrap_or(Ok(())),
            signal = signal => Err(ForwardError::Abandoned(signal)),
        }
    }

    /// Returns the number of bytes that were dropped because the run was stopped and its output was not read.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl OutputChunk {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Stdout(bytes) | Self::Stderr(bytes) => bytes.len(),
        }
    }

    /// Returns true if the chunk has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ForwardError {
    /// Returns the exit code of a run that ends for this reason: 128 plus SIGPIPE as in a shell, EX_IOERR of `sysexits.h`,
    /// or 128 plus the signal.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Closed(_) => 128 + Signal::SIGPIPE as i32,
            Self::Write { .. } => i32::from(exit::OUTPUT_FAILED),
            Self::Abandoned(signal) => 128 + *signal as i32,
        }
    }
}

impl Write for BlockingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut wanted = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut wanted, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn out(bytes: usize) -> OutputChunk {
        OutputChunk::Stdout(vec![b'x'; bytes].into())
    }

    async fn never() -> Signal {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_sender_waits_for_a_reader() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair of sockets");
        let (sender, mut printer) = start_with(
            SanitizedWriter::for_pipe(writer),
            SanitizedWriter::for_pipe(io::sink()),
            watch::channel(None).0,
        );
        let (chunk, mut sent) = (out(32 << 10), 0_u64);

        while timeout(Duration::from_millis(200), sender.send(&chunk)).await == Ok(true) {
            sent += chunk.len() as u64;
        }
        let blocked = sent;
        let drained = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        assert!(sender.send(&chunk).await && sender.send_now(&chunk));
        drop(sender);

        assert!(printer.finish(never()).await.is_ok());
        drop(printer);
        assert!((u64::from(QUEUE_MAX)..4 * u64::from(QUEUE_MAX)).contains(&blocked), "{blocked}");
        let read = drained.join().expect("the thread ends").expect("a socket can be read");
        assert_eq!(read, blocked + 2 * chunk.len() as u64);
    }

    #[tokio::test]
    async fn a_write_that_fails_stops_the_run() {
        for (source, code) in [(io::ErrorKind::BrokenPipe, 141), (io::ErrorKind::StorageFull, 74)] {
            struct FailingWriter(io::ErrorKind);
            impl Write for FailingWriter {
                fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                    Err(self.0.into())
                }
                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let (stop, mut stopped) = watch::channel(None);
            let (sender, mut printer) = start_with(
                SanitizedWriter::for_pipe(FailingWriter(source)),
                SanitizedWriter::for_pipe(io::sink()),
                stop,
            );

            assert!(sender.send(&out(1)).await);
            stopped.changed().await.expect("the printer stops the run");

            assert_eq!(*stopped.borrow(), Some(Cancel { signal: 13 }));
            assert!(!sender.send(&out(1)).await && !sender.send_now(&out(1)));
            assert_eq!(printer.finish(never()).await.expect_err("it failed").exit_code(), code);
        }
    }

    #[tokio::test]
    async fn a_signal_ends_the_wait_for_a_reader() {
        let (_reader, writer) = UnixStream::pair().expect("a pair of sockets");
        let (sender, mut printer) = start_with(
            SanitizedWriter::for_pipe(writer),
            SanitizedWriter::for_pipe(io::sink()),
            watch::channel(None).0,
        );
        assert!(sender.send_now(&out(4 << 20)));
        drop(sender);

        let ended = printer.finish(std::future::ready(Signal::SIGINT)).await;

        assert_eq!(ended.expect_err("it was not written").exit_code(), 130);
    }
}
