//! Connections that only read, each on a thread of its own.
//!
//! A thread and its connection start when a job finds all others in use, up to a limit. They end with the store.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use rusqlite::Connection;

use super::connect;
use super::error::StoreError;

/// A job for a reader. The job receives an error when the connection cannot be opened. It returns the delivery of its
/// answer, which happens when the reader is ready for the next job.
pub(super) type ReadJob = Box<dyn FnOnce(Result<&mut Connection, StoreError>) -> Delivery + Send>;
pub(super) type Delivery = Box<dyn FnOnce()>;

/// The threads that read one database.
#[derive(Debug)]
pub(super) struct Readers {
    pool: Arc<Pool>,
    limit: usize,
}

/// Notice that all connections of the readers are closed.
#[derive(Debug)]
pub(super) struct ReadersEnded(mpsc::Receiver<()>);

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    /// Dropped with the pool, after the connection of its last thread.
    _open: mpsc::Sender<()>,
    queue: Mutex<ReadQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct ReadQueue {
    jobs: VecDeque<ReadJob>,
    threads: usize,
    /// Threads that wait for a job, or are about to.
    ready: usize,
    is_closed: bool,
}

impl Readers {
    /// Returns a pool without threads, and the notice of its end.
    pub(super) fn new(path: &Path, limit: usize) -> (Self, ReadersEnded) {
        let (open, ended) = mpsc::channel();
        let pool = Pool { path: path.to_owned(), _open: open, queue: Mutex::default(), changed: Condvar::new() };
        (Self { pool: Arc::new(pool), limit: limit.max(1) }, ReadersEnded(ended))
    }

    /// Submits a job to a thread that is ready, or to a new one. At the limit, the job waits for a thread. It is
    /// dropped if there is no thread, and none can be started.
    pub(super) fn submit(&self, job: ReadJob) {
        let mut queue = self.pool.lock();
        queue.jobs.push_back(job);
        if queue.ready >= queue.jobs.len() || queue.threads == self.limit {
            self.pool.changed.notify_one();
            return;
        }
        let pool = Arc::clone(&self.pool);
        if thread::Builder::new().spawn(move || pool.run()).is_ok() {
            queue.threads += 1;
            queue.ready += 1;
        } else if queue.threads == 0 {
            queue.jobs.clear();
        }
    }

    /// Returns the number of threads that were started.
    pub(super) fn threads(&self) -> usize {
        self.pool.lock().threads
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.pool.lock().is_closed = true;
        self.pool.changed.notify_all();
    }
}

impl ReadersEnded {
    /// Waits until the store and all threads of the readers have ended.
    pub(super) fn wait(self) {
        // Nothing is ever sent: the channel fails when its sender is dropped.
        let _ = self.0.recv();
    }
}

impl Pool {
    /// Runs jobs until the pool is closed.
    fn run(&self) {
        let mut connection = None;
        while let Some(job) = self.next() {
            // A job that panics drops its answer. It must not end the thread, which may have more jobs.
            let delivery = catch_unwind(AssertUnwindSafe(|| match &mut connection {
                Some(connection) => job(Ok(connection)),
                None => match connect::open_reader(&self.path) {
                    Ok(opened) => job(Ok(connection.insert(opened))),
                    // The next job tries again.
                    Err(error) => job(Err(error)),
                },
            }));
            self.lock().ready += 1;
            match delivery {
                Ok(deliver) => deliver(),
                Err(_) => connection = None,
            }
        }
    }

    /// Waits for the next job; `None` when the pool is closed and empty.
    fn next(&self) -> Option<ReadJob> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.ready -= 1;
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        // Jobs run outside the lock, so a panic leaves the queue whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { jobs, threads, ready, is_closed } = self;
        let mut text = f.debug_struct("ReadQueue");
        text.field("jobs", &jobs.len()).field("threads", threads).field("ready", ready);
        text.field("is_closed", is_closed).finish()
    }
}
