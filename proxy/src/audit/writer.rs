//! The writer thread: one write a record, one sync for all that are queued, then their acknowledgements.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// Where lines go. A trait, so that tests can put faults there.
pub trait Sink: Send {
    /// Appends one record, whole or not at all.
    ///
    /// # Errors
    /// Any error poisons the log.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// Any error poisons the log; a sync is never tried again, since Linux marks the pages clean.
    fn sync(&mut self) -> io::Result<()>;

    /// Gives back what was reserved and is not needed: nothing more will be appended.
    ///
    /// # Errors
    /// The system's; nothing is lost by it.
    fn trim(&mut self) -> io::Result<()>;
}

/// The log takes no more records, and says so for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct Poisoned;

/// Resolves when a record is as durable as it has to be.
#[derive(Debug)]
#[must_use = "a record counts once it is acknowledged"]
pub enum Ack {
    /// It is, or never will be.
    Known(Result<(), Poisoned>),
    /// The writer will tell.
    Waiting(oneshot::Receiver<Result<(), Poisoned>>),
}

impl Future for Ack {
    type Output = Result<(), Poisoned>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let known = match &mut *self {
            Self::Known(known) => *known,
            // A writer that is gone has written nothing.
            Self::Waiting(waiting) => ready!(Pin::new(waiting).poll(cx)).unwrap_or(Err(Poisoned)),
        };
        *self = Self::Known(known);
        Poll::Ready(known)
    }
}

/// Whether a record was lost: once set, it stays.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison(Arc<AtomicBool>);

impl Poison {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, error: &io::Error) -> Poisoned {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "the audit log cannot be written: every further call is refused; free the disk and start a new attempt");
        }
        Poisoned
    }
}

struct Job {
    line: Vec<u8>,
    ack: oneshot::Sender<Result<(), Poisoned>>,
}

/// Where the journal puts its lines.
pub(super) enum Out {
    /// Written at once, by whoever comes.
    Here(Box<dyn Sink>),
    /// Written by a thread.
    Thread(Writer),
    Closed,
}

pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<u64>,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here(_) => "Here",
            Self::Thread(_) => "Thread",
            Self::Closed => "Closed",
        })
    }
}

impl Out {
    /// Starts the thread that owns the sink from now on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn thread(sink: Box<dyn Sink>, poison: &Poison) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let poison = poison.clone();
        let write = move || write_in_groups(sink, &queue, &poison);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(write)?;
        Ok(Self::Thread(Writer { jobs, thread }))
    }

    pub(super) fn append(&mut self, line: Vec<u8>, poison: &Poison) -> Ack {
        match self {
            Self::Here(sink) => Ack::Known(sink.append(&line).map_err(|error| poison.set(&error))),
            Self::Thread(writer) => {
                // Not bounded here, because its senders are: each open call has two records at most, each
                // connection one refusal, and each waits for its own.
                let (ack, waiting) = oneshot::channel();
                let sent = writer.jobs.send(Job { line, ack });
                if sent.is_ok() { Ack::Waiting(waiting) } else { Ack::Known(Err(Poisoned)) }
            }
            Self::Closed => Ack::Known(Err(Poisoned)),
        }
    }

    /// Everything is appended, and acknowledged: syncs, and lets the file go. Returns how many syncs it took.
    ///
    /// # Errors
    /// [`Poisoned`]
    pub(super) fn end(self, poison: &Poison) -> Result<u64, Poisoned> {
        match self {
            Self::Here(mut sink) => {
                sink.sync().map_err(|error| poison.set(&error))?;
                let _ = sink.trim();
                Ok(1)
            }
            // The writer's queue is empty, and now closed: it ends at once.
            Self::Thread(Writer { jobs, thread }) => {
                drop(jobs);
                thread.join().map_err(|_| Poisoned)
            }
            Self::Closed => Err(Poisoned),
        }
    }
}

/// Returns how many syncs it took.
fn write_in_groups(mut sink: Box<dyn Sink>, queue: &mpsc::Receiver<Job>, poison: &Poison) -> u64 {
    let mut group = Vec::new();
    let mut syncs = 0;
    while let Ok(first) = queue.recv() {
        group.push(first);
        group.extend(queue.try_iter());
        let written = if poison.is_set() {
            Err(Poisoned)
        } else {
            let all = group.iter().try_for_each(|job| sink.append(&job.line)).and_then(|()| sink.sync());
            syncs += 1;
            all.map_err(|error| poison.set(&error))
        };
        for job in group.drain(..) {
            // Nobody waits for the record of a call whose client has left.
            let _ = job.ack.send(written);
        }
    }
    if !poison.is_set() {
        let _ = sink.trim();
    }
    syncs
}
