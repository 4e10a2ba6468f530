//! The database of one controller: one thread writes, others read.
//!
//! A commit is on disk before its caller continues. Several controllers may use the same file: each change names the
//! generation that it was made from, and a stale one is refused.
//!
//! Reads do not wait for writes: the file is in WAL mode, and a reader has a connection of its own. A read sees every
//! commit that was awaited before it, including commits of other processes, since each read transaction begins with the newest
//! commit. It need not see a write that was submitted and not awaited. A read that decides a write belongs in the
//! transaction of that write.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use rusqlite::Connection;
use sluice_contract::time::unix_micros;
use tokio::sync::{oneshot, watch};

mod columns;
mod connect;
mod error;
mod history;
mod migrations;
mod outbox;
mod parameters;
mod readers;
mod runs;
mod size;
mod witnesses;

pub(crate) use columns::{hash, run_key};
pub use error::StoreError;
pub(crate) use error::{is_damage, is_retryable_io};
pub use history::{KnownRun, RunFilter};
pub(crate) use outbox::{NewEvent, append as append_event};
pub(crate) use parameters::{Parameters, all_of};
use readers::{Readers, ReadersEnded};
pub(crate) use runs::insert as insert_run;
pub use runs::{OpenRun, RunDriver, RunRow};

/// A handle to the database. Clones share its threads.
#[derive(Debug, Clone)]
pub struct Store {
    writer: mpsc::Sender<Job>,
    /// Jobs of the writer that have not ended.
    pending: Arc<AtomicUsize>,
    /// `None` if one connection does everything.
    readers: Option<Arc<Readers>>,
    /// True if reads may use the writer while it is idle and no reader exists.
    is_one_shot: bool,
    /// The newest event of the log that a handle has committed.
    events: Arc<watch::Sender<u64>>,
    /// Waits for the end of the writer. Dropped after the sender, so that the writer can end.
    _closing: Option<Arc<Closing>>,
}

/// The thread of a connection, which is waited for when the last handle is dropped.
#[derive(Debug)]
struct Closing(Option<thread::JoinHandle<()>>);

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A job that panicked was reported to its caller, which got no answer.
            let _ = thread.join();
        }
    }
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl Store {
    /// Opens the database for one command, and creates or upgrades its tables. At most one connection for reads is opened,
    /// by the first read that would have to wait for a write.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Newer`], [`StoreError::Damaged`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // A second connection costs a millisecond, and a command with few reads has no use for it.
        Ok(Self { is_one_shot: true, ..Self::open_with_readers(path, 1)? })
    }

    /// Opens the database for many users, and creates or upgrades its tables. All reads have connections of their own, up to
    /// `limit`; one is opened when all others are in use.
    ///
    /// # Errors
    /// As of [`Store::open`].
    pub fn open_with_readers(path: &Path, limit: usize) -> Result<Self, StoreError> {
        let connection = connect::open(path)?;
        let (readers, readers_ended) = Readers::new(path, limit);
        Ok(Self::with(connection, Some((readers, readers_ended))))
    }

    /// Opens an existing database for a command that only reads, while controllers write. It is not changed: a database of
    /// an older version is read as it will be after its upgrade. Writes fail.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Newer`], [`StoreError::Older`] for a file without tables, [`StoreError::Damaged`].
    pub fn open_for_queries(path: &Path) -> Result<Self, StoreError> {
        let (writer, thread) = spawn_writer(connect::open_for_queries(path)?, None);
        // A process that ends before its connection is closed leaves the helper files of SQLite.
        let closing = Some(Arc::new(Closing(Some(thread))));
        Ok(Self {
            writer,
            pending: Arc::default(),
            readers: None,
            is_one_shot: false,
            events: Arc::default(),
            _closing: closing,
        })
    }

    /// Opens an existing database for reads only: it may be evidence, and is not changed.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Newer`], [`StoreError::Older`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::with(connect::open_read_only(path)?, None))
    }

    fn with(connection: Connection, readers: Option<(Readers, ReadersEnded)>) -> Self {
        let (readers, readers_ended) = readers.unzip();
        let (writer, _) = spawn_writer(connection, readers_ended);
        let readers = readers.map(Arc::new);
        Self { writer, pending: Arc::default(), readers, is_one_shot: false, events: Arc::default(), _closing: None }
    }

    /// Returns the signal that an event was committed. The job that commits the event sends the signal, so that it is
    /// not lost if the caller stops waiting for the job.
    pub(crate) fn event_signal(&self) -> Arc<watch::Sender<u64>> {
        Arc::clone(&self.events)
    }

    /// Runs a job on the connection that writes, after all jobs that were submitted to it before.
    pub(crate) async fn write<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.submit(job).await.map_err(|_| StoreError::Closed)?
    }

    /// Submits a job to the connection that writes. The job runs whether or not its answer is awaited.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let pending = Arc::clone(&self.pending);
        pending.fetch_add(1, Ordering::SeqCst);
        let job = Box::new(move |connection: &mut Connection| {
            let result = job(connection);
            // Decremented before the answer, so that its receiver finds the writer idle.
            pending.fetch_sub(1, Ordering::SeqCst);
            // The caller may have stopped waiting.
            let _ = answer.send(result);
        });
        // If the thread has ended, the answer's channel says so.
        let _ = self.writer.send(job);
        answered
    }

    /// Runs a job on a connection that only reads, in parallel to writes. The job sees every commit that was awaited before.
    pub(crate) async fn query<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let Some(readers) = self.readers.as_ref().filter(|readers| !self.may_read_on_writer(readers)) else {
            return self.write(job).await;
        };
        let (answer, answered) = oneshot::channel();
        readers.submit(Box::new(move |connection| {
            let result = connection.map_err(E::from).and_then(job);
            // The caller may have stopped waiting.
            Box::new(move || drop(answer.send(result)))
        }));
        answered.await.map_err(|_| StoreError::Closed)?
    }

    fn may_read_on_writer(&self, readers: &Readers) -> bool {
        self.is_one_shot && readers.threads() == 0 && self.pending.load(Ordering::SeqCst) == 0
    }
}

/// Starts the thread of the connection that writes. The thread ends with the last sender, after all readers: only the
/// last connection to close moves the WAL into the database, and two that close at once leave it to each other.
fn spawn_writer(
    mut connection: Connection,
    readers_ended: Option<ReadersEnded>,
) -> (mpsc::Sender<Job>, thread::JoinHandle<()>) {
    let (jobs, queue) = mpsc::channel::<Job>();
    let thread = thread::spawn(move || {
        for job in queue {
            job(&mut connection);
        }
        if let Some(readers_ended) = readers_ended {
            readers_ended.wait();
        }
    });
    (jobs, thread)
}

/// Returns the time of the system clock, in microseconds since 1970.
#[must_use]
pub fn now_us() -> i64 {
    unix_micros(SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
