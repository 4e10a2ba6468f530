//! A program's output on its way to our own stdout and stderr: all of it, as it comes, in bounded memory.
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
use sluice_state::run::Cancel;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::terminal::SanitizedWriter;

/// How many bytes may wait to be written.
const ROOM: u32 = 1 << 20;

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Of stdout.
    Out(Bytes),
    /// Of stderr.
    Err(Bytes),
}

/// Why some of a program's output did not reach our stdout or stderr.
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
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A signal came while output was still waiting to be written.
    #[error("a signal came before all of the output was written")]
    Abandoned(Signal),
}

/// The sending half: takes output from the container's streams.
#[derive(Debug)]
pub struct Outlet {
    pieces: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct Printer {
    done: oneshot::Receiver<Result<(), ForwardError>>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Queued {
    piece: Piece,
    /// How much room goes back to the queue once it is written.
    room: u32,
}

/// A descriptor of ours. Other processes can set it to non-blocking, which is no reason to lose output.
struct Patient(File);

/// What becomes of bytes that would be orders to a terminal, where our stdout or stderr is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orders {
    /// They become blanks.
    SanitizedWriter,
    /// They pass: the program draws on the terminal.
    Passed,
}

/// Starts the thread. A failed write asks for the end of the run with SIGPIPE.
///
/// # Errors
/// When stdout or stderr cannot be duplicated.
pub fn start(orders: Orders, stop: watch::Sender<Option<Cancel>>) -> io::Result<(Outlet, Printer)> {
    let stdout = stream(io::stdout().as_fd().try_clone_to_owned()?, orders);
    let stderr = stream(io::stderr().as_fd().try_clone_to_owned()?, orders);
    Ok(start_with(stdout, stderr, stop))
}

fn start_with<O: Write + Send + 'static, E: Write + Send + 'static>(
    mut stdout: SanitizedWriter<O>,
    mut stderr: SanitizedWriter<E>,
    stop: watch::Sender<Option<Cancel>>,
) -> (Outlet, Printer) {
    let (sender, mut pieces) = mpsc::unbounded_channel::<Queued>();
    let (told, done) = oneshot::channel();
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let dropped = Arc::new(AtomicU64::new(0));
    let freed = Arc::clone(&room);
    std::thread::spawn(move || {
        let mut write = || -> Result<(), ForwardError> {
            while let Some(Queued { piece, room }) = pieces.blocking_recv() {
                match piece {
                    Piece::Out(bytes) => stdout.put(&bytes).map_err(|error| failed("stdout", error)),
                    Piece::Err(bytes) => stderr.put(&bytes).map_err(|error| failed("stderr", error)),
                }?;
                freed.add_permits(room as usize);
            }
            Ok(())
        };
        let written = write();
        if written.is_err() {
            // From here on the reader drops what it reads: the program must not wait for us.
            freed.close();
            stop.send_if_modified(|cancel| {
                cancel.is_none() && cancel.replace(Cancel { signal: Signal::SIGPIPE as i32 }).is_none()
            });
        }
        let _ = told.send(written);
    });
    (Outlet { pieces: sender, room, dropped: Arc::clone(&dropped) }, Printer { done, dropped })
}

fn stream(fd: OwnedFd, orders: Orders) -> SanitizedWriter<Patient> {
    let file = File::from(fd);
    let is_screened = orders == Orders::SanitizedWriter && file.is_terminal();
    let stream = Patient(file);
    if is_screened { SanitizedWriter::for_terminal(stream) } else { SanitizedWriter::for_pipe(stream) }
}

fn failed(stream: &'static str, source: io::Error) -> ForwardError {
    match source.kind() {
        io::ErrorKind::BrokenPipe => ForwardError::Closed(stream),
        _ => ForwardError::Write { stream, source },
    }
}

impl Outlet {
    /// Takes a piece as soon as there is room for it; false when nothing can be written any more. Cancel-safe: until it
    /// returns true, nothing was taken.
    pub async fn pass(&self, piece: &Piece) -> bool {
        // A piece that is larger than the queue goes alone.
        let room = u32::try_from(piece.len()).unwrap_or(ROOM).min(ROOM);
        match self.room.acquire_many(room).await {
            Ok(permit) => {
                permit.forget();
                self.send(piece, room)
            }
            Err(_) => false,
        }
    }

