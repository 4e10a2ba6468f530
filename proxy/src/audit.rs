//! The audit log: one writer, one record a write, poisoned for ever by its first error.
//!
//! An intent is acknowledged once it is as durable as `--audit-sync` says; only then may its call go
//! upstream. With `call`, a thread owns the file, takes everything queued, and pays one sync for all of it:
//! a sync in the event loop would stall every stream. With `off`, the event loop writes by itself.

mod entry;
mod file;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::SystemTime;

use serde::Serialize;
use sluice_contract::record::{CallResult, Close, Intent, Open, Outcome, Refused, SCHEMA, Stamp, Usage};
use sluice_contract::{RunId, Usd};
use tokio::sync::oneshot;

pub use entry::{Ended, Entry, Planned};
pub use file::{AuditFile, OpenError};

/// A sandbox that only ever asks for what is refused must not fill the disk: from here on, refusals are
/// counted in `close` and not written.
const REFUSED_LINES: u64 = 10_000;

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
}

/// When a record counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// On disk: survives a power cut.
    Call,
    /// In the kernel: survives the death of any process.
    Off,
}

impl SyncMode {
    /// The word of the flag.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Off => "off",
        }
    }
}

/// The log takes no more records, and says so for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct Poisoned;

/// The run's audit log.
pub struct Journal {
    run_id: RunId,
    attempt: u32,
    poisoned: Arc<AtomicBool>,
    cutting: AtomicBool,
    state: Mutex<State>,
}

struct State {
    seq: u64,
    totals: Totals,
    out: Out,
    writer: Option<JoinHandle<()>>,
}

/// What `close` sums up.
#[derive(Debug, Default)]
struct Totals {
    calls: u64,
    refused: u64,
    unknown: u64,
    cut: u64,
    usage: Usage,
    nanos: i64,
}

enum Out {
    Here(Box<dyn Sink>),
    Thread(mpsc::Sender<Job>),
    Closed,
}

