//! Connections that only read, each on a thread of its own.
//!
//! A thread and its connection start when a job finds all others in use, up to a limit. They end with the store.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rusqlite::Connection;

use super::error::StoreError;
use super::schema;

/// A job for a reader. The job receives an error when the connection cannot be opened.
pub(super) type ReadJob = Box<dyn FnOnce(Result<&mut Connection, StoreError>) + Send>;

/// The threads that read one database.
#[derive(Debug)]
pub(super) struct Readers {
    pool: Arc<Pool>,
    limit: usize,
}

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<ReadJob>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Readers {
    /// Returns a pool without threads.
    pub(super) fn new(path: &Path, limit: usize) -> Self {
        let pool = Pool { path: path.to_owned(), queue: Mutex::default(), changed: Condvar::new() };
        Self { pool: Arc::new(pool), limit: limit.max(1) }
    }

    /// Submits a job to a thread that waits, or to a new one. The job is dropped if no thread can be started.
    pub(super) fn submit(&self, job: ReadJob) {
        let mut queue = self.pool.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == self.limit {
            self.pool.changed.notify_one();
            return;
        }
        queue.threads += 1;
        let pool = Arc::clone(&self.pool);
        if thread::Builder::new().spawn(move || pool.run()).is_err() {
            queue.threads -= 1;
            if queue.threads == 0 {
                queue.jobs.clear();
            }
        }
    }

    /// Returns the number of threads that were started and have not ended.
    #[cfg(test)]
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

impl Pool {
    /// Runs jobs until the pool is closed. A thread whose job panics is replaced by the next job.
    fn run(self: Arc<Self>) {
        let _ended = ThreadEnd(&self);
        let mut connection = None;
        while let Some(job) = self.next() {
            match &mut connection {
                Some(connection) => job(Ok(connection)),
                None => match schema::open_reader(&self.path) {
                    Ok(opened) => job(Ok(connection.insert(opened))),
                    // The next job tries again.
                    Err(error) => job(Err(error)),
                },
            }
        }
    }

    fn next(&self) -> Option<ReadJob> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock, so a panic leaves the queue whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ThreadEnd<'a>(&'a Pool);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { jobs, threads, idle, is_closed } = self;
        let mut text = f.debug_struct("Queue");
        text.field("jobs", &jobs.len()).field("threads", threads).field("idle", idle);
        text.field("is_closed", is_closed).finish()
    }
}