    /// Takes a piece at once, however much is waiting; false when nothing can be written any more.
    pub fn push(&self, piece: &Piece) -> bool {
        !self.room.is_closed() && self.send(piece, 0)
    }

    /// Counts a piece that will not be written.
    pub fn drop_piece(&self, piece: &Piece) {
        self.dropped.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }

    fn send(&self, piece: &Piece, room: u32) -> bool {
        self.pieces.send(Queued { piece: piece.clone(), room }).is_ok()
    }
}

impl Printer {
    /// Waits until everything is written, or until `signal` comes. Every [`Outlet`] must be dropped first.
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

    /// The number of bytes that were dropped since the run was stopped while nobody read its output.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Piece {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Out(bytes) | Self::Err(bytes) => bytes.len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ForwardError {
    /// The exit code of a run that ends because of it: what a shell shows of a program that SIGPIPE ended, EX_IOERR of
    /// `sysexits.h`, or 128 plus the signal.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Closed(_) => 128 + Signal::SIGPIPE as i32,
            Self::Write { .. } => 74,
            Self::Abandoned(signal) => 128 + *signal as i32,
        }
    }
}

impl Write for Patient {
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

    fn out(bytes: usize) -> Piece {
        Piece::Out(vec![b'x'; bytes].into())
    }

    async fn never() -> Signal {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_sender_waits_while_nobody_reads() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair of sockets");
        let (outlet, mut printer) = start_with(
            SanitizedWriter::for_pipe(writer),
            SanitizedWriter::for_pipe(io::sink()),
            watch::channel(None).0,
        );
        let (piece, mut sent) = (out(32 << 10), 0_u64);

        while timeout(Duration::from_millis(200), outlet.pass(&piece)).await == Ok(true) {
            sent += piece.len() as u64;
        }
        let blocked = sent;
        let drained = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        assert!(outlet.pass(&piece).await && outlet.push(&piece));
        drop(outlet);

        assert!(printer.finish(never()).await.is_ok());
        drop(printer);
        assert!((u64::from(ROOM)..4 * u64::from(ROOM)).contains(&blocked), "{blocked}");
        let read = drained.join().expect("the thread ends").expect("a socket can be read");
        assert_eq!(read, blocked + 2 * piece.len() as u64);
    }

    #[tokio::test]
    async fn a_write_that_fails_stops_the_run() {
        for (source, code) in [(io::ErrorKind::BrokenPipe, 141), (io::ErrorKind::StorageFull, 74)] {
            struct Broken(io::ErrorKind);
            impl Write for Broken {
                fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                    Err(self.0.into())
                }
                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let (stop, mut stopped) = watch::channel(None);
            let (outlet, mut printer) =
                start_with(SanitizedWriter::for_pipe(Broken(source)), SanitizedWriter::for_pipe(io::sink()), stop);

            assert!(outlet.pass(&out(1)).await);
            stopped.changed().await.expect("the printer stops the run");

            assert_eq!(*stopped.borrow(), Some(Cancel { signal: 13 }));
            assert!(!outlet.pass(&out(1)).await && !outlet.push(&out(1)));
            assert_eq!(printer.finish(never()).await.expect_err("it failed").exit_code(), code);
        }
    }

    #[tokio::test]
    async fn a_signal_ends_the_wait_for_a_reader() {
        let (_reader, writer) = UnixStream::pair().expect("a pair of sockets");
        let (outlet, mut printer) = start_with(
            SanitizedWriter::for_pipe(writer),
            SanitizedWriter::for_pipe(io::sink()),
            watch::channel(None).0,
        );
        assert!(outlet.push(&out(4 << 20)));
        drop(outlet);

        let ended = printer.finish(std::future::ready(Signal::SIGINT)).await;

        assert_eq!(ended.expect_err("it was not written").exit_code(), 130);
    }
}