struct Job {
    line: Vec<u8>,
    ack: oneshot::Sender<Result<(), Poisoned>>,
}

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

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("run_id", &self.run_id)
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Writes `open`. It is durable at the latest with the first intent; a disk that is full already shows here.
    ///
    /// # Errors
    /// The first write's.
    pub fn begin(
        run_id: RunId,
        attempt: u32,
        mut sink: Box<dyn Sink>,
        mode: SyncMode,
        open: impl FnOnce(Stamp<'_>) -> Open<'static>,
    ) -> io::Result<Arc<Self>> {
        let journal = Self {
            run_id,
            attempt,
            poisoned: Arc::default(),
            cutting: AtomicBool::new(false),
            state: Mutex::new(State { seq: 0, totals: Totals::default(), out: Out::Closed, writer: None }),
        };
        {
            let mut state = journal.lock();
            sink.append(&line(&open(journal.stamp(&mut state))))?;
            match mode {
                SyncMode::Off => state.out = Out::Here(sink),
                SyncMode::Call => {
                    let (jobs, queue) = mpsc::channel();
                    let poisoned = Arc::clone(&journal.poisoned);
                    let writer = move || write_in_groups(sink, &queue, &poisoned);
                    state.writer = Some(std::thread::Builder::new().name("audit".to_owned()).spawn(writer)?);
                    state.out = Out::Thread(jobs);
                }
            }
        }
        Ok(Arc::new(journal))
    }

    /// Whether a record was lost. Then every later one is refused.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// From here on a call that ends without a reason of its own was cut by us.
    pub fn cut(&self) {
        self.cutting.store(true, Ordering::Release);
    }

    /// Whether what is open is being cut.
    #[must_use]
    pub fn is_cutting(&self) -> bool {
        self.cutting.load(Ordering::Acquire)
    }

    /// How many calls were cut.
    #[must_use]
    pub fn calls_cut(&self) -> u64 {
        self.lock().totals.cut
    }

    /// Writes that a call is about to go upstream. It may go once the acknowledgement says so.
    ///
    /// # Errors
    /// [`Poisoned`]
    pub fn intent(self: &Arc<Self>, planned: Planned<'_>) -> Result<(Entry, Ack), Poisoned> {
        let mut state = self.lock();
        if self.is_poisoned() {
            return Err(Poisoned);
        }
        state.totals.calls += 1;
        let call = state.totals.calls;
        let stamp = self.stamp(&mut state);
        let record = Intent {
            attempt: stamp.attempt,
            call,
            call_id: planned.call_id.into(),
            kind: Intent::KIND.into(),
            method: planned.method.into(),
            model: planned.model.map(Into::into),
            path: planned.path.into(),
            peer: planned.peer,
            req_bytes: planned.req_bytes,
            reserved_usd: planned.reserved_usd.map(Into::into),
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            stream: planned.stream,
            stripped: planned.stripped,
            ts: stamp.ts.into(),
            v: SCHEMA,
        };
        let ack = self.append(&mut state, &record);
        Ok((Entry::new(Arc::clone(self), call, planned.call_id), ack))
    }

    /// Writes that a request was not forwarded.
    pub fn refused(&self, method: &str, path: &str, reason: &str, status: u16) -> Ack {
        let mut state = self.lock();
        state.totals.refused += 1;
        if state.totals.refused > REFUSED_LINES {
            return Ack::Known(Ok(()));
        }
        let stamp = self.stamp(&mut state);
        let record = Refused {
            attempt: stamp.attempt,
            kind: Refused::KIND.into(),
            method: crate::refusal::clip(method, 32).into(),
            path: crate::refusal::clip(path, 256).into(),
            reason: reason.into(),
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            status,
            ts: stamp.ts.into(),
            v: SCHEMA,
        };
        self.append(&mut state, &record)
    }

    fn outcome(&self, call: u64, call_id: &str, ended: Ended) -> Ack {
        let mut state = self.lock();
        let known = ended.cost.as_ref().map(Usd::to_nanos);
        state.totals.nanos = state.totals.nanos.saturating_add(known.unwrap_or(0));
        state.totals.unknown += u64::from(known.is_none() && !ended.costs_nothing());
        state.totals.cut += u64::from(ended.result == CallResult::Deadline);
        if let Some(usage) = &ended.usage {
            state.totals.usage.add(usage);
        }
        let stamp = self.stamp(&mut state);
        let record = Outcome {
            attempt: stamp.attempt,
            call,
            call_id: call_id.into(),
            cost_source: ended.cost_source,
            cost_usd: ended.cost.map(|cost| cost.to_string().into()),
            drained: ended.drained,
            end: ended.end,
            kind: Outcome::KIND.into(),
            litellm_call_id: ended.litellm_call_id.map(Into::into),
            model_served: ended.model_served.map(Into::into),
            null_reason: ended.null_reason,
            resp_bytes: ended.resp_bytes,
            response_id: ended.response_id.map(Into::into),
            result: ended.result,
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            status: ended.status,
            timing_us: ended.timing,
            ts: stamp.ts.into(),
            usage: ended.usage,
            v: SCHEMA,
        };
        self.append(&mut state, &record)
    }

    /// Writes `close`, syncs whatever the mode, and lets the file go. Nothing else runs by then.
    ///
    /// # Errors
    /// [`Poisoned`], when the file does not hold everything.
    pub async fn close(&self, reason: &str) -> Result<(), Poisoned> {
        let (ack, out, writer) = {
            let mut state = self.lock();
            let ack = self.append_close(&mut state, reason);
            (ack, std::mem::replace(&mut state.out, Out::Closed), state.writer.take())
        };
        ack.await?;
        match out {
            Out::Here(mut sink) => sink.sync().map_err(|error| self.poison(&error))?,
            // The writer's queue is empty, and now closed: it ends at once.
            Out::Thread(jobs) => drop(jobs),
            Out::Closed => return Err(Poisoned),
        }
        writer.map_or(Ok(()), |writer| writer.join().map_err(|_| Poisoned))
    }

    fn append_close(&self, state: &mut State, reason: &str) -> Ack {
        let stamp = self.stamp(state);
        let record = Close {
            attempt: stamp.attempt,
            calls: state.totals.calls,
            cost_usd: Usd::from_nanos(state.totals.nanos).to_string().into(),
            kind: Close::KIND.into(),
            reason: reason.into(),
            refused: state.totals.refused,
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            ts: stamp.ts.into(),
            unknown: state.totals.unknown,
            usage: state.totals.usage,
            v: SCHEMA,
        };
        self.append(state, &record)
    }

    fn append(&self, state: &mut State, record: &impl Serialize) -> Ack {
        if self.is_poisoned() {
            return Ack::Known(Err(Poisoned));
        }
        let line = line(record);
        match &mut state.out {
            Out::Here(sink) => Ack::Known(sink.append(&line).map_err(|error| self.poison(&error))),
            Out::Thread(jobs) => {
                // Not bounded here, because its senders are: each open call has two records at most, each
                // connection one refusal, and each waits for its own.
                let (ack, waiting) = oneshot::channel();
                if jobs.send(Job { line, ack }).is_ok() { Ack::Waiting(waiting) } else { Ack::Known(Err(Poisoned)) }
            }
            Out::Closed => Ack::Known(Err(Poisoned)),
        }
    }

    fn poison(&self, error: &io::Error) -> Poisoned {
        poison(&self.poisoned, error)
    }

    fn stamp(&self, state: &mut State) -> Stamp<'_> {
        let seq = state.seq;
        state.seq += 1;
        let ts = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        Stamp { attempt: self.attempt, run_id: self.run_id.as_str(), seq, ts }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn poison(poisoned: &AtomicBool, error: &io::Error) -> Poisoned {
    if !poisoned.swap(true, Ordering::AcqRel) {
        tracing::error!(%error, "the audit log cannot be written: every further call is refused; free the disk and start a new attempt");
    }
    Poisoned
}

fn line(record: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::with_capacity(768);
    serde_json::to_writer(&mut line, record).expect("records are plain structs, and memory does not fail");
    line.push(b'\n');
    line
}

/// The writer thread: one write a record, one sync for all that are queued, then their acknowledgements.
fn write_in_groups(mut sink: Box<dyn Sink>, queue: &mpsc::Receiver<Job>, poisoned: &AtomicBool) {
    let mut group = Vec::new();
    while let Ok(first) = queue.recv() {
        group.push(first);
        group.extend(queue.try_iter());
        let written = if poisoned.load(Ordering::Acquire) {
            Err(Poisoned)
        } else {
            let all = group.iter().try_for_each(|job| sink.append(&job.line)).and_then(|()| sink.sync());
            all.map_err(|error| poison(poisoned, &error))
        };
        for job in group.drain(..) {
            // Nobody waits for the record of a call whose client has left.
            let _ = job.ack.send(written);
        }
    }
}

#[cfg(test)]
mod tests;
